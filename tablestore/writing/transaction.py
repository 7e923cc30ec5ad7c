"""One write across both stores: files, log, snapshot, in the only order that loses nothing (log/PROTOCOL.md).

1. Recover: log transactions that earlier snapshots name are ended, those of dead writers aborted.
2. Tasks fold rows into new files and *prepare* log transactions. Nothing is visible yet.
3. The snapshot is committed. It names files, offsets and log transactions: from here on the write has happened.
4. The log transactions are ended. A crash before that is mended by step 1 of a later write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from compaction.replacing import changes_in_threads
from filestore import layout
from filestore.ambient import Ambient
from filestore.changelog.images import recorded
from filestore.delta.commit import Committed, touches_nothing
from filestore.delta.conflict import AppVersion, Proposal, Rebase
from filestore.delta.state import TableState
from filestore.errors import CommitUnknown, TableStoreError
from filestore.metrics.meter import NO_METER
from filestore.model.definition import TableDefinition
from filestore.model.files import Slot
from filestore.model.log_range import LogTransaction
from filestore.model.snapshot import Operation, Snapshot
from filestore.reading.replaced_rows import ChangeRunner, ReplacedRows
from filestore.table import FileStore
from filestore.writing.slot_result import SlotResult, brought_files, named_files
from filestore.writing.write import WriteResult, rests_on_rows
from log.store import LogConfig
from log.systems import open_log
from tablestore.recovering.control import control_message, log_control
from tablestore.recovering.lease import lease
from tablestore.recovering.order import LogOrder
from tablestore.recovering.recovery import Recovered, Recovery
from tablestore.writing.commit_metrics import CommitMeter
from tablestore.writing.expiry import WriterExpiry
from tablestore.writing.overwrite import Drop, Overwrite, Replacement, replacement
from tablestore.writing.whole_retry import Again, settled
from tablestore.writing.write_job import Runner, TaskOutcome, WriteJob

__all__ = ["TableWriter"]

logger = logging.getLogger(__name__)


class TableWriter:
    """Writes one table, one write at a time.

    Args:
        files: The table.
        log: Gives its log with a definition's columns, or None without one.
        ambient: Clock, ids, chance.
        changes: Where it is worked out which rows an overwrite or a drop changes.
        meter: Takes what is measured.
    """

    def __init__(
        self,
        files: FileStore,
        log: Callable[[TableDefinition], LogConfig | None],
        ambient: Ambient,
        changes: ChangeRunner = changes_in_threads,
        meter: CommitMeter | None = None,
    ) -> None:
        self._meter = meter or CommitMeter(NO_METER, "", ambient)
        self._files = files
        self._changes = changes
        self._log_of = log
        self._config = log(files.state().definition)
        self._ambient = ambient
        self._recovery = Recovery(files, self._config, ambient)
        self._expiry = WriterExpiry()

    @property
    def definition(self) -> TableDefinition:
        """The table's newest definition."""
        return self._files.state().definition

    def write(
        self,
        run: Runner,
        *,
        overwrite: Overwrite = False,
        app: AppVersion | None = None,
        retries: bool = False,
    ) -> Snapshot:
        """Writes what the runner brings, as one commit.

        Args:
            run: Brings the rows in the columns of the job's table; again, if others changed those or merged rows.
            overwrite: What the rows replace (see `tablestore.writing.overwrite`).
            app: The caller's own number of the write: the same one again changes nothing.
            retries: The runner may try a task more than once, so attempts that it does not tell of may have left
                log transactions open.

        Raises:
            InvalidRequest: rows that do not fit; nothing was changed.
            Conflict: lost against other writers; nothing was changed.
            Unavailable: storage or log did not answer; nothing was changed, unless it is `CommitUnknown`.
        """
        with self.mending():
            snapshot = self._measured(lambda: self._write_once(run, overwrite, app, retries))
        assert snapshot is not None, "a write has a snapshot"
        self._expiry.run_if_due(self._ambient, lambda: self.definition.options, self.drop_partitions)
        return snapshot

    def drop_partitions(self, choose: Callable[[TableState], Drop]) -> Snapshot | None:
        """Drops partitions with all that is in them when the commit comes, as one commit; None if there is nothing.

        Args:
            choose: Which, told from a version; asked again if the choice does not hold any more.

        Raises:
            Conflict: lost against other writers; nothing was changed.
            Unavailable: storage or log did not answer; nothing was changed, unless it is `CommitUnknown`.
        """
        with self.mending():
            return self._measured(lambda: self._drop_once(choose))

    def _measured(self, once: Callable[[], Snapshot | None]) -> Snapshot | None:
        most = self.definition.options["commit.max-retries"]
        return self._meter.measured(lambda: settled(once, most, self._ambient, self._meter.retried))

    def _drop_once(self, choose: Callable[[TableState], Drop]) -> Snapshot | None:
        base = self._files.state()
        drop = choose(base)
        if not any(slot.partition in drop.partitions for slot in (*base.slots(), *base.pending())):
            return None
        self._recovery.before_write(base)
        proposal = replace(self._proposal(base, Operation.DROP_PARTITION, None), touches=drop.touches(base))
        with self._leased(proposal.commit_id):
            return self._write(lambda job: (), base, proposal, Replacement(drop.partitions))

    @property
    def log(self) -> LogConfig | None:
        """The table's log, with its newest columns."""
        return self._log_of(self.definition)

    def recover(self) -> Recovered:
        """Mends what dead writers left in the log, whether or not it was looked after before."""
        self._recovery.look_again()
        found = self._recovery.before_write(self._files.state())
        return replace(found, mended=tuple(sorted(self._mend())), foreign=self._recovery.foreign())

    def _mend(self) -> set[str]:
        """Commits what an eventual log needs to be right again; gives the strays that were the reason."""
        if self._config is None or not self._config.eventual:
            return set()
        base = self._files.state()
        proposal = self._proposal(base, Operation.WRITE, None)
        with self._leased(proposal.commit_id):
            order = LogOrder(self._files, self._log_of(base.definition), base, proposal.commit_id)
            settled = order.settle(proposal, base)
            passed = any(at > base.log_repaired.get(bucket, 0) for bucket, at in settled.log_repaired.items())
            if not settled.transactions and not (order.strays and passed):
                return set()
            told = self._files.commit(base, settled, lambda proposal, state, _: order.settle(proposal, state))
            self._later(told.snapshot, lambda: self._recovery.commit(told.snapshot.transactions))
        return order.strays

    @contextmanager
    def mending(self) -> Iterator[None]:
        """What a failed write left in an eventual log is mended at once, as far as the stores answer."""
        try:
            yield
        except CommitUnknown:
            raise
        except TableStoreError:
            try:
                self._mend()
            except TableStoreError as error:
                # the error that led here is the one to tell; the next writer mends it
                logger.warning("records of a failed write stay in the log of %s: %s", self._files.location, error)
            raise

    def _write_once(self, run: Runner, overwrite: Overwrite, app: AppVersion | None, retries: bool) -> Snapshot:
        base = self._files.state()
        replacing = replacement(overwrite, base.definition)
        self._recovery.before_write(base)
        proposal = self._proposal(base, Operation.WRITE if replacing is None else Operation.OVERWRITE, app)
        if app is not None and base.app_versions.get(app.app_id, -1) >= app.version:
            return self._files.commit(base, proposal, touches_nothing).snapshot
        with self._leased(proposal.commit_id):
            snapshot = self._write(run, base, proposal, replacing)
            if retries:
                self._later(snapshot, lambda: self._recovery.abort_strays(proposal.commit_id, snapshot.transactions))
            return snapshot

    def _leased(self, commit_id: str) -> AbstractContextManager[None]:
        return nullcontext() if self._config is None else lease(self._files.location, commit_id)

    def _write(self, run: Runner, base: TableState, proposal: Proposal, replacing: Replacement | None) -> Snapshot:
        met = base.met(self._ambient.now_ms()) if replacing is None else {}
        job = WriteJob(
            self._files.files(base),
            met,
            self._log_of(base.definition) if replacing is None else None,
            f"{base.table_id}/{proposal.commit_id}",
            recorded(base.definition, empty=not met, overwrite=replacing is not None),
            later=base.definition.merges_on_read and replacing is None,
            only=None if replacing is None else replacing.bound,
        )
        outcomes = self._outcomes(run, job, base, proposal, replacing)
        if replacing is not None:
            proposal = replace(proposal, replaces=replacing.of(r.slot for r in _results(outcomes)))
        return self._commit(base, proposal, outcomes).snapshot

    def _outcomes(
        self, run: Runner, job: WriteJob, base: TableState, proposal: Proposal, replacing: Replacement | None
    ) -> tuple[TaskOutcome, ...]:
        """What the tasks did. If one failed, as a value or as the whole runner, the others' work is removed."""
        outcomes: tuple[TaskOutcome, ...] = ()
        try:
            with self._files.preparing(base):
                outcomes = tuple(run(job))
                if errors := [o.error for o in outcomes if o.error is not None]:
                    raise errors[0]
            if replacing is not None and self._config is not None:
                message = control_message(proposal.operation, replacing.of(r.slot for r in _results(outcomes)))
                with open_log(self._config, self._ambient) as log:
                    transaction = log_control(log, f"{job.transaction_prefix}/control.0", self._config.buckets, message)
                outcomes = (*outcomes, TaskOutcome(transaction=transaction))
        except BaseException:
            attempt = self._attempt(base, proposal, outcomes)
            self._discard(attempt, [o.transaction for o in outcomes if o.transaction is not None])
            raise
        return outcomes

    def _proposal(self, base: TableState, operation: Operation, app: AppVersion | None) -> Proposal:
        return Proposal(
            operation=operation,
            commit_id=self._ambient.new_id(),
            base_version=base.version,
            app=app,
            ended=self._recovery.ended,
        )

    def _commit(self, base: TableState, proposal: Proposal, outcomes: Sequence[TaskOutcome]) -> Committed:
        attempt = self._attempt(base, proposal, outcomes)
        transactions = tuple(o.transaction for o in outcomes if o.transaction is not None)
        looked_up = base.definition.primary_key and not proposal.operation.replaces_partitions
        touches = frozenset(r.slot for r in attempt.result.results if looked_up and not r.runs)
        proposal = replace(
            attempt.result.apply(proposal),
            touches=proposal.touches | touches,
            transactions=transactions,
            ended=self._recovery.ended,
        )
        try:
            with self._files.preparing(base):
                proposal = attempt.order.settle(attempt.told(proposal, base), base)
        except BaseException:
            self._discard(attempt, transactions)
            raise
        try:
            committed = self._files.commit(base, proposal, attempt.rebase)
        except CommitUnknown:
            raise  # nobody knows: files and log transactions must stay
        except TableStoreError:
            self._discard(attempt, transactions)
            raise
        self._meter.raced(committed.races)
        if committed.snapshot.commit_id != proposal.commit_id:
            self._discard(attempt, transactions)  # the same app version was committed by another attempt
            return committed
        self._finish(attempt, committed.snapshot)
        return committed

    def _attempt(self, base: TableState, proposal: Proposal, outcomes: Sequence[TaskOutcome]) -> _Attempt:
        log = self._log_of(base.definition)
        order = LogOrder(self._files, log, base, proposal.commit_id)
        return _Attempt(self._files, log, proposal, WriteResult(_results(outcomes)), ReplacedRows(self._changes), order)

    def _finish(self, attempt: _Attempt, snapshot: Snapshot) -> None:
        self._later(snapshot, lambda: self._recovery.commit(snapshot.transactions))
        self._later(snapshot, attempt.forget_unused)

    def _later(self, snapshot: Snapshot, work: Callable[[], None]) -> None:
        """The snapshot stands, so no error may say that the write failed: the next writer mends what is left."""
        try:
            work()
        except TableStoreError as error:
            self._recovery.look_again()
            logger.warning("version %d is committed; its log follows later: %s", snapshot.version, error)

    def _discard(self, attempt: _Attempt, transactions: Sequence[LogTransaction]) -> None:
        """Nothing refers to the attempt's files and records: remove them, as far as the stores answer."""
        named = (*transactions, *attempt.compensations)
        for work in (
            attempt.forget_files,
            lambda: self._recovery.abort(named),
            lambda: self._recovery.abort_strays(attempt.proposal.commit_id, ()),
        ):
            try:
                work()
            except TableStoreError as error:
                # the error that led here is the one to tell; the lease's file tells the next writer
                self._recovery.look_again()
                logger.warning("leftovers of commit %s stay behind: %s", attempt.proposal.commit_id, error)


