"""Columns in requests and answers."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from catalog_service.wire.messages import AnswerModel, RequestModel
from filestore.model.schema import Column, Schema
from filestore.model.sql import parse_type
from filestore.model.table_columns import MetadataColumn, TableColumns
from filestore.model.types import to_sql

__all__ = ["ColumnInfo", "ColumnSpec", "MetadataInfo", "MetadataSpec", "column_infos", "column_specs", "table_columns"]


class MetadataSpec(RequestModel):
    """Makes a column a metadata column: METADATA [FROM 'key'] [VIRTUAL] in SQL."""

    key: str | None = Field(None, description="The metadata; by default the column's name.", examples=["timestamp"])
    virtual: bool = Field(False, description="Whether the column can only be read, and is not a part of written rows.")


class MetadataInfo(AnswerModel):
    """Says which metadata a metadata column holds."""

    key: str
    virtual: bool


class ColumnSpec(RequestModel):
    """A column of a new table."""

    name: str
    type: str = Field(description="The type as SQL spells it.", examples=["BIGINT", "DECIMAL(10,2)", "ARRAY<STRING>"])
    nullable: bool | None = Field(
        None, description="Left out, a primary-key column is NOT NULL and any other may be null."
    )
    comment: str | None = None
    metadata: MetadataSpec | None = Field(
        None, description="Makes it a metadata column; only tables with connector = kafka or upsert-kafka have those."
    )


class ColumnInfo(AnswerModel):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    comment: str | None = None
    metadata: MetadataInfo | None = Field(None, description="Which metadata it holds; null for a physical column.")


def column_specs(columns: Schema | TableColumns) -> list[ColumnSpec]:
    """Converts columns for a request."""
    return [
        ColumnSpec(name=c.name, type=to_sql(c.type), nullable=c.nullable, comment=c.comment, metadata=_spec(c))
        for c in columns.columns
    ]


def column_infos(columns: Schema | TableColumns) -> list[ColumnInfo]:
    """Converts columns for an answer."""
    return [
        ColumnInfo(name=c.name, type=to_sql(c.type), nullable=c.nullable, comment=c.comment, metadata=_info(c))
        for c in columns.columns
    ]


def table_columns(infos: Sequence[ColumnInfo]) -> TableColumns:
    """Converts the columns of an answer back; the reverse of `column_infos`."""
    return TableColumns(tuple(map(_declared, infos)))


def _declared(info: ColumnInfo) -> Column | MetadataColumn:
    kind = parse_type(info.type, info.name)
    if info.metadata is None:
        return Column(info.name, kind, info.nullable, info.comment)
    return MetadataColumn(info.name, kind, info.metadata.key, info.metadata.virtual, info.nullable, info.comment)


def _spec(column: Column | MetadataColumn) -> MetadataSpec | None:
    return MetadataSpec(key=column.key, virtual=column.virtual) if isinstance(column, MetadataColumn) else None


def _info(column: Column | MetadataColumn) -> MetadataInfo | None:
    return MetadataInfo(key=column.key, virtual=column.virtual) if isinstance(column, MetadataColumn) else None
