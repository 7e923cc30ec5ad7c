"""What users hand over, as an Arrow table of the table's schema."""

from __future__ import annotations

from typing import TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN

__all__ = ["Rows", "arrow_rows", "conform", "fit"]

Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | pl.DataFrame | pl.LazyFrame
"""Rows as Arrow or polars."""


def conform(rows: Rows, definition: TableDefinition) -> pa.Table:
    """The rows with the table's columns, in its order and types, and `KIND_COLUMN` if they have one.

    Columns are matched by name. A nullable column that is missing becomes null.

    Raises:
        InvalidRequest: a column that the table lacks (``unknown-column``), a missing NOT NULL column
            (``missing-column``), or a value that does not fit its type (``bad-value``).
    """
    table = arrow_rows(rows)
    names = set(table.column_names)
    if len(names) < len(table.column_names):
        twice = next(n for n in table.column_names if table.column_names.count(n) > 1)
        raise InvalidRequest(f"the rows have two columns {twice!r}: rename one", code="duplicate-column")
    if unknown := [n for n in table.column_names if n not in definition.schema and n != KIND_COLUMN]:
        raise InvalidRequest(
            f"the rows have a column {unknown[0]!r} that the table lacks; its columns are "
            f"{', '.join(definition.schema.names)}",
            code="unknown-column",
        )
    columns = []
    for field in definition.schema.to_arrow():
        if field.name in names:
            columns.append(fit(table.column(field.name), field))
        elif field.nullable:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            raise InvalidRequest(f"the rows lack the column {field.name!r}, which is NOT NULL", code="missing-column")
    # nullability is checked row by row later: deletes need their key only
    fields = [f.with_nullable(True) for f in definition.schema.to_arrow()]
    if KIND_COLUMN in names:
        fields.append(pa.field(KIND_COLUMN, pa.string()))
        columns.append(fit(table.column(KIND_COLUMN), fields[-1]))
    return pa.table(columns, schema=pa.schema(fields))


def arrow_rows(rows: Rows) -> pa.Table:
    """The rows as Arrow; what gives them once only has given them then."""
    if isinstance(rows, pl.LazyFrame):
        rows = rows.collect()
    if isinstance(rows, pl.DataFrame):
        return rows.to_arrow()
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if isinstance(rows, pa.Table):
        return rows
    raise InvalidRequest(
        f"cannot write a {type(rows).__name__}: give an Arrow table, a record batch or a polars frame",
        code="bad-rows",
    )


def fit(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """A column in the table's type, inner NOT NULLs checked. `InvalidRequest` if a value does not fit."""
    if column.type != field.type:
        _check_fields(column.type, field.type, field.name)
        try:
            column = _cast(column, field)
        except pa.ArrowException as error:
            raise InvalidRequest(
                f"column {field.name!r} is {column.type} and does not fit {field.type}: {error}", code="bad-value"
            ) from error
    for chunk in column.chunks if pa.types.is_nested(field.type) else ():
        _check_inner_nulls(chunk, field.name)
    return column


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Arrow's cast, which refuses much that would change a value, and where it does not, a look at the way back."""
    given, wanted = column.type, field.type
    result = column.cast(wanted)
    cuts = (pa.types.is_timestamp(given) and pa.types.is_date(wanted)) or (
        pa.types.is_floating(given) and pa.types.is_decimal(wanted)
    )
    if pa.types.is_boolean(wanted) and not pa.types.is_string(given):
        cuts = True
    if cuts:
        same = pc.equal(result.cast(given), column)
    elif pa.types.is_floating(given) and pa.types.is_floating(wanted):
        same = pc.equal(pc.is_inf(result), pc.is_inf(column))
    else:
        return result
    changed = pc.index(pc.fill_null(same, True), False).as_py()
    if changed >= 0:
        raise InvalidRequest(
            f"column {field.name!r} is {given} and holds {column[changed].as_py()}, which does not fit {wanted}",
            code="bad-value",
        )
    return result


def _check_fields(given: pa.DataType, wanted: pa.DataType, path: str) -> None:
    """Arrow's cast drops a struct's fields that the target lacks: nothing may be lost without a word."""
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = [f.name for f in wanted]
        for field in given:
            if field.name not in names:
                raise InvalidRequest(
                    f"the rows have a field {path}.{field.name!r} that the table lacks; the fields of {path!r} are "
                    f"{', '.join(names)}",
                    code="unknown-column",
                )
            _check_fields(field.type, wanted.field(field.name).type, f"{path}.{field.name}")
    elif pa.types.is_map(given) and pa.types.is_map(wanted):
        _check_fields(given.key_type, wanted.key_type, f"{path}.key")
        _check_fields(given.item_type, wanted.item_type, f"{path}.value")
    elif hasattr(given, "value_type") and hasattr(wanted, "value_type"):
        _check_fields(given.value_type, wanted.value_type, f"{path}.element")


def _check_inner_nulls(values: pa.Array, path: str) -> None:
    """Elements, map values and struct fields that are NOT NULL, which Arrow's cast checks for structs only."""
    kind = values.type
    inner: list[tuple[pa.Field, pa.Array]] = []
    if pa.types.is_struct(kind):
        inner = [(kind.field(i), values.filter(values.is_valid()).field(i)) for i in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        inner = [(kind.item_field, values.items.slice(first, last - first))]
    elif pa.types.is_list(kind):
        inner = [(kind.value_field, pc.list_flatten(values))]
    for field, part in inner:
        if part.null_count and not field.nullable:
            raise InvalidRequest(
                f"{path}.{field.name} is NOT NULL and holds {part.null_count} nulls: filter or fill them",
                code="null-value",
            )
        if pa.types.is_nested(part.type):
            _check_inner_nulls(part, f"{path}.{field.name}")
