"""Converts the rows that users pass in to an Arrow table of the table's schema."""

from __future__ import annotations

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN
from tablestore.incoming.fitting import fit
from tablestore.incoming.given import Rows, arrow_rows

__all__ = ["conform"]


def conform(rows: Rows, definition: TableDefinition) -> pa.Table:
    """Returns the rows with the table's columns, in its order and types, and with `KIND_COLUMN` if they have it.

    Columns are matched by name. A nullable column that is missing becomes null.

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
                f"the rows have a column {name!r} that the table lacks; its columns are "
                f"{', '.join(definition.schema.names)}",
                code="unknown-column",
            )
        given[name] = column
    columns = []
    for field in schema:
        if field.name in given:
            columns.append(fit(given[field.name], field))
        elif field.nullable:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            raise InvalidRequest(f"the rows lack the column {field.name!r}, which is NOT NULL", code="missing-column")
    # nullability is checked row by row later, because a delete needs only its key
    fields = [field.with_nullable(True) for field in schema]
    if KIND_COLUMN in given:
        fields.append(pa.field(KIND_COLUMN, pa.string()))
        columns.append(fit(given[KIND_COLUMN], fields[-1]))
    return pa.table(columns, schema=pa.schema(fields))
