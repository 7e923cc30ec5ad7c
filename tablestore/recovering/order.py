"""Keeps an eventual log right: whoever applies its records in their order ends with the table's rows.

With ``log.consistency = eventual`` records are read as soon as they are written, so the order of the log decides what
its readers hold, not that of the snapshots (log/PROTOCOL.md section 5.2). Three things can put the two apart:

- a record that no snapshot names, of a writer that died or failed: a *stray*;
- two writers of one key, of which the one whose record came first commits last;
- an overwrite, whose control record stands before or behind what it does, or does not, replace.

Before each attempt of its commit a writer finds the keys for which that happened and writes behind all others' records
what the table, as it will be, says of them: each key once. These records are its own, named by the same commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from filestore.delta.commit import plan_actions
from filestore.delta.conflict import Proposal
from filestore.delta.state import TableState
from filestore.model.log_range import LogRange, LogTransaction
from filestore.rows.frames import arrow_table
from filestore.table import FileStore
from log.store import LogConfig, LogStore, LogWriter
from log.systems import open_log
from tablestore.recovering.needed import distinct_keys
from tablestore.recovering.retelling import key_frame, of_part, record_keys, shared_keys, what_is_stored
from tablestore.recovering.tail_look import REPAIR, BucketTail, TailLook, ranges_of

__all__ = ["MOST_RECORDS", "LogOrder", "repaired_until"]

MOST_RECORDS = 2_000_000
"""Records whose keys are held at once. Where the tail has more, it is read several times, for some of the keys each."""
_AT_ONCE = 50_000
"""Keys whose rows are looked up at once."""


def repaired_until(looked: int, living: int | None, named: Sequence[LogRange]) -> int:
    """Up to where a bucket needs no more care: every record before is named, or was mended. Pure.

    Args:
        looked: Up to where its records are known.
        living: Where the first record lies of a writer that may still commit; None without one.
        named: The bucket's ranges, those of the commit to come included.
    """
    until = looked if living is None else min(looked, living)
    while across := [part.start for part in named if part.start < until < part.end]:
        until = min(across)
    while living is None and (next_ := [p for p in named if p.start == until and p.end - p.start == p.count > 0]):
        until = next_[0].end
    return until


class LogOrder:
    """Sees to one commit's place in an eventual log; does nothing for a transactional one.

    Args:
        files: The table.
        log: Its log with the columns of the version that is written on; None for a table without one.
        base: The version on which the commit was prepared.
        commit_id: The commit's id.
    """

    def __init__(self, files: FileStore, log: LogConfig | None, base: TableState, commit_id: str) -> None:
        self._files = files
        self._config = log if log is not None and log.eventual else None
        self._prefix = f"{base.table_id}/{commit_id}"
        self._commit_id = commit_id
        self._seen = base.version
        self._told: set[str] = set()
        self.strays: set[str] = set()

    def settle(self, proposal: Proposal, state: TableState) -> Proposal:
        """The proposal with what its log still has to say if it becomes the version after `state`.

        Raises:
            Unavailable: log or storage did not answer.
        """
        if self._config is None:
            return proposal
        with open_log(self._config, self._files.ambient) as log:
            writer = log.begin(f"{self._prefix}/{REPAIR}{state.version}-{self._files.ambient.new_id()}")
            try:
                settled = self._settle(log, writer, proposal, state)
                transaction = writer.prepare()
            except BaseException:
                writer.abort()
                raise
        told = () if transaction is None else (transaction,)
        self._told.update(t.id for t in told)
        named = (*state.open_transactions, *proposal.transactions, *told)
        repaired = {
            bucket: repaired_until(found.looked, found.living, ranges_of(named, bucket))
            for bucket, found in settled.items()
        }
        return replace(
            proposal,
            transactions=(*proposal.transactions, *told),
            log_repaired={**state.log_repaired, **repaired},
            ended=frozenset(),  # they stay known for as long as their records lie in the tail
            in_log_order=True,
        )

    def _settle(
        self, log: LogStore, writer: LogWriter, proposal: Proposal, state: TableState
    ) -> Mapping[int, BucketTail]:
        """Writes each key that needs it once; gives what was found in each bucket."""
        assert self._config is not None
        actions = plan_actions(proposal, state, self._files.ambient.now_ms())
        after = state.next(state.version + 1, actions)
        table, names = self._files.files(after), list(after.definition.primary_key)
        schema = pa.schema([after.definition.schema.to_arrow().field(name) for name in names])
        rivals = self._rivals(state)
        starts, ends = log.start_offsets(), log.end_offsets()
        look = TailLook(self._files, proposal, state, self._commit_id, starts, ends)
        # a pass over the records for each part of the keys, so that memory does not grow with what died
        parts = -(-(look.records + self._contenders(proposal, rivals)) // MOST_RECORDS)
        for part in range(parts):
            found = {bucket: [keys] for bucket, keys in look.needed(log, (part, parts)).items()}
            for bucket in range(self._config.buckets):
                for keys in self._contended(log, proposal, rivals, bucket, names):
                    known = found.setdefault(bucket, [])
                    known[:] = [distinct_keys([*known, of_part(key_frame(keys, names), part, parts)])]
            for bucket, (keys,) in found.items():
                for piece in keys.iter_slices(_AT_ONCE):
                    told = arrow_table(piece.rename(dict(zip(piece.columns, names, strict=True))), schema)
                    writer.append(bucket, what_is_stored(table, after, told))
        self.strays |= look.strays
        return look.buckets

    def _rivals(self, state: TableState) -> list[tuple[bool, tuple[LogTransaction, ...]]]:
        """What was committed since the last look: whether it replaced partitions, and its log transactions."""
        entries = [e for e in self._files.log.commits_after(self._seen) if e.version <= state.version]
        self._seen = state.version
        snapshots = [entry.snapshot() for entry in entries]
        return [(s.operation.replaces_partitions, s.transactions) for s in snapshots if s.transactions]

    @staticmethod
    def _contenders(proposal: Proposal, rivals: Sequence[tuple[bool, tuple[LogTransaction, ...]]]) -> int:
        """How many records may have to be compared."""
        if not rivals:
            return 0
        listed = [*proposal.transactions, *(t for _, transactions in rivals for t in transactions)]
        return sum(part.count for transaction in listed for part in transaction.ranges)

    def _contended(
        self,
        log: LogStore,
        proposal: Proposal,
        rivals: Sequence[tuple[bool, tuple[LogTransaction, ...]]],
        bucket: int,
        key: Sequence[str],
    ) -> Iterator[pa.Table]:
        """Keys whose last record in the log may not be that of the last commit."""
        own = _of_bucket(proposal.transactions, bucket)
        if not own:
            return
        # What was told of the table before a rival changed it is out of date wherever the rival's records lie.
        told = any(t.id in self._told for t in own)
        begin = 0 if told else min(part.start for part in ranges_of(own, bucket))
        for replaced, transactions in rivals:
            theirs = [t for t in _of_bucket(transactions, bucket) if any(p.end > begin for p in ranges_of([t], bucket))]
            if not theirs:
                continue
            if replaced:
                yield from record_keys(log, own, key, bucket)
            elif proposal.operation.replaces_partitions:
                yield from record_keys(log, theirs, key, bucket)
            else:
                yield from shared_keys(log, own, theirs, key, bucket)


def _of_bucket(transactions: Iterable[LogTransaction], bucket: int) -> list[LogTransaction]:
    return [t for t in transactions if any(part.bucket == bucket for part in t.ranges)]
