"""Performs one attempt of a write: files, log and version, in the only order that loses nothing.

The methods of `Write` are the four steps of log/table/PROTOCOL.md section 4, in the order in which
`filestore.commit.protocol` calls them:

1. `begun` ends log transactions that earlier versions name, aborts those of dead writers, and takes a lease.
2. `prepare` runs the tasks. They merge rows into new files and *prepare* log transactions. No reader sees any of it.
3. The version is committed. It names files, offsets and log transactions: from here on the write has happened.
   `rebase` adapts it to commits of others that come first.
4. `finish` ends the log transactions. A crash before that is repaired by step 1 of a later write. After a failure
   `discard` aborts the transactions and removes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from filestore.changelog.arrived import by_look_up
from filestore.changelog.images import recorded
from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed
from filestore.commit.proposal import AppVersion, LogChanges, Premises, Proposal
from filestore.commit.protocol import CommitAttempt, attempt_each
from filestore.delta.by_slot import LookupFiles
from filestore.delta.state import TableState
from filestore.errors import Conflict, Corrupt, InvalidRequest, Unavailable
from filestore.files.leftovers import remove
from filestore.files.writer import TableFiles
from filestore.model.definition import TableDefinition
from filestore.model.files import Slot
from filestore.model.log_range import LogTransaction
from filestore.model.snapshot import Operation
from filestore.operations.replaced_rows import ChangeRunner, ReplacedRows
from filestore.table import FileStore
from filestore.writing.slot_result import named_files, written_files
from filestore.writing.superseded import same_rows, superseded_rows
from filestore.writing.write import WriteResult, rests_on_rows
from log.table.config import LogConfig
from log.table.session import LogSession
from tablestore.recovering.compared import writing_log
from tablestore.recovering.control import control_message, log_control
from tablestore.recovering.lease import lease
from tablestore.recovering.order import LogOrder
from tablestore.recovering.recovery import Recovery
from tablestore.writing.overwrite import Drop, Replacement
from tablestore.writing.write_job import WriteJob, WriteRunner

__all__ = ["READ_CHANGED", "Basis", "Terms", "Write", "WriterTable", "read_changed"]

READ_CHANGED = "read-changed"
"""The code of the conflict of a write whose rows were worked out from rows that others changed first."""


def read_changed(read: int, found: int) -> Conflict:
    """Returns the error of a write whose rows were worked out from rows that others changed first."""
    return Conflict(
        f"rows that were read at version {read} have changed by version {found}: nothing was written; read them again, "
        "and work the new rows out from them",
        code=READ_CHANGED,
    )


def late_rows(count: int, definition: TableDefinition) -> InvalidRequest:
    """Returns the error of a conditional write of which rows would change nothing."""
    return InvalidRequest(
        f"{count} rows have a lower {definition.sequence_field} than a stored or deleted row of their key, so they "
        f"would change nothing: give them a {definition.sequence_field} that is not lower (option sequence.field)",
        code="late-rows",
    )


@dataclass(frozen=True, slots=True)
class WriterTable:
    """The objects that all writes of one writer share.

    Attributes:
        filestore: The table.
        log: Returns its log for a definition; None for a table without a log.
        recovery: Ends and aborts log transactions.
        changes: Computes the change data of overwrites and drops.
    """

    filestore: FileStore
    log: Callable[[TableDefinition], LogConfig | None]
    recovery: Recovery
    changes: ChangeRunner


@dataclass(frozen=True, slots=True)
class Basis:
    """The stored rows on which a write rests: its rows are those that their keys shall have, and no changelog.

    Where the table records changes as they arrive, those of such a write are looked up.

    Attributes:
        version: The version from which the rows were worked out. They are written only if no row of their keys, or of
            the partitions that they replace, has changed since. None: they replace whatever is stored.
        whole: They were worked out from other rows, too: none of the table may have changed since.
    """

    version: int | None
    whole: bool = False

    @classmethod
    def of(cls, version: int | None) -> Basis | None:
        """Returns the basis of rows that were worked out from a version, if there is one."""
        return None if version is None else cls(version)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms under which a caller writes.

    Attributes:
        app: The caller's own number of the write.
        retries: The runner may try a task more than once.
        basis: The stored rows on which the write rests; None if its rows are changes as they arrived.
        in_order: The rows are changes in the order in which they happened (`tablestore.writing.in_order`).
        says: Returns the texts of the snapshot that say how it was made; called behind the tasks.
    """

    app: AppVersion | None = None
    retries: bool = False
    basis: Basis | None = None
    in_order: bool = False
    says: Callable[[], Mapping[str, str]] = dict

    @property
    def reads(self) -> bool:
        """Returns whether the rows were worked out from stored ones, which must not change before the commit."""
        return self.basis is not None and self.basis.version is not None

    @property
    def reads_whole(self) -> bool:
        """Returns whether these may be any rows of the table."""
        return self.reads and self.basis is not None and self.basis.whole


