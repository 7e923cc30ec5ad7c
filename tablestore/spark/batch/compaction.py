"""Runs compactions, the folds before them, and the change data of overwrites as Spark jobs: each bucket is a task.

The driver plans and commits, and holds metadata only. A task that Spark tries again, or runs twice at once, writes
files of its own each time; those of one attempt are committed, the others are orphans.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from compaction.compact import CompactionRunner, discard_compaction
from compaction.merge import CompactionResult, CompactionTask, compact_slot
from filestore.files.writer import TableFiles
from filestore.operations.fold import FoldRunner, discard_folds, fold_runs
from filestore.operations.replaced_rows import ChangeRunner, discard_changes, write_changes
from tablestore.spark.jobs.runner import run_tasks

__all__ = ["spark_changes", "spark_compaction", "spark_folds"]


def spark_compaction(spark: SparkSession) -> CompactionRunner:
    """Runs the tasks of a compaction in a session's workers."""
    return lambda table, tasks: run_tasks(spark, table, tasks, _compacted, "compact", discard_compaction)


def spark_folds(spark: SparkSession) -> FoldRunner:
    """Runs the folds of a merge-on-read table in a session's workers."""
    return lambda table, tasks: run_tasks(spark, table, tasks, fold_runs, "fold", discard_folds)


def spark_changes(spark: SparkSession) -> ChangeRunner:
    """Works out which rows an overwrite or a drop changes in a session's workers."""
    return lambda table, tasks: run_tasks(spark, table, tasks, write_changes, "write changes of", discard_changes)


def _compacted(table: TableFiles, task: CompactionTask) -> CompactionResult:
    return compact_slot(table, task.files, task.level)
