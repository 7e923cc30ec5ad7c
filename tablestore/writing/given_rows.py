"""A runner of a write whose rows are in memory (`tablestore.writing.write_job`)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from filestore.sorting.order import sort_rows
from tablestore.incoming.conform import conform
from tablestore.writing.write_job import Runner, TaskOutcome, WriteJob

__all__ = ["given_rows"]


def given_rows(rows: pa.Table) -> Runner:
    """Returns a runner that fits the rows to the table's newest columns; for errors see `conform`."""

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        definition = job.table.definition
        batches = sort_rows(conform(rows, definition), definition).to_batches()
        return [job.run(batches, "0.0")] if batches else []

    return run
