"""A compaction as one Spark job: each bucket is a task. The driver plans and commits, and holds metadata only.

A task that Spark tries again, or twice at once, writes files of its own each time; those of one attempt are committed,
the others are orphans.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from compaction.leftovers import discard
from compaction.local import Runner
from compaction.merge import CompactionResult, CompactionTask, compact_slot
from filestore.errors import TableStoreError, Unavailable
from filestore.writer import TableFiles
from tablestore.spark.write import known_error

__all__ = ["spark_compaction"]

_OUTCOME = "outcome binary"

Outcome = CompactionResult | TableStoreError


def spark_compaction(spark: SparkSession) -> Runner:
    """Runs the tasks of a compaction in a session's workers."""

    def run(table: TableFiles, tasks: Sequence[CompactionTask]) -> Sequence[CompactionResult]:
        rows = [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(tasks)]
        planned = spark.createDataFrame(rows, "task int, work binary").repartitionById(len(tasks), F.col("task"))
        try:
            collected = planned.mapInArrow(_merging(table), _OUTCOME).collect()
        except PySparkException as error:
            if (ours := known_error(str(error))) is None:
                raise
            raise ours from error
        outcomes: list[Outcome] = [pickle.loads(bytes(row.outcome)) for row in collected]  # bytes of our own workers
        return _all_or_none(table, outcomes)

    return run


def _all_or_none(table: TableFiles, outcomes: Sequence[Outcome]) -> list[CompactionResult]:
    done = [outcome for outcome in outcomes if isinstance(outcome, CompactionResult)]
    if errors := [outcome for outcome in outcomes if isinstance(outcome, TableStoreError)]:
        discard(table, (file for result in done for file in result.adds))
        raise errors[0]
    return done


def _merging(table: TableFiles) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for work in batch.column("work").to_pylist():
                outcome = pickle.dumps(_attempt(table, pickle.loads(work)))
                yield pa.record_batch([pa.array([outcome], pa.binary())], names=["outcome"])

    return run


def _attempt(table: TableFiles, task: CompactionTask) -> Outcome:
    """Errors that another try cures go to Spark, which retries the task; the others come back as they are."""
    try:
        return compact_slot(table, task.files, task.level)
    except Unavailable:
        raise
    except TableStoreError as error:
        return error
