"""Between what a request says, what the catalog stores, and the checked `TableDefinition`. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from catalog_service.wire import ColumnSpec, CreateTable
from filestore.errors import InvalidRequest
from filestore.model.bounds import check_columns
from filestore.model.definition import TableDefinition
from filestore.model.options import OPTIONS
from filestore.model.schema import Column, Schema
from filestore.model.sql import ColumnList, parse_column_list, parse_columns
from filestore.model.table_columns import MetadataColumn, TableColumns, managed_schema
from filestore.model.table_options import TableOptions
from log.connectors.declaration import KafkaDeclaration
from log.connectors.options import CONNECTOR, CONNECTOR_OPTIONS, PROPERTIES
from log.connectors.rules import check_times

__all__ = [
    "columns_of",
    "comment_in",
    "connector_of",
    "declaration_of",
    "decode_definition",
    "definition_of",
    "effective_options",
    "encode_definition",
]

_WORD = re.compile(r"\w+")
_REMEMBERED = 20_000  # characters of a definition that is kept decoded
_SHORT = 200  # characters of a type that is remembered
_TYPE_HINT = "write types as in BIGINT, DECIMAL(10,2), ARRAY<STRING> or STRUCT<a: INT, b: DATE>"


def definition_of(request: CreateTable) -> TableDefinition | KafkaDeclaration:
    """What a request asks for: a managed table, or with the option ``connector`` one that is a topic.

    Raises:
        InvalidRequest: with the codes of `TableDefinition.of` or `KafkaDeclaration.of`, `Schema`, `TableColumns` and
            `parse_column_list`; ``partition-by``: a topic has no such partitions.
    """
    if CONNECTOR in request.options:
        return declaration_of(request)
    _require_connector(request.options)
    listed = _listed(request)
    schema = managed_schema(listed.columns)
    return TableDefinition.of(schema, listed.primary_key, request.partition_by, request.options, request.comment)


def _require_connector(options: Mapping[str, str]) -> None:
    """Refuses options that mean nothing without `CONNECTOR`, which was left out."""
    if strays := sorted(name for name in options if name in CONNECTOR_OPTIONS or name.startswith(PROPERTIES)):
        raise InvalidRequest(
            f"option {strays[0]!r} is one of tables that are Kafka topics: give connector = 'kafka' or 'upsert-kafka', "
            "too; those of a managed table's log begin with 'log.'",
            code="unknown-option",
        )


def declaration_of(request: CreateTable) -> KafkaDeclaration:
    """The table with a connector that a request asks for; errors as of `definition_of`, each with the table's name."""
    try:
        columns, primary_key = columns_of(request), _listed(request).primary_key
        if request.partition_by:
            raise InvalidRequest(
                f"partition_by {list(request.partition_by)} is for managed tables: messages go to the topic's "
                "partitions by their key",
                code="partition-by",
            )
        declared = KafkaDeclaration.of(columns, primary_key, request.options, request.comment)
        check_times(declared)
        return declared
    except InvalidRequest as error:
        raise InvalidRequest(f"table {request.name}: {error.message}", code=error.code) from error


def columns_of(request: CreateTable) -> TableColumns:
    """The columns that a request asks for, metadata columns too: those of a table with a connector.

    Raises:
        InvalidRequest: with the codes of `TableColumns` and `parse_column_list`, or ``metadata-column``: one that
            the primary key or the partitions are made of.
    """
    listed = _listed(request)
    columns = TableColumns(listed.columns)
    columns.check_physical("primary key", listed.primary_key)
    columns.check_physical("partition", request.partition_by)
    return columns


def _listed(request: CreateTable) -> ColumnList:
    if request.columns is not None:
        check_columns(len(request.columns))
    if request.columns is None:
        return parse_column_list(request.sql_schema or "", request.primary_key)
    return ColumnList(tuple(_column(c, request.primary_key) for c in request.columns), request.primary_key)


def connector_of(definition: TableDefinition | KafkaDeclaration) -> str | None:
    """The name of a table's connector; None of a managed table."""
    return str(definition.connector) if isinstance(definition, KafkaDeclaration) else None


def encode_definition(definition: TableDefinition | KafkaDeclaration) -> str:
    """As the catalog stores it."""
    if isinstance(definition, KafkaDeclaration):
        return json.dumps(_encoded(definition))
    return json.dumps(
        {
            "schema": definition.schema.to_delta(),
            "primary_key": definition.primary_key,
            "partition_by": definition.partition_by,
            "options": definition.options.as_dict(),
            "comment": definition.comment,
        }
    )


def decode_definition(text: str) -> TableDefinition | KafkaDeclaration:
    """Back from `encode_definition`. Not checked again: rules of later versions do not reach old tables."""
    return _remembered(text) if len(text) < _REMEMBERED else _decoded(text)


def _decoded(text: str) -> TableDefinition | KafkaDeclaration:
    stored = json.loads(text)
    if "metadata" in stored:
        return _declaration(stored)
    return TableDefinition(
        Schema.from_delta(stored["schema"]),
        tuple(stored["primary_key"]),
        tuple(stored["partition_by"]),
        TableOptions(tuple(sorted(stored["options"].items()))),
        stored["comment"],
    )


def comment_in(text: str) -> str | None:
    """The comment in a stored definition, which is read no further: of a list of tables nothing else is asked."""
    comment: str | None = json.loads(text)["comment"]
    return comment


_remembered = lru_cache(maxsize=1024)(_decoded)  # a table is asked for again and again, and never becomes another


def _encoded(declaration: KafkaDeclaration) -> dict[str, Any]:
    """All columns as in a managed table; what makes some of them metadata columns, beside them, by name."""
    columns = declaration.columns
    schema = Schema(tuple(Column(c.name, c.type, c.nullable, c.comment) for c in columns.columns))
    return {
        "schema": schema.to_delta(),
        "metadata": {c.name: {"key": c.key, "virtual": c.virtual} for c in columns.metadata},
        "primary_key": declaration.primary_key,
        "options": declaration.options,
        "comment": declaration.comment,
    }


def _declaration(stored: Mapping[str, Any]) -> KafkaDeclaration:
    said = stored["metadata"]
    columns = tuple(
        MetadataColumn(c.name, c.type, said[c.name]["key"], said[c.name]["virtual"], c.nullable, c.comment)
        if c.name in said
        else c
        for c in Schema.from_delta(stored["schema"])
    )
    options = tuple(sorted(stored["options"].items()))
    return KafkaDeclaration(TableColumns(columns), tuple(stored["primary_key"]), options, stored["comment"])


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


@lru_cache(maxsize=1024)
def _known_type(text: str) -> pa.DataType | None:
    """The type that a text says and nothing more; None for any other, of which `_type` says what is wrong with it."""
    try:
        columns = parse_columns(f"`c` {text}").columns
    except InvalidRequest:
        return None
    return columns[0].type if columns == (Column("c", columns[0].type),) else None


def _type(spec: ColumnSpec) -> pa.DataType:
    if len(spec.type) < _SHORT and (known := _known_type(spec.type)) is not None:
        return known
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
