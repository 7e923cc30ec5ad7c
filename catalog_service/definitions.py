"""Converts between requests, the definitions that the catalog stores, and checked `TableDefinition`s. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from catalog_service.schema import Definition
from catalog_service.view_definition import ViewDefinition
from catalog_service.wire import ColumnSpec, CreateTable
from filestore.errors import InvalidRequest
from filestore.model.bounds import check_columns
from filestore.model.definition import TableDefinition
from filestore.model.options import OPTIONS
from filestore.model.schema import Column, Schema
from filestore.model.sql import ColumnList, parse_column_list, parse_columns
from filestore.model.table_columns import MetadataColumn, TableColumns, managed_schema
from filestore.model.table_options import TableOptions
from log.connector.declaration import KafkaDeclaration
from log.connector.options import CONNECTOR, CONNECTOR_OPTIONS, PROPERTIES
from log.connector.rules import check_times

__all__ = [
    "VIEW",
    "columns_of",
    "comment_in",
    "connector_of",
    "declaration_of",
    "decode_definition",
    "definition_of",
    "effective_options",
    "encode_definition",
    "with_log",
]

VIEW = "view"
"""What a view has in place of a connector."""

_SYSTEM, _BROKERS = "log.system", "log.kafka.bootstrap.servers"
_WORD = re.compile(r"\w+")
_REMEMBERED = 20_000  # characters of a definition that is kept decoded
_SHORT = 200  # characters of a type that is remembered
_TYPE_HINT = "write types as in BIGINT, DECIMAL(10,2), ARRAY<STRING> or STRUCT<a: INT, b: DATE>"


def definition_of(request: CreateTable) -> TableDefinition | KafkaDeclaration:
    """The table that a request describes: a managed one, or with the option ``connector`` one that is a topic.

    Raises:
        InvalidRequest: with the codes of `TableDefinition.of` or `KafkaDeclaration.of`, `Schema`, `TableColumns` and
            `parse_column_list`; ``partition-by``: a table that is a topic cannot be partitioned by columns.
    """
    if CONNECTOR in request.options:
        return declaration_of(request)
    _require_connector(request.options)
    listed = _listed(request)
    schema = managed_schema(listed.columns)
    return TableDefinition.of(schema, listed.primary_key, request.partition_by, request.options, request.comment)


def with_log(request: CreateTable, *, local: bool, brokers: str | None, leases: bool = True) -> CreateTable:
    """A request that says which log its table has.

    An embedded log needs a local disk. In a store of objects a table has its log in Kafka if the request or the catalog
    names brokers, and otherwise none. A log needs leases, which show whether its writers live.

    Args:
        request: What a client asks for.
        local: Whether the warehouse is on a local disk.
        brokers: The catalog's brokers, for tables with a log in Kafka that name none.
        leases: Whether the warehouse's store can have leases: not without conditional writes.

    Raises:
        InvalidRequest: ``log-location``: the table shall have a log, and cannot.
    """
    options = dict(request.options)
    if CONNECTOR in options:
        return request
    if not leases:
        options.setdefault(_SYSTEM, "none")
        if options[_SYSTEM] != "none":
            raise InvalidRequest(
                f"log.system = {options[_SYSTEM]} needs a store with conditional writes, in which writers show that "
                "they live, and the commits of this warehouse are held by the catalog because its store has none: use "
                "log.system = none",
                code="log-location",
            )
    elif not local and _SYSTEM not in options:
        options[_SYSTEM] = "kafka" if options.get(_BROKERS) or brokers else "none"
    if options.get(_SYSTEM) == "kafka" and brokers is not None:
        options.setdefault(_BROKERS, brokers)
    return request if options == request.options else request.model_copy(update={"options": options})


def _require_connector(options: Mapping[str, str]) -> None:
    """Refuses options that have no effect without the option `CONNECTOR`, which is missing."""
    if strays := sorted(name for name in options if name in CONNECTOR_OPTIONS or name.startswith(PROPERTIES)):
        raise InvalidRequest(
            f"option {strays[0]!r} is for tables that are Kafka topics: set connector = 'kafka' or 'upsert-kafka', "
            "too; options of a managed table's log begin with 'log.'",
            code="unknown-option",
        )


def declaration_of(request: CreateTable) -> KafkaDeclaration:
    """The table with a connector that a request describes; raises as `definition_of`, with the table's name."""
    try:
        columns, primary_key = columns_of(request), _listed(request).primary_key
        if request.partition_by:
            raise InvalidRequest(
                f"partition_by {list(request.partition_by)} is only for managed tables: Kafka chooses a message's "
                "partition by its key",
                code="partition-by",
            )
        declared = KafkaDeclaration.of(columns, primary_key, request.options, request.comment)
        check_times(declared)
        return declared
    except InvalidRequest as error:
        raise InvalidRequest(f"table {request.name}: {error.message}", code=error.code) from error


