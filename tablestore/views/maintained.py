"""`MaintainedJoin`: keeps the table of a view equal to the join of two tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from threading import Event

from filestore.arguments import checks_arguments
from filestore.checks.report import Finding, Report
from filestore.delta.state import TableState
from filestore.errors import Conflict, InvalidRequest, NotFound
from filestore.operations.replaced_rows import ChangeRunner, changes_in_threads
from filestore.table import FileStore
from tablestore.table import Table
from tablestore.views.examination import differing, unchecked
from tablestore.views.holds import Holds
from tablestore.views.join_query import JoinQuery, parse_join
from tablestore.views.output_table import VIEW_QUERY, check_output
from tablestore.views.refresh import Input, Refresh, WorkRunner, in_own_threads
from tablestore.views.refresh_plan import RefreshPlan, plan_refresh, read_versions, same_columns
from tablestore.writing.commit_metrics import CommitMeter
from tablestore.writing.writer import TableWriter

__all__ = ["Execution", "MaintainedJoin", "Refreshed", "ViewLag"]

Stop = Event | Callable[[], bool] | None

_MOST_LOOKS = 10
"""A refresh that other processes overtake begins so many times."""


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
        it. All rows are computed again by the first refresh, if the versions since the last one have expired, if a
        column was replaced by another of its name, and, once the view is opened again, if a table was created again.

        Raises:
            NotFound: a table, or a column that the query reads, does not exist any more; ``table-replaced``: it was
                created again, so open the view again.
            InvalidRequest: ``view-outdated``: a table has changed so that the view does not fit any more.
            Conflict: ``other-refresh``: another process has refreshed the view meanwhile. Nothing was changed.
            Unavailable: a store did not answer. Refresh again: what was committed is not repeated.
        """
        for _ in range(_MOST_LOOKS):
            output, states = self.table.filestore.state(), self._newest()
            check_output(self.query, output.definition, *(state.definition for state in states))
            plan = plan_refresh(output, *states)
            if plan is None:
                for store, version in zip(self._stores, states, strict=True):
                    self._holds.hold_if_possible(store, version.version)
                return None
            inputs = self._held(plan, states, output)
            if inputs is not None:
                return self._refreshed(plan, output, *inputs)
        raise self._overtaken("again and again")

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
            empty = not output.files and not output.pending()
            return [] if empty else [unchecked("a table that it reads was created again since its last refresh")]
        try:
            left, right = (
                Input(table.filestore, table.filestore.state(version), None)
                for table, version in zip((self._left, self._right), read, strict=True)
            )
            check_output(self.query, output.definition, left.until.definition, right.until.definition)
        except (NotFound, InvalidRequest) as error:
            return [unchecked(error.message)]
        work = Refresh(self.query, left, right, output, self.table.filestore, self._execution.run)
        return differing([part.compared() for part in work.of_buckets(range(output.definition.buckets))], read)

    def lag(self) -> ViewLag:
        """Returns of which versions the view is the result, and how many later ones there are."""
        output, left, right = (table.filestore.state() for table in (self.table, self._left, self._right))
        read = read_versions(output, left.table_id, right.table_id)
        if read is None:
            return ViewLag(None, None, left.version + 1, right.version + 1)
        return ViewLag(read[0], read[1], left.version - read[0], right.version - read[1])

    def drop_holds(self) -> None:
        """Lets the versions expire that the view has read: before its table is dropped."""
        for store in self._stores:
            self._holds.release(store)

    @property
    def _stores(self) -> tuple[FileStore, FileStore]:
        return self._left.filestore, self._right.filestore

    def _newest(self) -> tuple[TableState, TableState]:
        """Returns the newest version of each input; of a table that is on both sides it is one version."""
        left, right = self._stores
        state = left.state()
        return state, state if right.location == left.location else right.state()

    def _held(
        self, plan: RefreshPlan, states: tuple[TableState, TableState], output: TableState
    ) -> tuple[Input, Input] | None:
        """Holds the versions that a refresh reads; returns None if another process has refreshed the view meanwhile.

        If the versions that the view has read are gone, or columns of them are others now, all rows are computed again.
        """
        if plan.since is not None:
            before = self._before(plan.since, states)
            later = any((self._holds.held(s) or 0) > at for s, at in zip(self._stores, plan.since, strict=True))
            if later and self.table.filestore.state().positions != output.positions:
                return None
            if before is not None and self._hold(plan.since):
                return self._inputs(states, before)
        return self._inputs(states, (None, None)) if self._hold(plan.until) else None

    def _before(
        self, since: tuple[int, int], states: tuple[TableState, TableState]
    ) -> tuple[TableState, TableState] | None:
        """Reads the versions that the view has read; returns None if they cannot be compared with the newest ones."""
        try:
            left, right = (store.state(version) for store, version in zip(self._stores, since, strict=True))
        except NotFound as error:
            if error.code != "snapshot-expired":
                raise
            return None
        key = states[0].definition.primary_key
        same = same_columns(left.definition, states[0].definition, (*key, *self.query.left_columns))
        same = same and same_columns(right.definition, states[1].definition, self.query.right_columns)
        return (left, right) if same else None

    def _hold(self, versions: tuple[int, int]) -> bool:
        """Holds a version of each input; returns False if one of them has expired."""
        try:
            for store, version in zip(self._stores, versions, strict=True):
                self._holds.hold(store, version)
        except NotFound as error:
            if error.code != "snapshot-expired":
                raise
            return False
        return True

    def _inputs(
        self, states: tuple[TableState, TableState], before: tuple[TableState | None, TableState | None]
    ) -> tuple[Input, Input]:
        (left, right), stores = zip(states, before, strict=True), self._stores
        return Input(stores[0], *left), Input(stores[1], *right)

    def _refreshed(self, plan: RefreshPlan, output: TableState, left: Input, right: Input) -> Refreshed:
        whole, execution = left.since is None, self._execution
        stored = None if whole else self.table.filestore
        work = Refresh(self.query, left, right, output, stored, execution.run)
        with ExitStack() as reading:
            for state, store in ((s, i.store) for i in (left, right) for s in (i.since, i.until) if s is not None):
                reading.enter_context(store.reading(state.version))
            snapshot = self._writer.write(work, overwrite=whole, app=plan.app, base=output, retries=execution.retries)
        if dict(plan.app.positions) != self.table.filestore.required(snapshot.version).positions:
            raise self._overtaken(f"by version {snapshot.version}")
        for store, version in zip(self._stores, plan.until, strict=True):
            self._holds.hold_if_possible(store, version)
        self.table.in_writer.after_commit(output.definition)
        return Refreshed(snapshot.version, *plan.until, whole)

    @cached_property
    def _holds(self) -> Holds:
        return Holds(self.table.filestore.state().table_id)

    @cached_property
    def _writer(self) -> TableWriter:
        opened, changes = self.table.opened, self._execution.changes
        meter = CommitMeter(opened.meter, self.table.identifier, opened.ambient)
        return TableWriter(self.table.filestore, opened.log_config, opened.ambient, changes, meter)

    def _overtaken(self, how: str) -> Conflict:
        return Conflict(
            f"another process has refreshed {self.table.identifier} meanwhile ({how}): refresh it again for what has "
            "changed since",
            code="other-refresh",
            again=True,
        )
