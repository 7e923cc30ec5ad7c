"""`View`: a table whose rows are the result of a query over other tables, and how any refresh of it goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from threading import Event
from typing import Generic, TypeVar

from filestore.arguments import checks_arguments
from filestore.checks.report import Finding, Report
from filestore.delta.state import TableState
from filestore.errors import Conflict, NotFound, TableStoreError, Unavailable
from filestore.operations.replaced_rows import ChangeRunner
from filestore.table import FileStore
from tablestore.table import Table
from tablestore.views.examination import unchecked
from tablestore.views.holds import Holds
from tablestore.views.refresh_plan import RefreshPlan, plan_refresh, read_versions, rebuilt, same_columns, same_types
from tablestore.views.view_errors import errors_of_view
from tablestore.writing.commit_metrics import CommitMeter
from tablestore.writing.writer import TableWriter

__all__ = ["InputLag", "Stop", "View"]

Result = TypeVar("Result")

Stop = Event | Callable[[], bool] | None

_MOST_LOOKS = 10
"""A refresh begins so many times if other processes overtake it, or if what it is about to read expires."""
_RETRIED = ("other-refresh", "inputs-expired")
"""The conflicts after which `View.follow` refreshes again."""


@dataclass(frozen=True, slots=True)
class InputLag:
    """The distance of a view behind one of its inputs.

    Attributes:
        version: The version of the table of which the view is the result; None before the first refresh.
        behind: The number of later versions.
    """

    version: int | None
    behind: int


@checks_arguments()
class View(ABC, Generic[Result]):
    """A table whose rows are the result of a query. Its subclasses compute them.

    Each version of the view's table is the result for one version of each input, and names these. Any number of
    processes may refresh it, and may die at any time: a refresh is one commit.

    Attributes:
        table: The view's table, which everybody may read.
        inputs: The tables that it reads, each under its name; the same table may be there twice.
    """

    def __init__(self, table: Table, inputs: Sequence[Table], changes: ChangeRunner) -> None:
        self.table = table
        self.inputs = tuple(inputs)
        self._changes = changes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table.identifier!r})"

    @abstractmethod
    def read_by(self, refreshed: Result) -> list[tuple[str, int]]:
        """Returns for each table the version that a refresh has read."""

    @abstractmethod
    def explain(self) -> tuple[str, ...]:
        """Returns how the view is refreshed, a line each."""

    @abstractmethod
    def _check(self, output: TableState, states: Sequence[TableState]) -> None:
        """Checks that the view's table fits the tables of its query; raises ``view-outdated``."""

    @abstractmethod
    def _columns(self, states: Sequence[TableState]) -> Sequence[Sequence[str]]:
        """Returns for each input the columns that the query reads."""

    @abstractmethod
    def _write(
        self,
        plan: RefreshPlan,
        output: TableState,
        states: Sequence[TableState],
        before: Sequence[TableState] | None,
    ) -> tuple[Result, int]:
        """Writes the rows of a refresh as one commit, and returns its result and its version.

        Args:
            plan: The plan, whose `app` the commit has.
            output: The version of the view to which rows are compared.
            states: The versions of the inputs whose result the view becomes.
            before: Those whose result it is; None to compute all rows.
        """

    @abstractmethod
    def _compared(self, output: TableState, read: Sequence[int]) -> list[Finding]:
        """Compares the stored rows of a version with the result for the versions that it has `read`."""

    def refresh(self) -> Result | None:
        """Updates the view to the newest versions of its inputs as one commit; returns None if nothing is new.

        It reads what changed in the tables since the last refresh, and works the rows of the result out that depend on
        it, if the query allows that. All rows are computed again by the first refresh, if the versions since the last
        one have expired, if a column was replaced by another of its name, and, once the view is opened again, if a
        table was created again.

        Raises:
            NotFound: a table, or a column that the query reads, does not exist any more; ``table-replaced``: it was
                created again, so open the view again.
            InvalidRequest: ``view-outdated``: a table has changed so that the view does not fit any more.
            Conflict: ``other-refresh``: another process has refreshed the view meanwhile; ``inputs-expired``: writes of
                a table let its versions expire before the refresh could hold one. Nothing was changed.
            Unavailable: a store did not answer. Refresh again: what was committed is not repeated.
        """
        return self._refresh(self._plan_refresh)

    def rebuild(self) -> Result:
        """Computes all rows of the view again from the newest versions of its inputs, and replaces the stored ones.

        Raises as `refresh`.
        """
        result = self._refresh(rebuilt)
        assert result is not None, "there is always something to rebuild"
        return result

    def _plan_refresh(self, output: TableState, *states: TableState) -> RefreshPlan | None:
        """Plans a refresh from a version of the view to versions of its inputs; None if there is nothing to do."""
        return plan_refresh(output, *states)

    def _refresh(self, planned: Callable[..., RefreshPlan | None]) -> Result | None:
        with self._named_errors():
            return self._refreshed_to_newest(planned)

    def _named_errors(self) -> AbstractContextManager[None]:
        """Makes errors name the view."""
        return errors_of_view(self.table, self.inputs)

    def _refreshed_to_newest(self, planned: Callable[..., RefreshPlan | None]) -> Result | None:
        for _ in range(_MOST_LOOKS):
            output, states = self.table.filestore.state(), self._newest()
            self._check(output, states)
            plan = planned(output, *states)
            if plan is None:
                for store, state in zip(self._stores, states, strict=True):
                    self._holds.hold_if_possible(store, state.version)
                return None
            held, before = self._held(plan, states, output)
            if held:
                return self._refreshed(plan, output, states, before)
        if self.table.filestore.state().positions != output.positions:
            raise self._overtaken("again and again")
        raise Conflict(
            f"the newest versions of the tables of {self.table.identifier} expired {_MOST_LOOKS} times before a "
            "refresh could hold them: let the tables keep more versions (snapshot.num-retained.min, "
            "snapshot.time-retained), or refresh it again when less is written",
            code="inputs-expired",
            again=True,
        )

    def follow(self, stop: Stop = None, every: timedelta = timedelta(seconds=1)) -> Iterator[Result]:
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
                if error.code not in _RETRIED:
                    raise
                continue
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
                read = read_versions(output, *(store.state().table_id for store in self._stores))
                if read is not None:
                    return self._compared(output, read)
                empty = not output.files and not output.pending
                return [] if empty else [unchecked("a table that it reads was created again since its last refresh")]
        except TableStoreError as error:
            if error.code == "table-replaced" or isinstance(error, Unavailable):
                raise
            return [unchecked(error.message)]

    def input_lags(self) -> list[tuple[str, InputLag]]:
        """Returns for each input its name, the version of which the view is the result, and how many are later."""
        with self._named_errors():
            output, states = self.table.filestore.state(), self._newest()
        read = read_versions(output, *(state.table_id for state in states))
        known: Sequence[int | None] = [None] * len(states) if read is None else read
        return [
            (table.identifier, InputLag(at, state.version - (-1 if at is None else at)))
            for table, state, at in zip(self.inputs, states, known, strict=True)
        ]

    def drop_holds(self) -> None:
        """Lets the versions expire that the view has read: before its table is dropped."""
        for store in self._stores:
            self._holds.release(store)

    @property
    def _stores(self) -> tuple[FileStore, ...]:
        return tuple(table.filestore for table in self.inputs)

    def _newest(self) -> tuple[TableState, ...]:
        """Returns the newest version of each input; of a table that is there twice it is one version."""
        states: dict[str, TableState] = {}
        for store in self._stores:
            if store.location not in states:
                states[store.location] = store.state()
        return tuple(states[store.location] for store in self._stores)

    def _held(
        self, plan: RefreshPlan, states: Sequence[TableState], output: TableState
    ) -> tuple[bool, Sequence[TableState] | None]:
        """Holds the versions that a refresh reads.

        Returns whether they are held, which they are not if another process has refreshed the view meanwhile; and the
        versions that the view has read. If those are gone, or columns of them are others now, all rows are computed
        again.
        """
        if plan.since is not None:
            before = self._before(plan.since, states)
            if self._is_overtaken(plan.since, output):
                return False, None
            if before is not None and self._hold(plan.since):
                return True, before
        return self._hold(plan.until), None

    def _is_overtaken(self, since: Sequence[int], output: TableState) -> bool:
        """Returns whether another process has refreshed the view, and holds later versions for it.

        Args:
            since: The versions that the view has read of its inputs, or of the first ones of them.
            output: The version of the view that this process has read.
        """
        later = any((self._holds.held(store) or 0) > at for store, at in zip(self._stores, since, strict=False))
        return later and self.table.filestore.state().positions != output.positions

    def _before(self, since: Sequence[int], states: Sequence[TableState]) -> tuple[TableState, ...] | None:
        """Reads the versions that the view has read; returns None if they cannot be compared with the newest ones."""
        try:
            before = tuple(store.state(version) for store, version in zip(self._stores, since, strict=True))
        except NotFound as error:
            if error.code != "snapshot-expired":
                raise
            return None
        same = all(
            same_columns(former.definition, state.definition, columns)
            and same_types(former.definition, state.definition, columns)
            for former, state, columns in zip(before, states, self._columns(states), strict=True)
        )
        return before if same else None

    def _hold(self, versions: Sequence[int]) -> bool:
        """Holds a version of each input, or of the first ones of them; returns False if one of them has expired."""
        return all(self._hold_one(store, at) for store, at in zip(self._stores, versions, strict=False))

    def _hold_one(self, store: FileStore, version: int) -> bool:
        """Holds a version of an input; returns False if it has expired."""
        try:
            self._holds.hold(store, version)
        except NotFound as error:
            if error.code != "snapshot-expired":
                raise
            return False
        return True

    def _refreshed(
        self, plan: RefreshPlan, output: TableState, states: Sequence[TableState], before: Sequence[TableState] | None
    ) -> Result:
        result, version = self._write(plan, output, states, before)
        if dict(plan.app.positions) != self.table.filestore.required(version).positions:
            raise self._overtaken(f"by version {version}")
        for store, at in zip(self._stores, plan.until, strict=True):
            self._holds.hold_if_possible(store, at)
        self.table.in_writer.after_commit(output.definition)
        return result

    @cached_property
    def _holds(self) -> Holds:
        return Holds(self.table.filestore.state().table_id)

    @cached_property
    def _writer(self) -> TableWriter:
        opened = self.table.opened
        meter = CommitMeter(opened.meter, self.table.identifier, opened.ambient)
        return TableWriter(self.table.filestore, opened.log_config, opened.ambient, self._changes, meter)

    def _overtaken(self, how: str) -> Conflict:
        return Conflict(
            f"another process has refreshed {self.table.identifier} meanwhile ({how}): refresh it again for what has "
            "changed since",
            code="other-refresh",
            again=True,
        )
