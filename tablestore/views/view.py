"""`View`: a table whose rows are the result of a query over other tables, and how any refresh of it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from threading import Event

from filestore.arguments import checks_arguments
from filestore.checks.report import Finding, Report
from filestore.delta.state import TableState
from filestore.errors import Conflict, InvalidRequest, NotFound, TableStoreError, Unavailable, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.snapshot import Operation
from tablestore.table import Table
from tablestore.views.engines.either import Engine, Engines
from tablestore.views.events.event_method import EventMethod
from tablestore.views.examination import cannot_be_refreshed, unchecked
from tablestore.views.holds import Holds
from tablestore.views.query_method import QueryMethod
from tablestore.views.refresh_method import RefreshMethod, RefreshStep
from tablestore.views.refresh_plan import RefreshPlan, read_versions, rebuilt, same_columns, same_types
from tablestore.views.shared_versions import SharedVersions
from tablestore.views.sql.view_query import VIEW_QUERY, parse_view
from tablestore.views.view_errors import errors_of_view
from tablestore.writing.commit_metrics import CommitMeter
from tablestore.writing.writer import TableWriter

__all__ = ["InputLag", "Refreshed", "Stop", "View"]

Stop = Event | Callable[[], bool] | None

_Planned = Callable[[TableState, Sequence[TableState]], RefreshPlan | None]
"""Plans a refresh from a version of the view to versions of its inputs; None if there is nothing to do."""

_MOST_LOOKS = 10
"""A refresh begins so many times if other processes overtake it, or if what it is about to read expires."""
_RETRIED = ("other-refresh", "inputs-expired")
"""The conflicts after which `View.caught_up` refreshes again."""


@dataclass(frozen=True, slots=True)
class InputLag:
    """The distance of a view behind one of its inputs.

    Attributes:
        version: The version of the table of which the view is the result; None before the first refresh.
        behind: The number of later versions.
    """

    version: int | None
    behind: int


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a refresh.

    Attributes:
        version: The version of the view.
        inputs: The version of each table of which it is the result.
        whole: Whether all rows were computed again, instead of those that changes affect.
        wrong: How many rows were wrong before, of those that were checked (option ``view.check``).
    """

    version: int
    inputs: Mapping[str, int]
    whole: bool
    wrong: int = field(default=0, repr=False)


_METHODS: Mapping[str, type[RefreshMethod]] = {
    "tablestore": QueryMethod,
    "lookup": EventMethod,
    "spark": QueryMethod,
}
"""The methods that compute the rows of views, by the option ``view.engine`` of its table.

A join by a primary key (``tablestore``) has a name of its own here, since earlier versions refresh it in another way.
"""


