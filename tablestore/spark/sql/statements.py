"""What each of Java's requests does. Arguments and answers are plain values, as JSON has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore import layout
from filestore.errors import Conflict, InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.merging import Deletes, MergeEngine
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.model.types import quoted
from filestore.retention.rules import tag_of
from log.connector.options import CONNECTOR
from tablestore.kafka_table import KafkaTable
from tablestore.spark.batch.scans import plain_files, plain_version
from tablestore.spark.sql.changes import described_changes, read_changes
from tablestore.spark.sql.columns import changes_from_spark, schema_from_spark, schema_to_spark
from tablestore.spark.sql.dialect import COLUMNS
from tablestore.spark.sql.procedures import PROCEDURES, Procedure, run_procedure
from tablestore.spark.sql.topics import KIND, described_topic, read_topic, stream_topic
from tablestore.spark.store import SparkStore
from tablestore.spark.streaming.options import STREAM_OPTIONS
from tablestore.store import Store, table_defaults
from tablestore.system.names import split_name
from tablestore.table import Table
from tablestore.writing.overwrite import Overwrite
from tablestore.writing.write import READ_CHANGED

__all__ = ["ANSWERS", "Request", "call", "changes", "read", "read_stream", "write", "write_batch"]

Request = Mapping[str, Any]

_OF_SPARK = {"provider", "owner", "external", "is_managed_location", "table_type"}
"""Properties that Spark adds to those of the statement."""
_OPTION = "option."
"""Spark gives each option of ``OPTIONS (…)`` twice: with this prefix, and without."""


def _list_databases(store: Store, request: Request) -> list[str]:
    return store.list_databases()


def _load_database(store: Store, request: Request) -> dict[str, str]:
    store.list_tables(request["database"])  # raises if there is none
    return {}


def _create_database(store: Store, request: Request) -> None:
    kept = {name: value for name, value in request["properties"].items() if name not in _OF_SPARK}
    if kept:
        raise Unsupported(
            f"a database of Tablestore has a name and nothing else: leave {', '.join(sorted(kept))} out",
            code="database-property",
        )
    store.create_database(request["database"])


def _drop_database(store: Store, request: Request) -> bool:
    try:
        store.drop_database(request["database"], cascade=request["cascade"])
    except NotFound:
        return False
    return True


def _list_tables(store: Store, request: Request) -> list[str]:
    return store.list_tables(request["database"])


def _load_table(store: Store, request: Request) -> dict[str, Any]:
    name, system = split_name(_name(request))
    table = store.table(name) if system is None else _managed(store, name)
    if isinstance(table, KafkaTable):
        if "version" in request or "microseconds" in request:
            raise Unsupported(f"{name} is a Kafka topic, which has no versions", code="connector-table")
        return described_topic(table)
    version = _version(table, request)
    if system is not None:
        return _described_system(table, system, version)
    return _described(table, version)


def _version(table: Table, request: Request) -> int | None:
    if (given := request.get("version")) is not None:
        return int(given) if given.isdigit() else tag_of(table.filestore.state(), given).version
    if (microseconds := request.get("microseconds")) is not None:
        return table.version_at(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds))
    return None


def _described(table: Table, version: int | None = None) -> dict[str, Any]:
    state = table.filestore.state(version)
    definition = state.definition
    comment = {} if definition.comment is None else {"comment": definition.comment}
    return {
        "table_id": table.opened.identity.table_id,
        "location": table.location,
        "version": state.version,
        # Delta's relation of the newest version may lack runs that others add later
        "pinned": version is not None or definition.merges_on_read,
        "plain": not state.pending(),
        "overlay": layout.join(table.location, layout.overlay_path(state.version)),
        "schema": schema_to_spark(definition.schema),
        "hidden": [KIND],
        "primary_key": list(definition.primary_key),
        "partition_by": list(definition.partition_by),
        "refused": _refused(definition),
        "replans": definition.options["commit.max-retries"],
        # else a row with a lower sequence would be dropped as late, where the statement says that it replaces
        "replaces_rows": definition.sequence_field is None,
        "properties": {"provider": "tablestore", **definition.options.as_dict(), **comment},
    }


def _refused(definition: TableDefinition) -> dict[str, dict[str, str]]:
    """Which row-level commands the table cannot do, with the code and the sentence of the refusal."""
    if not definition.primary_key:
        return {}
    merging = definition.merging
    refused = {}
    if merging.engine is not MergeEngine.DEDUPLICATE:
        message = (
            f"the table has merge-engine = {merging.engine}, which merges what is written with the stored row, so the "
            "row would not become what the statement says: INSERT what is to be merged"
        )
        refused = {command: {"code": "merge-engine", "message": message} for command in ("UPDATE", "MERGE")}
    if merging.deletes is not Deletes.REMOVE:
        message = (
            f"the table has merge-engine = {merging.engine} and options by which a delete does not remove the row: "
            "INSERT what is to be merged, or overwrite a partition"
        )
        refused |= {command: {"code": "merge-engine", "message": message} for command in ("DELETE", "MERGE")}
    return refused


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
    properties = dict(request["properties"])
    if "location" in properties:
        raise Unsupported("a managed table is where its warehouse is: leave LOCATION out", code="table-location")
    provider = properties.get("provider", "tablestore")
    if provider not in ("tablestore", "delta"):
        raise Unsupported(f"tables of this catalog are Delta tables: leave USING {provider} out", code="provider")
    comment = properties.pop("comment", None)
    written = properties.pop(COLUMNS, None)  # what Spark's grammar lacks, such as METADATA
    given = {n: v for n, v in properties.items() if n not in _OF_SPARK and not n.startswith(_OPTION)}
    options = given if CONNECTOR in given else table_defaults(request["defaults"]) | given
    made = store.create_table(
        _name(request),
        schema_from_spark(request["schema"]) if written is None else written,
        primary_key=request["primary_key"],
        partition_by=request["partition_by"],
        options=options,
        comment=comment,
    )
    return described_topic(made) if isinstance(made, KafkaTable) else _described(made)


def _alter_table(store: Store, request: Request) -> dict[str, Any]:
    table = _managed(store, _name(request))
    known = table.definition.schema
    changes = [c for c in request["changes"] if not (c.get("if_exists") and c["name"] not in known)]
    if changes:
        table.alter(*changes_from_spark(changes))
    return _described(table)


def _drop_table(store: Store, request: Request) -> bool:
    name, system = split_name(_name(request))
    if system is not None:
        return False
    try:
        store.drop_table(name)
    except NotFound:
        return False
    return True


def _rename_table(store: Store, request: Request) -> None:
    raise Unsupported(
        f"tables keep their names: {_name(request)} cannot be renamed. CREATE TABLE … AS SELECT makes a copy with "
        "another name",
        code="rename-table",
    )


def _truncate(store: Store, request: Request) -> None:
    table = _checked(store, request)
    table.write(table.schema.empty_table(), overwrite=True)


def _list_partitions(store: Store, request: Request) -> list[list[str | None]]:
    state = _checked(store, request).filestore.state()
    slots = {slot.partition for slot in (*state.slots(), *state.pending())}
    return sorted(([value for _, value in partition] for partition in slots), key=repr)


def _drop_partition(store: Store, request: Request) -> None:
    _checked(store, request).drop_partitions([request["partition"]])


def _load_changes(store: Store, request: Request) -> dict[str, Any]:
    return described_changes(_managed(store, _name(request)), request)


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
    return plain_version(_checked(store, request).filestore, request["planned"], pinned=request["pinned"])


def _plain_files(store: Store, request: Request) -> list[dict[str, Any]]:
    return plain_files(_checked(store, request).filestore, request["version"], request["conditions"])


ANSWERS: Mapping[str, Callable[[Store, Request], Any]] = {
    "list_databases": _list_databases,
    "load_database": _load_database,
    "create_database": _create_database,
    "drop_database": _drop_database,
    "list_tables": _list_tables,
    "load_table": _load_table,
    "create_table": _create_table,
    "alter_table": _alter_table,
    "drop_table": _drop_table,
    "rename_table": _rename_table,
    "truncate": _truncate,
    "list_partitions": _list_partitions,
    "drop_partition": _drop_partition,
    "list_procedures": _list_procedures,
    "load_procedure": _load_procedure,
    "load_changes": _load_changes,
    "plain_version": _plain_version,
    "plain_files": _plain_files,
}
"""The requests that need no session, by name. The names are those in ``TablestoreCatalog.java``."""


def write(store: SparkStore, request: Request, rows: DataFrame) -> dict[str, Any]:
    """Writes rows as one commit.

    Rows that were read and have changed since are an answer and no error: the statement can be planned again.
    """
    table = _same(store.store, request)
    if isinstance(table, KafkaTable):
        _refuse_overwrite(request)
        return {"messages": store.table(_name(request)).write(rows)}
    definition = table.definition
    if request.get("deletes") and definition.sequence_field is not None:
        rows = _with_sequence(rows, store.read(_name(request), request["if_version"]), definition)
    try:
        if request.get("each_key_once"):
            snapshot = store.merge(_name(request), rows, if_version=request.get("if_version"))
        elif request.get("reads_whole"):
            snapshot = store.write_read(_name(request), rows, _overwrite(request), request["if_version"])
        else:
            snapshot = store.write(_name(request), rows, _overwrite(request), if_version=request.get("if_version"))
    except Conflict as conflict:
        if conflict.code != READ_CHANGED:
            raise
        return {"changed": {"code": conflict.code, "message": conflict.message}}
    return {"version": snapshot.version}


def _with_sequence(rows: DataFrame, stored: DataFrame, definition: TableDefinition) -> DataFrame:
    """Gives deletes the sequence of the row that they delete: they have only its key, and would be late rows."""
    sequence = definition.sequence_field
    assert sequence is not None
    names = [*definition.primary_key, sequence]
    renamed = stored.select([F.col(quoted(name)).alias(f"_stored_{number}") for number, name in enumerate(names)])
    same_key = reduce(
        and_, (rows[quoted(name)] == renamed[f"_stored_{n}"] for n, name in enumerate(definition.primary_key))
    )
    is_delete = rows[KIND_COLUMN] == str(RowKind.DELETE)
    of_row = F.when(is_delete, renamed[f"_stored_{len(names) - 1}"]).otherwise(rows[quoted(sequence)])
    joined = rows.join(renamed, is_delete & same_key, "left")
    return joined.select([of_row.alias(sequence) if name == sequence else rows[quoted(name)] for name in rows.columns])


def call(store: SparkStore, request: Request) -> dict[str, Any]:
    """Runs a procedure."""
    return run_procedure(store, _procedure(request), {**request["arguments"], "catalog": request["catalog"]})


def read(store: SparkStore, request: Request) -> DataFrame:
    """Reads a version of a table or a system table that Delta's relation alone does not show."""
    name, system = split_name(_name(request))
    if system is None and isinstance(_same(store.store, request), KafkaTable):
        return read_topic(store.table(name))
    newest = system is not None and not request["pinned"]
    return store.read(_name(request), None if newest else request["version"])


