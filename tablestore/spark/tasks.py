"""A list of tasks as one Spark job: each is sent to a Python worker, which sends back what it did, or why it cannot."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.errors import TableStoreError, Unavailable
from filestore.files.writer import TableFiles
from tablestore.spark.write import at_home, known_error

__all__ = ["or_error", "run_tasks"]

_OUTCOME = "task int, outcome binary"

Task = TypeVar("Task")
Result = TypeVar("Result")
Attempt = Callable[[TableFiles, Task], Result | TableStoreError]


def run_tasks(
    spark: SparkSession,
    table: TableFiles,
    tasks: Sequence[Task],
    attempt: Attempt[Task, Result],
    forget: Callable[[TableFiles, Sequence[Result]], None],
) -> list[Result]:
    """What each task gives, in their order. If one failed, what the others wrote is removed.

    Args:
        spark: The session.
        table: What each task is given.
        tasks: One for each of Spark's; picklable.
        attempt: Does one.
        forget: Removes what tasks wrote.
    """
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


def or_error(work: Callable[[], Result]) -> Result | TableStoreError:
    """Errors that another try cures go to Spark, which retries the task; the others come back as they are."""
    try:
        return work()
    except Unavailable:
        raise
    except TableStoreError as error:
        return error
