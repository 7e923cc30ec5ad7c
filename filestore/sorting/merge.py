"""Merges sorted runs into one sorted stream, row group by row group.

Rows up to the smallest end of the row groups in memory are complete: no later row group has any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from filestore.lazily import pl
from filestore.rows.frames import frame_of, gatherable
from filestore.rows.ordering import ascending_positions
from filestore.sorting.order import in_order

__all__ = ["merge", "merge_frames"]

_TAKEN_BYTES = 16 << 20

Rows = TypeVar("Rows", pa.Table, "pl.DataFrame")

Place = tuple[tuple[bool, Any], ...]
"""The sort key of a row; nulls are first, as in the sort."""


def merge(runs: Iterable[Iterator[pa.Table]], by: Sequence[str]) -> Iterator[pa.Table]:
    """Merges all rows in the order of those columns. All runs are open at once.

    Args:
        runs: The row groups of each run, sorted.
        by: The columns.
    """
    columns = list(by)
    return _merged(
        [_Source(run, lambda rows: frame_of(rows.select(columns))) for run in runs],
        lambda parts: [in_order(pa.concat_tables(parts), columns)],
    )


def merge_frames(runs: Iterable[Iterator[pl.DataFrame]], by: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Merges runs that polars has decoded, as `merge` does; it yields large row groups in parts."""
    columns = list(by)
    return _merged(
        [_Source(run, lambda rows: rows.select(columns)) for run in runs],
        lambda parts: _sorted(pl.concat(parts, rechunk=False), columns),
    )


def _sorted(rows: pl.DataFrame, columns: list[str]) -> Iterator[pl.DataFrame]:
    """Yields sorted rows, so many at a time that the texts that polars copies take about `_TAKEN_BYTES`."""
    whole, order = gatherable(rows), ascending_positions(rows.select(columns))
    most = max(1, rows.height * _TAKEN_BYTES // max(1, int(rows.estimated_size())))
    yield from (whole[order[start : start + most]] for start in range(0, rows.height, most))


def _merged(sources: list[_Source[Rows]], in_one: Callable[[list[Rows]], Iterable[Rows]]) -> Iterator[Rows]:
    while sources := [source for source in sources if source.fill()]:
        reach = min(source.last for source in sources)
        parts = [part for source in sources if (part := source.take(reach)) is not None]
        yield from parts if len(parts) == 1 else in_one(parts)


class _Source(Generic[Rows]):
    """A run that is being read: the rest of one row group, and the row groups after it."""

    def __init__(self, groups: Iterator[Rows], keys_of: Callable[[Rows], pl.DataFrame]) -> None:
        self._coming: Iterator[Rows] = groups
        self._keys_of: Callable[[Rows], pl.DataFrame] = keys_of
        self._rows: Rows | None = None
        self._keys = pl.DataFrame()
        self.last: Place = ()
        """The sort key of the last row in memory."""

    def fill(self) -> bool:
        """Reads the next row group if no row is in memory; returns whether there are rows now."""
        while not self._keys.height:
            self._rows = next(self._coming, None)
            if self._rows is None:
                return False
            self._keys = self._keys_of(self._rows).with_columns(pl.selectors.temporal().to_physical())
            if self._keys.height:
                self.last = _place(self._keys, -1)
        return True

    def take(self, reach: Place) -> Rows | None:
        """Removes and returns the rows up to that sort key; None if there are none."""
        assert self._rows is not None
        count = self._count(reach)
        if not count:
            return None
        taken, self._rows, self._keys = self._rows.slice(0, count), self._rows.slice(count), self._keys.slice(count)
        return taken

    def _count(self, reach: Place) -> int:
        """Counts the rows up to that sort key, by a search in one column after the other."""
        if self.last <= reach:
            return self._keys.height
        first = _place(self._keys, 0)
        if reach < first:
            return 0
        # columns that are equal in the first and the last row are constant, and `reach` has the same values
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, self.last, strict=True)))
        start, end = 0, self._keys.height
        for name, (_, value) in list(zip(self._keys.columns, reach, strict=True))[same:]:
            start, end = _range(self._keys[name], start, end, value)
        return end


def _place(keys: pl.DataFrame, row: int) -> Place:
    return tuple((value is not None, value) for value in keys.row(row))


def _range(column: pl.Series, start: int, end: int, value: Any) -> tuple[int, int]:
    """The range of rows with that value in a sorted part of a column."""
    part = column.slice(start, end - start)
    nulls = part.null_count()
    if value is None:
        return start, start + nulls
    before, behind = _search(part.slice(nulls), value)
    return start + nulls + before, start + nulls + behind


def _search(column: pl.Series, value: Any) -> tuple[int, int]:
    if not column.dtype.is_integer():
        return column.search_sorted(value, "left"), column.search_sorted(value, "right")
    # numpy searches the same memory in a tenth of the time; this matters, since each row group is searched once a run
    values = column.to_numpy()
    sought = values.dtype.type(value)
    return int(np.searchsorted(values, sought, "left")), int(np.searchsorted(values, sought, "right"))
