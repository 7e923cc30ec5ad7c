"""Converts rows between the schemas of two versions by the columns' ids, not their names (FORMAT.md section 3.1)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import Unsupported
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Column, Schema
from filestore.model.types import to_sql

__all__ = ["reshaped", "schema_changed"]


def reshaped(rows: pa.Table, written: Schema, wanted: Schema) -> pa.Table:
    """Returns the rows with the wanted columns, and `KIND_COLUMN` if they have it.

    A column that the rows' version does not have is null; columns that are not wanted are left out.

    Args:
        rows: Rows with all columns of `written`.
        written: The table's columns when the rows were written.
        wanted: The table's columns for the reader, in an earlier or a later version.

    Raises:
        Unsupported: ``schema-changed``: a column was widened later, and a value does not fit the reader's type.
    """
    if written == wanted:
        return rows
    names = {column.id: column.name for column in written.numbered()}
    columns: dict[str, pa.ChunkedArray | pa.Array] = {}
    for column in wanted.numbered():
        if column.id not in names:
            columns[column.name] = pa.nulls(rows.num_rows, column.type)
            continue
        columns[column.name] = _typed(rows.column(names[column.id]), column)
    if KIND_COLUMN in rows.column_names:
        columns[KIND_COLUMN] = rows.column(KIND_COLUMN)
    return pa.table(columns)


def _typed(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """Casts the values to a wider type, or to a narrower one if all of them fit."""
    if values.type == column.type:  # Arrow does not cast a struct with NOT NULL fields that is null, even to itself
        return values
    try:
        result = values.cast(column.type)
    except pa.ArrowInvalid as error:
        raise _misfit(column) from error
    if pa.types.is_floating(values.type) and values.type != column.type and not result.cast(values.type).equals(values):
        changed = pc.and_(pc.is_finite(values), pc.not_equal(result.cast(values.type), values))
        if pc.any(changed).as_py():
            raise _misfit(column)
    return result


def _misfit(column: Column) -> Unsupported:
    return schema_changed(
        f"column {column.name!r} was widened, and contains a value that does not fit {to_sql(column.type)}"
    )


def schema_changed(what: str) -> Unsupported:
    """The error for a reader whose columns cannot hold the table's values any more."""
    return Unsupported(
        f"the table's columns changed after this reader began: {what}. Start the reader again, and it continues with "
        "the new columns",
        code="schema-changed",
    )
