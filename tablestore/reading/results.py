"""Results of reads, which convert themselves to Arrow, polars, pandas or plain Python values.

Whatever takes Arrow's streams takes them as they are, batch by batch: ``pl.DataFrame(scan)``, ``pa.table(scan)``,
``duckdb.from_arrow(scan)``, `tablestore.Table.write`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import Unsupported
from filestore.lazily import pl
from filestore.rows.frames import frame_of

__all__ = ["ReadRows", "Results"]

_SHOWN_ROWS = 10


class _Batches(Protocol):
    """A source of batches with one schema."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of all batches."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some at a time."""


class Results:
    """The forms of a read that has a ``schema`` and ``to_batches``."""

    __slots__ = ()

    def __arrow_c_stream__(self: _Batches, requested_schema: object = None) -> object:
        """Yields all batches as a stream of Arrow's C interface: memory stays bounded by a batch."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __bool__(self: _Batches) -> bool:
        """Returns whether there is a row; reads up to the first one."""
        return any(batch.num_rows for batch in self.to_batches())

    def __iter__(self: _Batches) -> Iterator[dict[str, Any]]:
        """Yields the rows as dicts of Python's values, a batch in memory: the slowest way, for a few rows."""
        for batch in self.to_batches():
            yield from batch.to_pylist()

    def _repr_html_(self: _Batches) -> str:
        """Shows the first rows in a notebook; reads up to them."""
        head, more = _head(self, _SHOWN_ROWS)
        table: str = head._repr_html_()
        note = f"<small>the first {_SHOWN_ROWS} rows</small>" if more else ""
        return f"<div><code>{escape(repr(self))}</code>{table}{note}</div>"

    def count_rows(self: _Batches) -> int:
        """Returns the number of rows: it reads them, and keeps none.

        There is no ``len()`` of a read that is still to come: Python calls it for ``list(read)``, too.
        """
        return sum(batch.num_rows for batch in self.to_batches())

    def to_arrow(self: _Batches) -> pa.Table:
        """Returns all rows as an Arrow table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_polars(self: _Batches) -> pl.DataFrame:
        """Returns all rows as a polars frame."""
        return frame_of(_table(self))

    def to_pandas(self: _Batches) -> Any:
        """Returns all rows as a pandas frame; no value changes.

        Integers are of pandas' nullable types (``Int64``) where their column holds a null, since a float would round
        them. Other nulls are what pandas has for them: NaN among floats, NaT among times, None among objects.

        Raises:
            Unsupported: pandas is not installed (``no-pandas``).
        """
        try:
            import pandas  # not a dependency: whoever calls this has chosen it
        except ModuleNotFoundError as error:
            raise Unsupported(
                "pandas is not installed: install it (pip install pandas), or use to_polars() or to_arrow()",
                code="no-pandas",
            ) from error
        rows = _table(self)
        if not rows.num_columns:
            return pandas.DataFrame(index=pandas.RangeIndex(rows.num_rows))
        frame = rows.to_pandas()
        for field in rows.schema:
            if pa.types.is_integer(field.type) and rows.column(field.name).null_count:
                frame[field.name] = _nullable(rows.column(field.name), pandas)
        return frame

    def to_pylist(self: _Batches) -> list[dict[str, Any]]:
        """Returns all rows as dicts of Python's values: the slowest way, for a few rows."""
        rows: list[dict[str, Any]] = _table(self).to_pylist()
        return rows


@dataclass(frozen=True, slots=True, repr=False)
class ReadRows(Results):
    """Rows that were read, and are in memory.

    Attributes:
        table: The rows.
    """

    table: pa.Table

    def __repr__(self) -> str:
        return f"ReadRows({self.table.num_rows} rows, columns={self.table.schema.names})"

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.table.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some at a time."""
        yield from self.table.to_batches()

    def to_arrow(self) -> pa.Table:
        """Returns all rows as an Arrow table."""
        return self.table

    def __len__(self) -> int:
        return self.count_rows()

    def count_rows(self) -> int:
        """Returns the number of rows."""
        return int(self.table.num_rows)


def _head(read: _Batches, count: int) -> tuple[pl.DataFrame, bool]:
    """Returns the first rows, and whether there are more; reads up to the batch with them."""
    taken: list[pa.RecordBatch] = []
    for batch in read.to_batches():
        taken.append(batch)
        if sum(part.num_rows for part in taken) > count:
            break
    rows = frame_of(pa.Table.from_batches(taken, schema=read.schema))
    return rows.head(count), rows.height > count


def _table(read: _Batches) -> pa.Table:
    return pa.Table.from_batches(read.to_batches(), schema=read.schema)


def _nullable(column: pa.ChunkedArray, pandas: Any) -> Any:
    missing = column.is_null().to_numpy()
    numbers = pc.fill_null(column, 0).to_numpy()
    return pandas.arrays.IntegerArray(numbers.copy(), missing)
