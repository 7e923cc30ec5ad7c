"""Rolling a table back across both stores: its files, and the changes that lead there in its log.

History goes on: the rollback is a new version, whose files are those of an older one. A reader of the log gets, for
each key whose row is another one, what it becomes; of a table without a key, that all rows are replaced. The table's
definition stays that of now: the older files are read by it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pyarrow.compute as pc

from compaction.folding import fold_table
from compaction.leftovers import remove
from compaction.refold import Refolded, refold
from compaction.replacing import changes_in_threads
from filestore.delta.conflict import METADATA_CHANGED, RUNS_CAME, Proposal, Rebase
from filestore.delta.state import TableState
from filestore.errors import CommitUnknown, Conflict, TableStoreError, Unavailable
from filestore.life.consumers import Consumer
from filestore.life.restore import Restored, as_defined_now, restored
from filestore.model.files import Slot
from filestore.model.log_mode import LogMode
from filestore.model.log_range import LogTransaction
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.snapshot import Operation, Snapshot
from filestore.reading.difference import Compared, changed_rows, differences, on_local_disk
from filestore.reading.replaced_rows import ReplacedRows
from filestore.table import FileStore
from log.store import LogConfig, LogWriter
from log.systems import open_log
from tablestore.recovering.lease import lease
from tablestore.recovering.order import LogOrder
from tablestore.recovering.recovery import Recovery

__all__ = ["rollback"]

logger = logging.getLogger(__name__)

_ROWS_CHANGED = "rolled-back-rows-changed"

_TRY_AGAIN = (RUNS_CAME, "run-gone", "merged-rows-changed", _ROWS_CHANGED)
"""Conflicts with those who bring runs or fold them meanwhile, or change rows that were told as they were."""


def rollback(files: FileStore, log: LogConfig | None, version: int) -> Snapshot:
    """Makes the table's rows those of an older version again. Columns and options stay those of now.

    Columns that came since are null; those that are gone stay so. The older version is held by a consumer meanwhile, so
    that it does not expire; runs that are pending in it are folded first.

    Args:
        files: The table.
        log: Its log; None for a table without one.
        version: The version.

    Returns:
        The new snapshot; the newest one, if its files are those of that version already.

    Raises:
        NotFound: ``no-such-version``, ``snapshot-expired``.
        Unsupported: ``rollback-over-schema``: the older files do not read right with the columns of now.
        Conflict: the table's definition changed meanwhile, or rows that wait to be merged came or were merged, again
            and again. No row was changed.
        Unavailable: a store did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
    """
    recovery = Recovery(files, log, files.ambient)
    newest = files.state()
    recovery.before_write(newest)
    if version == newest.version:
        return files.snapshot(version)
    commit_id = files.ambient.new_id()
    with Consumer(files, f"rollback-{commit_id}").register(version, rows=True), _leased(files, log, commit_id):
        target = refold(files, as_defined_now(files.state(version), newest))
        try:
            return _committed(files, log, newest, target, commit_id, recovery)
        except CommitUnknown:
            raise  # nobody knows: files must stay
        except TableStoreError:
            target.discard(files)
            raise


def _committed(
    files: FileStore, log: LogConfig | None, newest: TableState, target: Refolded, commit_id: str, recovery: Recovery
) -> Snapshot:
    most = newest.definition.options["commit.max-retries"]
    for attempt in range(most + 1):
        try:
            base = _folded(files)
            _require_definition(base, newest, target.state.version)
            return _Rollback(files, log, target.state, commit_id, recovery).run(base)
        except Conflict as error:
            if error.code not in _TRY_AGAIN or attempt == most:
                raise
    raise AssertionError("the loop returns or raises")


def _folded(files: FileStore) -> TableState:
    """What is pending now was written before the rollback, so it goes with the rest."""
    try:
        fold_table(files, full=True)
    except CommitUnknown as error:
        raise Unavailable(f"the rollback changed nothing, and can be repeated: {error.message}") from error
    return files.state()


def _require_definition(base: TableState, newest: TableState, version: int) -> None:
    """The target was read by the definition of `newest`."""
    if base.definition != newest.definition:
        raise Conflict(
            f"the table's definition changed after version {newest.version}, while the rollback to version {version} "
            "was prepared: read the table again and retry",
            code=METADATA_CHANGED,
        )


def _leased(files: FileStore, log: LogConfig | None, commit_id: str) -> AbstractContextManager[None]:
    return nullcontext() if log is None else lease(files.location, commit_id)


class _Rollback:
    """One rollback, worked out anew for the slots that other writers change before it is committed."""

    def __init__(
        self, files: FileStore, log: LogConfig | None, target: TableState, commit_id: str, recovery: Recovery
    ) -> None:
        self._files = files
        self._log = log
        self._target = target
        self._commit_id = commit_id
        self._recovery = recovery
        self._transactions: list[LogTransaction] = []
        self._changes = ReplacedRows(changes_in_threads)

    def run(self, base: TableState) -> Snapshot:
        """One attempt, from a version without pending runs."""
        what = self._restored(base)
        if what.nothing:
            return self._files.snapshot(base.version)
        self._tell(base, what.slots, f"rollback.{base.version}")
        self._order = LogOrder(self._files, self._log, base, self._commit_id)
        try:
            proposal = self._settled(self._proposal(base, what, what.slots), base)
            snapshot = self._files.commit(base, proposal, self._again).snapshot
        except CommitUnknown:
            raise  # nobody knows: log transactions must stay
        except TableStoreError:
            self._discard()
            raise
        self._finish(snapshot)
        return snapshot

    def _restored(self, base: TableState) -> Restored:
        return restored(base, self._target, self._files.ambient.now_ms())

    def _proposal(self, base: TableState, what: Restored, changed: frozenset[Slot]) -> Proposal:
        return Proposal(
            operation=Operation.ROLLBACK,
            commit_id=self._commit_id,
            base_version=base.version,
            adds=what.adds,
            vectors=what.vectors,
            removes=what.removes,
            changes=self._changes.of_files(self._files.files(base), what.differences(base), changed),
            tombstones=what.remembered,
            forgotten=what.forgotten,  # a delete that is rolled back must not make rows late
            transactions=tuple(self._transactions),
            ended=self._recovery.ended,
            metrics={
                "restored_version": self._target.version,
                "files_added": len(what.adds),
                "files_removed": len(what.removes),
            },
            whole_table=True,
            settled=True,
        )

    def _again(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        """What was told as upserts stays: behind the others' changes it leads to the same rows where it applies."""
        what = self._restored(state)
        if changed.rows_changed and self._transactions and _tells_former_rows(state):
            raise Conflict("rows changed while it was told which ones a rollback replaces: retry", code=_ROWS_CHANGED)
        if changed.rows_changed:
            self._tell(state, changed.rows_changed, f"again.{state.version}")
        again = replace(self._proposal(state, what, changed.rows_changed), base_version=proposal.base_version)
        return self._settled(again, state)

    def _settled(self, proposal: Proposal, state: TableState) -> Proposal:
        settled = self._order.settle(proposal, state)
        self._transactions = list(settled.transactions)
        return settled

    def _tell(self, base: TableState, slots: frozenset[Slot], attempt: str) -> None:
        if self._log is None:
            return
        with open_log(self._log, self._files.ambient) as log:
            writer = log.begin(f"{base.table_id}/{self._commit_id}/{attempt}")
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
        if not base.definition.primary_key:
            for bucket in range(self._log.buckets):
                writer.control(bucket, {"control": "overwrite"})
            return
        versions = Compared(self._files.files(base), self._files.files(self._target), base.definition.schema)
        complete = _tells_former_rows(base)
        differing = [difference for difference in differences(base, self._target) if difference.slot in slots]
        for difference in sorted(differing, key=lambda difference: repr(difference.slot)):
            for rows in changed_rows(versions, difference, on_local_disk):
                upserts = pc.not_equal(rows.column(KIND_COLUMN), str(RowKind.UPDATE_BEFORE))
                writer.append(difference.slot.bucket, rows if complete else rows.filter(upserts))

    def _finish(self, snapshot: Snapshot) -> None:
        """The snapshot stands, so no error may say that it failed: the next writer mends what is left."""
        remove(self._files.files(self._target), self._changes.unused)
        try:
            self._recovery.commit(snapshot.transactions)
        except TableStoreError as error:
            logger.warning("version %d is committed; its log follows later: %s", snapshot.version, error)

    def _discard(self) -> None:
        remove(self._files.files(self._target), self._changes.written)
        try:
            self._recovery.abort(self._transactions)
            self._recovery.abort_strays(self._commit_id, ())
        except TableStoreError as error:
            # the error that led here is the one to tell; the lease's file tells the next writer
            logger.warning("leftovers of rollback %s stay behind: %s", self._commit_id, error)


def _tells_former_rows(state: TableState) -> bool:
    """Whether the log has the rows that a change replaces."""
    return bool(state.definition.primary_key) and state.definition.log_mode is LogMode.ALL
