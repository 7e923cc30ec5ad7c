"""`QueryMethod`: keeps a view equal to a query."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property

from filestore.checks.report import Finding
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from filestore.model.types import to_sql
from tablestore.reading.keyed_rows import stored_bytes
from tablestore.table import Table
from tablestore.views.engines.either import Engines
from tablestore.views.engines.query_work import QueryWork
from tablestore.views.examination import different_rows, unchecked
from tablestore.views.plan.cost import compares_here, described
from tablestore.views.plan.join_table import GivenTable
from tablestore.views.plan.view_plan import Incremental, Mode, ViewPlan, Whole, plan_view, with_key
from tablestore.views.refresh_method import RefreshMethod, RefreshStep, Written, refresh_says
from tablestore.views.sql.view_query import VIEW_QUERY, parse_view
from tablestore.views.sql.view_settings import other_meaning, settings_of
from tablestore.writing.writer import TableWriter

__all__ = ["QueryMethod", "explained_query"]

logger = logging.getLogger(__name__)


class QueryMethod(RefreshMethod):
    """Computes the rows of the keys that changes reach, or all rows, by the query's own text.

    Attributes:
        query: The query.
    """

    def __init__(self, table: Table, inputs: Sequence[Table], engines: Engines) -> None:
        super().__init__(table, inputs, engines)
        self.query = parse_view(str(table.definition.options[VIEW_QUERY]))
        self._planned: tuple[tuple[TableDefinition, ...], ViewPlan] | None = None
        self._compared: tuple[ViewPlan, bool] | None = None

    def check(self, output: TableState, states: Sequence[TableState]) -> None:
        """Plans the refresh; its columns are checked where they are read."""
        self._plan(output, states)

    def explained(self, output: TableState, states: Sequence[TableState]) -> tuple[str, ...]:
        """Returns how the view is refreshed, a line each; raises what would keep a refresh from it."""
        plan = self._plan(output, states)
        work = self._work(plan, output, states)
        why_spark = self.engines.why_spark(work, output.definition.options["view.local-memory"])
        try:
            self._check_query(work, output)
        except Unsupported as error:  # without Spark only the plan is looked at
            if error.code != "needs-spark":
                raise
        choice: tuple[str, ...] = ()
        most = output.definition.options["view.whole-size"]
        if isinstance(plan, Incremental) and most and self._may_compare(work, output):
            choice = (described(_size(output, states), most),)
        return explained_query(self.table.identifier, plan, why_spark, choice)

    def _plan(self, output: TableState, states: Sequence[TableState]) -> ViewPlan:
        definition = output.definition
        read = (definition, *(state.definition for state in states))
        if self._planned is not None and self._planned[0] == read:
            return self._planned[1]
        definitions = {table.identifier: state.definition for table, state in zip(self.inputs, states, strict=True)}
        key = definition.primary_key
        plan = plan_view(self.query, definitions, self._settings, key, GivenTable.of(definition))
        plan = with_key(plan, definition.schema, (), Mode.AUTO)
        if isinstance(plan, Incremental) and set(plan.key) != set(key):
            plan = Whole("its table was created without the key that the query has")
        plan = with_key(plan, definition.schema, (), Mode(definition.options["view.incremental"]))
        plan = replace(plan, key=key) if isinstance(plan, Whole) else plan
        self._planned = read, plan
        return plan

    def columns(self, states: Sequence[TableState]) -> Sequence[Sequence[str]]:
        """Returns for each input the columns that the query reads, or more."""
        names = None if other_meaning(self._settings) else self.query.names
        return [
            [
                column
                for column in state.definition.schema.names
                if names is None or column.lower() in names or column in state.definition.primary_key
            ]
            for state in states
        ]

    def write(self, step: RefreshStep, writer: TableWriter) -> Written:
        """Computes rows, and writes those that differ from the stored ones, or replaces all."""
        plan = self._plan(step.output, step.states)
        wrong = self._wrong(plan, step)
        whole = step.before is None or isinstance(plan, Whole) or bool(wrong)
        since = None if whole else step.before
        compares = whole and step.before is not None and bool(plan.key)
        work = replace(self._work(plan, step.output, step.states, since), compares=compares)
        if step.before is None or not _same_schemas(step.before, step.states):  # else the last refresh has checked it
            self._check_query(work, step.output)
        runner = self.engines.runner(work, step.output.definition, compares_here=self._compares_here(work, step))
        with ExitStack() as reading:
            for states in [step.states] if since is None else [step.states, since]:
                for store, state in zip(self.stores, states, strict=True):
                    reading.enter_context(store.reading(state.version))
            snapshot = writer.write(
                runner,
                overwrite=work.replaces,
                app=step.plan.app,
                base=step.output,
                retries=True,
                says=lambda: refresh_says(whole=whole or runner.compared, by_spark=runner.by_spark, wrong=wrong),
            )
        return Written(snapshot, whole or runner.compared, work.replaces, wrong)

    def _wrong(self, plan: ViewPlan, step: RefreshStep) -> int:
        """Returns how many of a few stored rows are wrong, before a refresh that would keep them."""
        options = step.output.definition.options
        if options["view.check"] != "sample" or step.before is None or not isinstance(plan, Incremental):
            return 0
        work = replace(self._work(plan, step.output, step.before), samples=True)
        try:
            wrong = self.engines.compare(work, options["view.local-memory"]).different
        except (InvalidRequest, Unsupported) as error:  # the refresh is worth more, and says what is wrong itself
            log = logger.debug if error.code == "needs-spark" else logger.warning
            log("rows of %s are not checked: %s", self.table.identifier, error)
            return 0
        if wrong:
            logger.warning(
                "%d rows of %s that were checked at version %d are wrong: all rows are computed",
                wrong,
                self.table.identifier,
                step.output.version,
            )
        return wrong

    def _compares_here(self, work: QueryWork, step: RefreshStep) -> bool:
        """Returns whether Spark computes all rows, and this process compares them."""
        options = step.output.definition.options
        if work.replaces or not compares_here(work.plan, _size(step.output, step.states), options["view.whole-size"]):
            return False
        return self._may_compare(work, step.output)

    def _may_compare(self, work: QueryWork, output: TableState) -> bool:
        """Returns whether Spark is needed, and all rows that it computes can be compared here."""
        if self._compared is None or self._compared[0] is not work.plan:
            self._compared = work.plan, self.engines.may_compare(work, output.definition.options["view.local-memory"])
        return self._compared[1]

    def _check_query(self, work: QueryWork, output: TableState) -> None:
        """Checks that the query still runs over its tables, with the columns of the view; raises ``view-outdated``."""
        try:
            result = self.engines.schema(work)
        except InvalidRequest as error:
            if error.code != "view-query":
                raise
            raise InvalidRequest(
                f"{self.table.identifier} does not fit the tables of its query any more: {error.message.rstrip('.')}. "
                "Give the tables back what they lack, or drop the view and create it with another query",
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

    def compared(self, output: TableState, read: Sequence[int]) -> list[Finding]:
        """Compares the stored rows with the query's result, if that is the same each time."""
        states = [store.state(version) for store, version in zip(self.stores, read, strict=True)]
        plan = self._plan(output, states)
        if not plan.repeatable:
            return [unchecked("the query may have other rows each time that it runs")]
        work = self._work(plan, output, states)
        self._check_columns(self.engines.schema(work), output)
        counts = self.engines.compare(work, output.definition.options["view.local-memory"])
        if not counts.different:
            return []
        return [different_rows(counts.different, counts.results, counts.stored, read)]

    def _work(
        self,
        plan: ViewPlan,
        output: TableState,
        until: Sequence[TableState],
        since: Sequence[TableState] | None = None,
    ) -> QueryWork:
        """Returns what computes the rows for versions of the inputs, or the rows that change `since` others."""
        read = zip([*self.inputs] * (1 if since is None else 2), [*until, *(since or ())], strict=True)
        return QueryWork(
            self.query,
            plan,
            self._settings,
            self._by_name(until),
            None if since is None else self._by_name(since),
            output=self.table.identifier,
            version=output.version,
            tables={table.identifier: table for table in (*self.inputs, self.table)},
            known={(table.identifier, state.version): state for table, state in [*read, (self.table, output)]},
        )

    def _by_name(self, states: Sequence[TableState]) -> dict[str, int]:
        return {table.identifier: state.version for table, state in zip(self.inputs, states, strict=True)}

    @cached_property
    def _settings(self) -> dict[str, str]:
        return settings_of(self.table.definition.options.as_dict())


def _columns_in_sql(schema: Schema) -> list[tuple[str, str]]:
    """Returns names and types; SQL, in which a table is created, has no lists and maps without nulls."""
    return [(column.name, to_sql(column.type)) for column in schema]


def _same_schemas(before: Sequence[TableState], after: Sequence[TableState]) -> bool:
    pairs = zip(before, after, strict=True)
    return all(former.definition.schema == now.definition.schema for former, now in pairs)


def _size(output: TableState, states: Sequence[TableState]) -> int:
    return sum(map(stored_bytes, (output, *states)))


def explained_query(name: str, plan: ViewPlan, why_spark: str | None, choice: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns how the view of a query is refreshed, a line each.

    Args:
        name: The view.
        plan: The plan of its refreshes.
        why_spark: Why Spark computes it; None if this process does.
        choice: What is said of the choice between the ways of Spark.
    """
    where = "without Spark" if why_spark is None else "by Spark"
    how = f"incrementally, {where}" if isinstance(plan, Incremental) else f"as a whole, {where}: {plan.reason}"
    spark = () if why_spark is None else (f"Spark computes it, since {why_spark}", *choice)
    return (f"{name} is refreshed {how}", *plan.described(), *spark)
