"""Rolls a table back: it restores an older version's files, and writes the changes of rows to the log.

The rollback is a new version, whose files are those of an older one. A reader of the log gets the restored row of each
key whose row differs; for a table without a key it gets a record that all rows are replaced. The table's definition
does not change: the older files are read by it.

If rows that are rolled back cannot be read, since a file is damaged or missing, they cannot be logged either. The
commit then is an overwrite by the older version's files: readers of the log know that its rows are in files only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

import pyarrow.compute as pc

from filestore.checks.damage import require_undamaged, restoring
from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed
from filestore.commit.new_files import any_fenced
from filestore.commit.proposal import FileChanges, LogChanges, Premises, Proposal, RunChanges
from filestore.commit.protocol import CommitAttempt, Observer, attempt_each
from filestore.delta.state import TableState
from filestore.errors import CommitUnknown, Conflict, TableStoreError
from filestore.files.leftovers import remove
from filestore.life.consumers import Consumer
from filestore.life.restore import Restored, as_defined_now, restored
from filestore.model.definition import TableDefinition
from filestore.model.files import Slot
from filestore.model.log_mode import LogMode
from filestore.model.log_range import LogTransaction
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.snapshot import Operation, Snapshot
from filestore.operations.fold import fold_table
from filestore.operations.refold import Refolded, refold
from filestore.operations.replaced_rows import ReplacedRows
from filestore.reading.difference import VersionPair, changed_rows, differences
from filestore.sorting.runs import local_runs
from filestore.unreadable import is_unreadable
from log.table.session import LogSession, log_session
from log.table.store import LogWriter
from tablestore.recovering.compared import writing_log
from tablestore.recovering.lease import lease
from tablestore.recovering.order import LogOrder
from tablestore.writing.write import WriterTable

__all__ = ["rollback"]


def rollback(table: WriterTable, version: int, observer: Observer | None = None) -> Snapshot:
    """Restores the rows of an older version. Columns and options do not change.

    Columns that were added since are null; those that were dropped stay dropped. A consumer holds the older version
    meanwhile, so that it does not expire; its pending runs are folded first.

    Args:
        table: The table.
        version: The version.
        observer: Is notified of the outcome.

    Returns:
        The new snapshot; the newest one, if its files are those of that version already.

    Raises:
        Corrupt: ``restored-file``: a file of that version is damaged or missing, too.
        NotFound: ``no-such-version``, ``snapshot-expired``.
        Unsupported: ``rollback-over-schema``: the older files cannot be read correctly with the newest columns.
        Conflict: the table's definition or its rows changed meanwhile, again and again. No row was changed.
        Unavailable: a store did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
    """
    filestore = table.filestore
    newest = filestore.state()
    if version == newest.version:
        return filestore.snapshot(version)
    work = _Rollback(table, version)
    with ExitStack() as held:
        held.enter_context(Consumer(filestore, f"rollback-{filestore.ambient.new_id()}").register(version, rows=True))
        try:
            try:
                committed = filestore.commit(work.begin, base=newest, observer=observer)
            except TableStoreError as error:
                if not is_unreadable(error):
                    raise
                work = _Rollback(table, version, unread=True)
                committed = filestore.commit(work.begin, base=filestore.state(), observer=observer)
        except CommitUnknown:
            held.pop_all()  # the version may still come, and names files of the older one: the hold ends by its age
            raise
    return filestore.snapshot(work.unchanged) if committed is None else committed.snapshot


class _Rollback:
    """A rollback. It keeps the folded older version over attempts.

    Args:
        table: The table.
        version: The version to restore.
        unread: Rows that are rolled back cannot be read, so that none of them is.
    """

    def __init__(self, table: WriterTable, version: int, *, unread: bool = False) -> None:
        self.table = table
        self.version = version
        self.unread = unread
        self.unchanged = version
        """The version whose files are those of the older one already."""
        self._target: tuple[TableDefinition, Refolded] | None = None
        self._since = version

    @contextmanager
    def begin(self, base: TableState) -> Iterator[_Attempt]:
        """Begins an attempt under a lease, as a write does."""
        filestore = self.table.filestore
        with log_session(writing_log(self.table.log(base.definition), base), filestore.ambient) as log:
            self.table.recovery.before_write(base, log)
            attempt = _Attempt(self, base, log)
            with nullcontext() if log is None else lease(filestore, base, attempt.commit_id):
                yield attempt

    def target(self, base: TableState) -> TableState:
        """Returns the older version without pending runs, with the definition of `base`."""
        filestore = self.table.filestore
        if (
            self._target is None
            or self._target[0] != base.definition
            or any_fenced(filestore.delta_log, self._since, base.version)
        ):
            self.discard_target()
            self._since = base.version
            older = as_defined_now(filestore.state(self.version), base)
            with restoring(self.version):
                refolded = refold(filestore, older)
            self._target = base.definition, refolded
        return self._target[1].state

    def discard_target(self) -> None:
        """Removes the files of the target that no version names."""
        if self._target is not None:
            self._target[1].discard(self.table.filestore)
            self._target = None


class _Attempt(CommitAttempt):
    """One attempt of a rollback."""

    def __init__(self, work: _Rollback, base: TableState, log: LogSession | None) -> None:
        self.base = self._begun_on = base
        self.commit_id = work.table.filestore.ambient.new_id()
        self._log = log
        self._work = work
        self._filestore = work.table.filestore
        self._recovery = work.table.recovery
        self._target = base
        self._transactions: list[LogTransaction] = []
        self._discarded = False
        self._checked: set[str] = set()
        self._changes = ReplacedRows(work.table.changes)
        self._order = LogOrder(self._filestore, log, base, self.commit_id)

    def prepare(self) -> Proposal | None:
        """Folds pending runs, and logs the changes to the older version's rows."""
        if self.base.pending and not self._work.unread:  # written before the rollback, and rolled back with the rest
            fold_table(self._filestore, full=True)
            self.base = self._filestore.state()
            self._require_definition()
            self._order = LogOrder(self._filestore, self._log, self.base, self.commit_id)
        self._target = self._work.target(self.base)
        what = self._restored(self.base)
        if what.nothing:
            self._work.unchanged = self.base.version
            self._work.discard_target()
            return None
        self._require_undamaged(what)
        self._log_changes(self.base, what.slots, f"rollback.{self.base.version}")
        return self._completed(self._proposal(self.base, what, what.slots), self.base)

    def _require_definition(self) -> None:
        """Raises a conflict if the definition changed: the log was opened with the columns of the attempt's version."""
        if self._log is None:
            return
        if writing_log(self._work.table.log(self.base.definition), self._begun_on) != self._log.config:
            raise Conflict(
                "the table's definition changed while its runs were folded: retry", code="metadata-changed", again=True
            )

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        """Logs slots again in which others changed rows; behind their changes the records restore the same rows."""
        what = self._restored(state)
        self._require_undamaged(what)
        if not self._work.unread and changed.rows_changed and self._transactions and _logs_former_rows(state):
            raise Conflict(
                "rows changed while a rollback logged the ones that it replaces: retry",
                code="rolled-back-rows-changed",
                again=True,
            )
        if changed.rows_changed and not self._work.unread:  # its control records are there already
            self._log_changes(state, changed.rows_changed, f"again.{state.version}")
        again = replace(self._proposal(state, what, changed.rows_changed), base_version=proposal.base_version)
        return self._completed(again, state)

    def finish(self, committed: Committed) -> None:
        """Ends the log transactions, and removes change data that the commit does not name."""
        snapshot = committed.snapshot
        ended = attempt_each(
            f"after version {snapshot.version}",
            lambda: remove(self._filestore.table_files(self._target), self._changes.unused),
            lambda: self._recovery.commit_transactions(snapshot.transactions, self._log),
        )
        if not ended:
            self._recovery.search_again()

    def discard(self, *, again: bool) -> None:
        """Aborts the log transactions and removes the files."""
        if not self._discarded:
            self._discarded = True
            done = attempt_each(
                f"of rollback {self.commit_id}",
                lambda: remove(self._filestore.table_files(self._target), self._changes.written),
                lambda: self._recovery.abort(self._transactions, self._log),
                lambda: self._recovery.abort_strays(self.commit_id, (), self._log),
            )
            if not done:
                self._recovery.search_again()
        if not again:
            self._work.discard_target()

    def _restored(self, base: TableState) -> Restored:
        return restored(base, self._target, self._filestore.ambient.now_ms())

    def _require_undamaged(self, what: Restored) -> None:
        """Looks at the files that are restored; each once, since others may remove more meanwhile.

        Whole ones are read only where something is known to be damaged: a rollback reads no rows that it does not log.
        """
        found = [file for file in (*what.adds, *what.vectors) if file.path not in self._checked]
        table = self._filestore.table_files(self._target)
        require_undamaged(table, found, what.remembered, self._work.version, whole=self._work.unread)
        self._checked.update(file.path for file in found)

    def _proposal(self, base: TableState, what: Restored, changed: frozenset[Slot]) -> Proposal:
        unread = self._work.unread
        table = self._filestore.table_files(base)
        cdc = () if unread else self._changes.of_files(table, what.differences(base), changed)
        pending = tuple(base.pending) if unread else ()
        return Proposal(
            operation=Operation.OVERWRITE if unread else Operation.ROLLBACK,
            commit_id=self.commit_id,
            base_version=base.version,
            files=FileChanges(
                adds=what.adds,
                vectors=what.vectors,
                removes=what.removes,
                cdc=cdc,
                restores=self._work.version if unread else None,
                unread=unread,
            ),
            # a delete that is rolled back must not make rows late
            runs=RunChanges(folded=pending, tombstones=what.remembered, forgotten=what.forgotten),
            log=LogChanges(transactions=tuple(self._transactions), ended=self._recovery.ended),
            premises=Premises(all_slots=True, rows_read=unread, no_pending_runs=not unread),
            metrics={
                "restored_version": self._target.version,
                "files_added": len(what.adds),
                "files_removed": len(what.removes),
            },
        )

    def _completed(self, proposal: Proposal, state: TableState) -> Proposal:
        completed = self._order.completed(proposal, state)
        self._transactions = list(completed.log.transactions)
        return completed

    def _log_changes(self, base: TableState, slots: frozenset[Slot], attempt: str) -> None:
        if self._log is None:
            return
        with self._log.lend() as log:
            writer = log.begin(f"{base.table_id}/{self.commit_id}/{attempt}")
            try:
                self._write(writer, base, slots)
                transaction = writer.prepare()
            except BaseException:
                writer.abort()
                raise
        if transaction is not None:
            self._transactions.append(transaction)

    def _write(self, writer: LogWriter, base: TableState, slots: Iterable[Slot]) -> None:
        assert self._log is not None
        if self._work.unread or not base.definition.primary_key:
            for bucket in range(self._log.config.buckets):
                writer.control(bucket, {"control": "overwrite"})
            return
        versions = VersionPair(
            self._filestore.table_files(base), self._filestore.table_files(self._target), base.definition.schema
        )
        complete = _logs_former_rows(base)
        differing = [difference for difference in differences(base, self._target) if difference.slot in slots]
        for difference in sorted(differing, key=lambda difference: repr(difference.slot)):
            for rows in changed_rows(versions, difference, local_runs):
                upserts = pc.not_equal(rows.column(KIND_COLUMN), str(RowKind.UPDATE_BEFORE))
                writer.append(difference.slot.bucket, rows if complete else rows.filter(upserts))


def _logs_former_rows(state: TableState) -> bool:
    """Returns whether the log has the rows that a change replaces."""
    return bool(state.definition.primary_key) and state.definition.log_mode is LogMode.ALL
