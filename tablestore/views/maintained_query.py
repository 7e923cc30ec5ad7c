"""`MaintainedQuery`: keeps the table of a view equal to a query that Spark runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from filestore.arguments import checks_arguments
from filestore.checks.report import Finding
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound, TableStoreError, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from filestore.model.types import to_sql
from filestore.operations.replaced_rows import ChangeRunner, changes_in_threads
from tablestore.table import Table
from tablestore.views.examination import cannot_be_refreshed, different_rows, unchecked
from tablestore.views.output_table import VIEW_QUERY
from tablestore.views.refresh_plan import RefreshPlan
from tablestore.views.view import InputLag, View
from tablestore.views.view_plan import Incremental, Mode, ViewPlan, Whole, plan_view, with_key
from tablestore.views.view_query import ViewQuery, parse_view
from tablestore.views.view_settings import other_meaning, settings_of
from tablestore.writing.write_job import WriteRunner

__all__ = [
    "MaintainedQuery",
    "QueryEngine",
    "QueryWork",
    "RefreshedQuery",
    "RowCounts",
    "explained_query",
]


@dataclass(frozen=True, slots=True)
class RefreshedQuery:
    """The result of a refresh.

    Attributes:
        version: The version of the view.
        inputs: The version of each table of which it is the result.
        whole: Whether all rows were computed again, instead of those that changes affect.
    """

    version: int
    inputs: Mapping[str, int]
    whole: bool


@dataclass(frozen=True, slots=True)
class QueryWork:
    """The work of a refresh, or of a comparison.

    Attributes:
        query: The query.
        plan: The plan of its refreshes.
        settings: Settings of Spark with which it runs.
        until: For each of the query's tables the version that is read.
        since: For each of them the version whose result is stored; None to compute all rows.
        output: The view's table, whose rows are compared.
        version: The version of it.
        tables: All these tables as the view has opened them, by name: another one may have a name meanwhile. Empty for
            a view that is created.
    """

    query: ViewQuery
    plan: ViewPlan
    settings: Mapping[str, str]
    until: Mapping[str, int]
    since: Mapping[str, int] | None = None
    output: str = ""
    version: int = 0
    tables: Mapping[str, Table] = field(default_factory=dict)

    def require_tables(self) -> None:
        """Raises `NotFound` (``table-replaced``) if a table was dropped, or dropped and created again, meanwhile."""
        for table in self.tables.values():
            table.filestore.state()


@dataclass(frozen=True, slots=True)
class RowCounts:
    """A comparison of stored rows with the query's result.

    Attributes:
        different: The rows that only one of them has.
        results: The rows of the result.
        stored: The stored rows.
    """

    different: int
    results: int
    stored: int


class QueryEngine(Protocol):
    """Computes rows: Spark."""

    @property
    def changes(self) -> ChangeRunner:
        """Computes the change data of refreshes that replace all rows."""

    def schema(self, work: QueryWork) -> Schema:
        """Returns the columns of the query's result."""

    def runner(self, work: QueryWork, definition: TableDefinition) -> WriteRunner:
        """Returns what writes the rows of a refresh."""

    def compare(self, work: QueryWork) -> RowCounts:
        """Compares stored rows with the query's result."""


