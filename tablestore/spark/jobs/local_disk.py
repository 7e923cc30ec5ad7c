"""The files of a task on its executor's disk: sorted runs while it works, and the look-up cache for later tasks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from filestore.files.writer import TableFiles
from filestore.sorting.runs import RunFiles
from filestore.storage.local import LocalStorage, temporary_folder

__all__ = ["at_home", "on_local_disk"]


def at_home(table: TableFiles, task: int) -> TableFiles:
    """Returns the table in a task: its look-ups keep columns on the executor's disk for the worker's next tasks."""
    if table.cache is not None:
        table.cache.folder = _local_disk(task)
    return table


@contextmanager
def on_local_disk(table: TableFiles, task: int) -> Iterator[RunFiles]:
    """Opens a folder for runs among Spark's temporary files; Spark removes what a killed worker leaves there."""
    with temporary_folder("tablestore-runs-", _local_disk(task)) as folder:
        yield RunFiles(LocalStorage(), folder, lambda: f"{table.ambient.new_id()}.parquet")


def _local_disk(task: int) -> str:
    """One of the folders that Spark gives its executors for temporary files."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
    return folders[task % len(folders)]
