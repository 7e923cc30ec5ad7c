"""`GivenRows`: the runner of a write whose rows this process has, or reads (`tablestore.writing.write_job`).

Rows that fit into the table's ``write-buffer-size`` are sorted in memory. More are sorted in runs, of which the first
stay in memory and the others are on the local disk, and merged while they are written. So a write of any length takes
the memory of a few buffers (decision 140).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.contexts import Closing
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN
from filestore.progress import Counter, Observe
from filestore.sorting.order import bucketed, by_arrival, sort_rows
from filestore.sorting.runs import drained, local_runs
from filestore.sorting.sorted_runs import SortedRuns
from tablestore.incoming.conform import conform
from tablestore.writing.write_job import TaskOutcome, WriteJob

__all__ = ["GivenRows"]


class GivenRows(Closing):
    """Writes rows in this process, in the newest columns of the table that they are written to.

    Args:
        rows: The rows, as a table or in parts, of which there is at least one. They are read once.
        observe: Takes how many rows were read, and how many of them were written.
    """

    def __init__(self, rows: pa.Table | Iterable[pa.Table], observe: Observe | None = None) -> None:
        self._observe = observe
        self._total = 0
        self._coming = self._counted([rows] if isinstance(rows, pa.Table) else rows)
        self._held: list[pa.Table] = []
        self._sorted: tuple[TableDefinition, list[pa.RecordBatch] | _Runs] | None = None

    def __call__(self, job: WriteJob) -> Sequence[TaskOutcome]:
        """Runs the job's only task (`tablestore.writing.write_job.WriteRunner`)."""
        rows = self.fitted(job.table.definition)
        writing = Counter(self._observe, "writing", total=self._total)
        return [job.run(writing.rows_of(rows), "0.0")] if rows else []

    def fitted(self, definition: TableDefinition) -> list[pa.RecordBatch] | _Runs:
        """Fits the rows to a definition and sorts them, once for each definition; for errors see `conform`."""
        if self._sorted is None or self._sorted[0] != definition:
            former = None if self._sorted is None else self._sorted[1]
            self._sorted = definition, self._sorted_for(definition, former)
            if isinstance(former, _Runs):
                former.close()
        return self._sorted[1]

    def _counted(self, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        reading = Counter(self._observe, "reading")
        for part in reading.rows_of(parts):
            self._total += part.num_rows
            yield part

    def _all(self) -> Iterator[pa.Table]:
        """Yields all rows; nothing else keeps those that were yielded."""
        yield from drained(self._held)
        yield from self._coming

    def close(self) -> None:
        """Removes the runs, if there are any."""
        if self._sorted is not None and isinstance(self._sorted[1], _Runs):
            self._sorted[1].close()

    def _sorted_for(
        self, definition: TableDefinition, former: list[pa.RecordBatch] | _Runs | None
    ) -> list[pa.RecordBatch] | _Runs:
        if isinstance(former, _Runs):
            return _Runs(former.rows(), definition)
        memory, size = definition.options["write-buffer-size"], sum(part.nbytes for part in self._held)
        for part in self._coming:
            self._held.append(part)
            size += part.nbytes
            if size > memory:
                return _Runs(_numbered(self._all()), definition)
        rows = conform(pa.concat_tables(self._held), definition)
        if definition.sequence_field is not None and KIND_COLUMN in rows.column_names:
            rows = rows.append_column(ORDINAL_COLUMN, pa.array(np.arange(rows.num_rows)))
        batches: list[pa.RecordBatch] = sort_rows(rows, definition).to_batches()
        return batches


Numbered = tuple[pa.Table, npt.NDArray[np.int64]]
"""Rows, and their numbers in the order in which they arrived."""


class _Runs(Closing):
    """Rows that are sorted in runs; each iteration merges them anew.

    Args:
        parts: The rows as they were given.
        definition: The table's, to which they are fitted.
    """

    def __init__(self, parts: Iterable[Numbered], definition: TableDefinition) -> None:
        self._definition = definition
        self._given: Sequence[str] = ()
        memory = definition.options["write-buffer-size"]
        fitted = (self._fitted(rows, numbers) for part in parts for rows, numbers in _sliced(part, memory // 8))
        self._runs = SortedRuns(fitted, by_arrival(definition), memory, local_runs)

    def _fitted(self, rows: pa.Table, numbers: npt.NDArray[np.int64]) -> pa.Table:
        self._given = rows.column_names
        rows = conform(rows, self._definition, int(numbers[0]) if len(numbers) else 0)
        return bucketed(rows, self._definition).append_column(ORDINAL_COLUMN, pa.array(numbers))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        numbered = bool(self._definition.primary_key)
        for batch in self._runs.merged():
            yield batch if numbered else batch.drop_columns([ORDINAL_COLUMN])

    def rows(self) -> Iterator[Numbered]:
        """Yields the rows as they were given, but for their types, in any order."""
        for rows in self._runs.rows():
            yield rows.select(self._given), rows.column(ORDINAL_COLUMN).to_numpy()

    def close(self) -> None:
        """Removes the runs."""
        self._runs.close()


def _numbered(parts: Iterable[pa.Table]) -> Iterator[Numbered]:
    first = 0
    for part in parts:
        yield part, np.arange(first, first + part.num_rows)
        first += part.num_rows


def _sliced(part: Numbered, size: int) -> Iterator[Numbered]:
    """Slices rows that are in memory already, so that not all are sorted at once."""
    rows, numbers = part
    some = max(1, min(rows.num_rows, rows.num_rows * size // max(rows.nbytes, 1)))
    for start in range(0, max(rows.num_rows, 1), some):
        yield rows.slice(start, some), numbers[start : start + some]
