"""Tables that are Kafka topics, in SQL (log/connector/CONNECTORS.md).

With a primary key a batch read returns the rows that the topic's changes lead to, as of a managed table. Without one,
it returns the messages. Streams return changes. VIRTUAL columns are Spark's metadata columns: they can be selected by
name, and are not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.errors import InvalidRequest
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.names import quoted
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Column, Schema
from filestore.model.table_columns import MetadataColumn
from filestore.model.types import to_sql
from filestore.model.watermark import Watermark
from filestore.secrets import shown
from log.connector.declaration import KafkaDeclaration
from tablestore.following.result_mode import Mode
from tablestore.kafka_table import KafkaTable
from tablestore.spark.kafka.table import SparkKafkaTable
from tablestore.spark.sql.columns import schema_to_spark
from tablestore.spark.streaming.options import whole_option
from tablestore.topics.kinds import batch_needs_kinds, stream_needs_kinds
from tablestore.topics.spec import is_complete

__all__ = ["KIND", "described_topic", "described_watermark", "read_topic", "stream_topic"]

KIND: Mapping[str, str] = {
    "name": KIND_COLUMN,
    "type": "STRING",
    "comment": "what a row of a stream does: +I, -U, +U, -D",
}
"""The metadata column of every table."""

_STREAM_OPTIONS = ("mode", "state", "maxRowsPerBatch")
_LAST = "_tablestore_last"


def described_topic(table: KafkaTable) -> dict[str, Any]:
    """Describes a topic as ``TablestoreTable.java`` takes it."""
    declaration = table.declaration
    message = "it is a Kafka topic, whose messages do not change: INSERT what is to be merged"
    comment = {} if declaration.comment is None else {"comment": declaration.comment}
    return {
        "table_id": table.table_id,
        "location": "",  # it has no files
        "version": 0,
        "pinned": False,
        "plain": False,
        "overlay": "",
        "schema": schema_to_spark(Schema(tuple(_written(table)))),
        "hidden": [KIND, *({"name": c.name, "type": to_sql(c.type), "comment": c.comment} for c in _virtual(table))],
        "primary_key": list(declaration.primary_key),
        "partition_by": [],
        "refused": {c: {"code": "connector-table", "message": message} for c in ("UPDATE", "DELETE", "MERGE")},
        "replans": 0,
        "properties": {"provider": "tablestore", **shown(dict(declaration.given)), **comment},
        "deletes_by_key": declaration.upserts,
        **_described_changes(declaration),
        **described_watermark(declaration.watermark),
    }


def _described_changes(declaration: KafkaDeclaration) -> dict[str, Any]:
    if is_complete(declaration):
        return {}
    refusal = batch_needs_kinds(declaration)
    refused = {} if refusal is None else {"refusal": {"code": refusal.code, "message": refusal.message}}
    return {"changes": {"key": list(declaration.primary_key), **refused}}


def described_watermark(watermark: Watermark | None) -> dict[str, Any]:
    """Describes a table's watermark as ``TablestoreTable.java`` takes it; nothing without one."""
    if watermark is None:
        return {}
    return {"watermark": {"column": watermark.column, "delay_ms": watermark.delay_ms}}


def _virtual(table: KafkaTable) -> list[MetadataColumn]:
    return [c for c in table.declaration.columns.metadata if c.virtual]


def _written(table: KafkaTable) -> list[Column]:
    virtual = {column.name for column in _virtual(table)}
    columns = (c for c in table.declaration.columns.columns if c.name not in virtual)
    return [Column(c.name, c.type, c.nullable, c.comment) for c in columns]


def read_topic(table: SparkKafkaTable) -> DataFrame:
    """Reads what the topic has now: the messages, or with a primary key the last one of each, deletes included."""
    changes = table.read()
    key = table.local.declaration.primary_key
    if not key:
        return changes
    # Spark numbers rows by their partition, and those are in the order of the topic's, in which a key stays
    numbered = changes.withColumn(ORDINAL_COLUMN, F.monotonically_increasing_id())
    row = F.max_by(F.struct([numbered[quoted(name)] for name in changes.columns]), ORDINAL_COLUMN)
    return numbered.groupBy(*(numbered[quoted(name)] for name in key)).agg(row.alias(_LAST)).select(f"{_LAST}.*")


def stream_topic(table: SparkKafkaTable, options: Mapping[str, str], *, with_kind: bool) -> DataFrame:
    """Reads the changes of a topic as they arrive.

    Args:
        table: The topic.
        options: ``scan.*``, ``mode``, ``state``, ``maxRowsPerBatch``, as `SparkKafkaTable.read_stream` takes them.
        with_kind: Whether the query names ``_kind``.

    Raises:
        Unsupported: ``changes-needed``, as `stream_needs_kinds`.
        InvalidRequest: ``unknown-option``, or as `SparkKafkaTable.read_stream`.
    """
    if not with_kind and (refusal := stream_needs_kinds(table.local.declaration)) is not None:
        raise refusal
    given = {name.lower(): value for name, value in options.items()}
    scan = {name: value for name, value in given.items() if name.startswith("scan.")}
    if strange := sorted(given.keys() - scan.keys() - {name.lower() for name in _STREAM_OPTIONS}):
        raise InvalidRequest(
            f"a stream of a Kafka table has no option {', '.join(strange)}; it has scan.* and "
            f"{', '.join(_STREAM_OPTIONS)}",
            code="unknown-option",
        )
    return table.read_stream(
        options=scan,
        mode=cast(Mode, given.get("mode", "upsert")),
        state=given.get("state"),
        max_rows_per_batch=whole_option(given, "maxRowsPerBatch", least=1),
    )
