"""Fields of metadata columns, for an Arrow schema (log/connector/METADATA.md)."""

from __future__ import annotations

import pyarrow as pa

from filestore.arguments import checked
from filestore.model.schema import Schema
from filestore.model.sql import parse_type
from filestore.model.table_columns import MetadataColumn

__all__ = ["metadata_column"]


@checked()
def metadata_column(
    name: str,
    type: pa.DataType | str,
    key: str | None = None,
    *,
    virtual: bool = False,
    nullable: bool = True,
    comment: str | None = None,
) -> pa.Field:
    """The field of a metadata column, for the schema of a new table with ``connector = kafka`` or ``upsert-kafka``.

        schema = pa.schema([("id", pa.int64()), tablestore.metadata_column("at", "TIMESTAMP", "timestamp")])

    Args:
        name: The column's name.
        type: Its type: Arrow's, or SQL's spelling of it.
        key: Which metadata, such as ``offset``; the column's name if absent.
        virtual: Whether it can be read only, and is no part of what is written.
        nullable: Whether it may be null.
        comment: Free text.

    Raises:
        InvalidRequest: a name, type or key that no metadata column can have.
    """
    kind = parse_type(type, name) if isinstance(type, str) else type
    field = pa.field(name, kind, nullable, {"comment": comment} if comment else None)
    (column,) = Schema.from_arrow(pa.schema([field]))
    return MetadataColumn(
        name, column.type, name if key is None else key, virtual, column.nullable, column.comment
    ).to_field()
