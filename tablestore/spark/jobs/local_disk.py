"""The files of tasks on their executor's disk: sorted runs, the look-up cache, a large version's list of files."""

from __future__ import annotations

import os
import tempfile
from contextlib import AbstractContextManager

from filestore.files.writer import TableFiles
from filestore.sorting.runs import RunFiles, local_runs

__all__ = ["at_home", "on_local_disk"]


def at_home(table: TableFiles, task: int) -> TableFiles:
    """Returns the table in a task: its look-ups keep columns on the executor's disk for the worker's next tasks."""
    if table.cache is not None:
        table.cache.folder = local_disk(task)
    return table


def on_local_disk(task: int) -> AbstractContextManager[RunFiles]:
    """Opens a folder for runs among Spark's temporary files; Spark removes what a killed worker leaves there."""
    return local_runs(local_disk(task))


def local_disk(task: int) -> str:
    """Returns one of the folders that Spark gives its executors for temporary files, the same for the same number."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
    return folders[task % len(folders)]
