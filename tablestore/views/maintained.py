"""`MaintainedJoin`: keeps the table of a view equal to the join of two tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from threading import Event

from filestore.arguments import checks_arguments
from filestore.checks.report import Finding, Report
from filestore.delta.state import TableState
from filestore.errors import Conflict, InvalidRequest, NotFound, TableStoreError
from filestore.life.consumers import Consumer
from filestore.operations.replaced_rows import ChangeRunner, changes_in_threads
from tablestore.table import Table
from tablestore.views.examination import differing, unchecked
from tablestore.views.join_query import JoinQuery, parse_join
from tablestore.views.output_table import VIEW_QUERY, check_output
from tablestore.views.refresh import Input, Refresh, WorkRunner, in_own_threads
from tablestore.views.refresh_plan import RefreshPlan, plan_refresh, read_versions
from tablestore.writing.writer import TableWriter

__all__ = ["Execution", "MaintainedJoin", "Refreshed", "ViewLag"]

logger = logging.getLogger(__name__)

Stop = Event | Callable[[], bool] | None


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a refresh.

    Attributes:
        version: The version of the view.
        left: The version of the left table of which it is the result.
        right: The version of the right table.
        whole: Whether all rows were computed again, instead of those that changes affect.
    """

    version: int
    left: int
    right: int
    whole: bool


@dataclass(frozen=True, slots=True)
class ViewLag:
    """The distance of a view behind its inputs.

    Attributes:
        left: The version of the left table of which the view is the result; None before the first refresh.
        right: The version of the right table.
        left_behind: The number of later versions of the left table.
        right_behind: The number of later versions of the right table.
    """

    left: int | None
    right: int | None
    left_behind: int
    right_behind: int


@dataclass(frozen=True, slots=True)
class Execution:
    """The place where the work of refreshes runs.

    Attributes:
        run: Runs the work of the buckets.
        changes: Computes the change data of a refresh that replaces all rows.
        retries: Whether a task may be tried more than once.
    """

    run: WorkRunner = in_own_threads
    changes: ChangeRunner = changes_in_threads
    retries: bool = False


