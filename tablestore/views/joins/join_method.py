"""`JoinMethod`: keeps a view equal to the join of two tables by a primary key, bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from filestore.checks.report import Finding
from filestore.delta.state import TableState
from tablestore.table import Table
from tablestore.views.engines.either import Engines
from tablestore.views.examination import different_rows
from tablestore.views.joins.bucket_work import Compared
from tablestore.views.joins.join_query import JoinQuery, parse_join
from tablestore.views.joins.join_table import check_output
from tablestore.views.joins.join_work import Input, JoinWork
from tablestore.views.refresh_method import RefreshMethod, RefreshStep, Written
from tablestore.views.sql.view_query import VIEW_QUERY
from tablestore.writing.writer import TableWriter

__all__ = ["JoinMethod", "TwoTables", "explained_join"]


class TwoTables(RefreshMethod):
    """A view that joins two tables, the right one by its primary key.

    Attributes:
        query: The join.
    """

    def __init__(self, table: Table, inputs: Sequence[Table], engines: Engines) -> None:
        super().__init__(table, inputs, engines)
        self.query: JoinQuery = parse_join(table.definition.options[VIEW_QUERY])

    @staticmethod
    def tables_of(text: str) -> tuple[str, ...]:
        """Returns the left table of a query, which may be one of events, and the right one."""
        query = parse_join(text)
        return query.left, query.right

    def check(self, output: TableState, states: Sequence[TableState]) -> None:
        """Checks the columns of the view's table, and its key and buckets if it has a key."""
        left, right = states
        check_output(self.query, output.definition, left.definition, right.definition)

    def explained(self, output: TableState, states: Sequence[TableState]) -> tuple[str, ...]:
        """Returns how the view is refreshed, a line each; raises what would keep a refresh from it."""
        self.check(output, states)
        return explained_join(self.table.identifier, self.query)


class JoinMethod(TwoTables):
    """Joins the rows that changes affect, of both tables, without Spark; its tasks may run in Spark."""

    def columns(self, states: Sequence[TableState]) -> Sequence[Sequence[str]]:
        """Returns for each input the columns that the query reads."""
        return (*states[0].definition.primary_key, *self.query.left_columns), self.query.right_columns

    def write(self, step: RefreshStep, writer: TableWriter) -> Written:
        """Joins the rows on which changes have an effect, in the buckets in which there are some."""
        whole, tasks = step.before is None, self.engines.tasks
        known: Sequence[TableState | None] = (None, None) if step.before is None else step.before
        left, right = (Input(*parts) for parts in zip(self.stores, step.states, known, strict=True))
        stored = None if whole else self.table.filestore
        work = JoinWork(self.query, left, right, step.output, stored, tasks.run)
        with ExitStack() as reading:
            for state, store in ((s, i.store) for i in (left, right) for s in (i.since, i.until) if s is not None):
                reading.enter_context(store.reading(state.version))
            snapshot = writer.write(work, overwrite=whole, app=step.plan.app, base=step.output, retries=tasks.retries)
        return Written(snapshot, whole, whole)

    def compared(self, output: TableState, read: Sequence[int]) -> list[Finding]:
        """Compares the stored rows of each bucket with the join of the versions that it has `read`."""
        left, right = (Input(store, store.state(at), None) for store, at in zip(self.stores, read, strict=True))
        check_output(self.query, output.definition, left.until.definition, right.until.definition)
        work = JoinWork(self.query, left, right, output, self.table.filestore, self.engines.tasks.run)
        return _differing([part.compared() for part in work.of_buckets(range(output.definition.buckets))], read)


def _differing(compared: Sequence[Compared], read: Sequence[int]) -> list[Finding]:
    """Returns what differs between the stored rows and the result of the query.

    Args:
        compared: The comparisons of all buckets.
        read: The versions of its tables that the view names.
    """
    wrong = [part for part in compared if not part.equal]
    if not wrong:
        return []
    different = sum(part.different for part in wrong)
    results, stored = sum(part.results for part in compared), sum(part.stored for part in compared)
    return [different_rows(different, results, stored, read)]


def explained_join(name: str, query: JoinQuery) -> tuple[str, ...]:
    """Returns how a view that joins two tables is refreshed, a line each."""
    on = " and ".join(f"{left} = {right}" for left, right in query.on)
    if query.time is None:
        return (
            f"{name} is refreshed incrementally, without Spark",
            f"read the changed rows of {query.left} and the changed keys of {query.right}",
            f"join the rows that they affect ({query.kind}, {on})",
            "compare them by key with the stored rows, and write those that differ",
        )
    own = query.time.column
    time = "the version that is the newest one then" if own is None else f"the version of the time {own} of each"
    return (
        f"{name} is refreshed incrementally, without Spark, and only gets inserts",
        f"read the rows that were inserted into {query.left}",
        f"look them up in {query.right} ({query.kind}, {on}), in {time}",
        f"add the results, which later changes of {query.right} do not change",
    )
