"""`Scan`: a read of one version without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.delta.state import TableState
from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.reading.predicate import Predicate
from filestore.reading.scan import plan_scan, scan, scan_frames
from filestore.rows.frames import polars_schema
from filestore.table import FileStore
from tablestore.reading.fresh import fresh_rows
from tablestore.reading.log_tail import VisibleTail
from tablestore.reading.results import Results

__all__ = ["Scan"]


@dataclass(frozen=True, slots=True, repr=False)
class Scan(Results):
    """A read that was planned on one version and runs when its rows are asked for."""

    filestore: FileStore
    state: TableState
    columns: Sequence[str] | None
    where: Predicate | None
    tail: VisibleTail | None = None
    """The rows that the log shows beyond the version, if they are wanted and there are any."""

    def __repr__(self) -> str:
        asked = "" if self.columns is None else f", columns={list(self.columns)}"
        where = "" if self.where is None else f", where={str(self.where)!r}"
        fresh = "" if self.tail is None else ", fresh=True"
        return f"Scan({self.filestore.location!r}, version={self.state.version}{asked}{where}{fresh})"

    @property
    def schema(self) -> pa.Schema:
        """The columns that are asked for, in their order."""
        return self.state.definition.schema.arrow_of(self.columns)

    def count_rows(self) -> int:
        """Returns the number of rows: it reads the columns of the condition, and one column without any."""
        return Results.count_rows(replace(self, columns=[]))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Batches of about a row group: memory stays bounded. Without columns they have their number of rows."""
        with self.filestore.reading(self.state.version):
            for part in self._rows():
                yield from part.to_batches()

    def _rows(self) -> Iterator[pa.Table]:
        if self.columns is not None and not self.columns:
            return (part.select([]) for part in self._read([_cheapest(self.state.definition)]))
        return self._read(self.columns)

    def _read(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        if self.tail is not None:
            return fresh_rows(self.filestore, self.state, self.tail, columns, self.where)
        plan = plan_scan(self.state, columns, self.where)
        return scan(self.filestore.table_files(self.state), plan)

    def to_polars(self) -> pl.DataFrame:
        """Returns all rows as a polars frame: as they are decoded, without a copy of their strings in between."""
        if self.tail is not None or not self.schema.names:
            return Results.to_polars(self)  # super() does not work in a class with slots
        plan = plan_scan(self.state, self.columns, self.where)
        with self.filestore.reading(self.state.version):
            frames = list(scan_frames(self.filestore.table_files(self.state), plan))
        return pl.concat([pl.DataFrame(schema=polars_schema(plan.schema)), *frames])


def _cheapest(definition: TableDefinition) -> str:
    """Returns the column to read if only the number of rows is wanted: one that is in no file, or the narrowest."""
    if definition.partition_by:
        return definition.partition_by[0]
    return min(definition.schema, key=lambda column: _bits(column.type)).name


def _bits(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width)
    except ValueError:
        return 1 << 20  # texts and nested values have no width of their own
