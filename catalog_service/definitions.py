"""Between what a request says, what the catalog stores, and the checked `TableDefinition`. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

import pyarrow as pa

from catalog_service.wire import ColumnSpec, CreateTable
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.options import OPTIONS
from filestore.model.schema import Column, Schema
from filestore.model.sql import parse_columns, parse_table_columns
from filestore.model.table_columns import MetadataColumn, TableColumns, managed_schema
from filestore.model.table_options import TableOptions

__all__ = ["columns_of", "decode_definition", "definition_of", "effective_options", "encode_definition"]

_WORD = re.compile(r"\w+")
_TYPE_HINT = "write types as in BIGINT, DECIMAL(10,2), ARRAY<STRING> or STRUCT<a: INT, b: DATE>"


def definition_of(request: CreateTable) -> TableDefinition:
    """The definition that a request asks for.

    Raises:
        InvalidRequest: with the codes of `TableDefinition.of`, `Schema`, `parse_columns` and
            `TableOptions.parse`.
    """
    if request.columns is None:
        schema = parse_columns(request.sql_schema or "", request.primary_key)
    else:
        schema = managed_schema(_column(c, request.primary_key) for c in request.columns)
    return TableDefinition.of(schema, request.primary_key, request.partition_by, request.options, request.comment)


def columns_of(request: CreateTable) -> TableColumns:
    """The columns that a request asks for, metadata columns too: those of a table with a connector.

    Raises:
        InvalidRequest: with the codes of `TableColumns` and `parse_table_columns`, or ``metadata-column``: one that
            the primary key or the partitions are made of.
    """
    if request.columns is None:
        columns = parse_table_columns(request.sql_schema or "", request.primary_key)
    else:
        columns = TableColumns(tuple(_column(c, request.primary_key) for c in request.columns))
    columns.check_physical("primary key", request.primary_key)
    columns.check_physical("partition", request.partition_by)
    return columns


def encode_definition(definition: TableDefinition) -> str:
    """As the catalog stores it."""
    return json.dumps(
        {
            "schema": definition.schema.to_delta(),
            "primary_key": definition.primary_key,
            "partition_by": definition.partition_by,
            "options": definition.options.as_dict(),
            "comment": definition.comment,
        }
    )


def decode_definition(text: str) -> TableDefinition:
    """Back from `encode_definition`. Not checked again: rules of later versions do not reach old tables."""
    stored = json.loads(text)
    return TableDefinition(
        Schema.from_delta(stored["schema"]),
        tuple(stored["primary_key"]),
        tuple(stored["partition_by"]),
        TableOptions(tuple(sorted(stored["options"].items()))),
        stored["comment"],
    )


def effective_options(options: TableOptions) -> dict[str, str]:
    """Every option that has a value: as given, or the default."""
    defaults = {name: option.default for name, option in OPTIONS.items() if option.default is not None}
    return defaults | options.as_dict()


def _column(spec: ColumnSpec, primary_key: Collection[str]) -> Column | MetadataColumn:
    nullable = spec.nullable if spec.nullable is not None else spec.name not in primary_key
    if spec.metadata is None:
        return Column(spec.name, _type(spec), nullable, spec.comment)
    key = spec.name if spec.metadata.key is None else spec.metadata.key
    return MetadataColumn(spec.name, _type(spec), key, spec.metadata.virtual, nullable, spec.comment)


def _type(spec: ColumnSpec) -> pa.DataType:
    # The column's own name, for the parser's messages, unless that is no name at all: `Schema` says so later.
    name = spec.name if _WORD.fullmatch(spec.name) else "c"
    try:
        columns = parse_columns(f"`{name}` {spec.type}").columns
    except InvalidRequest as error:
        if error.code == "metadata-column":
            raise _more_than_a_type(spec) from error
        if error.code != "bad-column-list":
            raise
        raise InvalidRequest(
            f"column {spec.name!r}: cannot read the type {_short(spec.type)}: {_TYPE_HINT}", code="unsupported-type"
        ) from error
    if len(columns) != 1 or columns[0].comment is not None or not columns[0].nullable:
        raise _more_than_a_type(spec)
    return columns[0].type


def _more_than_a_type(spec: ColumnSpec) -> InvalidRequest:
    return InvalidRequest(
        f"column {spec.name!r}: {_short(spec.type)} is more than a type: give the type alone, such as "
        "'DECIMAL(10,2)', and NOT NULL, comments and METADATA in 'nullable', 'comment' and 'metadata'",
        code="unsupported-type",
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "…")
