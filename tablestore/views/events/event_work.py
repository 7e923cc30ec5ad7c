"""`EventWork`: looks some events up in another table, and makes rows of a view of them; a task, in any process.

Events are read batch by batch, and each batch is looked up as a look-up join does (`tablestore.lookup`): a small table
is in the memory of the process, of a large one the rows are found by their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile
from filestore.reading.difference import Spill
from filestore.reading.scan import ScanPlan, plan_scan, scan
from filestore.rows.casting import cast_rows
from filestore.rows.frames import arrow_table, frame_of, narrowed, polars_schema
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.sorting.external import sorted_batches
from filestore.sorting.order import bucketed
from filestore.sorting.runs import gathered
from filestore.table import FileStore
from tablestore.lookup.lookups import Lookups
from tablestore.lookup.request import LookupPlan, LookupRequest
from tablestore.reading.version_changes import PIECE_BYTES, PIECE_ROWS
from tablestore.views.plan.join_query import JoinKind, JoinQuery, Side

__all__ = ["Dimension", "EventWork", "event_work", "looked_up"]

_SORT_BYTES = 64 << 20
_TASK_BYTES = 128 << 20
_KEY, _RIGHT, _TIME = "\0k", "\0r.", "\0t"


@dataclass(frozen=True, slots=True)
class Dimension:
    """The table in which events are looked up, at one version. Picklable.

    Attributes:
        store: The table.
        version: The version; with a time of each event the newest one that counts.
        plan: The look-up.
    """

    store: FileStore
    version: int
    plan: LookupPlan

    @classmethod
    def of(cls, query: JoinQuery, store: FileStore, state: TableState, *, oldest: bool) -> Dimension:
        """Plans the look-ups of a query.

        Args:
            query: The query of the view, which has a `time`.
            store: The right table.
            state: The version.
            oldest: Whether the oldest version that is left stands for one that has expired.
        """
        request = LookupRequest(
            on={f"{_KEY}{number}": key for number, (_, key) in enumerate(query.on)},
            kind="inner" if query.kind is JoinKind.INNER else "left",
            columns=tuple(dict.fromkeys(column.source for column in query.of_side(Side.RIGHT))),
            prefix=_RIGHT,
            at=None if query.time is None or query.time.column is None else _TIME,
            expired="oldest" if oldest else "fail",
        )
        return cls(store, state.version, LookupPlan.of(request, state.definition))


@dataclass(frozen=True, slots=True)
class EventWork:
    """The look-up of the rows of some files of a table of events. Picklable.

    Attributes:
        query: The query of the view.
        events: The files of the table of events, with the definition of the newest version.
        plan: The files to read.
        dimension: The table in which they are looked up.
    """

    query: JoinQuery
    events: TableFiles
    plan: ScanPlan
    dimension: Dimension

    def batches(self, definition: TableDefinition, disk: Spill) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the result in the order of their buckets, as `tablestore.writing.write_job` takes them.

        Args:
            definition: The definition of the view's table.
            disk: Opens a place for rows that do not fit into memory.
        """
        batches = (batch for rows in self.results(definition) for batch in bucketed(rows, definition).to_batches())
        by = [BUCKET_COLUMN] if definition.buckets > 1 else []
        yield from sorted_batches(batches, by, _SORT_BYTES, disk)

    def results(self, definition: TableDefinition) -> Iterator[pa.Table]:
        """Yields the rows of the result, in the columns of the view's table."""
        lookups = Lookups(self.dimension.store)
        for some in gathered(scan(self.events, self.plan), PIECE_BYTES, PIECE_ROWS):
            rows = pa.concat_tables(some)
            for start in range(0, rows.num_rows, PIECE_ROWS):
                found = looked_up(self.query, rows.slice(start, PIECE_ROWS), lookups, self.dimension)
                if found.num_rows:
                    yield cast_rows(found, definition.schema.to_arrow())


def event_work(
    query: JoinQuery, events: TableFiles, state: TableState, files: Sequence[DataFile], dimension: Dimension
) -> list[EventWork]:
    """Plans the tasks that look up the rows of some files of a table of events. Pure."""
    plan = plan_scan(state, query.left_columns)
    return [EventWork(query, events, replace(plan, files=some), dimension) for some in _groups(files)]


def _groups(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """Divides files among tasks, so that each has about as many bytes as a data file."""
    held: list[DataFile] = []
    size = 0
    for file in sorted(files, key=lambda one: one.path):
        held.append(file)
        size += file.size
        if size >= _TASK_BYTES:
            yield tuple(held)
            held, size = [], 0
    if held:
        yield tuple(held)


def looked_up(query: JoinQuery, events: pa.Table, lookups: Lookups, dimension: Dimension) -> pa.Table:
    """Returns the rows of the result for some events, with its columns.

    Args:
        query: The query of the view.
        events: Rows with the query's `left_columns`.
        lookups: The look-ups in the right table.
        dimension: The version of it.
    """
    given = events
    for number, (name, key) in enumerate(query.on):
        field = pa.field("key", dimension.plan.wanted.column(key).type)
        given = given.append_column(f"{_KEY}{number}", _as_key(events.column(name), field))
    if query.time is not None and query.time.column is not None:  # whose name may have a meaning of its own there
        given = given.append_column(_TIME, events.column(query.time.column))
    found = lookups.lookup(given, dimension.plan, lookups.moment(dimension.version))
    columns = [
        found.column(column.source if column.side is Side.LEFT else _RIGHT + column.source) for column in query.columns
    ]
    return pa.table(columns, names=[column.name for column in query.columns])


def _as_key(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Returns the values in the type of a key's column, and null for those that it cannot have."""
    if values.type == field.type:
        return values
    schema = pa.schema([field])
    found = narrowed(frame_of(pa.table({field.name: values}))[field.name], polars_schema(schema)[field.name])
    return arrow_table(found.to_frame(), schema).column(field.name)
