"""Batches in any order to batches in order, with bounded memory: what does not fit is put away as sorted runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack

import pyarrow as pa

from filestore.sorting.order import slices_in_order
from filestore.sorting.runs import RunFiles, gathered

__all__ = ["sorted_batches"]


def sorted_batches(
    batches: Iterable[pa.RecordBatch],
    by: Sequence[str],
    memory: int,
    spill: Callable[[], AbstractContextManager[RunFiles]],
) -> Iterator[pa.RecordBatch]:
    """The rows in order of those columns; rows that are equal in all of them, in any order.

    Args:
        batches: The rows.
        by: The columns; without one the batches are given on as they come.
        memory: Bytes of rows that are sorted at once. It takes two to four times as much: four if all is key.
        spill: Opens a place for runs; called only if there are that many bytes or more. Leaving it removes them.

    Raises:
        InvalidRequest: a text among those columns that is not UTF-8.
        Unavailable: the disk of the runs is full or gone.
    """
    if not by:
        yield from batches
        return
    runs: list[str] = []
    with ExitStack() as stack:
        files: RunFiles | None = None
        for parts in gathered((pa.Table.from_batches([batch]) for batch in batches), memory):
            if files is None and sum(part.nbytes for part in parts) < memory:  # it is all there is
                for rows in slices_in_order(parts, by):
                    yield from rows.to_batches()
                return
            files = files or stack.enter_context(spill())
            runs.append(files.put(slices_in_order(parts, by)))
        if files is not None:
            yield from files.merged(runs, by)
