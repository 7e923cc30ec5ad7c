"""Reads the tail of an eventual log for records that no version names, and finds the keys that need a repair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from filestore.commit.proposal import Proposal
from filestore.delta.state import TableState
from filestore.lazily import pl
from filestore.model.log_range import LogRange, LogTransaction
from filestore.table import FileStore
from log.table.store import LogBatch, LogControl, LogStore
from log.table.tailing import read_until
from log.table.transaction_ids import parse_transaction_id
from tablestore.recovering.corrections import key_frame, of_part
from tablestore.recovering.needed import PASSED, TRANSACTION, TailTransaction, Whose, needed

__all__ = ["REPAIR", "BucketTail", "TailScan", "ranges_of", "unnamed"]

REPAIR = "order."
"""The prefix of the last part of a repair's transaction id; the version that the repair follows is behind it."""


def unnamed(since: int, end: int, named: Iterable[LogRange]) -> int:
    """Counts the offsets of a bucket with records that no version names. Pure.

    Args:
        since: The first offset that is counted; no range contains it and an earlier one.
        end: The log's end.
        named: The bucket's ranges; only those from `since` on count.
    """
    return end - since - sum(part.count for part in named if part.start >= since)


def ranges_of(transactions: Iterable[LogTransaction], bucket: int) -> list[LogRange]:
    """Returns the ranges of transactions in a bucket."""
    return [part for t in transactions for part in t.ranges if part.bucket == bucket]


@dataclass(slots=True)
class BucketTail:
    """The result for a bucket's tail: the end of what was read, and the first record of a living writer."""

    known_until: int
    living: int | None = None


class TailScan:
    """Reads the tail of each bucket, up to the log's end as it was at the beginning.

    Args:
        filestore: The table.
        proposal: The commit in progress.
        state: The version that it follows.
        commit_id: The commit's id.
        starts: The first offset of each bucket that is kept.
        ends: The log's end.
    """

    def __init__(
        self,
        filestore: FileStore,
        proposal: Proposal,
        state: TableState,
        commit_id: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
    ) -> None:
        self._filestore = filestore
        self._state = state
        self._commit_id = commit_id
        self._replaces = proposal.operation.replaces_partitions
        self._ends = ends
        self._trimmed = {b for b in ends if starts[b] > state.log.repaired.get(b, 0)}
        self._own = {t.id for t in proposal.log.transactions}
        self._named = self._own | {t.id for t in state.log.open}
        self._tails: dict[int, int] = {}
        self._numbers: dict[str, int] = {}
        self._transactions: list[TailTransaction] = []
        self._commits: dict[str, int] = {}
        self._unsure: set[int] = set()
        self._living: dict[str, bool] = {}
        self.buckets = {bucket: BucketTail(end) for bucket, end in ends.items()}
        self.strays: set[str] = set()
        named = (*state.log.open, *proposal.log.transactions)
        for bucket, end in ends.items():
            since = max(state.log.repaired.get(bucket, 0), starts[bucket])
            if unnamed(since, end, ranges_of(named, bucket)):
                self._tails[bucket] = since

    @property
    def records(self) -> int:
        """The number of records that have to be read."""
        return sum(self._ends[bucket] - since for bucket, since in self._tails.items())

    def needed(self, log: LogStore, part: tuple[int, int]) -> dict[int, pl.DataFrame]:
        """Returns the keys that need a repair, by bucket; only those of one part, given as (number, how many parts)."""
        if not self._tails:
            return {}
        records = self._read(log, part)
        version = None if self._replaces else self._state.version
        return {
            bucket: needed(
                pl.concat(frames), self._transactions, None if bucket in self._trimmed else version, self._unsure
            )
            for bucket, frames in records.items()
        }

    def _read(self, log: LogStore, part: tuple[int, int]) -> dict[int, list[pl.DataFrame]]:
        found: dict[int, list[pl.DataFrame]] = {}
        key = self._state.definition.primary_key
        with log.tail(self._tails, key) as tail:
            at = tail.offsets
            for event in read_until(tail, self._ends, self._filestore.location):
                bucket, begins = event.bucket, at[event.bucket]
                at[bucket] = event.end_offset
                if begins >= self._ends[bucket] or self._is_left(event, begins):
                    continue
                number = self._number_of(event.transaction_id)
                if isinstance(event, LogBatch):
                    keys = of_part(key_frame(pa.Table.from_batches([event.rows]), key), *part)
                    living = self.buckets[bucket].living
                    passed = living is None or begins < living
                    of = pl.lit(number, pl.UInt32).alias(TRANSACTION), pl.lit(passed).alias(PASSED)
                    found.setdefault(bucket, []).append(keys.with_columns(of))
                elif self._transactions[number].whose is Whose.STRAY:
                    self._unsure.add(self._transactions[number].commit)
        return found

    def _is_left(self, event: LogBatch | LogControl, begins: int) -> bool:
        """Returns whether the record is ignored, because its writer lives."""
        if event.transaction_id in self._named:
            return False
        lives = self._living.get(event.transaction_id)
        if lives is None:
            lives = self._living[event.transaction_id] = self._lives(event.transaction_id)
        bucket = self.buckets[event.bucket]
        if lives and bucket.living is None:
            bucket.living = begins
        return lives

    def _lives(self, transaction_id: str) -> bool:
        """Returns whether the writer may still commit it. Our own tasks' attempts that no outcome names are strays."""
        commit_id = parse_transaction_id(transaction_id)[1]
        return commit_id != self._commit_id and not self._filestore.leases.dead_among([commit_id])

    def _number_of(self, transaction_id: str) -> int:
        if (known := self._numbers.get(transaction_id)) is not None:
            return known
        _, commit_id, task = parse_transaction_id(transaction_id)
        whose = Whose.OWN if transaction_id in self._own else Whose.NAMED
        if transaction_id not in self._named:
            whose = Whose.STRAY
            self.strays.add(transaction_id)
        commit = self._commits.setdefault(commit_id, len(self._commits))
        version = int(task.removeprefix(REPAIR).split("-")[0]) if task.startswith(REPAIR) else None
        self._transactions.append(TailTransaction(whose, commit, version))
        return self._numbers.setdefault(transaction_id, len(self._transactions) - 1)
