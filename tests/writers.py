"""Helpers that use `TableWriter` directly, as Spark does: with sorted rows, and with a job that can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from filestore.sorting.order import sort_rows
from tablestore import Table
from tablestore.incoming.conform import conform
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tablestore.writing.writer import TableWriter
from tests.opened import opened_again

__all__ = ["on", "put", "runner", "sorted_batches"]


def sorted_batches(table: Table, rows: pa.Table) -> list[pa.RecordBatch]:
    return sort_rows(conform(rows, table.definition), table.definition).to_batches()


def runner(table: Table, *ids: int, name: str = "a") -> Callable[[WriteJob], Sequence[TaskOutcome]]:
    batches = sorted_batches(table, pa.table({"id": ids, "name": [name] * len(ids)}))
    return lambda job: [job.run(batches, "0.0")]


def put(table: Table, *ids: int, name: str = "a") -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)})).version


def on(table: Table, storage: Any) -> TableWriter:
    """A writer of the table on another storage, as another process has one."""
    opened = opened_again(table.opened, storage=storage)
    return TableWriter(opened.filestore, opened.log_config, opened.ambient)
