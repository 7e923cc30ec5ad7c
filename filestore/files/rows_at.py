"""Reads rows at positions of a data file, by row group; of large columns only the pages that hold the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from filestore.files.page_rows import Excerpts
from filestore.files.parquet import fetch_few, readable
from filestore.files.row_groups import RowGroups
from filestore.lazily import pl

__all__ = ["RowsAt"]

_MOST_BYTES = 16 << 20


class RowsAt:
    """Rows of a file, live or deleted. It takes the memory of a few bytes for each row, and of what a call returns.

    Args:
        file: The file.
        rows: The ascending positions of the rows.
        names: Columns of the table, partition columns included.
    """

    def __init__(self, file: RowGroups, rows: npt.NDArray[np.int64], names: Sequence[str]) -> None:
        self._file = file
        self._rows = rows
        self._names = names
        columns = file.columns.schema
        self._in_file = {name: columns.column(name).in_files for name in names if name not in file.partition}
        self._cuts = np.searchsorted(rows, file.starts)

    @cached_property
    def _by_group(self) -> Mapping[int, npt.NDArray[np.int64]]:
        """The positions in each row group that has any."""
        cuts, starts = self._cuts, self._file.starts
        groups = np.flatnonzero(np.diff(cuts)).tolist()
        return {group: self._rows[cuts[group] : cuts[group + 1]] - starts[group] for group in groups}

    @cached_property
    def _excerpts(self) -> Mapping[int, Excerpts]:
        return self._file.by_page.excerpts(self._by_group, list(self._in_file.values()))

    def rows_read(self) -> dict[str, int]:
        """Returns for each stored column how many rows `frames` reads."""
        read = dict.fromkeys(self._in_file, 0)
        for group, by_page in self._excerpts.items():
            for name, in_file in self._in_file.items():
                excerpt = by_page.get(in_file)
                read[name] += self._file.rows(group) if excerpt is None else excerpt.rows
        return read

    def frames(self) -> Iterator[pl.DataFrame]:
        """Reads the rows: a frame for each row group, or for some.

        Row groups that follow each other are decoded by one call, which takes a fixed time, where that reads nothing
        more and takes less memory than a row group may: all columns have values of a fixed size. Large columns of which
        few pages hold the rows are read by page, and then the row group is decoded alone.
        """
        self._fetch()
        for groups in self._neighbours():
            start, end = int(self._file.starts[groups.start]), int(self._file.starts[groups.stop])
            mask = np.zeros(end - start, dtype=np.bool_)
            mask[self._rows[self._cuts[groups.start] : self._cuts[groups.stop]] - start] = True
            if excerpts := self._excerpts[groups.start]:
                yield self._read_few(groups.start, mask, excerpts)
            else:
                yield self._file.read_several(groups, self._names, mask)

    def _fetch(self) -> None:
        """Fetches what is read next side by side, unless it is large or on this machine."""
        file = self._file
        if file.storage.local_path(file.path) is not None:
            return
        ranges = []
        for group, by_page in self._excerpts.items():
            ranges += file.by_page.pieces(place for excerpt in by_page.values() for place in excerpt.ranges)
            ranges += file.footer.chunks.ranges(group, [name for name in self._in_file.values() if name not in by_page])
        with readable(file.path), file.storage.open_read(file.path) as source:
            fetch_few(source, ranges)

    def _read_few(self, group: int, mask: npt.NDArray[np.bool_], excerpts: Excerpts) -> pl.DataFrame:
        """Reads the rows of a row group that are in the mask; columns that have excerpts only by these pages."""
        named = {in_file: name for name, in_file in self._in_file.items()}
        expressions = self._file.columns.expressions([named[in_file] for in_file in excerpts])
        few = self._file.by_page.read(group, excerpts, self._by_group[group], expressions)
        if rest := [name for name in self._names if name not in few.columns]:
            few = few.hstack(self._file.read(group, rest, mask))
        return few.select(self._names)

    def _neighbours(self) -> Iterator[range]:
        """Yields the row groups that have one of the rows; small ones that follow each other together."""
        starts = self._file.starts
        most = _MOST_BYTES // width if (width := self._bytes_of_row()) else 0
        held = range(0)
        for group, inside in self._by_group.items():
            # or only some pages are decoded
            whole = not self._excerpts[group] and 2 * int(inside[-1] - inside[0]) > self._file.rows(group)
            joined = range(held.start, group + 1)
            if held and group == held.stop and whole and starts[joined.stop] - starts[joined.start] <= most:
                held = joined
                continue
            if held:
                yield held
            held = range(group, group + 1)
            if not whole:
                yield held
                held = range(0)
        if held:
            yield held

    def _bytes_of_row(self) -> int:
        """The bytes of the decoded columns of a row; 0 if some have values of different sizes."""
        types = [self._file.columns.schema.column(name).type for name in self._in_file]
        try:
            return sum(max(1, kind.bit_width // 8) for kind in types)
        except ValueError:  # texts and nested values have no width of their own
            return 0
