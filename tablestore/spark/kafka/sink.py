"""Writes a Kafka table as a Spark job: the rows of a key go to one task, in their order, which produces them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.ambient import Ambient, system_ambient
from filestore.errors import InvalidRequest
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.schema import Schema
from log.connector.declaration import KafkaDeclaration
from log.connector.groups import Numbered
from log.connector.metadata.plans import WritePlan, plan_write
from log.connector.options import Semantic
from log.connector.topic import ConnectorTopic
from log.connector.writer import ConnectorWriter
from tablestore.spark.batch.columns import canonical, conformed
from tablestore.spark.jobs.runner import Attempt, Job, run_partitions

__all__ = ["KafkaSink", "arranged_rows", "task_count"]

_KEPT_WRITERS = 4
_SHUFFLE = "spark.sql.shuffle.partitions"


class KafkaSink:
    """Writes DataFrames into one table.

    Args:
        table: Which.
        ambient: Clock, ids.

    Raises:
        InvalidRequest: ``read-only-metadata``: the table can only be read.
    """

    def __init__(self, table: KafkaDeclaration, ambient: Ambient) -> None:
        self._table = table
        self._ambient = ambient
        self._topic = ConnectorTopic(table, ambient)
        self._plan = plan_write(table.columns, table.keys)

    def write(self, df: DataFrame, once: Numbered | None = None) -> int:
        """Writes a DataFrame; returns the number of messages.

        Args:
            df: Columns are matched by name; ``_kind`` says what each row does.
            once: With exactly-once: which write it is, if it may come again.

        Raises:
            InvalidRequest: rows that do not fit. Columns are checked before anything is written.
            NotFound: ``topic-not-found``.
            Unavailable: messages were not delivered.
        """
        rows = self._fitted(df)
        partitions = len(self._topic.partitions())  # a producer would make a topic that is not there
        if self._table.semantic is not Semantic.EXACTLY_ONCE:
            once = None
        elif once is None:
            once = Numbered(self._ambient.new_id(), 0)  # a task that is tried again is the same write
        shuffle = int(df.sparkSession.conf.get(_SHUFFLE) or partitions)
        tasks = task_count(self._table, whole=once is not None, partitions=partitions, shuffle=shuffle)
        arranged = arranged_rows(rows, self._table, tasks)
        return sum(run_partitions(arranged, _job(self._table, self._plan.declared, rows.columns, once)))

    def _fitted(self, df: DataFrame) -> DataFrame:
        _refuse_virtual(df, self._plan)
        return conformed(df, Schema.from_arrow(self._plan.declared))


def _refuse_virtual(df: DataFrame, plan: WritePlan) -> None:
    if virtual := [name for name in df.columns if name in plan.virtual]:
        raise InvalidRequest(
            f"column {virtual[0]!r} is VIRTUAL: it is read from messages and cannot be written. Leave it out, as with "
            f"df.drop({', '.join(map(repr, plan.virtual))})",
            code="virtual-column",
        )


def task_count(table: KafkaDeclaration, *, whole: bool, partitions: int, shuffle: int) -> int | None:
    """Decides how many tasks write.

    Args:
        table: The table.
        whole: Whether all is one transaction.
        partitions: How many the topic has.
        shuffle: How many tasks come out of a shuffle of the session.

    Returns:
        None for as many as the frame has, with nothing shuffled: where no row has a key there is no order to keep.
    """
    if whole:
        return 1
    asked: int | None = table["sink.parallelism"]
    return min(partitions, shuffle) if asked is None and _key(table) else asked


def arranged_rows(df: DataFrame, table: KafkaDeclaration, tasks: int | None) -> DataFrame:
    """Arranges rows by the tasks that write them: those of a key in one task, in the order that the frame has.

    Columns get names of ours, since `mapInArrow` takes none with a backtick in it.
    """
    places = [df.columns.index(name) for name in _key(table)]
    df = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
    if tasks is None:
        return df
    if not places:
        return df.repartition(tasks)
    columns = df.columns
    numbered = df.withColumn(ORDINAL_COLUMN, F.monotonically_increasing_id())
    shuffled = numbered.repartition(tasks, *(F.col(columns[place]) for place in places))
    return shuffled.sortWithinPartitions(ORDINAL_COLUMN).select(*columns)  # the shuffle forgets the order


def _key(table: KafkaDeclaration) -> tuple[str, ...]:
    return table.key_fields or table.primary_key


def _job(table: KafkaDeclaration, declared: pa.Schema, names: Sequence[str], once: Numbered | None) -> Job[int]:
    """Tasks return how many messages they wrote. Nothing takes a message back, so nothing is removed after an error."""

    def work(_: Attempt, batches: Iterable[pa.RecordBatch]) -> int:
        named = (batch.rename_columns(names) for batch in batches)
        return _write(table, (pa.Table.from_batches([batch]) for batch in canonical(named, declared)), once)

    return Job(f"write topic {table.topic}", work, lambda done: None)


def _write(table: KafkaDeclaration, rows: Iterable[pa.Table], once: Numbered | None) -> int:
    """One attempt of a task."""
    return _writer(table).write(rows, once)


@lru_cache(_KEPT_WRITERS)
def _writer(table: KafkaDeclaration) -> ConnectorWriter:
    """Returns the writer that this worker keeps for its tasks: a producer takes half a second to connect."""
    return ConnectorWriter(table, system_ambient())
