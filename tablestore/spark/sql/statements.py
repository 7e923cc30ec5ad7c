"""Performs Java's requests, one function for each. Arguments and answers are plain values, as JSON has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from filestore import layout
from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.merging import Deletes
from filestore.model.names import names_in
from filestore.model.schema import Schema
from filestore.retention.rules import tag_of
from tablestore.defaults import table_defaults, with_defaults
from tablestore.kafka_table import KafkaTable
from tablestore.spark.batch.scans import plain_files, plain_version
from tablestore.spark.sql.changes import described_changes
from tablestore.spark.sql.clauses import options_in, refuse_clauses
from tablestore.spark.sql.columns import changes_from_spark, schema_from_spark, schema_to_spark
from tablestore.spark.sql.creation import creation_of
from tablestore.spark.sql.databases import (
    create_database,
    drop_database,
    ensure_default,
    list_databases,
    list_tables,
    list_views,
    load_database,
    missing_in_missing_database,
)
from tablestore.spark.sql.dialect import COLUMNS
from tablestore.spark.sql.listing import list_relations, table_properties
from tablestore.spark.sql.names import argument_table
from tablestore.spark.sql.procedure import Procedure, run_procedure
from tablestore.spark.sql.procedures import PROCEDURES
from tablestore.spark.sql.requests import (
    OF_SPARK,
    Request,
    checked_table,
    managed_table,
    name_of,
)
from tablestore.spark.sql.saved_rows import check_saved_rows
from tablestore.spark.sql.topics import KIND, described_topic, described_watermark
from tablestore.spark.sql.views import create_view, drop_view, load_view, rename_view
from tablestore.spark.store import SparkStore
from tablestore.store import Store
from tablestore.system.names import split_name
from tablestore.table import Table
from tablestore.writing.row_commands import refused_commands

__all__ = ["ANSWERS", "call"]

_KEY = "primary-key"
"""A property with the columns of the key, as in Paimon: ``CREATE TABLE … AS SELECT`` has no PRIMARY KEY in Spark."""
_OPTION = "option."
"""Spark gives each option of ``OPTIONS (…)`` twice: with this prefix, and without."""


def _load_table(store: Store, request: Request) -> dict[str, Any]:
    name, system = split_name(name_of(request))
    table = store.any_table(name) if system is None else managed_table(store, name)
    if isinstance(table, KafkaTable):
        if "version" in request or "microseconds" in request:
            raise Unsupported(f"{name} is a Kafka topic, which has no versions", code="connector-table")
        return described_topic(table)
    version = _version(table, request)
    if system is not None:
        return _described_system(table, system, version)
    definition = table.definition
    created = {"creation": creation_of(request["catalog"], name, definition)} if definition.is_view else {}
    return _described(table, version) | created


def _load_relation(store: Store, request: Request) -> dict[str, Any]:
    """Describes a table or a view. By this Spark finds out, too, whether a name is there that no table can have."""
    try:
        return _load_table(store, request)
    except InvalidRequest as error:
        if error.code != "bad-name":
            raise
        raise NotFound(error.message, code="table-not-found") from error
    except NotFound as error:
        if error.code != "is-view" or split_name(name_of(request))[1] is not None:
            raise
        return load_view(store, request)


def _version(table: Table, request: Request) -> int | None:
    if (given := request.get("version")) is not None:
        return int(given) if given.isdigit() else tag_of(table.filestore.state(), given).version
    if (microseconds := request.get("microseconds")) is not None:
        return table.version_at(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds))
    return None


def _described(table: Table, version: int | None = None) -> dict[str, Any]:
    state = table.filestore.state(version)
    definition = state.definition
    return {
        "table_id": table.opened.identity.table_id,
        "location": table.location,
        "version": state.version,
        "named": version is not None,
        # Delta's relation of the newest version may lack runs that others add later
        "pinned": version is not None or definition.merges_on_read,
        "plain": not state.pending,
        "overlay": layout.join(table.location, layout.overlay_path(state.version)),
        "schema": schema_to_spark(definition.schema),
        "hidden": [KIND],
        "primary_key": list(definition.primary_key),
        "partition_by": list(definition.partition_by),
        "refused": _refused(definition),
        "replans": definition.options["commit.max-retries"],
        # else a row with a lower sequence would be dropped as late, where the statement says that it replaces
        "replaces_rows": definition.sequence_field is None,
        "deletes_by_key": bool(definition.primary_key) and definition.merging.deletes is Deletes.REMOVE,
        "properties": table_properties(definition),
        **described_watermark(definition.watermark),
    }


def _refused(definition: TableDefinition) -> dict[str, dict[str, str]]:
    """Lists the row-level commands that the table cannot do, with the code and the sentence of the refusal."""
    if not definition.primary_key:
        return {}  # Spark writes their files anew
    refused = refused_commands(definition)
    return {command: {"code": "merge-engine", "message": message} for command, message in refused.items()}


def _described_system(table: Table, system: str, version: int | None) -> dict[str, Any]:
    rows = table.system(system, version)
    return {
        "table_id": f"{table.opened.identity.table_id}${system}",
        "location": f"{table.location}${system}",
        "version": table.filestore.state(version).version,
        "pinned": version is not None,
        "plain": False,
        "overlay": "",
        "schema": schema_to_spark(Schema.from_arrow(rows.schema)),
        "hidden": [],
        "primary_key": [],
        "partition_by": [],
        "refused": {},
        "replans": 0,
        "properties": {"provider": "tablestore"},
    }


def _create_table(store: Store, request: Request) -> dict[str, Any]:
    ensure_default(store, request)
    return _described_any(store.create_any_table(name_of(request), **_definition(request)))


def _stage_table(store: Store, request: Request) -> dict[str, Any]:
    ensure_default(store, request)
    staged = store.stage_table(name_of(request), **_definition(request))
    return _described_any(staged) | {"staged": staged.identifier.partition(".")[2]}


def _publish_table(store: Store, request: Request) -> None:
    staged = f"{request['database']}.{request['staged']}"
    store.publish_table(staged, name_of(request), replace=request["replace"])


def _described_any(table: Table | KafkaTable) -> dict[str, Any]:
    return described_topic(table) if isinstance(table, KafkaTable) else _described(table)


def _definition(request: Request) -> dict[str, Any]:
    """Makes the arguments of `Store.create_table` from the parts of a statement.

    Raises:
        InvalidRequest: ``key-twice``, ``unknown-option``; ``view-option``: a query of a view.
        Unsupported: as `refuse_clauses`.
    """
    properties = dict(request["properties"])
    refuse_clauses(properties, request["default_source"])
    comment = properties.pop("comment", None)
    key = _primary_key(request["primary_key"], properties.pop(_KEY, None))
    written = properties.pop(COLUMNS, None)  # what Spark's grammar lacks, such as METADATA
    schema = schema_from_spark(request["schema"]) if written is None else written
    given = {n: v for n, v in options_in(properties).items() if n not in OF_SPARK and not n.startswith(_OPTION)}
    if "view.query" in given:
        raise InvalidRequest(
            "the option 'view.query' is that of a materialized view: write CREATE MATERIALIZED VIEW with the query",
            code="view-option",
        )
    # of OPTIONS Spark gives each twice; others are of clauses such as ROW FORMAT
    if stray := [n for n in properties if n.startswith(_OPTION) and n.removeprefix(_OPTION) not in given]:
        raise InvalidRequest(f"a table has no option {stray[0]!r}: leave it, or its clause, out", code="unknown-option")
    return {
        "schema": schema,
        "primary_key": _as_declared(key, schema, request),
        "partition_by": _as_declared(request["partition_by"], schema, request),
        "options": with_defaults(table_defaults(request["defaults"]), given, keyed=bool(key)),
        "comment": comment,
    }


def _as_declared(names: list[str], schema: Any, request: Request) -> list[str]:
    """Spells names of columns as the list of columns does, where Spark takes ID and Id for one name."""
    if request["case_sensitive"] or not isinstance(schema, Schema):
        return names
    spelled = {name.lower(): name for name in schema.names}
    return [spelled.get(name.lower(), name) for name in names]


def _primary_key(columns: list[str], named: str | None) -> list[str]:
    if named is None:
        return columns
    if columns:
        raise InvalidRequest(
            f"the statement has PRIMARY KEY ({', '.join(columns)}) and the property {_KEY!r}: leave one of them out",
            code="key-twice",
        )
    try:
        return list(names_in(named))
    except ValueError as error:
        raise InvalidRequest(
            f"the property {_KEY!r} has value {named!r}; it takes {error}", code="bad-option-value"
        ) from error


def _alter_table(store: Store, request: Request) -> dict[str, Any]:
    table = managed_table(store, name_of(request))
    changes = [change for change in request["changes"] if _changes_anything(change, table.definition, request)]
    if changes:
        table.alter(*changes_from_spark(changes))
    return _described(table)


def _changes_anything(change: Mapping[str, Any], definition: TableDefinition, request: Request) -> bool:
    """Returns whether there is anything to do; columns and constraints that are missing are left to the change."""
    match change:
        case {"kind": "unset", "name": name}:  # of IF EXISTS Spark says nothing here
            return name in table_properties(definition)
        case {"kind": "set", "name": name, "value": value}:
            return bool(options_in({name: value}))
        case {"kind": "drop", "if_exists": True, "name": name}:
            return name in definition.schema
        case {"kind": "DropConstraint", "if_exists": True, "name": name}:
            return bool(definition.primary_key) and name == f"{request['table']}_pk"
    return True


def _drop_table(store: Store, request: Request) -> bool:
    name, system = split_name(name_of(request))
    if system is not None:
        return False
    try:
        store.drop_table(name)
    except NotFound:
        return False
    return True


def _rename_table(store: Store, request: Request) -> None:
    store.rename_table(name_of(request), f"{request['new_database']}.{request['new_table']}")


def _truncate(store: Store, request: Request) -> None:
    table = checked_table(store, request)
    table.write(table.schema.empty_table(), overwrite=True)


def _list_partitions(store: Store, request: Request) -> list[list[str | None]]:
    state = checked_table(store, request).filestore.state()
    partitions = state.files.partitions | state.pending.partitions
    return sorted(([value for _, value in partition] for partition in partitions), key=repr)


def _drop_partitions(store: Store, request: Request) -> None:
    checked_table(store, request).drop_partitions(request["partitions"])


def _load_changes(store: Store, request: Request) -> dict[str, Any]:
    return described_changes(managed_table(store, name_of(request)), request)


def _list_procedures(store: Store, request: Request) -> list[str]:
    return sorted(PROCEDURES)


def _load_procedure(store: Store, request: Request) -> dict[str, Any]:
    return _procedure(request).described()


def _procedure(request: Request) -> Procedure:
    if request["procedure"] not in PROCEDURES:
        raise NotFound(
            f"there is no procedure {request['procedure']!r}; there are {', '.join(sorted(PROCEDURES))}",
            code="no-procedure",
        )
    return PROCEDURES[request["procedure"]]


def _plain_version(store: Store, request: Request) -> dict[str, int]:
    return plain_version(checked_table(store, request).filestore, request["planned"], pinned=request["pinned"])


def _plain_files(store: Store, request: Request) -> list[dict[str, Any]]:
    return plain_files(checked_table(store, request).filestore, request["version"], request["conditions"])


ANSWERS: Mapping[str, Callable[[Store, Request], Any]] = {
    "list_databases": list_databases,
    "load_database": load_database,
    "create_database": create_database,
    "drop_database": drop_database,
    "list_tables": list_tables,
    "list_relations": list_relations,
    "load_relation": missing_in_missing_database(_load_relation),
    "load_table": missing_in_missing_database(_load_table),
    "create_table": _create_table,
    "alter_table": _alter_table,
    "drop_table": _drop_table,
    "stage_table": _stage_table,
    "publish_table": _publish_table,
    "check_saved_rows": check_saved_rows,
    "rename_table": _rename_table,
    "list_views": list_views,
    "load_view": missing_in_missing_database(load_view, "view-not-found"),
    "create_view": create_view,
    "drop_view": drop_view,
    "rename_view": rename_view,
    "truncate": _truncate,
    "list_partitions": _list_partitions,
    "drop_partitions": _drop_partitions,
    "list_procedures": _list_procedures,
    "load_procedure": _load_procedure,
    "load_changes": _load_changes,
    "plain_version": _plain_version,
    "plain_files": _plain_files,
}
"""The requests that need no session, by name. The names are those in ``TablestoreCatalog.java``."""


def call(store: SparkStore, request: Request) -> dict[str, Any]:
    """Runs a procedure."""
    arguments = {**request["arguments"], "catalog": request["catalog"]}
    if arguments.get("table") is not None:
        current = request["current_catalog"], request["current_database"]
        arguments["table"] = argument_table(arguments["table"], request["catalog"], current)
    return run_procedure(store, _procedure(request), arguments)
