"""Reads Kafka tables for `format("tablestore")`: tasks read ranges of offsets, with the reader that all use.

A batch is cut into tasks of so many messages. In a stream each of the topic's partitions is one task, so the changes of
a key stay in order within a micro-batch; and wherever complete changes are asked for, since a task knows the keys of
one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from filestore.ambient import system_ambient
from filestore.errors import NotFound, Unsupported
from filestore.model.schema import Column
from filestore.rows.casting import cast_rows
from log.connector.decoding import asked_schema
from log.connector.ranges import PartitionRange, parts
from log.connector.reader import read_ranges
from log.connector.topic import ConnectorTopic
from tablestore.spark.kafka.offsets import KafkaOffset
from tablestore.spark.kafka.options import KafkaRead
from tablestore.topics.changes import scanned_changes
from tablestore.topics.ranges import changes_of_range
from tablestore.topics.spec import spec_of

__all__ = ["KafkaBatchReader", "KafkaStreamReader", "kafka_type"]


def kafka_type(asked: KafkaRead) -> StructType:
    """The columns of a Kafka table as Spark's: all nullable, since deletes have their key alone, and ``_kind``."""
    fields = [Column(f.name, f.type).to_delta() for f in asked_schema(asked.declaration, asked.columns)]
    return StructType.fromJson({"type": "struct", "fields": fields})


@dataclass
class _Offsets(InputPartition):
    """A range of one partition's messages; in a stream with the topic's id, and where the query started."""

    part: PartitionRange
    topic_id: str = ""
    begin: int = 0


class KafkaBatchReader(DataSourceReader):
    """The messages that the topic held when the read was asked for, or if nothing says so, when it is planned."""

    def __init__(self, asked: KafkaRead) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of offsets; those of one of the topic's partitions follow each other."""
        asked = self._asked
        ranges: Iterable[PartitionRange] | None = asked.ranges
        if ranges is None:
            topic = ConnectorTopic(asked.declaration, system_ambient())
            ranges = topic.ranges(topic.partitions(), asked.declaration.startup)
        if asked.normalizes:
            return [_Offsets(part) for part in ranges if part.start < part.end]
        return [_Offsets(part) for part in parts(ranges, asked.records_per_task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a part of the topic; runs in a task."""
        return _rows(self._asked, partition)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches. Spark plans in a Python process beside the driver, and calls `read` in workers."""

    def __init__(self, asked: KafkaRead) -> None:
        asked.check_state()
        self._asked = asked
        self._opened: ConnectorTopic | None = None
        self._until: Mapping[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Returns the offset at which a query without a checkpoint begins, by ``scan.startup.mode``."""
        topic_id, partitions = self._topic.identified()
        begin = {r.partition: r.start for r in self._topic.ranges(partitions, self._asked.declaration.startup)}
        return KafkaOffset.initial(self._topic.name, topic_id, begin).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Returns ``maxRowsPerBatch``; a stream of complete changes always has a limit."""
        limit = self._asked.most_rows
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Leaves messages that arrive from here on to the next run."""
        self._until = self._topic.end_offsets(self._topic.partitions())

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Returns where the topic ends: Spark shows in the query's progress how far the query is behind that."""
        topic_id, partitions = self._topic.identified()
        return KafkaOffset(self._topic.name, topic_id, {}, self._topic.end_offsets(partitions)).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Returns where the next batch ends. It looks for new partitions each time, unless the table says never."""
        offset, partitions = self._checked(start)
        ends = self._topic.end_offsets(partitions) if self._until is None else self._until
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offset.advanced(ends, most, discovers=bool(self._asked.declaration.discovery)).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch: one for each of the topic's partitions that has new messages."""
        last, _ = self._checked(end)
        return [
            _Offsets(part, last.topic_id, last.begin.get(part.partition, 0))
            for part in last.since(KafkaOffset.of(start))
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing when a batch is done: its end stands in the checkpoint and nowhere else."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a part of the topic; runs in a task."""
        return _rows(self._asked, partition)

    def _checked(self, value: Mapping[str, Any]) -> tuple[KafkaOffset, tuple[int, ...]]:
        """An offset of this topic, and the partitions that it has now."""
        offset = KafkaOffset.of(value)
        topic_id, partitions = self._topic.identified()
        if offset.topic_id != topic_id:
            raise NotFound(
                f"the query has read topic {offset.topic} with the id {offset.topic_id}, and the table's topic "
                f"{self._topic.name} has the id {topic_id}: it was deleted and made again, or the table was declared "
                "anew. Start the query with a new checkpoint, and another state if it has one",
                code="topic-replaced",
            )
        if self._asked.normalizes and {*partitions} != {*offset.begin}:
            raise Unsupported(
                f"topic {offset.topic} had {len(offset.begin)} partitions when the query began and has "
                f"{len(partitions)} now, so keys may have moved to other partitions than their rows in the state. "
                "Start the query with a new checkpoint and another state",
                code="topic-partitions",
            )
        return offset, partitions

    @property
    def _topic(self) -> ConnectorTopic:
        if self._opened is None:
            self._opened = ConnectorTopic(self._asked.declaration, system_ambient())
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        """Travels to the workers without its connection."""
        return self.__dict__ | {"_opened": None}


def _rows(asked: KafkaRead, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark replaces an empty list of partitions by one that is no partition
    if not isinstance(partition, _Offsets):
        return
    schema = asked_schema(asked.declaration, asked.columns)
    for batch in _changes(asked, partition) if asked.normalizes else _messages(asked, partition):
        yield from cast_rows(pa.Table.from_batches([batch]), schema).to_batches()


def _messages(asked: KafkaRead, partition: _Offsets) -> Iterator[pa.RecordBatch]:
    for rows in read_ranges(asked.declaration, [partition.part], system_ambient(), asked.columns):
        yield from rows.to_batches()


def _changes(asked: KafkaRead, partition: _Offsets) -> Iterator[pa.RecordBatch]:
    table, part, ambient = asked.declaration, partition.part, system_ambient()
    if asked.state is not None:
        spec = spec_of(table, asked.state, asked.columns)
        return changes_of_range(table, spec, partition.topic_id, partition.begin, part, ambient)
    names = spec_of(table, "", asked.columns).definition.schema.names
    rows = read_ranges(table, [part], ambient, names)
    return scanned_changes(lambda folder: spec_of(table, folder, asked.columns), rows, ambient)