def changes(store: SparkStore, request: Request) -> DataFrame:
    """Reads the changes of versions of a table."""
    _checked(store.store, request)
    return read_changes(store, _name(request), request["first"], request["last"])


def read_stream(store: SparkStore, request: Request) -> DataFrame:
    """Reads the changes of a table as they are committed, or of a topic as they arrive."""
    if isinstance(_same(store.store, request), KafkaTable):
        return stream_topic(store.table(_name(request)), request["options"])
    known = {option.lower() for option in STREAM_OPTIONS}
    if strange := [option for option in request["options"] if option.lower() not in known]:
        raise InvalidRequest(
            f"a stream of a table has no option {', '.join(strange)}; it has {', '.join(STREAM_OPTIONS)}",
            code="unknown-option",
        )
    return store.stream_of(_name(request), request["options"], with_kind=request["with_kind"])


def write_batch(store: SparkStore, request: Request, rows: DataFrame) -> dict[str, Any]:
    """Writes a micro-batch of a streaming query as one commit, unless the table has it already."""
    whole = request["output_mode"] == "Complete"  # each batch then has the whole result
    name, query, number = _name(request), request["query"], request["batch"]
    if isinstance(_same(store.store, request), KafkaTable):
        _refuse_overwrite(request)
        return {"messages": store.table(name).write_batch(rows, query, number)}
    if request["output_mode"] == "Update" and not _checked(store.store, request).definition.primary_key:
        raise Unsupported(
            f"{name} has no primary key, so the updates of output mode update would be further rows: use append or "
            "complete, or a table with a key",
            code="output-mode",
        )
    return {"version": store.write_batch(name, rows, query, number, overwrite=whole).version}


