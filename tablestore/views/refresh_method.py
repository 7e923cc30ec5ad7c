"""`RefreshMethod`: how the rows of a view are kept equal to its query. There is one for each kind of query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from filestore.checks.report import Finding
from filestore.delta.state import TableState
from filestore.model.snapshot import Snapshot
from filestore.table import FileStore
from tablestore.table import Table
from tablestore.views.engines.either import Engines
from tablestore.views.holds import Holds
from tablestore.views.refresh_plan import RefreshPlan, plan_refresh
from tablestore.writing.writer import TableWriter

__all__ = ["RefreshMethod", "RefreshStep", "Written", "refresh_says"]


@dataclass(frozen=True, slots=True)
class Written:
    """The commit of a refresh.

    Attributes:
        snapshot: The commit. It may be that of another process with the same number.
        whole: Whether all rows were computed again.
        replaces: Whether they replace those that were stored.
        wrong: How many stored rows were wrong before, of those that were checked.
    """

    snapshot: Snapshot
    whole: bool
    replaces: bool
    wrong: int = 0


@dataclass(frozen=True, slots=True)
class RefreshStep:
    """A refresh that is about to be written.

    Attributes:
        plan: The plan, whose `app` the commit has.
        output: The version of the view to which rows are compared.
        states: The versions of the inputs whose result the view becomes.
        before: Those whose result it is; None to compute all rows, or if the method does not compare versions.
    """

    plan: RefreshPlan
    output: TableState
    states: Sequence[TableState]
    before: Sequence[TableState] | None


def refresh_says(*, whole: bool, by_spark: bool = False, wrong: int = 0) -> dict[str, str]:
    """Returns what the commit of a refresh says of it (`filestore.model.snapshot.Snapshot.parameters`).

    Args:
        whole: All rows were computed, instead of those that changes reach.
        by_spark: Spark has computed them.
        wrong: Of the stored rows that were checked so many were wrong.
    """
    why = f", since {wrong} of the rows that were checked were wrong" if wrong else ""
    return {"refresh": f"{'as a whole' if whole else 'incrementally'}, {'by' if by_spark else 'without'} Spark{why}"}


class RefreshMethod(ABC):
    """Computes the rows of a view, and writes them. `tablestore.views.view.View` does the rest of a refresh.

    Attributes:
        table: The view's table.
        inputs: The tables that it reads, each once.
        engines: What computes rows.
    """

    def __init__(self, table: Table, inputs: Sequence[Table], engines: Engines) -> None:
        self.table = table
        self.inputs = tuple(inputs)
        self.engines = engines

    @property
    def stores(self) -> tuple[FileStore, ...]:
        """The files of the inputs."""
        return tuple(table.filestore for table in self.inputs)

    @abstractmethod
    def check(self, output: TableState, states: Sequence[TableState]) -> None:
        """Checks that the view's table fits the tables of its query; raises ``view-outdated``."""

    @abstractmethod
    def explained(self, output: TableState, states: Sequence[TableState]) -> tuple[str, ...]:
        """Returns how the view is refreshed, a line each; raises what would keep a refresh from it."""

    @abstractmethod
    def columns(self, states: Sequence[TableState]) -> Sequence[Sequence[str]]:
        """Returns for each input the columns that the query reads."""

    @abstractmethod
    def write(self, step: RefreshStep, writer: TableWriter) -> Written:
        """Writes the rows of a refresh as one commit."""

    @abstractmethod
    def compared(self, output: TableState, read: Sequence[int]) -> list[Finding]:
        """Compares the stored rows of a version with the result for the versions that it has `read`."""

    def planned(self, output: TableState, states: Sequence[TableState]) -> RefreshPlan | None:
        """Plans a refresh from a version of the view to versions of its inputs; None if there is nothing to do."""
        return plan_refresh(output, *states)

    def held(
        self,
        plan: RefreshPlan,
        holds: Holds,
        overtaken: Callable[[], bool],
        before: Callable[[Sequence[int]], Sequence[TableState] | None],
    ) -> tuple[bool, Sequence[TableState] | None]:
        """Holds the versions that a refresh reads.

        Args:
            plan: The refresh.
            holds: The view's holds in its inputs.
            overtaken: Returns whether another process has refreshed the view since it was looked at.
            before: Reads versions of the inputs; None if they cannot be compared with the newest ones.

        Returns:
            Whether they are held, which they are not if another process has refreshed the view meanwhile; and the
            versions that the view has read. If those are gone, or columns of them are others now, all rows are computed
            again.
        """
        if plan.since is not None:
            if holds.are_later(plan.since) and overtaken():
                return False, None
            states = before(plan.since)
            if states is not None and holds.hold_all(plan.since):
                return True, states
        return holds.hold_all(plan.until), None
