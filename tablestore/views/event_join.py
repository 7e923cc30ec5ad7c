"""`EventJoin`: adds to a view the events that were inserted into a table, each looked up in another table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from filestore.checks.report import Finding
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation
from filestore.table import FileStore
from tablestore.views.event_check import EventCheck
from tablestore.views.event_commits import inserted_files, noting_definitions, stored_alike
from tablestore.views.event_work import Dimension, event_work
from tablestore.views.join_query import JoinQuery, SystemTime
from tablestore.views.maintained import MaintainedJoin, Refreshed
from tablestore.views.refresh_plan import RefreshPlan, plan_append, same_columns
from tablestore.writing.apps import VIEW_APP

__all__ = ["EventJoin", "explained_events"]


class EventJoin(MaintainedJoin):
    """A join whose left table has no primary key, so that rows are only added to the result.

    A refresh takes the events that were inserted since the last one. Each is looked up in the right table as of a time:
    that of the refresh, or its own one. What was added to the result stays as it is, whatever happens to the right
    table afterwards.
    """

    def _explained(self) -> tuple[str, ...]:
        return explained_events(self.table.identifier, self.query)

    def _plan_refresh(self, output: TableState, *states: TableState) -> RefreshPlan | None:
        events, other = states
        return plan_append(output, events, other)

    def _held(
        self, plan: RefreshPlan, states: Sequence[TableState], output: TableState
    ) -> tuple[bool, Sequence[TableState] | None]:
        events, other = self._stores
        own = (self.query.time or SystemTime()).column is not None
        needed = not own or self._holds.held(other) is None  # earlier versions are read, too, which are held already
        if needed and not self._hold_one(other, plan.until[1]):
            return False, None
        if plan.since is None:
            return self._hold_one(events, plan.until[0]), None
        if self._is_overtaken(plan.since, output):
            return False, None
        if not self._hold(plan.since):
            if self.table.filestore.state().positions != output.positions:
                return False, None
            raise NotFound(
                f"version {plan.since[0]} of {self.query.left} has expired, up to which {self.table.identifier} has "
                "its events, since it was not refreshed for consumer.expiration-time: rebuild it, which joins all "
                "events again, or drop it",
                code="events-expired",
            )
        return True, None

    def _write(
        self,
        plan: RefreshPlan,
        output: TableState,
        states: Sequence[TableState],
        before: Sequence[TableState] | None,
    ) -> tuple[Refreshed, int]:
        (events, other), state, execution = self._stores, states[0], self._execution
        replaces = plan.since is None and VIEW_APP in output.app_versions
        with ExitStack() as reading:
            reading.enter_context(other.reading(plan.until[1]))
            reading.enter_context(events.reading(plan.until[0] if plan.since is None else plan.since[0]))
            files = self._files(events, plan.since, state, output)
            dimension = self._dimension(other, states[1], output)
            work = event_work(self.query, events.table_files(state), state, files, dimension)
            snapshot = self._writer.write(
                lambda job: execution.run(job, work) if work else [],
                overwrite=replaces,
                app=plan.app,
                base=output,
                retries=execution.retries,
            )
        if replaces and snapshot.operation is not Operation.OVERWRITE:
            raise self._overtaken(f"by version {snapshot.version}")
        left, right = plan.until
        return Refreshed(snapshot.version, left, right, plan.since is None), snapshot.version

    def _files(
        self, events: FileStore, since: Sequence[int] | None, state: TableState, output: TableState
    ) -> list[DataFile]:
        """Returns the files with the events that a refresh adds."""
        if since is None:
            return list(state.files)
        before, columns = events.definition(since[0]), self.query.left_columns
        if not same_columns(before, state.definition, columns):
            raise InvalidRequest(
                f"a column of {self.query.left} was replaced by another of its name since version {since[0]}, and the "
                f"rows of {self.table.identifier} have the former one: rebuild it, which joins all events again",
                code="events-changed",
            )
        definitions, partition_by = [before], state.definition.partition_by
        commits = noting_definitions(events.delta_log.required(range(since[0] + 1, state.version + 1)), definitions)
        files = inserted_files(commits, partition_by, keep_removed=_keeps_removed(output))
        if not stored_alike(definitions, state.definition, columns):
            raise InvalidRequest(
                f"a column of {self.query.left} had another name for a time since version {since[0]}, so events that "
                f"were inserted then cannot be read by its name now: rebuild {self.table.identifier}, which joins all "
                "events again",
                code="events-changed",
            )
        return files

    def _dimension(self, store: FileStore, state: TableState, output: TableState) -> Dimension:
        oldest = output.definition.options["view.expired-versions"] == "oldest"
        return Dimension.of(self.query, store, state, oldest=oldest)

    def _compared(self, output: TableState, read: Sequence[int]) -> list[Finding]:
        events, other = self._stores
        check = EventCheck(self.query, self.table.filestore, events, other, keep_removed=_keeps_removed(output))
        return check.findings(output, read[0])


def _keeps_removed(output: TableState) -> bool:
    return bool(output.definition.options["view.removed-events"] == "keep")


def explained_events(name: str, query: JoinQuery) -> tuple[str, ...]:
    """Returns how a view is refreshed to which new events are added, a line each."""
    on = " and ".join(f"{left} = {right}" for left, right in query.on)
    own = (query.time or SystemTime()).column
    time = "the version that is the newest one then" if own is None else f"the version of the time {own} of each"
    return (
        f"{name} is refreshed incrementally, without Spark, and only gets inserts",
        f"read the rows that were inserted into {query.left}",
        f"look them up in {query.right} ({query.kind}, {on}), in {time}",
        f"add the results, which later changes of {query.right} do not change",
    )