def _overwrite(request: Request) -> Overwrite:
    match request.get("overwrite"):
        case None:
            return False
        case "all":
            return True
        case "dynamic":
            return "dynamic"
        case "partition":
            return {one["column"]: one["value"] for one in request["partition"]}
        case other:
            raise InvalidRequest(f"{other!r} is no kind of overwrite", code="bad-request")


def _checked(store: Store, request: Request) -> Table:
    """Opens the managed table that the statement was planned for."""
    table = _same(store, request)
    return table if isinstance(table, Table) else _managed(store, _name(request))


def _same(store: Store, request: Request) -> Table | KafkaTable:
    """Opens the table that the statement was planned for. Spark may run it later."""
    table = store.table(_name(request))
    known = table.table_id if isinstance(table, KafkaTable) else table.opened.identity.table_id
    if known != request["table_id"]:
        raise NotFound(f"{_name(request)} was dropped and made again meanwhile: try again", code="table-replaced")
    return table


def _managed(store: Store, name: str) -> Table:
    table = store.table(name)
    if isinstance(table, KafkaTable):
        raise Unsupported(
            f"{name} is a Kafka topic: it has no files, versions or partitions, and its columns stay as they were "
            "declared",
            code="connector-table",
        )
    return table


def _refuse_overwrite(request: Request) -> None:
    if request.get("overwrite") is not None or request.get("output_mode") == "Complete":
        raise Unsupported(
            f"{_name(request)} is a Kafka topic, which cannot be overwritten: INSERT INTO appends messages",
            code="connector-table",
        )


def _name(request: Request) -> str:
    return f"{request['database']}.{request['table']}"
