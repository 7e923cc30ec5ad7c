"""Converts the rows that users pass in to an Arrow table of the table's schema."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.text import none_named
from filestore.rows.fitting import adding, place_columns
from tablestore.incoming.fitting import fit
from tablestore.incoming.given import Rows, arrow_rows

__all__ = ["conform", "unread_by_deletes"]

_KIND = pa.field(KIND_COLUMN, pa.string())


def conform(rows: Rows, definition: TableDefinition, before: int = 0) -> pa.Table:
    """Returns the rows with the table's columns, in its order and types, and with `KIND_COLUMN` if they have it.

    Columns are matched by name. A column that is missing becomes null if it is nullable, or if all rows are deletes
    that do not need it.

    Args:
        rows: The rows.
        definition: The table's.
        before: The number of rows before these, for errors.

    Raises:
        InvalidRequest: a column that the table lacks (``unknown-column``), a missing NOT NULL column
            (``missing-column``), or a value that does not fit its type (``bad-value``).
    """
    schema = definition.schema.to_arrow()
    table = arrow_rows(rows, schema)
    given: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in given:
            raise InvalidRequest(f"the rows have two columns {name!r}: rename one", code="duplicate-column")
        if name not in definition.schema and name != KIND_COLUMN:
            raise InvalidRequest(
                f"the rows have a column that the table lacks: {none_named('column', name, definition.schema.names)}",
                code="unknown-column",
            )
        given[name] = column
    columns = []
    kinds = [fit(given[KIND_COLUMN], _KIND, before)] if KIND_COLUMN in given else []
    left_out = (
        unread_by_deletes(definition) if kinds and not pc.any(adding(pa.table(kinds, [KIND_COLUMN]))).as_py() else ()
    )
    for field in schema:
        if field.name in given:
            columns.append(fit(given[field.name], field, before))
        elif field.nullable or field.name in left_out:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            raise InvalidRequest(f"the rows lack the column {field.name!r}, which is NOT NULL", code="missing-column")
    # nullability is checked row by row later, because a delete needs only its key
    fields = [field.with_nullable(True) for field in schema] + [_KIND] * len(kinds)
    return pa.table(columns + kinds, schema=pa.schema(fields))


def unread_by_deletes(definition: TableDefinition) -> set[str]:
    """Returns the columns that a delete does not need: FORMAT.md section 9.1."""
    if definition.merges_values:
        return set()
    return set(definition.schema.names) - {*definition.primary_key, *place_columns(definition)}
