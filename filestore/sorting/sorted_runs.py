"""`SortedRuns`: more rows than are sorted at once, in sorted runs of which the first stay in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack

import pyarrow as pa

from filestore.contexts import Closing
from filestore.sorting.merge import merge
from filestore.sorting.order import slices_in_order
from filestore.sorting.runs import RunFiles, gathered, row_groups

__all__ = ["SortedRuns"]

_HELD = 3
_TIMES = 4
"""The size of their row groups, as a multiple of a file's: each step of a merge takes a fixed time, too."""


class SortedRuns(Closing):
    """Sorts rows in runs of half of the memory. The first three stay there, so rows just above it need no disk.

    To sort another run beside these takes twice the memory, as to sort rows of all of it at once does. Runs that are
    larger, since a part is, do not stay.

    Args:
        parts: The rows.
        by: The columns of the order.
        memory: The bytes of rows that may be sorted at once.
        spill: Opens a place for the other runs; the end of its context removes them.

    Raises:
        InvalidRequest: a text in those columns is not UTF-8.
        Unavailable: the disk of the runs is full or fails.
    """

    def __init__(
        self,
        parts: Iterable[pa.Table],
        by: Sequence[str],
        memory: int,
        spill: Callable[[], AbstractContextManager[RunFiles]],
    ) -> None:
        self._by = list(by)
        self._held: list[list[pa.Table]] = []
        self._written: list[str] = []
        self._files: RunFiles | None = None
        self._place = ExitStack()
        try:
            left = 2 * memory
            for some in gathered(parts, memory // 2):
                left -= sum(part.nbytes for part in some)
                run = slices_in_order(some, self._by)
                if len(self._held) < _HELD and left >= 0:
                    self._held.append(list(row_groups(run, _TIMES)))
                else:
                    self._files = self._files or self._place.enter_context(spill())
                    self._written.append(self._files.put(run))
        except BaseException:
            self.close()
            raise

    def merged(self) -> Iterator[pa.RecordBatch]:
        """Merges the rows of all runs, anew at each call."""
        held = [iter(run) for run in self._held]
        if self._files is not None:
            yield from self._files.merged(self._written, self._by, held)
            return
        for rows in merge(held, self._by):
            yield from rows.to_batches()

    def rows(self) -> Iterator[pa.Table]:
        """Yields the rows of one run after the other."""
        for run in self._held:
            yield from run
        if self._files is not None:
            for name in self._written:
                yield from self._files.read(name)

    def close(self) -> None:
        """Removes the runs."""
        self._held.clear()
        self._place.close()
