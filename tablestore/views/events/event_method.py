"""`EventMethod`: adds to a view the events that were inserted into a table, each looked up in another table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from filestore.checks.report import Finding
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile
from filestore.table import FileStore
from tablestore.table import Table
from tablestore.views.engines.either import Engines
from tablestore.views.events.event_check import EventCheck
from tablestore.views.events.event_commits import inserted_files, noting_definitions, stored_alike
from tablestore.views.events.event_work import Dimension, event_work
from tablestore.views.holds import Holds
from tablestore.views.plan.join_query import JoinQuery, SystemTime
from tablestore.views.plan.join_table import output_schema
from tablestore.views.plan.scope import NotPlainError
from tablestore.views.plan.two_tables import join_of
from tablestore.views.refresh_method import RefreshMethod, RefreshStep, Written, refresh_says
from tablestore.views.refresh_plan import RefreshPlan, plan_append, same_columns
from tablestore.views.sql.view_query import VIEW_QUERY, parse_view
from tablestore.writing.apps import VIEW_APP
from tablestore.writing.writer import TableWriter

__all__ = ["EventMethod", "explained_lookup"]


class EventMethod(RefreshMethod):
    """A join whose left table has no primary key, so that rows are only added to the result.

    A refresh takes the events that were inserted since the last one. Each is looked up in the right table as of a time:
    that of the refresh, or its own one. What was added to the result stays as it is, whatever happens to the right
    table afterwards.
    """

    def __init__(self, table: Table, inputs: Sequence[Table], engines: Engines) -> None:
        super().__init__(table, inputs, engines)
        self._text = parse_view(str(table.definition.options[VIEW_QUERY]))
        self._read: tuple[tuple[TableDefinition, ...], JoinQuery] | None = None

    @property
    def query(self) -> JoinQuery:
        """The query, for the definitions of its tables that were looked at last."""
        return self._query_for([table.definition for table in self.inputs]) if self._read is None else self._read[1]

    def _query_for(self, definitions: Sequence[TableDefinition]) -> JoinQuery:
        if self._read is None or self._read[0] != (*definitions,):
            by_name = {table.identifier: one for table, one in zip(self.inputs, definitions, strict=True)}
            try:
                self._read = (*definitions,), join_of(self._text, by_name)
            except NotPlainError as error:
                raise _outdated(str(error)) from error
        return self._read[1]

    def check(self, output: TableState, states: Sequence[TableState]) -> None:
        """Checks that the tables have the columns of the query, with the types of the view's table."""
        left, right = (state.definition for state in states)
        schema = output_schema(self._query_for([left, right]), left, right)
        if [(one.name, one.type) for one in schema] != [(one.name, one.type) for one in output.definition.schema]:
            raise _outdated("a column that it reads has another type now")

    def explained(self, output: TableState, states: Sequence[TableState]) -> tuple[str, ...]:
        """Returns how the view is refreshed, a line each; raises what would keep a refresh from it."""
        self.check(output, states)
        return explained_lookup(self.table.identifier, self.query)

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
                says=lambda: refresh_says(whole=plan.since is None),
            )
        return Written(snapshot, plan.since is None, replaces)

    def compared(self, output: TableState, read: Sequence[int]) -> list[Finding]:
        """Compares the stored rows with the events, each looked up in the version that its refresh has read."""
        events, other = self.stores
        query = self._query_for([store.definition(version) for store, version in zip(self.stores, read, strict=True)])
        check = EventCheck(query, self.table.filestore, events, other, keep_removed=_keeps_removed(output))
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


def explained_lookup(name: str, query: JoinQuery) -> tuple[str, ...]:
    """Returns how a view is refreshed to which events are added, a line each."""
    on = " and ".join(f"{left} = {right}" for left, right in query.on)
    own = None if query.time is None else query.time.column
    time = "the version that is the newest one then" if own is None else f"the version of the time {own} of each"
    return (
        f"{name} is refreshed incrementally, without Spark, and only gets inserts",
        f"read the rows that were inserted into {query.left}",
        f"look them up in {query.right} ({query.kind}, {on}), in {time}",
        f"add the results, which later changes of {query.right} do not change",
    )


def _outdated(what: str) -> InvalidRequest:
    return InvalidRequest(
        f"it does not fit its query any more: {what}. Give the tables back what they lack, or create the view with "
        "another query",
        code="view-outdated",
    )


def _keeps_removed(output: TableState) -> bool:
    return bool(output.definition.options["view.removed-events"] == "keep")
