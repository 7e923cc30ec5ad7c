"""Sorts batches with bounded memory: rows that do not fit are written to disk as sorted runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain

import pyarrow as pa

from filestore.sorting.order import slices_in_order
from filestore.sorting.runs import RunFiles, drained, gathered
from filestore.sorting.sorted_runs import SortedRuns

__all__ = ["sorted_batches"]


def sorted_batches(
    batches: Iterable[pa.RecordBatch],
    by: Sequence[str],
    memory: int,
    spill: Callable[[], AbstractContextManager[RunFiles]],
) -> Iterator[pa.RecordBatch]:
    """Yields the rows in the order of those columns; the order of rows that are equal in all of them is undefined.

    Args:
        batches: The rows.
        by: The columns; without one the batches are returned in their order.
        memory: The bytes of rows that are sorted at once. Sorting takes two to four times as much: four if all columns
            are in the key.
        spill: Opens a place for runs; called only if they do not fit into memory. The end of its context removes them.

    Raises:
        InvalidRequest: a text in those columns is not UTF-8.
        Unavailable: the disk of the runs is full or fails.
    """
    if not by:
        yield from batches
        return
    coming = (pa.Table.from_batches([batch]) for batch in batches)
    parts = next(gathered(coming, memory), [])
    if sum(part.nbytes for part in parts) < memory:  # these are all rows
        if parts:
            for rows in slices_in_order(parts, by):
                yield from rows.to_batches()
        return
    with SortedRuns(chain(drained(parts), coming), by, memory, spill) as runs:
        yield from runs.merged()
