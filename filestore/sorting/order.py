"""Rows in the order that `filestore.writing.write.write_sorted` wants, in memory: keys are sorted, then rows taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa

from filestore.model.definition import TableDefinition
from filestore.rows.bucketing import bucket_of
from filestore.rows.fitting import check_utf8
from filestore.rows.frames import frame_of
from filestore.sorting.chunks import BUCKET_COLUMN

__all__ = ["in_order", "slices_in_order", "sort_rows"]

_MAX_TEXT_BYTES = 2**31 - 1
_SLICE_ROWS = 1 << 16
_SLICE_BYTES = 64 << 20
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def sort_rows(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """A whole table in order of partition, bucket and key, with `BUCKET_COLUMN`; within a key as the rows came."""
    bucket = bucket_of(rows, definition.bucket_key, definition.buckets)
    bucketed = rows.append_column(BUCKET_COLUMN, pa.array(bucket))
    by = [*definition.partition_by, BUCKET_COLUMN, *definition.sort_key]
    return pa.concat_tables([bucketed.schema.empty_table(), *slices_in_order([bucketed], by)])


def slices_in_order(parts: list[pa.Table], by: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of all parts, sorted by those columns, in pieces that are taken one by one; equal ones as they came.

    Memory: at first the rows twice and the sort's own of their keys, then the rows and a piece of at most 65,536 rows
    or about 64 MB.

    Args:
        parts: The rows. The list is emptied, so that they can go once they are joined.
        by: The columns.

    Raises:
        InvalidRequest: a text among those columns that is not UTF-8: it has no place in the order.
    """
    joined, schema = _joined(parts)
    for name in by:
        check_utf8(name, joined.column(name))
    positions = _positions(joined, by)
    widened = joined.schema != schema
    size = max(1, min(_SLICE_ROWS, joined.num_rows * _SLICE_BYTES // max(joined.nbytes, 1)))
    for start in range(0, joined.num_rows, size):
        piece = joined.take(positions.slice(start, size))
        yield piece.cast(schema) if widened else piece


def in_order(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """A few rows, sorted by those columns; equal ones stay as they came."""
    return rows.take(_positions(rows, by))


def _positions(rows: pa.Table, by: Sequence[str]) -> pa.Array:
    keys = frame_of(rows.select(list(by)))
    return keys.select(pl.arg_sort_by(list(by), maintain_order=True)).to_series().to_arrow()


def _joined(parts: list[pa.Table]) -> tuple[pa.Table, pa.Schema]:
    """Each column in one piece, which `take` would make of it for each call; and the schema that it had.

    An Arrow text column ends at 2 GB: more is joined as large text.
    """
    rows = pa.concat_tables(parts)
    parts.clear()
    schema = rows.schema
    if rows.nbytes > _MAX_TEXT_BYTES:
        rows = rows.cast(pa.schema([f.with_type(_WIDE.get(f.type, f.type)) for f in schema]))
    return rows.combine_chunks(), schema
