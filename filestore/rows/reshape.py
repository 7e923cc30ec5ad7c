"""Rows of one version's columns in those of another: an id is a column, whatever its name (FORMAT.md section 3.1)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import Unsupported
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Column, Schema
from filestore.model.types import to_sql

__all__ = ["reshaped", "schema_changed"]


def reshaped(rows: pa.Table, written: Schema, wanted: Schema) -> pa.Table:
    """The rows with the wanted columns, and `KIND_COLUMN` if they have it.

    A column that was not there yet, or is there no longer, is null; others are left out.

    Args:
        rows: With all columns of `written`.
        written: The table's columns when the rows were written.
        wanted: Its columns as the reader knows them, in an earlier or a later version.

    Raises:
        Unsupported: ``schema-changed``: a column was widened since, and a value does not fit what the reader knows.
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
    """The values in a wider type, or if all of them fit in a narrower one."""
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
    return schema_changed(f"column {column.name!r} was widened, and holds a value that is no {to_sql(column.type)}")


def schema_changed(what: str) -> Unsupported:
    """The error of a reader whose columns no longer hold what the table holds."""
    return Unsupported(
        f"the table's columns were changed since this reader began: {what}. Start it again, and it goes on with "
        "the new ones",
        code="schema-changed",
    )
