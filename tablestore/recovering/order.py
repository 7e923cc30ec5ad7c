"""Keeps an eventual log right: whoever applies its records in their order ends with the table's rows.

With ``log.consistency = eventual`` records are read as soon as they are written, so the order of the log decides what
its readers hold, not that of the snapshots (log/PROTOCOL.md section 5.2). Three things can put the two apart:

- a record that no snapshot names, of a writer that died or failed: a *stray*;
- two writers of one key, of which the one whose record came first commits last;
- an overwrite, whose control record stands before or behind what it does, or does not, replace.

Before each attempt of its commit a writer finds the keys for which that happened and tells behind all others' records
what the table, as it will be, says of them. These records are its own, named by the same commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.delta.commit import plan_actions
from filestore.delta.conflict import Proposal
from filestore.delta.state import TableState
from filestore.model.log_range import LogRange, LogTransaction
from filestore.model.rowkind import KIND_COLUMN
from filestore.table import FileStore
from log.store import LogBatch, LogConfig, LogStore, LogTail, LogWriter
from log.systems import open_log
from log.tailing import read_until
from log.transaction_ids import parse_transaction_id
from tablestore.recovering.lease import holds_lease
from tablestore.recovering.retelling import distinct, record_keys, shared_keys, what_is_stored

__all__ = ["LogOrder", "repaired_until", "unnamed"]


def unnamed(since: int, end: int, named: Iterable[LogRange]) -> int:
    """How many offsets of a bucket hold records that nobody names. Pure.

    Args:
        since: Where one begins to count; no range lies across it.
        end: The log's end.
        named: The bucket's ranges that lie behind `since`.
    """
    return end - since - sum(part.count for part in named if part.start >= since)


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


@dataclass(slots=True)
class _Bucket:
    """What was found in a bucket's tail."""

    looked: int
    living: int | None = None


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
            writer = log.begin(f"{self._prefix}/order.{state.version}-{self._files.ambient.new_id()}")
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
            bucket: repaired_until(found.looked, found.living, _ranges(named, bucket))
            for bucket, found in settled.items()
        }
        return replace(
            proposal,
            transactions=(*proposal.transactions, *told),
            log_repaired={**state.log_repaired, **repaired},
            ended=frozenset(),  # they stay known for as long as their records lie in the tail
            in_log_order=True,
        )

    def _settle(self, log: LogStore, writer: LogWriter, proposal: Proposal, state: TableState) -> Mapping[int, _Bucket]:
        assert self._config is not None
        actions = plan_actions(proposal, state, self._files.ambient.now_ms())
        after = state.next(state.version + 1, actions)
        table = self._files.files(after)

        def tell(bucket: int, keys: pa.Table) -> None:
            writer.append(bucket, what_is_stored(table, after, keys))

        rivals = self._rivals(state)
        for bucket in range(self._config.buckets):
            for keys in self._contended(log, proposal, rivals, bucket, after.definition.primary_key):
                tell(bucket, keys)
        return self._look(log, proposal, state, tell)

    def _rivals(self, state: TableState) -> list[tuple[bool, tuple[LogTransaction, ...]]]:
        """What was committed since the last look: whether it replaced partitions, and its log transactions."""
        entries = [e for e in self._files.log.commits_after(self._seen) if e.version <= state.version]
        self._seen = state.version
        snapshots = [entry.snapshot() for entry in entries]
        return [(s.operation.replaces_partitions, s.transactions) for s in snapshots if s.transactions]

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
        begin = 0 if told else min(part.start for part in _ranges(own, bucket))
        for replaced, transactions in rivals:
            theirs = [t for t in _of_bucket(transactions, bucket) if any(p.end > begin for p in _ranges([t], bucket))]
            if not theirs:
                continue
            if replaced:
                yield from record_keys(log, own, key, bucket)
            elif proposal.operation.replaces_partitions:
                yield from record_keys(log, theirs, key, bucket)
            else:
                yield from shared_keys(log, own, theirs, key, bucket)

    def _look(
        self, log: LogStore, proposal: Proposal, state: TableState, tell: Callable[[int, pa.Table], None]
    ) -> Mapping[int, _Bucket]:
        """Tells of strays' keys; gives what was found in each bucket."""
        starts, ends = log.start_offsets(), log.end_offsets()
        named = (*state.open_transactions, *proposal.transactions)
        since = {b: max(state.log_repaired.get(b, 0), starts[b]) for b in ends}
        looked = {bucket: _Bucket(end) for bucket, end in ends.items()}
        tails = {b: since[b] for b in ends if unnamed(since[b], ends[b], _ranges(named, b))}
        if tails:
            with log.tail(tails, state.definition.primary_key) as tail:
                self._read(tail, ends, {t.id for t in named}, looked, tell)
        return looked

    def _read(
        self,
        tail: LogTail,
        ends: Mapping[int, int],
        named: set[str],
        looked: Mapping[int, _Bucket],
        tell: Callable[[int, pa.Table], None],
    ) -> None:
        at = tail.offsets
        for event in read_until(tail, ends, self._files.location):
            bucket, begins = event.bucket, at[event.bucket]
            at[bucket] = event.end_offset
            if event.transaction_id in named or begins >= ends[bucket]:
                continue
            if self._lives(event.transaction_id):
                found = looked[bucket]
                found.living = begins if found.living is None else found.living
                continue
            self.strays.add(event.transaction_id)
            if isinstance(event, LogBatch):
                keys = pa.Table.from_batches([event.rows])
                tell(bucket, distinct(keys.drop_columns([KIND_COLUMN])))

    def _lives(self, transaction_id: str) -> bool:
        """Whether its writer may still commit it. Attempts of our own tasks that no outcome names are strays."""
        commit_id = parse_transaction_id(transaction_id)[1]
        return commit_id != self._commit_id and holds_lease(self._files.location, commit_id)


def _of_bucket(transactions: Iterable[LogTransaction], bucket: int) -> list[LogTransaction]:
    return [t for t in transactions if any(part.bucket == bucket for part in t.ranges)]


def _ranges(transactions: Iterable[LogTransaction], bucket: int) -> list[LogRange]:
    return [part for t in transactions for part in t.ranges if part.bucket == bucket]
