"""Starts, lists and stops streaming queries: the procedures behind ``INSERT INTO … SELECT … FROM STREAM``."""

from __future__ import annotations

import json

from pyspark.errors import IllegalArgumentException, PySparkValueError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from filestore.errors import AlreadyExists, InvalidRequest, NotFound
from filestore.model.names import quoted
from filestore.model.rowkind import KIND_COLUMN
from tablestore.spark.sql.procedure import Arguments, Row
from tablestore.spark.store import SparkStore

__all__ = ["UNTIL_NOW", "list_streams", "start_stream", "stop_stream"]

UNTIL_NOW = "available-now"
"""The trigger with which a stream ends as soon as it has written what is there."""
_OUTPUT_MODES = ("append", "update", "complete")


def start_stream(store: SparkStore, given: Arguments) -> list[Row]:
    """Starts a streaming query into a table; returns its id and its name.

    Raises:
        InvalidRequest: ``no-stream``, ``bad-checkpoint``, ``output-mode``, ``bad-trigger``, ``column-count``.
        AlreadyExists: ``stream-exists``: the name of a stream that runs.
        NotFound: there is no such table; Spark would create it.
    """
    store.store.any_table(given["table"])
    stream = store.spark.sql(given["query"])
    if not stream.isStreaming:
        raise InvalidRequest(
            "the query reads no stream: write FROM STREAM table, or INSERT INTO without a checkpoint", code="no-stream"
        )
    writer = _writer(store, _named(stream, given["columns"]), given)
    query = writer.toTable(".".join(quoted(part) for part in (given["catalog"], *given["table"].split("."))))
    if given["trigger"] == UNTIL_NOW:
        query.awaitTermination()
    return [(query.id, query.name)]


def _named(stream: DataFrame, columns: str | None) -> DataFrame:
    """Gives the columns of a query the names of those that they are written to; ``_kind`` may follow them."""
    if columns is None:
        return stream
    names = json.loads(columns)
    more = stream.columns[len(names) :]
    if len(stream.columns) < len(names) or more not in ([], [KIND_COLUMN]):
        raise InvalidRequest(
            f"INSERT INTO names {len(names)} columns ({', '.join(names)}), and its query has {len(stream.columns)} "
            f"({', '.join(stream.columns)})",
            code="column-count",
        )
    return stream.toDF(*names, *more)


def _writer(store: SparkStore, stream: DataFrame, given: Arguments) -> DataStreamWriter:
    if not given["checkpoint"].strip():
        raise InvalidRequest("checkpoint is empty: it is the folder of the stream's progress", code="bad-checkpoint")
    if (mode := given["output_mode"].lower()) not in _OUTPUT_MODES:
        raise InvalidRequest(
            f"output_mode = {given['output_mode']!r} is not known: it is {', '.join(_OUTPUT_MODES[:-1])} or "
            f"{_OUTPUT_MODES[-1]}",
            code="output-mode",
        )
    writer = stream.writeStream.option("checkpointLocation", given["checkpoint"]).outputMode(mode)
    if (name := given["name"]) is not None:
        if any(query.name == name for query in store.spark.streams.active):
            raise AlreadyExists(
                f"a stream with the name {name!r} runs already: choose another name, or CALL {given['catalog']}.sys."
                f"stop_stream('{name}')",
                code="stream-exists",
            )
        writer = writer.queryName(name)
    if given["trigger"] == UNTIL_NOW:
        return writer.trigger(availableNow=True)
    try:
        return writer.trigger(processingTime=given["trigger"])
    except (IllegalArgumentException, PySparkValueError) as error:
        raise InvalidRequest(
            f"trigger = {given['trigger']!r} is no time between batches: write one such as '10 seconds', or "
            f"'{UNTIL_NOW}'",
            code="bad-trigger",
        ) from error


def list_streams(store: SparkStore, given: Arguments) -> list[Row]:
    """Lists the streaming queries that run: id, name and status."""
    queries = sorted(store.spark.streams.active, key=lambda query: query.id)
    return [(query.id, query.name, query.status["message"]) for query in queries]


def stop_stream(store: SparkStore, given: Arguments) -> list[Row]:
    """Stops the streaming query with that id or name; returns both."""
    found = [query for query in store.spark.streams.active if given["stream"] in (query.id, query.name)]
    if not found:
        raise NotFound(
            f"no running stream has the id or name {given['stream']!r}: CALL list_streams() lists them",
            code="no-stream",
        )
    for query in found:
        query.stop()
    return [(query.id, query.name) for query in found]
