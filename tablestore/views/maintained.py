"""`MaintainedJoin`: keeps the table of a view equal to the join of two tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from filestore.arguments import checks_arguments
from filestore.checks.report import Finding
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound
from filestore.operations.replaced_rows import ChangeRunner, changes_in_threads
from tablestore.table import Table
from tablestore.views.examination import cannot_be_refreshed, differing
from tablestore.views.join_query import JoinQuery, parse_join
from tablestore.views.output_table import VIEW_QUERY, check_output
from tablestore.views.refresh import Input, Refresh, WorkRunner, in_own_threads
from tablestore.views.refresh_plan import RefreshPlan
from tablestore.views.view import View

__all__ = ["Execution", "MaintainedJoin", "Refreshed", "ViewLag", "explained_join"]


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
class MaintainedJoin(View[Refreshed]):
    """The join of two tables as a table. `tablestore.Store.maintain_join` makes it.

    Attributes:
        table: The view's table, which everybody may read.
        query: The join.
    """

    def __init__(self, table: Table, left: Table, right: Table, execution: Execution = Execution()) -> None:
        super().__init__(table, (left, right), execution.changes)
        self._execution = execution
        self.query: JoinQuery = parse_join(table.definition.options[VIEW_QUERY])

    def executed_by(self, execution: Execution) -> Self:
        """Returns the same view with another place where its refreshes run."""
        left, right = self.inputs
        return type(self)(self.table, left, right, execution)

    def lag(self) -> ViewLag:
        """Returns of which versions the view is the result, and how many later ones there are."""
        (_, left), (_, right) = self.input_lags()
        return ViewLag(left.version, right.version, left.behind, right.behind)

    def read_by(self, refreshed: Refreshed) -> list[tuple[str, int]]:
        """Returns for each table the version that a refresh has read."""
        return [(self.query.left, refreshed.left), (self.query.right, refreshed.right)]

    def explain(self) -> tuple[str, ...]:
        """Returns how it is refreshed, a line each."""
        try:
            self._check(self.table.filestore.state(), self._newest())
        except (NotFound, InvalidRequest) as error:
            return cannot_be_refreshed(self.table.identifier, error)
        return self._explained()

    def _explained(self) -> tuple[str, ...]:
        return explained_join(self.table.identifier, self.query)

    def _check(self, output: TableState, states: Sequence[TableState]) -> None:
        left, right = states
        check_output(self.query, output.definition, left.definition, right.definition)

    def _columns(self, states: Sequence[TableState]) -> Sequence[Sequence[str]]:
        return (*states[0].definition.primary_key, *self.query.left_columns), self.query.right_columns

    def _write(
        self,
        plan: RefreshPlan,
        output: TableState,
        states: Sequence[TableState],
        before: Sequence[TableState] | None,
    ) -> tuple[Refreshed, int]:
        whole, execution = before is None, self._execution
        known: Sequence[TableState | None] = (None, None) if before is None else before
        left, right = (Input(*parts) for parts in zip(self._stores, states, known, strict=True))
        stored = None if whole else self.table.filestore
        work = Refresh(self.query, left, right, output, stored, execution.run)
        with ExitStack() as reading:
            for state, store in ((s, i.store) for i in (left, right) for s in (i.since, i.until) if s is not None):
                reading.enter_context(store.reading(state.version))
            snapshot = self._writer.write(work, overwrite=whole, app=plan.app, base=output, retries=execution.retries)
        until = left.until.version, right.until.version
        return Refreshed(snapshot.version, *until, whole), snapshot.version

    def _compared(self, output: TableState, read: Sequence[int]) -> list[Finding]:
        left, right = (
            Input(table.filestore, table.filestore.state(version), None)
            for table, version in zip(self.inputs, read, strict=True)
        )
        check_output(self.query, output.definition, left.until.definition, right.until.definition)
        work = Refresh(self.query, left, right, output, self.table.filestore, self._execution.run)
        return differing([part.compared() for part in work.of_buckets(range(output.definition.buckets))], read)


def explained_join(name: str, query: JoinQuery) -> tuple[str, ...]:
    """Returns how a view that is a join of two tables is refreshed, a line each."""
    on = " and ".join(f"{left} = {right}" for left, right in query.on)
    return (
        f"{name} is refreshed incrementally, without Spark",
        f"read the changed rows of {query.left} and the changed keys of {query.right}",
        f"join the rows that they affect ({query.kind}, {on})",
        "compare them by key with the stored rows, and write those that differ",
    )
