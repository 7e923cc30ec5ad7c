"""Sorts rows in memory for `filestore.writing.write.write_sorted`: it sorts keys, then takes the rows in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from filestore.lazily import pl
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.rows.bucketing import bucket_of
from filestore.rows.casting import cast_rows
from filestore.rows.fitting import check_utf8
from filestore.rows.frames import frame_of
from filestore.rows.ordering import ascending_positions
from filestore.sorting.chunks import BUCKET_COLUMN

__all__ = ["bucketed", "by_arrival", "in_order", "slices_in_order", "sort_rows"]

_MAX_TEXT_BYTES = 2**31 - 1
_SLICE_ROWS = 1 << 16
_SLICE_BYTES = 64 << 20
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def sort_rows(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Sorts a table by partition, bucket and key, with `BUCKET_COLUMN`; rows of a key stay in their order."""
    rows = bucketed(rows, definition)
    return pa.concat_tables([rows.schema.empty_table(), *slices_in_order([rows], _by_key(definition))])


def bucketed(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Adds `BUCKET_COLUMN`."""
    return rows.append_column(BUCKET_COLUMN, pa.array(bucket_of(rows, definition.bucket_key, definition.buckets)))


def by_arrival(definition: TableDefinition) -> list[str]:
    """Returns the columns of a total order: slot, key, and `ORDINAL_COLUMN` for rows of one key."""
    return [*_by_key(definition), ORDINAL_COLUMN]


def _by_key(definition: TableDefinition) -> list[str]:
    return [*definition.partition_by, BUCKET_COLUMN, *definition.sort_key]


def slices_in_order(parts: list[pa.Table], by: Sequence[str]) -> Iterator[pa.Table]:
    """Sorts the rows of all parts by those columns, and yields them in slices; equal rows stay in their order.

    It takes the memory of the rows twice and of the sort of their keys, then of the rows and a slice of at most 65,536
    rows or about 64 MB.

    Args:
        parts: The rows. The list is emptied, so that their memory is freed once they are joined.
        by: The columns.

    Raises:
        InvalidRequest: a text in those columns is not UTF-8, so its order is undefined.
    """
    joined, schema = _joined(parts)
    for name in by:
        check_utf8(name, joined.column(name))
    positions = _positions(joined, by)
    widened = joined.schema != schema
    size = max(1, min(_SLICE_ROWS, joined.num_rows * _SLICE_BYTES // max(joined.nbytes, 1)))
    for start in range(0, joined.num_rows, size):
        piece = joined.take(positions.slice(start, size))
        yield cast_rows(piece, schema) if widened else piece


def in_order(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Sorts a few rows by those columns; equal rows stay in their order."""
    return rows.take(_positions(rows, by))


def _positions(rows: pa.Table, by: Sequence[str]) -> pa.Array:
    names = list(dict.fromkeys(by))  # a column that comes again changes no order
    leading = names.index(BUCKET_COLUMN) + 1 if BUCKET_COLUMN in names else 0
    keys = frame_of(rows.select(names))
    if names[-1] == ORDINAL_COLUMN and len(names) > 1:
        # The rows of a key are in order nearly always, in a write and in its runs. Numbers that are not sorted first
        # leave the rows of each run together, too, so that merging them takes a quarter of the time.
        positions = ascending_positions(keys.drop(ORDINAL_COLUMN), leading)
        if _arrived_in_turn(keys, positions):
            return positions.to_arrow()
    return ascending_positions(keys, leading).to_arrow()


def _arrived_in_turn(keys: pl.DataFrame, positions: pl.Series) -> bool:
    """Returns whether the rows of each key are in the order of their numbers, if rows are taken in that order."""
    same = pl.repeat(value=True, n=len(positions), eager=True)
    for column in reversed(keys.drop(ORDINAL_COLUMN).get_columns()):
        ordered = column.gather(positions)
        same &= ordered.eq_missing(ordered.shift())
        if not same.any():
            return True
    numbers = keys[ORDINAL_COLUMN].gather(positions)
    return not (same & (numbers < numbers.shift())).any()


def _joined(parts: list[pa.Table]) -> tuple[pa.Table, pa.Schema]:
    """Joins the chunks of each column, which `take` would do at each call; also returns the original schema.

    An Arrow string column can have 2 GB: more are joined as large strings.
    """
    rows = pa.concat_tables(parts)
    parts.clear()
    schema = rows.schema
    if rows.nbytes > _MAX_TEXT_BYTES:
        rows = cast_rows(rows, pa.schema([f.with_type(_WIDE.get(f.type, f.type)) for f in schema]))
    return rows.combine_chunks(), schema
