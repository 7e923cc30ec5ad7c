"""Sorted runs as one sorted stream, row group by row group.

Up to where the first of the held row groups ends, no row can be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl
import polars.selectors as cs
import pyarrow as pa

from filestore.rows.frames import frame_of
from filestore.sorting.order import in_order

__all__ = ["merge", "merge_frames"]

Rows = TypeVar("Rows", pa.Table, pl.DataFrame)

Place = tuple[tuple[bool, Any], ...]
"""Where a row stands; nulls come first, as the sort has them."""


def merge(runs: Iterable[Iterator[pa.Table]], by: Sequence[str]) -> Iterator[pa.Table]:
    """All rows in order of those columns, all runs open.

    Args:
        runs: The row groups of each run, sorted.
        by: The columns.
    """
    columns = list(by)
    return _merged(
        [_Source(run, lambda rows: frame_of(rows.select(columns))) for run in runs],
        lambda parts: in_order(pa.concat_tables(parts), columns),
    )


def merge_frames(runs: Iterable[Iterator[pl.DataFrame]], by: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The same for runs that polars has decoded: texts are not copied to be put in order."""
    columns = list(by)
    return _merged(
        [_Source(run, lambda rows: rows.select(columns)) for run in runs],
        lambda parts: pl.concat(parts, rechunk=False).sort(columns),
    )


def _merged(sources: list[_Source[Rows]], in_one: Callable[[list[Rows]], Rows]) -> Iterator[Rows]:
    while sources := [source for source in sources if source.fill()]:
        reach = min(source.last for source in sources)
        parts = [part for source in sources if (part := source.take(reach)) is not None]
        yield parts[0] if len(parts) == 1 else in_one(parts)


class _Source(Generic[Rows]):
    """A run that is being read: the rest of one row group, and those that come behind it."""

    def __init__(self, groups: Iterator[Rows], keys_of: Callable[[Rows], pl.DataFrame]) -> None:
        self._coming: Iterator[Rows] = groups
        self._keys_of: Callable[[Rows], pl.DataFrame] = keys_of
        self._rows: Rows | None = None
        self._keys = pl.DataFrame()
        self.last: Place = ()
        """The place of the last row that is held."""

    def fill(self) -> bool:
        """Reads on if nothing is held; whether there are rows now."""
        while not self._keys.height:
            self._rows = next(self._coming, None)
            if self._rows is None:
                return False
            self._keys = self._keys_of(self._rows).with_columns(cs.temporal().to_physical())
            if self._keys.height:
                self.last = _place(self._keys, -1)
        return True

    def take(self, reach: Place) -> Rows | None:
        """The rows up to that place, which are held no longer; None if there are none."""
        assert self._rows is not None
        count = self._count(reach)
        if not count:
            return None
        taken, self._rows, self._keys = self._rows.slice(0, count), self._rows.slice(count), self._keys.slice(count)
        return taken

    def _count(self, reach: Place) -> int:
        """How many rows stand at that place or before it: a search in one column after the other."""
        if self.last <= reach:
            return self._keys.height
        first = _place(self._keys, 0)
        if reach < first:
            return 0
        # where the first row and the last are the same, all are, and `reach` lies between them
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, self.last, strict=True)))
        start, end = 0, self._keys.height
        for name, (_, value) in list(zip(self._keys.columns, reach, strict=True))[same:]:
            start, end = _range(self._keys[name], start, end, value)
        return end


def _place(keys: pl.DataFrame, row: int) -> Place:
    return tuple((value is not None, value) for value in keys.row(row))


def _range(column: pl.Series, start: int, end: int, value: Any) -> tuple[int, int]:
    """Where the value begins and ends in the part of a column that is sorted."""
    part = column.slice(start, end - start)
    nulls = part.null_count()
    if value is None:
        return start, start + nulls
    before, behind = _search(part.slice(nulls), value)
    return start + nulls + before, start + nulls + behind


def _search(column: pl.Series, value: Any) -> tuple[int, int]:
    if not column.dtype.is_integer():
        return column.search_sorted(value, "left"), column.search_sorted(value, "right")
    # numpy looks at the same memory and takes a tenth of the time, which counts: each row group meets all open runs
    values = column.to_numpy()
    sought = values.dtype.type(value)
    return int(np.searchsorted(values, sought, "left")), int(np.searchsorted(values, sought, "right"))
