"""Keeps an eventual log correct: a reader that applies its records in their order gets the table's rows.

With ``log.consistency = eventual`` records are read as soon as they are written, so the rows of its readers depend on
the order of the log, not on that of the snapshots (log/table/PROTOCOL.md section 5.2). The two differ in three cases:

- a record that no snapshot names, of a writer that died or failed: a *stray*;
- two writers of one key, of which the one with the earlier record commits last;
- an overwrite, whose control record is before records that it replaces, or behind records that it does not replace.

Before each attempt of its commit a writer finds the keys for which that happened, and writes their rows, as they will
be in the table, behind all other records: each key once. These records are its own, named by the same commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from filestore.commit.plan import plan_actions
from filestore.commit.proposal import Proposal
from filestore.delta.state import TableState
from filestore.errors import Conflict, NotFound
from filestore.model.log_range import LogRange, LogTransaction, ends_before
from filestore.rows.frames import arrow_table
from filestore.table import FileStore
from log.table.session import LogSession
from log.table.store import LOG_GAP, LogStore, LogWriter
from log.table.transaction_ids import parse_transaction_id
from tablestore.recovering.compared import require_log_of
from tablestore.recovering.corrections import key_frame, of_part, record_keys, shared_keys, stored_records
from tablestore.recovering.needed import distinct_keys
from tablestore.recovering.tail_scan import REPAIR, BucketTail, TailScan, ranges_of

__all__ = ["MOST_RECORDS", "LogOrder", "repaired_until"]

MOST_RECORDS = 2_000_000
"""The most records whose keys are in memory. A longer tail is read several times, each time for a part of the keys."""
_AT_ONCE = 50_000
"""The number of keys whose rows are looked up at once."""


def repaired_until(known_until: int, living: int | None, named: Sequence[LogRange]) -> int:
    """Returns the offset of a bucket before which every record is named or repaired. Pure.

    Args:
        known_until: The offset before which its records are known.
        living: The offset of the first record of a writer that may still commit; None without one.
        named: The bucket's ranges, including those of the proposed commit.
    """
    until = known_until if living is None else min(known_until, living)
    while across := [part.start for part in named if part.start < until < part.end]:
        until = min(across)
    while living is None and (next_ := [p for p in named if p.start == until and p.end - p.start == p.count > 0]):
        until = next_[0].end
    return until


class LogOrder:
    """Adds the records that one commit needs in an eventual log; does nothing for a transactional log.

    Args:
        filestore: The table.
        log: Its log with the columns of the version `base`; None for a table without a log.
        base: The version on which the commit was prepared.
        commit_id: The commit's id.
    """

    def __init__(self, filestore: FileStore, log: LogSession | None, base: TableState, commit_id: str) -> None:
        self._filestore = filestore
        self._log = log if log is not None and log.config.eventual else None
        self._prefix = f"{base.table_id}/{commit_id}"
        self._commit_id = commit_id
        self._seen = base.version
        self._repairs: set[str] = set()
        self.strays: set[str] = set()

    def completed(self, proposal: Proposal, state: TableState) -> Proposal:
        """Returns the proposal with the log records that it still needs if it becomes the version after `state`.

        Raises:
            Unavailable: log or storage did not answer.
            Corrupt: ``log-behind``: the log has lost its end.
            Conflict: a new log has begun, or retention has removed records meanwhile. Begin again.
        """
        if self._log is None:
            return proposal
        with self._log.lend() as log, self._compared_at_a_gap(log, state):
            writer = log.begin(f"{self._prefix}/{REPAIR}{state.version}-{self._filestore.ambient.new_id()}")
            try:
                tails, strays = self._write_needed(log, writer, proposal, state)
                transaction = writer.prepare()
            except BaseException:
                writer.abort()
                raise
        written = () if transaction is None else (transaction,)
        self._repairs.update(t.id for t in written)
        transactions = (*proposal.log.transactions, *written)
        named = (*state.log.open, *transactions)
        repaired = {
            bucket: repaired_until(tail.known_until, tail.living, ranges_of(named, bucket))
            for bucket, tail in tails.items()
        }
        log_changes = replace(
            proposal.log,
            transactions=transactions,
            repaired={**state.log.repaired, **repaired},
            fenced=self._given_up(strays),
            ended=frozenset(),  # they stay known as long as their records are in the tail
        )
        return replace(proposal, log=log_changes, premises=replace(proposal.premises, log_order=True))

    @contextmanager
    def _compared_at_a_gap(self, log: LogStore, state: TableState) -> Iterator[None]:
        """Says what a gap is to a writer: the log has lost records since it was compared with the table."""
        try:
            yield
        except NotFound as error:
            if error.code != LOG_GAP:
                raise
            require_log_of(self._filestore, log, state)
            raise Conflict(
                "records of the log were removed while it was compared with the table: retry",
                code="log-trimmed",
                again=True,
            ) from error

    def _write_needed(
        self, log: LogStore, writer: LogWriter, proposal: Proposal, state: TableState
    ) -> tuple[Mapping[int, BucketTail], set[str]]:
        """Writes each key that needs it once; returns what was found in each bucket, and the strays."""
        assert self._log is not None
        actions = plan_actions(proposal, state, self._filestore.ambient.now_ms())
        after = state.next(state.version + 1, actions)
        table, names = self._filestore.table_files(after), list(after.definition.primary_key)
        schema = pa.schema([after.definition.schema.to_arrow().field(name) for name in names])
        rivals = self._rivals(state)
        starts, ends = log.start_offsets(), log.end_offsets()
        if ends_before(ends, state.log):
            require_log_of(self._filestore, log, state)
        look = TailScan(self._filestore, proposal, state, self._commit_id, starts, ends)
        # there is a pass over the records for each part of the keys, so that strays need bounded memory
        parts = -(-(look.records + self._contenders(proposal, rivals)) // MOST_RECORDS)
        for part in range(parts):
            found = {bucket: [keys] for bucket, keys in look.needed(log, (part, parts)).items()}
            for bucket in range(self._log.config.buckets):
                for keys in self._contended(log, proposal, rivals, bucket, names):
                    known = found.setdefault(bucket, [])
                    known[:] = [distinct_keys([*known, of_part(key_frame(keys, names), part, parts)])]
            for bucket, (keys,) in found.items():
                for piece in keys.iter_slices(_AT_ONCE):
                    part_keys = arrow_table(piece.rename(dict(zip(piece.columns, names, strict=True))), schema)
                    writer.append(bucket, stored_records(table, after, part_keys))
        self.strays |= look.strays
        return look.buckets, look.strays

    def _given_up(self, strays: set[str]) -> frozenset[str]:
        """Returns the commits of strays that the commit fences, if a writer without a lease may live.

        Its records count as strays from this version on, so it must not name them later.
        """
        if self._filestore.leases.certain:
            return frozenset()
        return frozenset(parse_transaction_id(id_)[1] for id_ in strays) - {self._commit_id}

    def _rivals(self, state: TableState) -> list[tuple[bool, tuple[LogTransaction, ...]]]:
        """Lists what others committed since the last call: whether it replaced partitions, and its log transactions."""
        entries = [e for e in self._filestore.delta_log.read_entries_after(self._seen) if e.version <= state.version]
        self._seen = state.version
        snapshots = [entry.snapshot() for entry in entries]
        return [(s.operation.replaces_partitions, s.transactions) for s in snapshots if s.transactions]

    @staticmethod
    def _contenders(proposal: Proposal, rivals: Sequence[tuple[bool, tuple[LogTransaction, ...]]]) -> int:
        """Counts the records that may have to be compared."""
        if not rivals:
            return 0
        listed = [*proposal.log.transactions, *(t for _, transactions in rivals for t in transactions)]
        return sum(part.count for transaction in listed for part in transaction.ranges)

    def _contended(
        self,
        log: LogStore,
        proposal: Proposal,
        rivals: Sequence[tuple[bool, tuple[LogTransaction, ...]]],
        bucket: int,
        key: Sequence[str],
    ) -> Iterator[pa.Table]:
        """Yields keys whose last record in the log may not be that of the last commit."""
        own = _of_bucket(proposal.log.transactions, bucket)
        if not own:
            return
        # A repair has rows of the table: if a rival changed them later, they are outdated wherever its records are.
        repairs = any(t.id in self._repairs for t in own)
        begin = 0 if repairs else min(part.start for part in ranges_of(own, bucket))
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
