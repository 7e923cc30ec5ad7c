"""Rows on their way from a data source's tasks to its one commit: sorted runs under ``_runs``.

A Python data source has no session, so it cannot shuffle: each task sorts what it gets and puts it away, run by run,
and the driver's commit reads all runs together, in the order of slot and key, as one sorted stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from filestore.files.writer import TableFiles
from filestore.layout import staged_path
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.rows.bucketing import bucket_of
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.sorting.order import slices_in_order
from filestore.sorting.runs import RunFiles, gathered

__all__ = ["merged", "remove", "stage"]

_TASK_SHIFT = 40  # the ordinal's bits below the task's number


def stage(table: TableFiles, batches: Iterable[pa.Table], task: int) -> tuple[str, ...]:
    """Puts a task's rows away; gives the runs' paths, relative to the table. After an error nothing stays.

    Args:
        table: The table.
        batches: Rows in the table's types.
        task: Its number: rows of a later task are later rows.
    """
    definition, files = table.definition, _files(table)
    runs: list[str] = []
    first = task << _TASK_SHIFT
    try:
        for parts in gathered(batches, definition.options["write-buffer-size"]):
            for number, rows in enumerate(parts):
                parts[number] = _numbered(rows, definition, first)
                first += rows.num_rows
            runs.append(files.put(slices_in_order(parts, _order(table))))
    except BaseException:
        files.remove(runs)
        raise
    return tuple(runs)


def _numbered(rows: pa.Table, definition: TableDefinition, first: int) -> pa.Table:
    bucket = bucket_of(rows, definition.bucket_key, definition.buckets)
    ordinals = np.arange(first, first + rows.num_rows)
    return rows.append_column(BUCKET_COLUMN, pa.array(bucket)).append_column(ORDINAL_COLUMN, pa.array(ordinals))


def remove(table: TableFiles, runs: Iterable[str]) -> None:
    """Removes runs. One that cannot be removed is logged and no error: nothing refers to it, commit or no commit."""
    _files(table).remove(runs)


def merged(table: TableFiles, runs: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The rows of all runs in the order that `filestore.writing.write.write_sorted` wants. The runs stay."""
    return _files(table).merged(runs, _order(table))


def _files(table: TableFiles) -> RunFiles:
    return RunFiles(table.storage, table.location, lambda: staged_path(table.ambient.new_id()))


def _order(table: TableFiles) -> list[str]:
    """Slot, key and arrival: no two rows stand at one place, and rows of one key stay as they came."""
    return [*table.definition.partition_by, BUCKET_COLUMN, *table.definition.sort_key, ORDINAL_COLUMN]
