"""`SparkKafkaTable`: a table that is a Kafka topic as DataFrames, batch and stream, in and out (CONNECTORS.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike, fspath
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from filestore.ambient import Ambient
from filestore.arguments import checks_arguments
from filestore.errors import InvalidRequest
from log.connector.decoding import asked_schema
from log.connector.groups import Numbered
from tablestore.following.result_mode import Mode, result_mode
from tablestore.kafka_table import KafkaTable
from tablestore.reading.batch_size import batch_size
from tablestore.spark.kafka.options import RECORDS_PER_TASK, KafkaRead
from tablestore.spark.kafka.sink import KafkaSink
from tablestore.spark.streaming.query_id import QueryId
from tablestore.topics.spec import spec_of

__all__ = ["SparkKafkaTable"]


@checks_arguments()
class SparkKafkaTable:
    """A Kafka table in a Spark session, from `SparkStore.kafka_table`. Rows never pass the driver; it may be kept.

    Attributes:
        local: The same table without Spark: its columns, options, offsets.
    """

    def __init__(self, spark: SparkSession, local: KafkaTable, ambient: Ambient) -> None:
        self.local = local
        self._spark = spark
        self._ambient = ambient

    def __repr__(self) -> str:
        return f"Spark{self.local!r}"

    def read(
        self,
        columns: Sequence[str] | None = None,
        *,
        options: Mapping[str, str] | None = None,
        mode: Mode = "upsert",
        max_records_per_task: int = RECORDS_PER_TASK,
    ) -> DataFrame:
        """Reads the changes that the topic has now, beginning as ``scan.startup.mode`` says, each with its ``_kind``.

        The rows are those of `tablestore.KafkaTable.scan`: each message a change, older ones of a key included. The
        frame stays at the offsets of this call, whenever and however often it is run. Its partitions are in the order
        of the topic's, so `SparkStore.write` of it leaves the last row of each key in a managed table.

        Args:
            columns: Which columns; all if None. ``_kind`` comes always, last.
            options: Options ``scan.*`` for this reader, such as ``{"scan.malformed-records": "skip"}``.
            mode: As in `tablestore.KafkaTable.scan`; with ``"changelog"`` each of the topic's partitions is one task,
                and a key has to stay in its partition.
            max_records_per_task: Of one of the topic's partitions a task reads so many messages at most.

        Raises:
            NotFound: ``topic-not-found``, ``offset-gone``, or ``unknown-column``.
            InvalidRequest: an option or mode that is none; with ``"changelog"`` ``no-primary-key``.
            Unavailable: the brokers do not answer.
        """
        if max_records_per_task < 1:
            raise InvalidRequest(
                f"max_records_per_task={max_records_per_task} is not above zero", code="bad-option-value"
            )
        scan = self.local.scan(columns, options=options, mode=mode)
        asked = KafkaRead(scan.declaration, scan.columns, scan.ranges, max_records_per_task, mode=scan.mode)
        return self._spark.read.format("tablestore").options(**asked.to_options()).load(self.local.identifier)

    def read_stream(
        self,
        columns: Sequence[str] | None = None,
        *,
        options: Mapping[str, str] | None = None,
        mode: Mode = "upsert",
        state: str | PathLike[str] | None = None,
        max_rows_per_batch: int | None = None,
    ) -> DataFrame:
        """The changes that `read` returns, and then new ones as they arrive, as a streaming DataFrame.

        Changes of one key keep their order within a micro-batch: they come in one partition. A restarted query goes on
        exactly where its checkpoint says; a topic that was made anew since is an error (``topic-replaced``), and so is
        an offset that is gone (``offset-gone``). The query's progress shows where it is (``endOffset``) and where the
        topic ends (``latestOffset``).

        Args:
            columns: Which columns; all if None. ``_kind`` comes always, last.
            options: Options ``scan.*`` for this reader: where it begins, above all.
            mode: As in `tablestore.KafkaTable.follow`.
            state: With ``"changelog"``, a folder that is this query's own, on a disk that all workers have: it
                keeps the last row of each key. A batch that Spark repeats after a crash has the same changes. Keys have
                to stay in their partitions, so a topic that gets more of them ends the query (``topic-partitions``).
            max_rows_per_batch: The most messages of a micro-batch, shared among the topic's partitions. Default: all;
                with ``"changelog"`` a million, of which a task holds a quarter at most.

        Raises:
            NotFound: ``unknown-column``.
            InvalidRequest: an option or mode that is none; ``no-primary-key``, ``state-missing``, ``state-unused``.
        """
        declaration = self.local.declaration.with_scan(options or {})
        asked_schema(declaration, columns)  # refuses strange columns before anything starts
        asked = KafkaRead(
            declaration,
            None if columns is None else tuple(columns),
            rows_per_batch=batch_size(max_rows_per_batch),
            mode=result_mode(mode),
            state=None if state is None else fspath(state),
        )
        asked.check_state()
        if asked.normalizes:
            spec_of(declaration, "", columns)
        return self._spark.readStream.format("tablestore").options(**asked.to_options()).load(self.local.identifier)

    def write(self, df: DataFrame) -> int:
        """Writes a DataFrame as messages; returns their number.

        The rows of a key are written by one task, in the order that the frame has. What ``sink.semantic`` promises
        holds for the whole frame: with ``exactly-once`` it is one transaction, which one task writes.

        Args:
            df: Columns are matched by name. A column ``_kind`` says what each row does, as in
                `tablestore.KafkaTable.write`.

        Raises:
            InvalidRequest: rows that do not fit, or a table that can only be read. Columns are checked
                before anything is written; after a bad value with ``at-least-once`` other rows may be there.
            NotFound: ``topic-not-found``.
            Unavailable: messages were not delivered; with ``exactly-once`` none is there then, but for its subclass
                `CommitUnknown`.
        """
        return self._sink.write(df)

    def write_stream(
        self,
        df: DataFrame,
        *,
        checkpoint: str | PathLike[str],
        output_mode: str = "append",
        trigger: Mapping[str, Any] | None = None,
    ) -> StreamingQuery:
        """Writes a streaming DataFrame, each micro-batch as `write` does.

        With ``sink.semantic = exactly-once`` a batch that Spark repeats after a crash is known by the query's id and
        its number, which its transaction holds: nothing is doubled. With ``at-least-once`` it is written again.

        Args:
            df: A streaming DataFrame, as for `write`.
            checkpoint: Where Spark keeps the query's progress.
            output_mode: Spark's: ``update`` for aggregates, whose results become upserts of their keys.
            trigger: Spark's trigger, such as ``{"processingTime": "1 second"}`` or ``{"availableNow": True}``.
        """
        place = fspath(checkpoint)
        sink, query_id = self._sink, QueryId(self._spark, place)

        def batch(rows: DataFrame, number: int) -> None:
            sink.write(rows, _numbered(query_id(), number))

        stream = df.writeStream.foreachBatch(batch).outputMode(output_mode)
        stream = stream.option("checkpointLocation", place)
        return (stream.trigger(**trigger) if trigger else stream).start()

    def write_batch(self, rows: DataFrame, query_id: str, number: int) -> int:
        """Writes a micro-batch of a query, as `write_stream` does; for ``foreachBatch`` of one's own.

        Args:
            rows: As for `write`.
            query_id: The query's id, which stays the same over its restarts.
            number: The batch's number.
        """
        return self._sink.write(rows, _numbered(query_id, number))

    @cached_property
    def _sink(self) -> KafkaSink:
        return KafkaSink(self.local.declaration, self._ambient)


def _numbered(query_id: str, number: int) -> Numbered:
    return Numbered(f"spark.{query_id}", number)
