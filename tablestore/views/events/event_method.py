"""`EventMethod`: adds to a view the events that were inserted into a table, each looked up in another table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from filestore.checks.report import Finding
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound
from filestore.model.files import DataFile
from filestore.table import FileStore
from tablestore.views.events.event_check import EventCheck
from tablestore.views.events.event_commits import inserted_files, noting_definitions, stored_alike
from tablestore.views.events.event_work import Dimension, event_work
from tablestore.views.holds import Holds
from tablestore.views.joins.join_method import TwoTables
from tablestore.views.joins.join_query import SystemTime
from tablestore.views.refresh_method import RefreshStep, Written
from tablestore.views.refresh_plan import RefreshPlan, plan_append, same_columns
from tablestore.writing.apps import VIEW_APP
from tablestore.writing.writer import TableWriter

__all__ = ["EventMethod"]


class EventMethod(TwoTables):
    """A join whose left table has no primary key, so that rows are only added to the result.

    A refresh takes the events that were inserted since the last one. Each is looked up in the right table as of a time:
    that of the refresh, or its own one. What was added to the result stays as it is, whatever happens to the right
    table afterwards.
    """

    def columns(self, states: Sequence[TableState]) -> Sequence[Sequence[str]]:
        """Returns for each input the columns that the query reads."""
        return self.query.left_columns, self.query.right_columns

    def planned(self, output: TableState, states: Sequence[TableState]) -> RefreshPlan | None:
        """Plans a refresh by the events alone."""
        events, other = states
        return plan_append(output, events, other)

    def held(
        self,
        plan: RefreshPlan,
        holds: Holds,
        overtaken: Callable[[], bool],
        before: Callable[[Sequence[int]], Sequence[TableState] | None],
    ) -> tuple[bool, Sequence[TableState] | None]:
        """Holds the version up to which the view has its events, and the newest one of the other table.

        Raises:
            NotFound: ``events-expired``: events that it lacks are in versions that are gone.
        """
        events, other = self.stores
        own = (self.query.time or SystemTime()).column is not None
        needed = not own or holds.held(other) is None  # earlier versions are read, too, which are held already
        if needed and not holds.hold_unless_expired(other, plan.until[1]):
            return False, None
        if plan.since is None:
            return holds.hold_unless_expired(events, plan.until[0]), None
        if holds.are_later(plan.since) and overtaken():
            return False, None
        if not holds.hold_all(plan.since):
            if overtaken():
                return False, None
            raise NotFound(
                f"version {plan.since[0]} of {self.query.left} has expired, up to which {self.table.identifier} has "
                "its events, since it was not refreshed for consumer.expiration-time: rebuild it, which joins all "
                "events again, or drop it",
                code="events-expired",
            )
        return True, None

    def write(self, step: RefreshStep, writer: TableWriter) -> Written:
        """Looks the new events up, and adds what was found."""
        plan, state, tasks = step.plan, step.states[0], self.engines.tasks
        replaces = plan.since is None and VIEW_APP in step.output.app_versions
        events, other = self.stores
        with ExitStack() as reading:
            reading.enter_context(other.reading(plan.until[1]))
            reading.enter_context(events.reading(plan.until[0] if plan.since is None else plan.since[0]))
            files = self._files(events, plan.since, state, step.output)
            dimension = self._dimension(other, step.states[1], step.output)
            work = event_work(self.query, events.table_files(state), state, files, dimension)
            snapshot = writer.write(
                lambda job: tasks.run(job, work) if work else [],
                overwrite=replaces,
                app=plan.app,
                base=step.output,
                retries=tasks.retries,
            )
        return Written(snapshot, plan.since is None, replaces)

    def compared(self, output: TableState, read: Sequence[int]) -> list[Finding]:
        """Compares the stored rows with the events, each looked up in the version that its refresh has read."""
        events, other = self.stores
        check = EventCheck(self.query, self.table.filestore, events, other, keep_removed=_keeps_removed(output))
        return check.findings(output, read[0])

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


def _keeps_removed(output: TableState) -> bool:
    return bool(output.definition.options["view.removed-events"] == "keep")
