"""Runs the tasks of a refresh as a Spark job.

Rows never pass the driver. It reads the keys of the right table that have changed, at most about a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from filestore.files.writer import TableFiles
from tablestore.spark.batch.compaction import spark_changes
from tablestore.spark.jobs.local_disk import on_local_disk
from tablestore.spark.jobs.runner import Attempt, run_tasks
from tablestore.spark.jobs.sent import Sent, sent
from tablestore.views.tasks import Tasks, Work
from tablestore.writing.write_job import TaskOutcome, WriteJob, discard_outcomes

__all__ = ["spark_tasks"]


def spark_tasks(spark: SparkSession) -> Tasks:
    """Runs refreshes in a session's workers; tasks may be tried again."""

    def run(job: WriteJob, work: Sequence[Work]) -> Sequence[TaskOutcome]:
        with sent(job, spark) as for_tasks:
            return run_tasks(spark, job.table, work, partial(_worked, for_tasks), "refresh", discard_outcomes)

    return Tasks(run, spark_changes(spark), retries=True)


def _worked(job: Sent[WriteJob], table: TableFiles, work: Work) -> TaskOutcome:
    attempt = Attempt.current()
    batches = work.batches(table.definition, lambda: on_local_disk(attempt.task))
    return job.get().run(batches, f"{attempt.task}.{attempt.attempt_id}")