class _Attempt:
    """The results of a write while it is fought through: rebased as often as other writers are faster."""

    def __init__(
        self,
        files: FileStore,
        log: LogConfig | None,
        proposal: Proposal,
        result: WriteResult,
        replaced: ReplacedRows,
        order: LogOrder,
    ) -> None:
        self._files = files
        self._log = log
        self._replaced = replaced
        self.order = order
        self.proposal = proposal
        self.result = result
        self.compensations: list[LogTransaction] = []
        self._written: set[str] = set()
        self._note(result)

    def told(self, proposal: Proposal, state: TableState, changed: frozenset[Slot] = frozenset()) -> Proposal:
        """With the change data of what it replaces; of slots whose rows others changed since, worked out again."""
        if not proposal.operation.replaces_partitions:
            return proposal
        return self._replaced.of_overwrite(self._files.files(state), state, proposal, changed)

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        if proposal.operation.replaces_partitions:
            if rows := changed.rows_changed & proposal.touches:
                raise Again(
                    f"rows of {len(rows)} buckets changed while it was decided to drop them: retry",
                    code="partition-changed",
                )
            return self.order.settle(self.told(proposal, state, changed.rows_changed), state)
        if changed.rows_changed and rests_on_rows(state.definition, logged=self._log is not None):
            raise Again(
                f"rows of {len(changed.rows_changed)} buckets changed while they were merged: retry",
                code="merged-rows-changed",
            )
        return self.order.settle(self._looked_up_again(proposal, state, changed), state)

    def _looked_up_again(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        if not changed.slots:
            return proposal
        table = self._files.files(state)
        base = state.met(self._files.ambient.now_ms())
        # where records tell stored rows, these are what they were: the log needs nothing more
        log = None if state.definition.logs_images else self._log
        job = WriteJob(table, base, log, f"{state.table_id}/{proposal.commit_id}")
        earlier = self.result.to_look_up_again(changed.slots, state.definition)
        outcome = job.run_again(earlier, f"again.{state.version}")
        self.result = self.result.with_slots(outcome.results)
        self._note(self.result)
        rebased = self.result.apply(proposal)
        if outcome.transaction is None:
            return rebased
        self.compensations.append(outcome.transaction)
        return replace(rebased, transactions=(*rebased.transactions, outcome.transaction))

    def _note(self, result: WriteResult) -> None:
        self._written |= brought_files(result.results)

    def forget_unused(self) -> None:
        """Removes what the commit does not name: runs of deleted keys, and what a rebase replaced."""
        self._delete((self._written - named_files(self.result.results)) | self._replaced.unused)

    def forget_files(self) -> None:
        """Removes everything: the attempt failed."""
        self._delete(self._written | self._replaced.written)

    def _delete(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            self._files.storage.delete(layout.join(self._files.location, path))


def _results(outcomes: Sequence[TaskOutcome]) -> tuple[SlotResult, ...]:
    return tuple(result for outcome in outcomes for result in outcome.results)