@checks_arguments()
class MaintainedJoin:
    """The join of two tables as a table. `tablestore.Store.maintain_join` makes it.

    Each version of the view's table is the join of one version of each input, and names both. Any number of processes
    may refresh it, and may die at any time: a refresh is one commit.

    Attributes:
        table: The view's table, which everybody may read.
        query: The join.
    """

    def __init__(self, table: Table, left: Table, right: Table, execution: Execution = Execution()) -> None:
        self.table = table
        self._execution = execution
        self.query: JoinQuery = parse_join(table.definition.options[VIEW_QUERY])
        self._left = left
        self._right = right

    def __repr__(self) -> str:
        return f"MaintainedJoin({self.table.identifier!r})"

    def executed_by(self, execution: Execution) -> MaintainedJoin:
        """Returns the same view with another place where its refreshes run."""
        return MaintainedJoin(self.table, self._left, self._right, execution)

    def refresh(self) -> Refreshed | None:
        """Updates the view to the newest versions of its inputs as one commit; returns None if nothing is new.

        It reads what changed in both tables since the last refresh, and works the rows of the result out that depend on
        it. All rows are computed again by the first refresh, and if a table was created again, or its versions since
        the last refresh have expired.

        Raises:
            NotFound: a table, or a column that the query reads, does not exist any more.
            InvalidRequest: ``view-outdated``: a table has changed so that the view does not fit any more.
            Conflict: ``other-refresh``: another process has refreshed the view meanwhile. Nothing was changed.
            Unavailable: a store did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
        """
        output = self.table.filestore.state()
        left, right = (self._newest(table, output) for table in (self._left, self._right))
        check_output(self.query, output.definition, left.until.definition, right.until.definition)
        plan = plan_refresh(output, left.until, right.until)
        return None if plan is None else self._refreshed(plan, output, left, right)

    def follow(self, stop: Stop = None, every: timedelta = timedelta(seconds=1)) -> Iterator[Refreshed]:
        """Refreshes endlessly, and yields the result of each refresh that committed. Raises as `refresh`.

        Another process may refresh the view, too: what it has committed is not repeated.

        Args:
            stop: Says when to end, a `threading.Event` or a function; what was committed before is still added.
            every: The pause between two looks at the tables.
        """
        while True:
            last = stop is not None and (stop.is_set() if isinstance(stop, Event) else stop())
            try:
                refreshed = self.refresh()
            except Conflict as error:
                if error.code != "other-refresh":
                    raise
                continue
            if refreshed is not None:
                yield refreshed
            if last:
                return
            self.table.opened.ambient.sleep(every.total_seconds())

    def examine(self) -> Report:
        """Checks the view's table as `tablestore.Table.examine`, and that its rows are the result of the query."""
        output = self.table.filestore.state()
        return self.table.examine().with_more(self._compared(output))

    def _compared(self, output: TableState) -> list[Finding]:
        states = [table.filestore.state() for table in (self._left, self._right)]
        read = read_versions(output, *(state.table_id for state in states))
        if read is None:
            whole = not output.files and not output.pending()
            return [] if whole else [unchecked("a table that it reads was created again since its last refresh")]
        try:
            left, right = (
                Input(table.filestore, table.filestore.state(version), None)
                for table, version in zip((self._left, self._right), read, strict=True)
            )
            check_output(self.query, output.definition, left.until.definition, right.until.definition)
        except (NotFound, InvalidRequest) as error:
            return [unchecked(error.message)]
        work = Refresh(self.query, left, right, output, self.table.filestore, self._execution.run).work()
        compared = [part.compared() for part in work]
        stored = sum(
            file.live_rows for file in output.files.values() if file.slot.bucket not in {p.bucket for p in work}
        )
        return differing(compared, stored, read)

    def lag(self) -> ViewLag:
        """Returns of which versions the view is the result, and how many later ones there are."""
        output, left, right = (table.filestore.state() for table in (self.table, self._left, self._right))
        read = read_versions(output, left.table_id, right.table_id)
        if read is None:
            return ViewLag(None, None, left.version + 1, right.version + 1)
        return ViewLag(read[0], read[1], left.version - read[0], right.version - read[1])

    def _newest(self, table: Table, output: TableState) -> Input:
        """Returns an input with its newest version, and the version that the view has read, if that still exists.

        The latter is held until the next refresh, so that it does not expire.
        """
        store = table.filestore
        until = store.state()
        since = output.positions.get(until.table_id)
        if since is None or since > until.version:
            return Input(store, until, None)
        try:
            self._hold(table, output).register(since, rows=True)
            return Input(store, until, store.state(since))
        except NotFound as error:
            if error.code != "snapshot-expired":
                raise
            return Input(store, until, None)

    def _refreshed(self, plan: RefreshPlan, output: TableState, left: Input, right: Input) -> Refreshed:
        whole = plan.since is None or left.since is None or right.since is None
        if whole:
            left, right = Input(left.store, left.until, None), Input(right.store, right.until, None)
        stored = None if whole else self.table.filestore
        execution = self._execution
        work = Refresh(self.query, left, right, output, stored, execution.run)
        writer = TableWriter(
            self.table.filestore, self.table.opened.log_config, self.table.opened.ambient, execution.changes
        )
        snapshot = writer.write(work, overwrite=whole, app=plan.app, base=output, retries=execution.retries)
        found = self.table.filestore.required(snapshot.version).positions
        if dict(plan.app.positions) != found:
            raise Conflict(
                f"another process has refreshed {self.table.identifier} meanwhile: it is version {snapshot.version}; "
                "refresh it again for what has changed since",
                code="other-refresh",
                again=True,
            )
        for table, version in ((self._left, left.until.version), (self._right, right.until.version)):
            self._keep(table, output, version)
        self.table.in_writer.after_commit(output.definition)
        return Refreshed(snapshot.version, left.until.version, right.until.version, whole)

    def _keep(self, table: Table, output: TableState, version: int) -> None:
        """Holds the version of an input that the view has read. If it has expired, the next refresh is a whole one."""
        try:
            self._hold(table, output).register(version, rows=True)
        except TableStoreError as error:
            logger.warning("version %d of %s is not held for the view: %s", version, table.identifier, error)

    def _hold(self, table: Table, output: TableState) -> Consumer:
        return Consumer(table.filestore, f"view.{output.table_id}")
