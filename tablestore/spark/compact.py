"""A compaction, the folds before it, or the change data of an overwrite, as one Spark job: each bucket is a task.

The driver plans and commits, and holds metadata only.

A task that Spark tries again, or twice at once, writes files of its own each time; those of one attempt are committed,
the others are orphans.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from compaction.folding import FoldRunner, FoldTask, fold_runs, forget_folds
from compaction.local import Runner, forget_compaction
from compaction.merge import CompactionResult, CompactionTask, compact_slot
from compaction.replacing import forget_changes
from filestore.errors import TableStoreError
from filestore.files.writer import TableFiles
from filestore.model.files import ChangeFile
from filestore.reading.difference import SlotDifference
from filestore.reading.replaced_rows import ChangeRunner, write_changes
from filestore.writing.slot_result import SlotResult
from tablestore.spark.tasks import or_error, run_tasks

__all__ = ["spark_changes", "spark_compaction", "spark_folds"]


def spark_compaction(spark: SparkSession) -> Runner:
    """Runs the tasks of a compaction in a session's workers."""
    return lambda table, tasks: run_tasks(spark, table, tasks, _attempt, forget_compaction)


def spark_folds(spark: SparkSession) -> FoldRunner:
    """Runs the folds of a merge-on-read table in a session's workers."""
    return lambda table, tasks: run_tasks(spark, table, tasks, _attempt_fold, forget_folds)


def spark_changes(spark: SparkSession) -> ChangeRunner:
    """Works out which rows an overwrite or a drop changes in a session's workers."""
    return lambda table, tasks: run_tasks(spark, table, tasks, _attempt_changes, forget_changes)


def _attempt(table: TableFiles, task: CompactionTask) -> CompactionResult | TableStoreError:
    return or_error(lambda: compact_slot(table, task.files, task.level))


def _attempt_fold(table: TableFiles, task: FoldTask) -> SlotResult | TableStoreError:
    return or_error(lambda: fold_runs(table, task))


def _attempt_changes(table: TableFiles, task: SlotDifference) -> tuple[ChangeFile, ...] | TableStoreError:
    return or_error(lambda: write_changes(table, task))
