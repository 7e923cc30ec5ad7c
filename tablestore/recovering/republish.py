"""Publishes log transactions again that the log has lost although a snapshot names them (PROTOCOL.md 7.7).

Readers with ``read_committed`` never see a transaction that a snapshot names and that the log aborted (because of a
time-out, a fencing, or retention). Its records are written again, in another transaction with the same commit id, and a
commit of its own replaces the lost one by it: so only the first of several processes does it. Our readers continue to
read the lost one's range, which the snapshot names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from filestore.commit.loop import Committed
from filestore.commit.proposal import LogChanges, Premises, Proposal
from filestore.commit.protocol import CommitAttempt, attempt_each
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import NotFound
from filestore.model.log_mode import LogMode
from filestore.model.log_range import LogTransaction
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.snapshot import Operation
from filestore.reading.difference import VersionPair, changed_rows, differences
from filestore.sorting.runs import local_runs
from filestore.table import FileStore
from log.table.config import LogConfig
from log.table.store import LOG_GAP, LogBatch, LogStore, LogWriter
from log.table.systems import open_log
from log.table.transaction_ids import parse_transaction_id
from tablestore.recovering.control import control_of
from tablestore.recovering.corrections import balanced, shared_keys, stored_records
from tablestore.recovering.lease import lease

__all__ = ["republish"]

logger = logging.getLogger(__name__)


def republish(filestore: FileStore, log: LogConfig, lost: str) -> None:
    """Publishes a lost transaction again, unless another process has.

    Args:
        filestore: The table.
        log: Its log.
        lost: The transaction's id.

    Raises:
        Unavailable: storage or log did not answer: the next writer tries again.
    """

    @contextmanager
    def begin(base: TableState) -> Iterator[_Republication]:
        # the lease shows that the new transaction's writer lives, and stops others from doing the same meanwhile
        with lease(filestore, base, parse_transaction_id(lost)[1], again=True):
            yield _Republication(filestore, log, filestore.state(), lost)

    if filestore.commit(begin) is not None:
        logger.warning("log transaction %s, which the log had lost, was published again", lost)


class _Republication(CommitAttempt):
    """Writes a lost transaction's records again."""

    def __init__(self, filestore: FileStore, log: LogConfig, base: TableState, lost: str) -> None:
        self.base = base
        self._filestore = filestore
        self._log = log
        self._lost = lost
        self._written: LogTransaction | None = None

    def prepare(self) -> Proposal | None:
        lost = next((t for t in self.base.log.open if t.id == self._lost), None)
        if lost is None:
            return None  # another process has done it
        self._written = written = _written_again(self._filestore, self._log, self.base, lost)
        note = f"log transaction {self._lost} could not be published again: its version has expired"
        return Proposal(
            operation=Operation.REPUBLISH,
            commit_id=self._filestore.ambient.new_id(),
            base_version=self.base.version,
            log=LogChanges(republished={self._lost: written}),
            premises=Premises(leases=frozenset([parse_transaction_id(self._lost)[1]]), changes_no_row=True),
            notes=() if written else (note,),
        )

    def finish(self, committed: Committed) -> None:
        self._end(commit=True)

    def discard(self, *, again: bool) -> None:
        attempt_each(f"of the new transaction for {self._lost}", lambda: self._end(commit=False))

    def _end(self, *, commit: bool) -> None:
        if self._written is not None:
            with open_log(self._log, self._filestore.ambient) as log:
                log.end([self._written], commit=commit)


