"""A compaction, the folds before it, or the change data of an overwrite, as one Spark job: each bucket is a task.

The driver plans and commits, and holds metadata only.

A task that Spark tries again, or twice at once, writes files of its own each time; those of one attempt are committed,
the others are orphans.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from compaction.folding import FoldRunner, FoldTask, fold_runs, forget_folds
from compaction.local import Runner, forget_compaction
from compaction.merge import CompactionResult, CompactionTask, compact_slot
from compaction.replacing import forget_changes
from filestore.errors import TableStoreError, Unavailable
from filestore.files.writer import TableFiles
from filestore.model.files import ChangeFile
from filestore.reading.difference import SlotDifference
from filestore.reading.replaced_rows import ChangeRunner, write_changes
from filestore.writing.slot_result import SlotResult
from tablestore.spark.write import at_home, known_error

__all__ = ["spark_changes", "spark_compaction", "spark_folds"]

_OUTCOME = "task int, outcome binary"

Task = TypeVar("Task")
Result = TypeVar("Result")
Attempt = Callable[[TableFiles, Task], Result | TableStoreError]


def spark_compaction(spark: SparkSession) -> Runner:
    """Runs the tasks of a compaction in a session's workers."""
    return lambda table, tasks: _run(spark, table, tasks, _attempt, forget_compaction)


def spark_folds(spark: SparkSession) -> FoldRunner:
    """Runs the folds of a merge-on-read table in a session's workers."""
    return lambda table, tasks: _run(spark, table, tasks, _attempt_fold, forget_folds)


def spark_changes(spark: SparkSession) -> ChangeRunner:
    """Works out which rows an overwrite or a drop changes in a session's workers."""
    return lambda table, tasks: _run(spark, table, tasks, _attempt_changes, forget_changes)


def _run(
    spark: SparkSession,
    table: TableFiles,
    tasks: Sequence[Task],
    attempt: Attempt[Task, Result],
    forget: Callable[[TableFiles, Sequence[Result]], None],
) -> list[Result]:
    """What each task gives, in their order. If one failed, what the others wrote is removed."""
    rows = [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(tasks)]
    planned = spark.createDataFrame(rows, "task int, work binary").repartitionById(len(tasks), F.col("task"))
    try:
        collected = planned.mapInArrow(_working(table, attempt), _OUTCOME).collect()
    except PySparkException as error:
        if (ours := known_error(str(error))) is None:
            raise
        raise ours from error
    outcomes = [pickle.loads(bytes(row.outcome)) for row in sorted(collected, key=lambda row: row.task)]  # our own
    done = [outcome for outcome in outcomes if not isinstance(outcome, TableStoreError)]
    if errors := [outcome for outcome in outcomes if isinstance(outcome, TableStoreError)]:
        forget(table, done)
        raise errors[0]
    return done


def _working(
    table: TableFiles, attempt: Attempt[Task, Result]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.to_pylist():
                outcome = pickle.dumps(attempt(at_home(table, task["task"]), pickle.loads(task["work"])))
                columns = [pa.array([task["task"]], pa.int32()), pa.array([outcome], pa.binary())]
                yield pa.record_batch(columns, names=["task", "outcome"])

    return run


def _attempt(table: TableFiles, task: CompactionTask) -> CompactionResult | TableStoreError:
    return _or_error(lambda: compact_slot(table, task.files, task.level))


def _attempt_fold(table: TableFiles, task: FoldTask) -> SlotResult | TableStoreError:
    return _or_error(lambda: fold_runs(table, task))


def _attempt_changes(table: TableFiles, task: SlotDifference) -> tuple[ChangeFile, ...] | TableStoreError:
    return _or_error(lambda: write_changes(table, task))


def _or_error(work: Callable[[], Result]) -> Result | TableStoreError:
    """Errors that another try cures go to Spark, which retries the task; the others come back as they are."""
    try:
        return work()
    except Unavailable:
        raise
    except TableStoreError as error:
        return error
