"""The columns of a table that is to hold given rows: a frame, an Arrow schema or table, a stream that is not read."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa

from filestore.errors import InvalidRequest, Unsupported
from filestore.lazily import pl
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.types import canonical, is_wider, to_sql
from tablestore.incoming.given import Rows, arrow_rows

__all__ = ["Like", "columns_like", "in_sql", "storable", "wider"]

Like: TypeAlias = "pa.Schema | Rows"
"""Columns, or rows that have them."""


def columns_like(rows: Like) -> pa.Schema:
    """Returns the columns of rows, in the types in which a table stores them, and without `KIND_COLUMN`.

    Raises:
        InvalidRequest: ``bad-rows``, ``bad-value``: as `tablestore.incoming.given.arrow_rows`; ``unsupported-type``.
    """
    return storable(_schema_of(rows))


def storable(schema: pa.Schema) -> pa.Schema:
    """Returns columns in the types in which a table stores them, such as BIGINT for an unsigned number of 32 bits.

    Raises:
        InvalidRequest: ``unsupported-type``: nothing holds the values of a column.
    """
    fields = []
    for field in schema:
        try:
            kind = canonical(field.type, widened=True)
        except Unsupported as error:
            raise InvalidRequest(f"column {field.name!r}: {error.message}", code=error.code) from error
        if field.name != KIND_COLUMN:
            fields.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(fields)


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Returns which of two types holds the values of both, as Delta widens types; None if neither does."""
    if one == other or is_wider(one, other):
        return one
    return other if is_wider(other, one) else None


def _schema_of(rows: Any) -> pa.Schema:
    if isinstance(rows, pa.Schema):
        return rows
    if isinstance(rows, pl.LazyFrame):
        return pl.DataFrame(schema=rows.collect_schema()).to_arrow().schema
    if isinstance(rows, pl.DataFrame):
        return rows.clear().to_arrow().schema
    if isinstance(found := getattr(rows, "schema", None), pa.Schema):
        return found
    if hasattr(rows, "__arrow_c_schema__"):
        return pa.schema(rows)
    if hasattr(rows, "__arrow_c_stream__") and not hasattr(rows, "iloc"):
        return pa.RecordBatchReader.from_stream(rows).schema
    return arrow_rows(rows, pa.schema([])).schema


def in_sql(field: pa.Field) -> str:
    """Returns a column's type in SQL, with NOT NULL."""
    return to_sql(field.type) + ("" if field.nullable else " NOT NULL")
