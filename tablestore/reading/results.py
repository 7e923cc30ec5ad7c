"""Results of reads, which convert themselves to Arrow, polars, pandas or plain Python values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import Unsupported
from filestore.rows.frames import frame_of

__all__ = ["Results"]


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


def _table(read: _Batches) -> pa.Table:
    return pa.Table.from_batches(read.to_batches(), schema=read.schema)


def _nullable(column: pa.ChunkedArray, pandas: Any) -> Any:
    missing = column.is_null().to_numpy()
    numbers = pc.fill_null(column, 0).to_numpy()
    return pandas.arrays.IntegerArray(numbers.copy(), missing)