@checks_arguments("spark")
class View:
    """A table whose rows are the result of a query. `tablestore.Store.create_materialized_view` makes it.

    Each version of the view's table is the result for one version of each input, and names these. Any number of
    processes may refresh it, and may die at any time: a refresh is one commit.

    Attributes:
        table: The view's table, which everybody may read.
        inputs: The tables that it reads, each once, in the order of its query.
    """

    def __init__(self, table: Table, inputs: Sequence[Table], spark: Engine | None = None) -> None:
        self.table = table
        self.inputs = tuple(inputs)
        self._engines = Engines(spark)
        self._method = _METHODS[table.definition.options["view.engine"]](table, self.inputs, self._engines)

    def __repr__(self) -> str:
        return f"View({self.table.identifier!r})"

    @staticmethod
    def tables_of(definition: TableDefinition) -> tuple[str, ...]:
        """Returns the names of the tables that a view reads, in the order of `inputs`. `definition` is its table's."""
        return parse_view(str(definition.options[VIEW_QUERY])).tables

    def executed_by(self, spark: Engine) -> View:
        """Returns the same view, with Spark for tasks, and for queries that this process does not compute."""
        return View(self.table, self.inputs, spark)

    @property
    def query(self) -> str:
        """The query, as the view's table has it."""
        return str(self.table.definition.options[VIEW_QUERY])

    def explain(self) -> tuple[str, ...]:
        """Returns how the view is refreshed, a line each: incrementally, or as a whole with the reason; where, and why.

        If its tables have changed so that it cannot be refreshed, one line says why. Where Spark computes it, and this
        process has none, only the plan is looked at, and not whether the tables still have the columns of the query.
        """
        try:
            return self._method.explained(self.table.filestore.state(), self._newest())
        except (NotFound, InvalidRequest, Unsupported) as error:
            return cannot_be_refreshed(self.table.identifier, error)

    def refresh(self, versions: SharedVersions | None = None) -> Refreshed | None:
        """Updates the view to the newest versions of its inputs as one commit; returns None if nothing is new.

        It reads what changed in the tables since the last refresh, and works the rows of the result out that depend on
        it, if the query allows that. All rows are computed again by the first refresh, if the versions since the last
        one have expired, if a column was replaced by another of its name, and, once the view is opened again, if a
        table was created again.

        Args:
            versions: The versions that other views of a chain have read, in whose place the newest ones would be.

        Raises:
            NotFound: a table does not exist any more; ``table-replaced``: it was created again, so open the view again.
            InvalidRequest: ``view-outdated``: a table has changed so that the view does not fit any more, as by the
                loss of a column.
            Conflict: ``other-refresh``: another process has refreshed the view meanwhile; ``inputs-expired``: writes of
                a table let its versions expire before the refresh could hold one. Nothing was changed.
            Unavailable: a store did not answer. Refresh again: what was committed is not repeated.
        """
        return self._refresh(self._method.planned, versions)

    def rebuild(self, versions: SharedVersions | None = None) -> Refreshed:
        """Computes all rows of the view again from the newest versions of its inputs, and replaces the stored ones.

        Arguments and errors are those of `refresh`.
        """
        result = self._refresh(lambda output, states: rebuilt(output, *states), versions)
        assert result is not None, "there is always something to rebuild"
        return result

    def _refresh(self, planned: _Planned, versions: SharedVersions | None) -> Refreshed | None:
        versions = SharedVersions() if versions is None else versions
        with self._named_errors():
            return self._refreshed_to(versions, planned)

    def _named_errors(self) -> AbstractContextManager[None]:
        """Makes errors name the view."""
        return errors_of_view(self.table, self.inputs)

    def _refreshed_to(self, versions: SharedVersions, planned: _Planned) -> Refreshed | None:
        for _ in range(_MOST_LOOKS):
            output = self.table.filestore.state()
            states = tuple(versions.of(table.filestore, output) for table in self.inputs)
            self._method.check(output, states)
            plan = planned(output, states)
            if plan is None:
                self._holds.keep([state.version for state in states])
                versions.put(self.table.filestore, output)
                return None
            held, before = self._held(plan, output, states)
            if held:
                done = self._refreshed(RefreshStep(plan, output, states, before))
                versions.put(self.table.filestore, self.table.filestore.state(done.version))
                return done
            for table in self.inputs:
                versions.forget(table.filestore)
        if self._is_other(output):
            raise self._overtaken("again and again")
        raise Conflict(
            f"the newest versions of the tables of {self.table.identifier} expired {_MOST_LOOKS} times before a "
            "refresh could hold them: let the tables keep more versions (snapshot.num-retained.min, "
            "snapshot.time-retained), or refresh it again when less is written",
            code="inputs-expired",
            again=True,
        )

    def caught_up(self, versions: SharedVersions | None = None) -> Refreshed | None:
        """Refreshes the view, and looks again where other processes were faster; else as `refresh`."""
        while True:
            try:
                return self.refresh(versions)
            except Conflict as error:
                if error.code not in _RETRIED:
                    raise

    def follow(self, stop: Stop = None, every: timedelta = timedelta(seconds=1)) -> Iterator[Refreshed]:
        """Refreshes endlessly, and yields the result of each refresh that committed. Raises as `refresh`.

        Another process may refresh the view, too: what it has committed is not repeated.

        Args:
            stop: Says when to end, a `threading.Event` or a function; what was committed before is still added.
            every: The pause between two looks at the tables.
        """
        while True:
            last = stop is not None and (stop.is_set() if isinstance(stop, Event) else stop())
            refreshed = self.caught_up()
            if refreshed is not None:
                yield refreshed
            if last:
                return
            self.table.opened.ambient.sleep(every.total_seconds())

    def examine(self) -> Report:
        """Checks the view's table as `tablestore.Table.examine`, and that its rows are the result of the query."""
        with self._named_errors():
            return self.table.examine().with_more(self.compare())

    def compare(self) -> list[Finding]:
        """Compares its rows with the result of the query. What prevents that is a note.

        Raises:
            NotFound: ``table-replaced``: a table was dropped since the view was opened.
            Unavailable: a store does not answer.
        """
        try:
            with self._named_errors():
                output = self.table.filestore.state()
                read = read_versions(output, *(table.filestore.state().table_id for table in self.inputs))
                if read is not None:
                    return self._method.compared(output, read)
                empty = not output.files and not output.pending
                return [] if empty else [unchecked("a table that it reads was created again since its last refresh")]
        except TableStoreError as error:
            if error.code == "table-replaced" or isinstance(error, Unavailable):
                raise
            return [unchecked(error.message)]

    def lag(self) -> dict[str, InputLag]:
        """Returns for each table the version of which the view is the result, and how many later ones there are."""
        with self._named_errors():
            output, states = self.table.filestore.state(), self._newest()
        read = read_versions(output, *(state.table_id for state in states))
        known: Sequence[int | None] = [None] * len(states) if read is None else read
        return {
            table.identifier: InputLag(at, state.version - (-1 if at is None else at))
            for table, state, at in zip(self.inputs, states, known, strict=True)
        }

    def drop_holds(self) -> None:
        """Lets the versions expire that the view has read: before its table is dropped."""
        self._holds.release()

    def _newest(self) -> tuple[TableState, ...]:
        """Returns the newest version of each input."""
        return tuple(table.filestore.state() for table in self.inputs)

    def _held(
        self, plan: RefreshPlan, output: TableState, states: Sequence[TableState]
    ) -> tuple[bool, Sequence[TableState] | None]:
        """Holds the versions that a refresh reads; see `RefreshMethod.held`."""
        return self._method.held(
            plan, self._holds, lambda: self._is_other(output), lambda since: self._comparable(since, states)
        )

    def _is_other(self, output: TableState) -> bool:
        """Returns whether another process has refreshed the view since this version of it was read."""
        return self.table.filestore.state().positions != output.positions

    def _comparable(self, since: Sequence[int], states: Sequence[TableState]) -> tuple[TableState, ...] | None:
        """Reads the versions that the view has read; returns None if they cannot be compared with the newest ones."""
        try:
            before = tuple(table.filestore.state(version) for table, version in zip(self.inputs, since, strict=True))
        except NotFound as error:
            if error.code != "snapshot-expired":
                raise
            return None
        same = all(
            same_columns(former.definition, state.definition, columns)
            and same_types(former.definition, state.definition, columns)
            for former, state, columns in zip(before, states, self._method.columns(states), strict=True)
        )
        return before if same else None

    def _refreshed(self, step: RefreshStep) -> Refreshed:
        written = self._method.write(step, self._writer)
        version = written.snapshot.version
        other = dict(step.plan.app.positions) != self.table.filestore.required(version).positions
        if other or (written.replaces and written.snapshot.operation is not Operation.OVERWRITE):
            raise self._overtaken(f"by version {version}")
        self._holds.keep(step.plan.until)
        self.table.in_writer.after_commit(step.output.definition)
        read = {table.identifier: at for table, at in zip(self.inputs, step.plan.until, strict=True)}
        return Refreshed(version, read, written.whole, written.wrong)

    @cached_property
    def _holds(self) -> Holds:
        return Holds(self.table.filestore.state().table_id, [table.filestore for table in self.inputs])

    @cached_property
    def _writer(self) -> TableWriter:
        opened = self.table.opened
        meter = CommitMeter(opened.meter, self.table.identifier, opened.ambient)
        changes = self._engines.tasks.changes
        return TableWriter(self.table.filestore, opened.log_config, opened.ambient, changes, meter)

    def _overtaken(self, how: str) -> Conflict:
        return Conflict(
            f"another process has refreshed {self.table.identifier} meanwhile ({how}): refresh it again for what has "
            "changed since",
            code="other-refresh",
            again=True,
        )
