"""What the log lost of a committed snapshot, told once more to those who read the log alone (log/PROTOCOL.md 7.7).

A transaction that a snapshot names and that the log aborted (a time-out, a fencing, retention) is never seen by readers
with ``read_committed``. Its records are written again, in another transaction with the same commit id, and a commit of
its own puts that one in the lost one's place: so it is done once, by whoever comes first. Our readers go on reading the
lost one's range, which the snapshot names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.commit import touches_nothing
from filestore.delta.conflict import Proposal
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import CommitUnknown, NotFound, TableStoreError
from filestore.model.log_mode import LogMode
from filestore.model.log_range import LogTransaction
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.snapshot import Operation
from filestore.reading.difference import Compared, changed_rows, differences, on_local_disk
from filestore.table import FileStore
from log.store import LogBatch, LogConfig, LogStore, LogWriter
from log.systems import open_log
from log.transaction_ids import parse_transaction_id
from tablestore.recovering.control import control_of
from tablestore.recovering.lease import lease
from tablestore.recovering.retelling import balanced, shared_keys, what_is_stored

__all__ = ["republish"]

logger = logging.getLogger(__name__)


def republish(files: FileStore, log: LogConfig, lost: str) -> None:
    """Publishes a lost transaction again, unless another process has.

    Args:
        files: The table.
        log: Its log.
        lost: The transaction's id.

    Raises:
        Unavailable: storage or log did not answer: the next writer tries again.
    """
    commit_id = parse_transaction_id(lost)[1]
    # the lease says that the new transaction's writer lives, and keeps others from doing the same meanwhile
    with lease(files.location, commit_id):
        state = files.state()
        transaction = next((t for t in state.open_transactions if t.id == lost), None)
        if transaction is None:
            return
        with open_log(log, files.ambient) as opened:
            found = _written_again(files, log, state, transaction)
            try:
                _committed(files, state, lost, found)
            except CommitUnknown:
                raise  # nobody knows: it must stay
            except TableStoreError:
                if found is not None:
                    opened.end([found], commit=False)
                raise
            if found is not None:
                opened.end([found], commit=True)
        logger.warning("log transaction %s, which the log had lost, was published again", lost)


def _committed(files: FileStore, state: TableState, lost: str, found: LogTransaction | None) -> None:
    proposal = Proposal(
        operation=Operation.REPUBLISH,
        commit_id=files.ambient.new_id(),
        base_version=state.version,
        republished={lost: found},
        notes=() if found else (f"log transaction {lost} could not be published again: its version has expired",),
    )
    files.commit(state, proposal, touches_nothing)


def _written_again(
    files: FileStore, config: LogConfig, state: TableState, lost: LogTransaction
) -> LogTransaction | None:
    """The same records in a new transaction, from the log or from files; None if both are gone."""
    entry = _commit_of(files, state, parse_transaction_id(lost.id)[1])
    if entry is None:
        return None
    definition = files.definition(entry.version)
    # compaction removes what was aborted, and of a compacted topic nobody can say whether something is missing
    ways = (_from_files,) if config.compacts else (_from_log, _from_files)
    with open_log(replace(config, schema=definition.schema), files.ambient) as log:
        for tell in ways:
            writer = log.begin(f"{lost.id}.{files.ambient.new_id()}")
            try:
                tell(_Work(files, log, state, entry, lost, definition.log_mode is LogMode.ALL), writer)
                return writer.prepare()
            except NotFound as error:
                writer.abort()
                if error.code not in ("log-gap", "snapshot-expired", "no-such-version"):
                    raise
            except BaseException:
                writer.abort()
                raise
    return None


def _commit_of(files: FileStore, state: TableState, commit_id: str) -> Commit | None:
    """The commit, looked for backwards; None if it has expired."""
    for version in range(state.version, -1, -1):
        entry = files.log.commit(version)
        if entry is None or entry.commit_id == commit_id:
            return entry
    return None


@dataclass(frozen=True, slots=True)
class _Work:
    """What is published again, from which commit, on which newest version."""

    files: FileStore
    log: LogStore
    state: TableState
    entry: Commit
    lost: LogTransaction
    complete: bool
    """Whether the log tells the rows that were there."""

    @property
    def buckets(self) -> list[int]:
        return [part.bucket for part in self.lost.ranges]

    def later(self, bucket: int) -> list[LogTransaction]:
        """What later commits told of a bucket, if whoever reads it applies it by key."""
        if not self.state.definition.primary_key:
            return []
        entries = self.files.log.commits_after(self.entry.version)
        told = [t for entry in entries for t in entry.snapshot().transactions]
        return [t for t in told if any(part.bucket == bucket for part in t.ranges)]

    def correct(self, writer: LogWriter, bucket: int, keys: pa.Table) -> None:
        """Later commits' records lie before the new ones: who applies the log in its order must end with theirs."""
        rows = what_is_stored(self.files.files(self.state), self.state, keys)
        writer.append(bucket, balanced(rows) if self.complete else rows)


def _from_log(work: _Work, writer: LogWriter) -> None:
    """What was aborted is there until retention takes it."""
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
    """What the commit changed, in the buckets of which the transaction told."""
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
    files, version = work.files, work.entry.version
    before, after = files.state(version - 1), files.state(version)
    compared = Compared(files.files(before), files.files(after), after.definition.schema)
    with files.reading(before.version):
        for difference in sorted(differences(before, after), key=lambda d: repr(d.slot)):
            if difference.slot.bucket in work.buckets:
                for rows in changed_rows(compared, difference, on_local_disk):
                    yield difference.slot.bucket, rows
