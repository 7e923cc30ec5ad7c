"""`TableWriter`: writes one table, and repairs its log after dead writers (log/table/PROTOCOL.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from filestore.ambient import Ambient
from filestore.commit.loop import Committed
from filestore.commit.proposal import AppVersion
from filestore.commit.protocol import Observer
from filestore.delta.state import TableState
from filestore.errors import Conflict, TableStoreError
from filestore.metrics.meter import NO_METER
from filestore.model.definition import TableDefinition
from filestore.model.snapshot import Snapshot
from filestore.operations.replaced_rows import ChangeRunner, changes_in_threads
from filestore.table import FileStore
from log.table.config import LogConfig
from log.table.session import log_session
from tablestore.recovering.recovery import Recovered, Recovery
from tablestore.recovering.repair import LogRepair
from tablestore.writing.apps import check_may_write
from tablestore.writing.commit_metrics import CommitMeter
from tablestore.writing.expiry import WriterExpiry
from tablestore.writing.overwrite import Drop, Overwrite, check_condition, replacement
from tablestore.writing.rollback import rollback
from tablestore.writing.write import Basis, Terms, Write, WriterTable, read_changed
from tablestore.writing.write_job import WriteRunner

__all__ = ["TableWriter"]

logger = logging.getLogger(__name__)


class TableWriter:
    """Writes one table, one write at a time.

    Args:
        filestore: The table.
        log: Returns the table's log for a definition; None for a table without a log.
        ambient: Clock, ids, chance.
        changes: Computes the change data of overwrites and drops.
        meter: Takes what is measured.
    """

    def __init__(
        self,
        filestore: FileStore,
        log: Callable[[TableDefinition], LogConfig | None],
        ambient: Ambient,
        changes: ChangeRunner = changes_in_threads,
        meter: CommitMeter | None = None,
    ) -> None:
        self.meter = meter or CommitMeter(NO_METER, "", ambient)
        self._filestore = filestore
        self._log_of = log
        self._ambient = ambient
        self._recovery = Recovery(filestore, ambient)
        self._table = WriterTable(filestore, log, self._recovery, changes)
        self._expiry = WriterExpiry()

    @property
    def definition(self) -> TableDefinition:
        """The table's newest definition."""
        return self._filestore.state().definition

    @property
    def log(self) -> LogConfig | None:
        """The table's log, with its newest columns."""
        return self._log_of(self.definition)

    def write(  # noqa: PLR0913  # callers choose some of them
        self,
        run: WriteRunner,
        *,
        overwrite: Overwrite = False,
        app: AppVersion | None = None,
        retries: bool = False,
        base: TableState | None = None,
        basis: Basis | None = None,
        in_order: bool = False,
        says: Callable[[], Mapping[str, str]] = dict,
    ) -> Snapshot:
        """Writes the runner's rows as one commit; no rows that replace nothing and have no number are none.

        Args:
            run: Writes the rows, in the columns of the job's table; it runs again when the write begins again.
            overwrite: What the rows replace (see `tablestore.writing.overwrite`).
            app: The caller's own number of the write: a second write with the same number changes nothing.
            retries: The runner may try a task more than once, so attempts that it does not report may have left log
                transactions open.
            base: The newest version, if the caller has just read it.
            basis: The stored rows on which the write rests; None if its rows are changes as they arrived.
            in_order: Whether they are in the order in which they happened: then each delete removes its key's row.
            says: Returns the texts of the snapshot that say how it was made (`Snapshot.parameters`), behind the runner.

        Returns:
            The snapshot that has the rows; the newest one where there was nothing to write.

        Raises:
            InvalidRequest: rows that do not fit; nothing was changed. ``delete-without-sequence``: with `in_order`.
            Conflict: lost against other writers; nothing was changed. ``read-changed``: rows of the basis.
            Unavailable: storage or log did not answer; nothing was changed, unless it is `CommitUnknown`.
        """
        read = None if basis is None else basis.version
        if basis is not None and read is not None:
            base = self._filestore.state(read)
            if not basis.whole:
                check_condition(base.definition, overwrite)

        base = base or self._filestore.state()
        check_may_write(base.definition, app)
        terms = Terms(app, retries, basis, in_order, says)

        def begin(base: TableState) -> Write:
            if read is not None and read != base.version:  # a conflict that a write without a condition survives
                raise read_changed(read, base.version)
            replacing = replacement(overwrite, base.definition)
            return Write(self._table, base, run, replacing, terms)

        committed = self._committed(begin, base)
        state = self._filestore.state() if committed is None else committed.state
        self._expiry.run_if_due(self._ambient, state.definition.options, self.drop_partitions)
        return self._filestore.snapshot(state.version) if committed is None else committed.snapshot

    def drop_partitions(self, choose: Callable[[TableState], Drop]) -> Snapshot | None:
        """Drops partitions with everything that is in them at the commit; returns None if they are empty.

        Args:
            choose: Chooses them for a version; called again if the choice no longer holds.

        Raises:
            Conflict: lost against other writers; nothing was changed.
            Unavailable: storage or log did not answer; nothing was changed, unless it is `CommitUnknown`.
        """
        check_may_write(self.definition, None)
        committed = self._committed(lambda base: Write.dropping(self._table, base, choose(base)))
        return None if committed is None else committed.snapshot

    def rollback(self, version: int) -> Snapshot:
        """Restores the rows of an older version; see `tablestore.writing.rollback.rollback`."""
        check_may_write(self.definition, None)
        return rollback(self._table, version, _RepairAfterFailure(self))

    def _committed(self, begin: Callable[[TableState], Write], base: TableState | None = None) -> Committed | None:
        def once() -> Committed | None:
            observer = _WriteObserver(self)
            return self._filestore.commit(lambda newest: begin(newest).begun(), base=base, observer=observer)

        return self.meter.measured(once)

    def recover(self, *, wait: bool = True) -> Recovered:
        """Repairs the log after dead writers, whether or not a repair was tried before.

        Args:
            wait: Waits until it is known of each writer whether it lives: in a store of objects for
                ``log.lease-timeout`` at most. Without it a writer counts as living until then; for callers that come
                again.

        Raises:
            Unavailable: log or storage did not answer, or the database that holds the table's commits.
        """
        self._recovery.search_again()
        config = self.log
        if wait and config is not None:
            self._filestore.leases.wait_until_known()
        with log_session(config, self._ambient) as log:
            found = self._recovery.before_write(self._filestore.decided(), log)
            repaired = tuple(sorted(self._repair()))
            return replace(found, repaired=repaired, foreign=self._recovery.foreign(log))

    def repair_after_failure(self) -> None:
        """Repairs an eventual log at once after a failed write; if a store does not answer, the next writer does it."""
        try:
            self._repair()
        except TableStoreError as error:  # the error of the write is the one that the caller has to see
            logger.warning("records of a failed write stay in the log of %s: %s", self._filestore.location, error)

    def _repair(self) -> set[str]:
        repair = LogRepair(self._filestore, self._log_of, self._recovery)
        self._filestore.commit(repair.begin)
        return repair.strays


class _RepairAfterFailure(Observer):
    """Repairs the log after a write or a rollback that failed."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer

    def failed(self) -> None:
        self._writer.repair_after_failure()


class _WriteObserver(_RepairAfterFailure):
    """Measures a write, too. A rollback is not measured, since it is none of the writes that are counted."""

    def began_again(self, conflict: Conflict) -> None:
        self._writer.meter.retried(conflict)

    def lost_races(self, races: int) -> None:
        self._writer.meter.raced(races)
