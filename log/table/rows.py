"""The shape of rows in a log: the table's columns, then ``_kind`` (PROTOCOL.md section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.rows.casting import cast_column

__all__ = ["conform", "keys_of_deletes", "project", "row_schema", "taking"]


@cache
def _kinds() -> pa.Array:
    """Returns the row kinds. They are no constant: pyarrow imports pandas with its first array, and takes a second."""
    return pa.array([str(k) for k in RowKind])


def row_schema(schema: Schema, primary_key: Sequence[str], columns: Sequence[str] | None = None) -> pa.Schema:
    """Returns the schema of the rows that a reader gets.

    Those columns, then ``_kind``. Outside the key all are nullable, for tombstones' sake.
    """
    wanted = schema if columns is None else [schema.column(name) for name in columns]
    fields = [pa.field(c.name, c.type, c.nullable or c.name not in primary_key) for c in wanted]
    return pa.schema([*fields, pa.field(KIND_COLUMN, pa.string(), nullable=False)])


def conform(rows: pa.RecordBatch | pa.Table, target: pa.Schema) -> pa.Table:
    """Casts changes to the target's columns, order and types, and checks them.

    Raises:
        InvalidRequest: ``log-rows``: a column is missing, cannot be cast without loss, or a row kind is
            unknown.
    """
    own = set(rows.schema.names)
    missing = [name for name in target.names if name not in own]
    if missing:
        raise InvalidRequest(
            f"the rows for the log lack column {missing[0]!r}; they have {', '.join(rows.schema.names)}",
            code="log-rows",
        )
    try:
        arrays = [_cast(rows.column(field.name), field) for field in target]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequest(
            f"the rows for the log do not fit the table's columns: {error}", code="log-rows"
        ) from error
    table = pa.Table.from_arrays(arrays, schema=target)
    if not pc.all(pc.is_in(table[KIND_COLUMN], _kinds()), min_count=0).as_py():
        raise InvalidRequest(f"a value of {KIND_COLUMN} is none of {', '.join(_kinds().to_pylist())}", code="log-rows")
    return table


def taking(rows: pa.Table) -> pa.ChunkedArray:
    """Returns for each change whether it removes a row."""
    return pc.is_in(rows[KIND_COLUMN], pa.array([str(k) for k in RowKind if not k.adds]))


def keys_of_deletes(rows: pa.Table, primary_key: Sequence[str]) -> pa.Table:
    """Returns the changes as a log with tombstones keeps them: what removes a row is a ``-D`` with only the key."""
    takes = taking(rows)
    if not pc.any(takes).as_py():
        return rows
    arrays = [
        pc.if_else(takes, str(RowKind.DELETE), rows[field.name])
        if field.name == KIND_COLUMN
        else rows[field.name]
        if field.name in primary_key
        else pc.if_else(takes, pa.scalar(None, field.type), rows[field.name])
        for field in rows.schema
    ]
    return pa.table(arrays, schema=rows.schema)


def project(rows: pa.Table, target: pa.Schema) -> pa.Table:
    """Returns rows of an older schema in the columns of a newer one; a column that did not exist yet is null."""
    own = set(rows.schema.names)
    arrays = [
        cast_column(rows[field.name], field.type) if field.name in own else pa.nulls(rows.num_rows, field.type)
        for field in target
    ]
    return pa.Table.from_arrays(arrays, schema=target)


def _cast(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    return column if column.type == field.type else cast_column(column, field.type)
