"""Reads rows for Java as DataFrames, and writes the rows of its statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.errors import Conflict, InvalidRequest, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from filestore.model.rowkind import KIND_COLUMN, RowKind
from tablestore.kafka_table import KafkaTable
from tablestore.spark.sql.changes import read_changes
from tablestore.spark.sql.merged_rows import inserting_new_keys
from tablestore.spark.sql.requests import Request, checked_table, name_of, same_table, topic_stays
from tablestore.spark.sql.temporal_join import temporal_join
from tablestore.spark.sql.topics import read_topic, stream_topic
from tablestore.spark.store import SparkStore
from tablestore.spark.streaming.options import STREAM_OPTIONS
from tablestore.system.names import split_name
from tablestore.writing.overwrite import Overwrite
from tablestore.writing.write import READ_CHANGED

__all__ = ["JOINS", "READS", "WRITES"]


def read(store: SparkStore, request: Request) -> DataFrame:
    """Reads a version of a table or a system table that Delta's relation alone does not show."""
    name, system = split_name(name_of(request))
    if system is None and isinstance(same_table(store.store, request), KafkaTable):
        return read_topic(store.kafka_table(name))
    newest = system is not None and not request["pinned"]
    return store.read(name_of(request), None if newest else request["version"])


def read_fresh(store: SparkStore, request: Request) -> DataFrame:
    """Reads the newest version of a table with what an eventual log has beyond it."""
    name, system = split_name(name_of(request))
    if system is not None or isinstance(same_table(store.store, request), KafkaTable):
        raise Unsupported(
            f"{name_of(request)} has no log beyond its rows, so its reads have no option fresh: leave it out",
            code="unknown-option",
        )
    return store.read(name, fresh=True)


def changes(store: SparkStore, request: Request) -> DataFrame:
    """Reads the changes of versions of a table."""
    checked_table(store.store, request)
    how = {"net": request["net"], "updates": request["updates"]}
    return read_changes(store, name_of(request), request["first"], request["last"], **how)


_BEGINS = (
    "A stream begins with the rows of the newest version; with version = n with the changes after version n, with "
    "timestamp with those since then, and with scan = latest with later ones"
)
_CHANGES = "Leave it out: each row of a stream is a change, whose kind is in _kind"
_SMALLER = "maxRowsPerBatch and maxVersionsPerBatch bound a batch"
_OF_DELTA = {
    "startingversion": _BEGINS,
    "startingtimestamp": _BEGINS,
    "readchangefeed": _CHANGES,
    "ignorechanges": _CHANGES,
    "ignoredeletes": _CHANGES,
    "skipchangecommits": _CHANGES,
    "maxfilespertrigger": _SMALLER,
    "maxbytespertrigger": _SMALLER,
}
"""The sentences for options of Delta's streams, by their names in lower case."""


def read_stream(store: SparkStore, request: Request) -> DataFrame:
    """Reads the changes of a table as they are committed, or of a topic as they arrive."""
    if split_name(name_of(request))[1] is not None:
        raise Unsupported(
            f"{name_of(request)} is a system table, which has no changes: read it by a query without STREAM, or stream "
            "its table",
            code="system-table",
        )
    if isinstance(same_table(store.store, request), KafkaTable):
        return stream_topic(store.kafka_table(name_of(request)), request["options"], with_kind=request["with_kind"])
    known = {option.lower() for option in STREAM_OPTIONS}
    if strange := [option for option in request["options"] if option.lower() not in known]:
        instead = dict.fromkeys(_OF_DELTA[option.lower()] for option in strange if option.lower() in _OF_DELTA)
        raise InvalidRequest(
            ". ".join(
                [
                    f"a stream of a table has no option {', '.join(strange)}; it has {', '.join(STREAM_OPTIONS)}",
                    *instead,
                ]
            ),
            code="unknown-option",
        )
    return store.stream_of(name_of(request), request["options"], with_kind=request["with_kind"])


def write_batch(store: SparkStore, request: Request, rows: DataFrame) -> dict[str, Any]:
    """Writes a micro-batch of a streaming query as one commit, unless the table has it already."""
    whole = request["output_mode"] == "Complete"  # each batch then has the whole result
    name, query, number = name_of(request), request["query"], request["batch"]
    table = same_table(store.store, request)
    if isinstance(table, KafkaTable):
        _refuse_overwrite(request)
        return {"messages": store.kafka_table(name).write_batch(rows, query, number)}
    if request["output_mode"] == "Update" and not table.definition.primary_key:
        raise Unsupported(
            f"{name} has no primary key, so the updates of output mode update would be further rows: use append or "
            "complete, or a table with a key",
            code="output-mode",
        )
    return {"version": store.write_batch(name, rows, query, number, overwrite=whole).version}


def write(store: SparkStore, request: Request, rows: DataFrame) -> dict[str, Any]:
    """Writes rows as one commit.

    Rows that were read and have changed since are an answer and no error: the statement can be planned again.
    """
    table = same_table(store.store, request)
    if isinstance(table, KafkaTable):
        _refuse_overwrite(request)
        return {"messages": store.kafka_table(name_of(request)).write(rows)}
    definition = table.definition
    if request.get("deletes") and definition.sequence_field is not None:
        rows = _with_sequence(rows, store.read(name_of(request), request["if_version"]), definition)
    # other engines merge the rows of a MERGE, which then only inserts, as those of an INSERT
    merges = request.get("each_key_once") and definition.primary_key and not definition.merges_values
    if merges and request.get("inserts_unmatched"):
        rows = inserting_new_keys(rows, store.read(name_of(request), request["if_version"]), definition)
    whole = request.get("reads_whole", False)
    try:
        if request.get("in_order"):
            snapshot = store.write_in_order(name_of(request), rows)
        elif merges:
            snapshot = store.merge(name_of(request), rows, if_version=request.get("if_version"), whole=whole)
        elif whole:
            snapshot = store.write_read(name_of(request), rows, _overwrite(request), request["if_version"])
        else:
            snapshot = store.write(name_of(request), rows, _overwrite(request), if_version=request.get("if_version"))
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


def _refuse_overwrite(request: Request) -> None:
    if request.get("overwrite") is not None or request.get("output_mode") == "Complete":
        raise topic_stays(name_of(request))


READS: Mapping[str, Callable[[SparkStore, Request], DataFrame]] = {
    "read": read,
    "read_fresh": read_fresh,
    "read_stream": read_stream,
    "changes": changes,
}
"""The requests that return a DataFrame, by name."""
JOINS: Mapping[str, Callable[[SparkStore, Request, DataFrame], DataFrame]] = {"temporal_join": temporal_join}
"""The requests that return a DataFrame of the rows of another one, by name."""
WRITES: dict[str, Callable[[SparkStore, Request, DataFrame], Any]] = {"write": write, "write_batch": write_batch}
"""The requests that take one, by name."""
