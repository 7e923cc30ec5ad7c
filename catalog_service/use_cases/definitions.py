"""Converts requests to checked `TableDefinition`s and `KafkaDeclaration`s. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

import pyarrow as pa

from catalog_service.wire.columns import ColumnSpec
from catalog_service.wire.tables import CreateTable
from filestore.errors import InvalidRequest
from filestore.model.bounds import check_columns
from filestore.model.definition import TableDefinition
from filestore.model.options import OPTIONS
from filestore.model.schema import Column
from filestore.model.sql import ColumnList, parse_column_list, parse_columns
from filestore.model.table_columns import MetadataColumn, TableColumns, managed_schema
from filestore.model.table_options import TableOptions
from filestore.secrets import check_references
from log.connector.declaration import KafkaDeclaration
from log.connector.options import CONNECTOR, CONNECTOR_OPTIONS, PROPERTIES
from log.connector.rules import check_times

__all__ = [
    "columns_of",
    "declaration_of",
    "definition_of",
    "effective_options",
    "with_log",
]

_SYSTEM, _BROKERS = "log.system", "log.kafka.bootstrap.servers"
_WORD = re.compile(r"\w+")
_SHORT = 200  # characters of a type that is remembered
_TYPE_HINT = "write types as in BIGINT, DECIMAL(10,2), ARRAY<STRING> or STRUCT<a: INT, b: DATE>"


def definition_of(request: CreateTable) -> TableDefinition | KafkaDeclaration:
    """The table that a request describes: a managed one, or with the option ``connector`` one that is a topic.

    Raises:
        InvalidRequest: with the codes of `TableDefinition.of` or `KafkaDeclaration.of`, `Schema`, `TableColumns` and
            `parse_column_list`; ``partition-by``: a table that is a topic cannot be partitioned by columns;
            ``literal-secret``.
    """
    made = declaration_of(request) if CONNECTOR in request.options else _managed(request)
    check_references(request.options)
    return made


def _managed(request: CreateTable) -> TableDefinition:
    _require_connector(request.options)
    listed = _listed(request)
    schema = managed_schema(listed.columns)
    return TableDefinition.of(schema, listed.primary_key, request.partition_by, request.options, request.comment)


def with_log(request: CreateTable, *, local: bool, brokers: str | None, leases: bool = True) -> CreateTable:
    """Returns a request that says which log its table has.

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
    topics_own = CONNECTOR_OPTIONS.keys() - OPTIONS.keys()  # a watermark is for both kinds of tables
    if strays := sorted(name for name in options if name in topics_own or name.startswith(PROPERTIES)):
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