class Write(CommitAttempt):
    """A write, an overwrite or a drop of partitions.

    Args:
        table: The table.
        base: The version on which it is prepared.
        run: Runs the tasks.
        replacing: The contents that the commit replaces; None for a write that replaces nothing.
        terms: What the caller asks.
        drop: The partitions to drop, instead of rows to write.
    """

    def __init__(
        self,
        table: WriterTable,
        base: TableState,
        run: WriteRunner,
        replacing: Replacement | None,
        terms: Terms = Terms(),
        *,
        drop: Drop | None = None,
    ) -> None:
        self.base = base
        self._table = table
        self._run = run
        self._replacing = replacing
        self._app = terms.app
        self._retries = terms.retries
        self._looks_up = terms.basis is not None
        self._in_order = terms.in_order
        self._says = terms.says
        self._reads = terms.reads
        self._reads_whole = terms.reads_whole
        self._drop = drop
        self._filestore = table.filestore
        self._commit_id = table.filestore.ambient.new_id()
        config = writing_log(table.log(base.definition), base)
        self._log = None if config is None else LogSession(config, table.filestore.ambient)
        self._order = LogOrder(table.filestore, self._log, base, self._commit_id)
        self._replaced = ReplacedRows(table.changes)
        self._result = WriteResult(())
        self._stored = LookupFiles()
        self._transactions: list[LogTransaction] = []
        self._written: set[str] = set()
        self._discarded = False

    @classmethod
    def dropping(cls, table: WriterTable, base: TableState, drop: Drop) -> Write:
        """Drops partitions instead of writing rows."""
        return cls(table, base, lambda job: (), Replacement(drop.partitions), drop=drop)

    # ------------------------------------------------------------------------------------------ 1. begin

    @contextmanager
    def begun(self) -> Iterator[Write]:
        """Repairs the log after dead writers, and holds the lease that shows others that this writer lives."""
        with ExitStack() as held:
            if not self._nothing_to_do:
                if self._log is not None:
                    held.enter_context(self._log)
                self._table.recovery.before_write(self.base, self._log)
                if self._log is not None and not self._is_committed:
                    held.enter_context(lease(self._filestore, self.base, self._commit_id, again=self._app is not None))
            yield self

    @property
    def _nothing_to_do(self) -> bool:
        if self._drop is None:
            return False
        there = self.base.files.partitions | self.base.pending.partitions
        return not any(partition in self._drop.partitions for partition in there)

    @property
    def _is_committed(self) -> bool:
        """Returns whether an earlier attempt has committed the caller's number."""
        return self._app is not None and self.base.app_versions.get(self._app.app_id, -1) >= self._app.version

    # ------------------------------------------------------------------------------------------ 2. run

    def prepare(self) -> Proposal | None:
        """Runs the tasks, and proposes their results; None: there was nothing to write, and nothing to remember."""
        if self._nothing_to_do:
            return None
        if self._is_committed:
            return Proposal(self._operation, self._commit_id, self.base.version, app=self._app)
        self._run_tasks()
        if not (self._result.results or self._transactions or self._replacing or self._app):
            return None
        if self._reads and (late := sum(result.rows_late for result in self._result.results)):
            raise late_rows(late, self.base.definition)
        self._log_replacement()
        proposal = Proposal(
            self._operation,
            self._commit_id,
            self.base.version,
            log=LogChanges(transactions=tuple(self._transactions), ended=self._table.recovery.ended),
            premises=Premises(
                slots=self._slots_looked_up(),
                all_slots=self._reads_whole,
                replaced_slots=self._reads and self._replacing is not None,
                rows_read=self._reads or any(result.rests_on_rows for result in self._result.results),
            ),
            app=self._app,
            parameters=self._says(),
        )
        if self._replacing is not None:
            replaced = self._replacing.of(r.slot for r in self._result.results)
            proposal = replace(proposal, files=replace(proposal.files, replaces=replaced))
        return self._completed(self._result.apply(proposal), self.base)

    @property
    def _operation(self) -> Operation:
        if self._drop is not None:
            return Operation.DROP_PARTITION
        return Operation.WRITE if self._replacing is None else Operation.OVERWRITE

    def _run_tasks(self) -> None:
        base, replaces = self.base, self._replacing is not None
        self._stored = stored = LookupFiles() if replaces else base.lookup_files(self._filestore.ambient.now_ms())
        later = base.definition.merges_on_read and not replaces
        refuses_late = later and self._reads and base.definition.sequence_field and not base.definition.merges_values
        table = self._table_files(base)
        job = WriteJob(
            table,
            stored,
            None if replaces else self._log,
            self._transaction_prefix,
            recorded(table.definition, empty=not stored, overwrite=replaces),
            later=later,
            runs=base.pending if refuses_late else None,
            in_order=base.pending if self._in_order else None,
            only=None if self._replacing is None else self._replacing.bound,
        )
        outcomes = self._run(job)
        self._transactions += [o.transaction for o in outcomes if o.transaction is not None]
        self._take(WriteResult(tuple(result for outcome in outcomes for result in outcome.results)))
        if errors := [o.error for o in outcomes if o.error is not None]:
            if isinstance(errors[0], (Corrupt, Unavailable)):
                self._table.recovery.search_again()  # the log may be another one when it answers again
            raise errors[0]  # `discard` removes the work of the other tasks

    def _table_files(self, state: TableState) -> TableFiles:
        """Returns the table of the tasks, with the definition by which they record changes."""
        table = self._filestore.table_files(state)
        return replace(table, definition=by_look_up(table.definition)) if self._looks_up else table

    def _log_replacement(self) -> None:
        """Logs control records, since an overwrite's rows are only in files: readers have to read partitions again."""
        if self._replacing is None or self._log is None:
            return
        message = control_message(self._operation, self._replacing.of(r.slot for r in self._result.results))
        with self._log.lend() as log:
            buckets = self._log.config.buckets
            transaction = log_control(log, f"{self._transaction_prefix}/control.0", buckets, message)
        if transaction is not None:
            self._transactions.append(transaction)

    @property
    def _transaction_prefix(self) -> str:
        return f"{self.base.table_id}/{self._commit_id}"

    def _slots_looked_up(self) -> frozenset[Slot]:
        """Returns the slots in which a commit of others makes the result out of date."""
        if self._drop is not None:
            return self._drop.touches(self.base)
        if self._replacing is not None or not self.base.definition.primary_key:
            return frozenset()
        if self._reads:
            return frozenset(result.slot for result in self._result.results)
        return frozenset(result.slot for result in self._result.results if result.rests_on_rows or not result.runs)

    # ------------------------------------------------------------------------------------------ 3. commit

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        """Looks keys up again in changed slots; a result that cannot be adapted to changed rows is a conflict."""
        if self._reads and changed.rows_changed and self._any_change_counts(state):
            raise read_changed(self.base.version, state.version)
        if self._replacing is not None:
            if rows := changed.rows_changed & proposal.premises.slots:
                raise Conflict(
                    f"rows of {len(rows)} buckets changed while it was decided to drop them: retry",
                    code="partition-changed",
                    again=True,
                )
            return self._completed(proposal, state, changed.rows_changed)
        if changed.rows_changed and self._rests_on_rows(state, changed.rows_changed):
            raise Conflict(
                f"rows of {len(changed.rows_changed)} buckets changed while they were merged: retry",
                code="merged-rows-changed",
                again=True,
            )
        return self._completed(self._looked_up_again(proposal, state, changed), state)

    def _any_change_counts(self, state: TableState) -> bool:
        """Returns whether a changed row anywhere in the slots counts as one of those that were read."""
        if self._reads_whole:
            return True
        definition = state.definition
        looks_up = definition.primary_key and self._replacing is None and not definition.merges_on_read
        return not looks_up or self._rests_on_rows(state)

    def _rests_on_rows(self, state: TableState, changed: Container[Slot] = ()) -> bool:
        definition = self._table_files(state).definition
        results = [result for result in self._result.results if result.slot in changed]
        return rests_on_rows(definition, results, logged=self._log is not None)

    def _completed(self, proposal: Proposal, state: TableState, changed: frozenset[Slot] = frozenset()) -> Proposal:
        """Adds what depends on the version before the commit: change data of replaced rows, and the log's order."""
        if self._replacing is not None:
            proposal = self._replaced.of_overwrite(self._filestore.table_files(state), state, proposal, changed)
        return self._order.completed(proposal, state)

    def _looked_up_again(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        if not changed.slots:
            return proposal
        stored = state.lookup_files(self._filestore.ambient.now_ms())
        table = self._table_files(state)
        # Records that hold the stored rows as they were need no correction.
        log = None if table.definition.logs_images else self._log
        job = WriteJob(table, stored, log, self._transaction_prefix)
        outdated = self._result.to_look_up_again(changed.slots, table.definition)
        outcome = job.run_again(outdated, f"again.{state.version}")
        former, self._result = self._result, self._result.with_slots(outcome.results)
        self._written |= written_files(outcome.results)
        if outcome.transaction is not None:
            self._transactions.append(outcome.transaction)
        self._check_rows_read(former, state, stored, changed.rows_changed)
        proposal = self._result.apply(proposal)
        if outcome.transaction is None:
            return proposal
        transactions = (*proposal.log.transactions, outcome.transaction)
        return replace(proposal, log=replace(proposal.log, transactions=transactions))

    def _check_rows_read(
        self,
        former: WriteResult,
        state: TableState,
        stored: LookupFiles,
        changed: frozenset[Slot],
    ) -> None:
        """Refuses a write whose rows rest on rows that have changed. Keys that had no row count, too."""
        self._stored, before = stored, self._stored
        if not self._reads:
            return
        table = self._filestore.table_files(state)
        earlier = {result.slot: result for result in former.results}
        for result in self._result.results:
            former_result = earlier[result.slot]
            # a row that stays, since it has the written values or a higher sequence, is superseded neither time
            stays = any(r.rows_unchanged or r.rows_late for r in (former_result, result))
            if result.slot in changed and (
                stays
                or not same_rows(
                    superseded_rows(table, before.of(result.slot), former_result),
                    superseded_rows(table, stored.of(result.slot), result),
                )
            ):
                raise read_changed(self.base.version, state.version)

    def _take(self, result: WriteResult) -> None:
        self._result = result
        self._written |= written_files(result.results)

    # ------------------------------------------------------------------------------------------ 4. end

    def finish(self, committed: Committed) -> None:
        """Ends the log transactions, and removes files that the commit does not name."""
        snapshot, recovery = committed.snapshot, self._table.recovery
        unused = (self._written - named_files(self._result.results)) | self._replaced.unused
        steps = [lambda: recovery.commit_transactions(snapshot.transactions, self._log), lambda: self._remove(unused)]
        if self._retries:
            steps.append(lambda: recovery.abort_strays(self._commit_id, snapshot.transactions, self._log))
        if not attempt_each(f"after version {snapshot.version}", *steps):
            recovery.search_again()

    def discard(self, *, again: bool) -> None:
        """Aborts the log transactions, those of attempts that the runner does not report too, and removes the files."""
        if self._is_committed or self._discarded:
            return
        self._discarded = True
        recovery = self._table.recovery
        done = attempt_each(
            f"of commit {self._commit_id}",
            lambda: self._remove(self._written | self._replaced.written),
            lambda: recovery.abort(self._transactions, self._log),
            lambda: recovery.abort_strays(self._commit_id, (), self._log),
        )
        if not done:
            recovery.search_again()  # the file of the lease, which stays, shows others that something is left

    def _remove(self, paths: set[str]) -> None:
        remove(self._filestore.table_files(self.base), paths)
