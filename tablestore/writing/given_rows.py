"""Rows that are there as a runner of a write (`tablestore.writing.write_job`)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from filestore.sorting.order import sort_rows
from tablestore.incoming import conform
from tablestore.writing.write_job import Runner, TaskOutcome, WriteJob

__all__ = ["given_rows"]


def given_rows(rows: pa.Table) -> Runner:
    """Brings rows in the columns that the table has by then; for errors see `tablestore.incoming.conform`."""

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        definition = job.table.definition
        batches = sort_rows(conform(rows, definition), definition).to_batches()
        return [job.run(batches, "0.0")] if batches else []

    return run
