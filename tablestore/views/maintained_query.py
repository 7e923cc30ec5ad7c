"""`MaintainedQuery`: keeps the table of a view equal to a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from filestore.arguments import checks_arguments
from filestore.checks.report import Finding
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from filestore.model.types import to_sql
from tablestore.table import Table
from tablestore.views.examination import cannot_be_refreshed, different_rows, unchecked
from tablestore.views.output_table import VIEW_QUERY
from tablestore.views.query_engines import QueryEngine, QueryEngines
from tablestore.views.query_work import QueryWork
from tablestore.views.refresh_plan import RefreshPlan
from tablestore.views.view import InputLag, View
from tablestore.views.view_plan import Incremental, Mode, ViewPlan, Whole, plan_view, with_key
from tablestore.views.view_query import parse_view
from tablestore.views.view_settings import other_meaning, settings_of

__all__ = [
    "MaintainedQuery",
    "RefreshedQuery",
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


@checks_arguments("engine")
class MaintainedQuery(View[RefreshedQuery]):
    """The result of a query as a table. `tablestore.Store.create_materialized_view` makes it.

    Attributes:
        table: The view's table, which everybody may read.
        query: The query.
        plan: The plan of its refreshes.
    """

    def __init__(self, table: Table, inputs: Sequence[Table], spark: QueryEngine | None = None) -> None:
        self._engines = QueryEngines(self._opened, spark)
        super().__init__(table, inputs, self._engines.changes)
        self.query = parse_view(str(table.definition.options[VIEW_QUERY]))
        self._planned: tuple[tuple[TableDefinition, ...], ViewPlan] | None = None

    def executed_by(self, spark: QueryEngine) -> MaintainedQuery:
        """Returns the same view, with Spark for what this process does not compute."""
        return MaintainedQuery(self.table, self.inputs, spark)

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
        """Returns how it is refreshed, a line each: incrementally, or as a whole with the reason; here, or in Spark.

        If its tables have changed so that it cannot be refreshed, one line says why. Where Spark computes it, and this
        process has none, only the plan is looked at, and not whether the tables still have the columns of the query.
        """
        output, states = self.table.filestore.state(), self._newest()
        try:
            plan = self._plan(output, states)
            versions = self._by_name([state.version for state in states])
            work = QueryWork(self.query, plan, self._settings, versions, tables=self._tables)
            why_spark = self._engines.why_spark(work, output.definition.options["view.local-memory"])
            if why_spark is None or self._engines.spark is not None:
                self._check_query(work, output)
        except (NotFound, InvalidRequest, Unsupported) as error:
            return cannot_be_refreshed(self.table.identifier, error)
        return explained_query(self.table.identifier, plan, why_spark)

    def _plan(self, output: TableState, states: Sequence[TableState]) -> ViewPlan:
        definition = output.definition
        read = (definition, *(state.definition for state in states))
        if self._planned is not None and self._planned[0] == read:
            return self._planned[1]
        definitions = {table.identifier: state.definition for table, state in zip(self.inputs, states, strict=True)}
        key = definition.primary_key
        plan = with_key(plan_view(self.query, definitions, self._settings, key), definition.schema, (), Mode.AUTO)
        if isinstance(plan, Incremental) and set(plan.key) != set(key):
            plan = Whole("its table was created without the key that the query has")
        plan = with_key(plan, definition.schema, (), Mode(definition.options["view.incremental"]))
        self._planned = read, plan
        return plan

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
        runner = self._engines.runner(work, output.definition)
        snapshot = self._writer.write(runner, overwrite=whole, app=plan.app, base=output, retries=True)
        return RefreshedQuery(snapshot.version, work.until, whole), snapshot.version

    def _check_query(self, work: QueryWork, output: TableState) -> None:
        """Checks that the query still runs over its tables, with the columns of the view; raises ``view-outdated``."""
        try:
            result = self._engines.schema(work)
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
        states = [table.filestore.state(version) for table, version in zip(self.inputs, read, strict=True)]
        plan = self._plan(output, states)
        if not plan.repeatable:
            return [unchecked("the query may have other rows each time that it runs")]
        own, name = self._settings, self.table.identifier
        work = QueryWork(self.query, plan, own, self._by_name(read), None, name, output.version, self._tables)
        self._check_columns(self._engines.schema(work), output)
        counts = self._engines.compare(work, output.definition.options["view.local-memory"])
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

    def _opened(self, name: str) -> Table:
        return self._tables[name]


def _columns_in_sql(schema: Schema) -> list[tuple[str, str]]:
    """Returns names and types; SQL, in which a table is created, has no lists and maps without nulls."""
    return [(column.name, to_sql(column.type)) for column in schema]


def _same_schemas(before: Sequence[TableState], after: Sequence[TableState]) -> bool:
    pairs = zip(before, after, strict=True)
    return all(former.definition.schema == now.definition.schema for former, now in pairs)


def explained_query(name: str, plan: ViewPlan, why_spark: str | None) -> tuple[str, ...]:
    """Returns how the view of a query is refreshed, a line each.

    Args:
        name: The view.
        plan: The plan of its refreshes.
        why_spark: Why Spark computes it; None if this process does.
    """
    where = "without Spark" if why_spark is None else "by Spark"
    how = f"incrementally, {where}" if isinstance(plan, Incremental) else f"as a whole, {where}: {plan.reason}"
    spark = () if why_spark is None else (f"Spark computes it, since {why_spark}",)
    return (f"{name} is refreshed {how}", *plan.described(), *spark)
