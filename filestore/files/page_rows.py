"""Reads few rows of large column chunks by page: the time and the bytes are those of the pages that hold the rows.

A chunk of a wide column has tens of megabytes, one of its pages has half of one. Arrow and polars read only whole
chunks, so the pages become a small file in memory, which polars decodes as any other (FORMAT.md section 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from filestore.decoding import well_formed
from filestore.files.footers import Footer
from filestore.files.parquet import readable
from filestore.lazily import pl
from filestore.parquet.pages import Excerpt, Pages, Positions
from filestore.storage.interface import ByteRange, FilePart, Storage

__all__ = ["Excerpts", "PageRows"]

Excerpts = dict[str, Excerpt]
"""Pages of columns of one row group, by the columns' names in the file."""

_LARGE_BYTES = 1 << 20  # a smaller chunk is decoded as soon, and S3 takes longer to answer than to send it


class PageRows:
    """One file. It takes the memory of the places of the pages that were asked for, and of what a call returns.

    Args:
        storage: The file's storage.
        path: Its whole path.
        footer: Its footer.
    """

    def __init__(self, storage: Storage, path: str, footer: Footer) -> None:
        self._storage = storage
        self._path = path
        self._footer = footer
        self._pages: dict[tuple[int, str], Pages | None] = {}

    def excerpts(self, rows: Mapping[int, Positions], names: Sequence[str]) -> dict[int, Excerpts]:
        """Decides for each row group which columns are read by page: large ones, of which that takes at most a half.

        Args:
            rows: The ascending positions of rows in each row group.
            names: The names of columns in the file; it may have some of them only.
        """
        large = [(group, name) for group in rows for name in names if self._is_large(group, name)]
        self._find([chunk for chunk in large if chunk not in self._pages])
        found: dict[int, Excerpts] = {group: {} for group in rows}
        for group, name in large:
            pages = self._pages[group, name]
            if pages is not None and self._pays(excerpt := pages.around(rows[group])):
                found[group][name] = excerpt
        return found

    def _is_large(self, group: int, name: str) -> bool:
        ranges = self._footer.chunks.ranges(group, [name])
        return len(ranges) == 1 and ranges[0][1] - ranges[0][0] >= _LARGE_BYTES

    def _pays(self, excerpt: Excerpt) -> bool:
        start, end = excerpt.pages.chunk
        return 2 * sum(last - first for first, last in self.pieces(excerpt.ranges)) <= end - start

    def _find(self, chunks: Sequence[tuple[int, str]]) -> None:
        """Reads the places of chunks' pages."""
        index = self._footer.pages
        places = {chunk: index.place(*chunk) for chunk in chunks}
        known = {chunk: place for chunk, place in places.items() if place is not None}
        self._pages |= dict.fromkeys(places)
        if not known:
            return
        with self._part(known.values(), kept=True) as part, self._well_formed():
            for (group, name), place in known.items():
                (chunk,) = self._footer.chunks.ranges(group, [name])
                rows = int(self._footer.starts[group + 1] - self._footer.starts[group])
                self._pages[group, name] = Pages.parse(bytes(part.view(*place)), chunk, rows)

    def pieces(self, ranges: Iterable[ByteRange]) -> list[ByteRange]:
        """Returns ranges of the file, widened to what can be checked, each once."""
        sums = self._footer.checksums
        return sorted(set(ranges if sums is None else sums.pieces(ranges)))

    def read(self, group: int, excerpts: Excerpts, rows: Positions, expressions: Sequence[pl.Expr]) -> pl.DataFrame:
        """Reads rows of a row group.

        Args:
            group: The row group.
            excerpts: Pages that hold the rows, at least of one column.
            rows: The ascending positions of the rows in the row group.
            expressions: The conversion of each of these columns to the table's.
        """
        index, columns = self._footer.pages, []
        with self._part(place for excerpt in excerpts.values() for place in excerpt.ranges) as part:
            for (name, excerpt), expression in zip(excerpts.items(), expressions, strict=True):
                with self._well_formed():
                    file = index.file_of(group, name, excerpt, [part.view(*place) for place in excerpt.ranges])
                with readable(self._path):
                    scan = pl.scan_parquet([file], glob=False, hive_partitioning=False, use_statistics=False)
                    columns.append(scan.select(expression).collect()[excerpt.places(rows)])
        return pl.concat(columns, how="horizontal")

    @contextmanager
    def _part(self, ranges: Iterable[ByteRange], *, kept: bool = False) -> Iterator[FilePart]:
        """Opens a part of the file with these bytes, which were checked; `kept`: it is wanted again soon."""
        sums, pieces = self._footer.checksums, self.pieces(ranges)
        with readable(self._path), self._storage.open_read(self._path) as source:
            if kept:
                source.fetch(pieces)
            with source.part(pieces) as part:
                if sums is not None:
                    sums.check(part.view, pieces)
                yield part

    def _well_formed(self) -> AbstractContextManager[None]:
        return well_formed(f"the page index of {self._path}", code="data-file")