def columns_of(request: CreateTable) -> TableColumns:
    """The columns of a table with a connector, metadata columns too.

    Raises:
        InvalidRequest: with the codes of `TableColumns` and `parse_column_list`, or ``metadata-column``: the primary
            key or `partition_by` names a metadata column.
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


def connector_of(definition: Definition) -> str | None:
    """The name of a table's connector; None for a managed table, and `VIEW` for a view."""
    if isinstance(definition, ViewDefinition):
        return VIEW
    return str(definition.connector) if isinstance(definition, KafkaDeclaration) else None


def encode_definition(definition: Definition) -> str:
    """Encodes a definition as the JSON that the catalog stores."""
    if isinstance(definition, ViewDefinition):
        return definition.encoded()
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


def decode_definition(text: str) -> Definition:
    """Reverses `encode_definition`. It does not check again: rules of later versions must not break old tables."""
    return _remembered(text) if len(text) < _REMEMBERED else _decoded(text)


def _decoded(text: str) -> Definition:
    stored = json.loads(text)
    if "query" in stored:
        return ViewDefinition.decoded(stored)
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
    """Returns only the comment of a stored definition: a list of tables needs nothing else."""
    comment: str | None = json.loads(text)["comment"]
    return comment


_remembered = lru_cache(maxsize=1024)(_decoded)  # the same definitions are read often, and each text has one meaning


def _encoded(declaration: KafkaDeclaration) -> dict[str, Any]:
    """Encodes all columns as for a managed table, and beside them, by name, what makes some metadata columns."""
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
    metadata = stored["metadata"]
    columns = tuple(
        MetadataColumn(c.name, c.type, metadata[c.name]["key"], metadata[c.name]["virtual"], c.nullable, c.comment)
        if c.name in metadata
        else c
        for c in Schema.from_delta(stored["schema"])
    )
    options = tuple(sorted(stored["options"].items()))
    return KafkaDeclaration(TableColumns(columns), tuple(stored["primary_key"]), options, stored["comment"])


def effective_options(options: TableOptions) -> dict[str, str]:
    """Every option that has a value: the given one, or the default."""
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
    """The type if the text is only a type; None for any other text, for which `_type` finds the error."""
    try:
        columns = parse_columns(f"`c` {text}").columns
    except InvalidRequest:
        return None
    return columns[0].type if columns == (Column("c", columns[0].type),) else None


def _type(spec: ColumnSpec) -> pa.DataType:
    if len(spec.type) < _SHORT and (known := _known_type(spec.type)) is not None:
        return known
    # The parser's messages name the column, unless its name is not a word: `Schema` refuses such a name later.
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
        f"column {spec.name!r}: {_short(spec.type)} is more than a type: write the type alone, such as "
        "'DECIMAL(10,2)', and NOT NULL, comments and METADATA in 'nullable', 'comment' and 'metadata'",
        code="unsupported-type",
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "…")