def _written_again(
    filestore: FileStore, config: LogConfig, state: TableState, lost: LogTransaction
) -> LogTransaction | None:
    """Writes the same records in a new transaction, from the log or from files; returns None if neither has them."""
    entry = _commit_of(filestore, state, parse_transaction_id(lost.id)[1])
    if entry is None:
        return None
    definition = filestore.definition(entry.version)
    # Kafka's compaction removes aborted records, and a compacted topic does not show whether records are missing
    ways = (_from_files,) if config.compacts else (_from_log, _from_files)
    with open_log(replace(config.behind(state.log.offsets), schema=definition.schema), filestore.ambient) as log:
        for write in ways:
            writer = log.begin(f"{lost.id}.{filestore.ambient.new_id()}")
            try:
                write(_Work(filestore, log, state, entry, lost, definition.log_mode is LogMode.ALL), writer)
                return writer.prepare()
            except NotFound as error:
                writer.abort()
                if error.code not in (LOG_GAP, "snapshot-expired", "no-such-version"):
                    raise
            except BaseException:
                writer.abort()
                raise
    return None


def _commit_of(filestore: FileStore, state: TableState, commit_id: str) -> Commit | None:
    """Searches backwards for the commit; returns None if it has expired."""
    for version in range(state.version, -1, -1):
        entry = filestore.delta_log.read_entry(version)
        if entry is None or entry.commit_id == commit_id:
            return entry
    return None


@dataclass(frozen=True, slots=True)
class _Work:
    """A lost transaction with its commit and the newest version."""

    filestore: FileStore
    log: LogStore
    state: TableState
    entry: Commit
    lost: LogTransaction
    complete: bool
    """True if the log has the rows before each change."""

    @property
    def buckets(self) -> list[int]:
        return [part.bucket for part in self.lost.ranges]

    def later(self, bucket: int) -> list[LogTransaction]:
        """Returns the log transactions of later commits in a bucket; none for a table without a key."""
        if not self.state.definition.primary_key:
            return []
        entries = self.filestore.delta_log.read_entries_after(self.entry.version)
        found = [t for entry in entries for t in entry.snapshot().transactions]
        return [t for t in found if any(part.bucket == bucket for part in t.ranges)]

    def correct(self, writer: LogWriter, bucket: int, keys: pa.Table) -> None:
        """Writes the stored rows of keys again, because later commits' records of them are before the new records."""
        rows = stored_records(self.filestore.table_files(self.state), self.state, keys)
        writer.append(bucket, balanced(rows) if self.complete else rows)


def _from_log(work: _Work, writer: LogWriter) -> None:
    """Copies the aborted records, which stay in the log until retention removes them."""
    for event in work.log.events([work.lost]):
        if isinstance(event, LogBatch):
            writer.append(event.bucket, event.rows)
        else:
            writer.control(event.bucket, event.payload)
    key = work.state.definition.primary_key
    for bucket in work.buckets:
        for keys in shared_keys(work.log, [work.lost], work.later(bucket), key, bucket):
            work.correct(writer, bucket, keys)


def _from_files(work: _Work, writer: LogWriter) -> None:
    """Derives the changes of the commit from files, in the buckets where the transaction has records."""
    if (message := control_of(work.entry, keyed=bool(work.state.definition.primary_key))) is not None:
        for bucket in work.buckets:
            writer.control(bucket, message)
        return
    later = {bucket for bucket in work.buckets if work.later(bucket)}
    key = list(work.state.definition.primary_key)
    for bucket, rows in _changes(work):
        upserts = rows.filter(pc.not_equal(rows[KIND_COLUMN], str(RowKind.UPDATE_BEFORE)))
        writer.append(bucket, rows if work.complete else upserts)
        if bucket in later:
            work.correct(writer, bucket, upserts.select(key))


def _changes(work: _Work) -> Iterator[tuple[int, pa.Table]]:
    filestore, version = work.filestore, work.entry.version
    before, after = filestore.state(version - 1), filestore.state(version)
    compared = VersionPair(filestore.table_files(before), filestore.table_files(after), after.definition.schema)
    with filestore.reading(before.version):
        for difference in sorted(differences(before, after), key=lambda d: repr(d.slot)):
            if difference.slot.bucket in work.buckets:
                for rows in changed_rows(compared, difference, local_runs):
                    yield difference.slot.bucket, rows