@checks_arguments("engine")
class MaintainedQuery(View[RefreshedQuery]):
    """The result of a query as a table. `tablestore.spark.SparkStore.create_view` makes it.

    Attributes:
        table: The view's table, which everybody may read.
        query: The query.
        plan: The plan of its refreshes.
    """

    def __init__(self, table: Table, inputs: Sequence[Table], engine: QueryEngine | None = None) -> None:
        super().__init__(table, inputs, changes_in_threads if engine is None else engine.changes)
        self.query = parse_view(str(table.definition.options[VIEW_QUERY]))
        self._engine = engine

    def executed_by(self, engine: QueryEngine) -> MaintainedQuery:
        """Returns the same view, with what computes its rows."""
        return MaintainedQuery(self.table, self.inputs, engine)

    @property
    def plan(self) -> ViewPlan:
        """The plan of its refreshes, for the newest versions of its tables."""
        with self._named_errors():
            return self._plan(self.table.filestore.state(), self._newest())

    def lag(self) -> dict[str, InputLag]:
        """Returns for each table the version of which the view is the result, and how many later ones there are."""
        return dict(self.input_lags())

    def read_by(self, refreshed: RefreshedQuery) -> list[tuple[str, int]]:
        """Returns for each table the version that a refresh has read."""
        return list(refreshed.inputs.items())

    def explain(self) -> tuple[str, ...]:
        """Returns how it is refreshed, a line each: incrementally, or as a whole with the reason.

        If its tables have changed so that it cannot be refreshed, one line says why. Without Spark only the plan is
        looked at, and not whether the tables still have the columns of the query.
        """
        output, states = self.table.filestore.state(), self._newest()
        try:
            plan = self._plan(output, states)
            if self._engine is not None:
                versions = self._by_name([state.version for state in states])
                self._check_query(QueryWork(self.query, plan, self._settings, versions), output)
        except (NotFound, InvalidRequest, Unsupported) as error:
            return cannot_be_refreshed(self.table.identifier, error)
        return explained_query(self.table.identifier, plan)

    def _plan(self, output: TableState, states: Sequence[TableState]) -> ViewPlan:
        definition = output.definition
        definitions = {table.identifier: state.definition for table, state in zip(self.inputs, states, strict=True)}
        key = definition.primary_key
        plan = with_key(plan_view(self.query, definitions, self._settings, key), definition.schema, (), Mode.AUTO)
        if isinstance(plan, Incremental) and set(plan.key) != set(key):
            plan = Whole("its table was created without the key that the query has")
        return with_key(plan, definition.schema, (), Mode(definition.options["view.incremental"]))

    def _check(self, output: TableState, states: Sequence[TableState]) -> None:
        self._plan(output, states)

    def _columns(self, states: Sequence[TableState]) -> Sequence[Sequence[str]]:
        names = None if other_meaning(self._settings) else self.query.names
        return [
            [
                column
                for column in state.definition.schema.names
                if names is None or column.lower() in names or column in state.definition.primary_key
            ]
            for state in states
        ]

    def _write(
        self,
        plan: RefreshPlan,
        output: TableState,
        states: Sequence[TableState],
        before: Sequence[TableState] | None,
    ) -> tuple[RefreshedQuery, int]:
        engine = self._required_engine
        own = self._plan(output, states)
        whole = before is None or isinstance(own, Whole)
        work = QueryWork(
            self.query,
            own,
            self._settings,
            self._by_name(plan.until),
            None if whole or before is None else self._by_name([state.version for state in before]),
            self.table.identifier,
            output.version,
            self._tables,
        )
        if before is None or not _same_schemas(before, states):  # those of the last refresh were checked by it
            self._check_query(work, output)
        runner = engine.runner(work, output.definition)
        snapshot = self._writer.write(runner, overwrite=whole, app=plan.app, base=output, retries=True)
        return RefreshedQuery(snapshot.version, work.until, whole), snapshot.version

    def _check_query(self, work: QueryWork, output: TableState) -> None:
        """Checks that the query still runs over its tables, with the columns of the view; raises ``view-outdated``."""
        try:
            result = self._required_engine.schema(work)
        except InvalidRequest as error:
            if error.code != "view-query":
                raise
            raise InvalidRequest(
                f"{self.table.identifier} does not fit the tables of its query any more. {error.message} Give the "
                "tables back what they lack, or drop the view and create it with another query",
                code="view-outdated",
            ) from error
        self._check_columns(result, output)

    def _check_columns(self, result: Schema, output: TableState) -> None:
        if _columns_in_sql(result) != _columns_in_sql(output.definition.schema):
            raise InvalidRequest(
                "it does not fit its query any more: a column that it reads has another type now, or * stands "
                "for other columns; create it again",
                code="view-outdated",
            )

    def _compared(self, output: TableState, read: Sequence[int]) -> list[Finding]:
        engine = self._required_engine
        states = [table.filestore.state(version) for table, version in zip(self.inputs, read, strict=True)]
        plan = self._plan(output, states)
        if not plan.repeatable:
            return [unchecked("the query may have other rows each time that it runs")]
        own, name = self._settings, self.table.identifier
        work = QueryWork(self.query, plan, own, self._by_name(read), None, name, output.version, self._tables)
        self._check_columns(engine.schema(work), output)
        counts = engine.compare(work)
        if not counts.different:
            return []
        return [different_rows(counts.different, counts.results, counts.stored, read)]

    def _by_name(self, versions: Sequence[int]) -> dict[str, int]:
        return {table.identifier: version for table, version in zip(self.inputs, versions, strict=True)}

    @property
    def _tables(self) -> dict[str, Table]:
        return {table.identifier: table for table in (*self.inputs, self.table)}

    @cached_property
    def _settings(self) -> dict[str, str]:
        return settings_of(self.table.definition.options.as_dict())

    @property
    def _required_engine(self) -> QueryEngine:
        if self._engine is None:
            raise needs_spark(self.table.identifier)
        return self._engine


def _columns_in_sql(schema: Schema) -> list[tuple[str, str]]:
    """Returns names and types; SQL, in which a table is created, has no lists and maps without nulls."""
    return [(column.name, to_sql(column.type)) for column in schema]


def _same_schemas(before: Sequence[TableState], after: Sequence[TableState]) -> bool:
    pairs = zip(before, after, strict=True)
    return all(former.definition.schema == now.definition.schema for former, now in pairs)


def explained_query(name: str, plan: ViewPlan) -> tuple[str, ...]:
    """Returns how a view that Spark computes is refreshed, a line each."""
    how = "incrementally, by Spark" if isinstance(plan, Incremental) else f"as a whole, by Spark: {plan.reason}"
    return (f"{name} is refreshed {how}", *plan.described())


def needs_spark(name: str) -> TableStoreError:
    """Returns the error for a view that only Spark can compute."""
    return Unsupported(
        f"the rows of {name} are computed by Spark: open it with tablestore.spark.SparkStore, or use "
        "REFRESH MATERIALIZED VIEW or 'tablestore refresh'",
        code="needs-spark",
    )
