"""`EventCheck`: compares the rows of a view with the events that were added to it, for the doctor.

In which version of the right table an event was looked up does not follow from the event alone, but from the refresh
that has read it. So each refresh is checked by itself, as long as the versions are there that it has read and written.
Beside that the rows are compared with all events of the table, without the columns of the right table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from filestore.checks.report import Finding
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound
from filestore.lazily import pl
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation
from filestore.reading.scan import plan_scan, scan_frames
from filestore.retention.rules import first_retained
from filestore.rows.frames import frame_of
from filestore.table import FileStore
from tablestore.views.events.event_commits import added_files, inserted_files
from tablestore.views.events.event_work import Dimension, event_work
from tablestore.views.events.fingerprint import Fingerprint
from tablestore.views.examination import lacking_events, other_results, unchecked
from tablestore.views.plan.join_query import JoinKind, JoinQuery, Side
from tablestore.writing.apps import VIEW_APP

__all__ = ["EventCheck"]


@dataclass(frozen=True, slots=True)
class EventCheck:
    """The check of one view.

    Attributes:
        query: Its query.
        view: Its table.
        events: The table of events.
        other: The table in which they are looked up.
        keep_removed: Whether the view may have results of events that were removed.
    """

    query: JoinQuery
    view: FileStore
    events: FileStore
    other: FileStore
    keep_removed: bool

    def findings(self, output: TableState, version: int) -> list[Finding]:
        """Returns what is wrong.

        Args:
            output: The version of the view.
            version: The version of the table of events up to which it has them.
        """
        try:
            found = list(self._lacking(output, version))
        except (NotFound, InvalidRequest) as error:
            return [unchecked(error.message)]
        expired: NotFound | None = None
        compared = 0
        for entry, before in self._refreshes(output):
            try:
                found += self._of_refresh(output, entry, before)
                compared += 1
            except NotFound as error:
                if error.code != "snapshot-expired":
                    raise
                expired = error
        if expired is not None:
            found.append(unchecked(f"some refreshes have read versions that have expired ({expired.message})"))
        elif not compared and VIEW_APP in output.app_versions:
            found.append(
                unchecked("the version before its last refresh has expired, so what that has added is not known")
            )
        return found

    def _lacking(self, output: TableState, version: int) -> Iterator[Finding]:
        """Compares the columns of the events, if the view has a row for each event."""
        if self.keep_removed or self.query.kind is not JoinKind.LEFT:
            return
        columns = self.query.of_side(Side.LEFT)
        state = self.events.state(version)
        named = {column.name: column.source for column in columns}
        events = self._read(self.events, state, list(state.files), list(named.values()))
        stored = self._read(self.view, output, list(output.files), list(named))
        if (wanted := Fingerprint.of(events)) != (have := Fingerprint.of(stored)):
            yield lacking_events(wanted.rows, have.rows, version)

    def _read(
        self, store: FileStore, state: TableState, files: Sequence[DataFile], columns: Sequence[str]
    ) -> Iterator[pl.DataFrame]:
        """Reads columns of some files, which may be named twice."""
        schema = state.definition.schema
        plan = plan_scan(state, list(dict.fromkeys(columns)) or schema.names[:1])
        frames = scan_frames(store.table_files(state), replace(plan, files=tuple(files)))
        if not columns:
            return (frame.select(pl.repeat(0, pl.len()).alias("0")) for frame in frames)
        return (frame.select(pl.col(column).alias(str(at)) for at, column in enumerate(columns)) for frame in frames)

    def _refreshes(self, output: TableState) -> Iterator[tuple[Commit, Mapping[str, int] | None]]:
        """Yields the refreshes that are retained, each with the positions before it; None before the first of all."""
        first = first_retained(output)
        if first >= output.version:
            return
        state = self.view.state(first)
        before = state.positions if VIEW_APP in state.app_versions else None
        for entry in self.view.delta_log.required(range(first + 1, output.version + 1)):
            if positions := entry.positions:
                yield entry, before
                before = {**(before or {}), **positions}

    def _of_refresh(self, output: TableState, entry: Commit, before: Mapping[str, int] | None) -> Iterator[Finding]:
        """Computes the rows again that a refresh has added."""
        events_id, other_id = self.events.state().table_id, self.other.state().table_id
        until, at = entry.positions.get(events_id), entry.positions.get(other_id)
        if until is None or at is None:  # of a table that was created again
            return
        whole = before is None or entry.snapshot().operation is Operation.OVERWRITE
        state = self.events.state(until)
        files = list(state.files) if whole or before is None else self._inserted(before[events_id], state)
        dimension = Dimension.of(self.query, self.other, self.other.state(at), oldest=False)
        definition = output.definition
        with self.events.reading(until), self.other.reading(at), self.view.reading(entry.version):
            work = event_work(self.query, self.events.table_files(state), state, files, dimension)
            wanted = Fingerprint.of(frame_of(rows) for part in work for rows in part.results(definition))
            added = added_files(entry, definition.partition_by)
            have = Fingerprint.of(self._read(self.view, output, added, definition.schema.names))
        if wanted != have:
            yield other_results(entry.version, wanted.rows, have.rows, (until, at))

    def _inserted(self, since: int, state: TableState) -> list[DataFile]:
        self.events.state(since)  # raises if it has expired
        commits = self.events.delta_log.required(range(since + 1, state.version + 1))
        return inserted_files(commits, state.definition.partition_by, keep_removed=True)
