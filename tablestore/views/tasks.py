"""`Tasks`: where the tasks of a refresh run that Python computes: in threads of this process, or as a Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from filestore.errors import TableStoreError
from filestore.model.definition import TableDefinition
from filestore.operations.replaced_rows import ChangeRunner, changes_in_threads
from filestore.reading.difference import Spill
from filestore.sorting.runs import local_runs
from filestore.threads import in_threads
from tablestore.writing.write_job import TaskOutcome, WriteJob, discard_outcomes

__all__ = ["Tasks", "Work", "WorkRunner", "in_own_threads"]


class Work(Protocol):
    """A part of the work of a refresh, which is a task of its write. Picklable."""

    def batches(self, definition: TableDefinition, disk: Spill) -> Iterator[pa.RecordBatch]:
        """Yields rows of the view's table as `tablestore.writing.write_job` takes them.

        Args:
            definition: The definition of the view's table.
            disk: Opens a place for rows that do not fit into memory.
        """
        ...


WorkRunner = Callable[[WriteJob, Sequence[Work]], Sequence[TaskOutcome]]
"""Runs all parts of the work, in this process or as a Spark job."""


def in_own_threads(job: WriteJob, work: Sequence[Work]) -> Sequence[TaskOutcome]:
    """Runs the work in a thread of this process for each core."""

    def one(numbered: tuple[int, Work]) -> TaskOutcome:
        number, part = numbered
        try:
            return job.run(part.batches(job.table.definition, local_runs), f"{number}.0")
        except TableStoreError as error:
            return TaskOutcome(error=error)

    return in_threads("view", one, list(enumerate(work)), partial(discard_outcomes, job.table))


@dataclass(frozen=True, slots=True)
class Tasks:
    """The place where tasks run.

    Attributes:
        run: Runs the parts of a refresh.
        changes: Computes the change data of a refresh that replaces all rows.
        retries: Whether a task may be tried more than once.
    """

    run: WorkRunner = in_own_threads
    changes: ChangeRunner = changes_in_threads
    retries: bool = False
