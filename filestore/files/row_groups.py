"""Decodes row groups of data files with polars: it takes 0.8 of pyarrow's time and does not copy strings.

polars opens local files. Of a file that is elsewhere the storage fetches the bytes of the wanted columns only. polars
looks at no checksum, so they are compared with the bytes before it decodes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filestore.errors import Corrupt, NotFound
from filestore.files.columns import FileColumns
from filestore.files.dead_rows import dead_rows_of
from filestore.files.footers import footer_of
from filestore.files.page_rows import PageRows
from filestore.files.parquet import readable
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.model.files import DataFile
from filestore.parquet.ranges import footer_range
from filestore.rows.frames import polars_schema
from filestore.rows.partitions import partition_column
from filestore.storage.interface import ByteRange

__all__ = ["DecodeBatch", "Mask", "RowGroups", "decode_batches"]

Mask = npt.NDArray[np.bool_]

_MOST_FILES = 64
_MOST_BYTES = 16 << 20
_SMALL_BYTES = 256 << 10


class RowGroups:
    """One opened file. It takes the memory of the footer, the deleted rows, and what a call returns.

    Args:
        table: The table.
        file: One of its files.
        dead: The ascending positions of rows that are deleted in addition to the file's vector.
    """

    def __init__(self, table: TableFiles, file: DataFile, dead: npt.NDArray[np.int64] | None = None) -> None:
        self.file = file
        self.path = table.path(file.path)
        self.storage = table.storage
        self.partition = dict(file.slot.partition)
        self.footer = footer_of(table, file.path)
        self.starts = self.footer.starts
        self.columns = FileColumns(table.definition.schema, self.footer.types)
        self._dead = dead_rows_of(table, file)
        self._also_dead = dead
        self.by_page = PageRows(table.storage, self.path, self.footer)

    @property
    def casts(self) -> bool:
        """Returns whether a column of the table has a narrower type in the file."""
        return self.columns.casts

    def __len__(self) -> int:
        """The number of row groups."""
        return len(self.starts) - 1

    def rows(self, group: int) -> int:
        """The number of rows of a row group."""
        return int(self.starts[group + 1] - self.starts[group])

    def alive(self, group: int) -> Mask:
        """A mask of the live rows of a row group."""
        start, end = int(self.starts[group]), int(self.starts[group + 1])
        mask = self._dead.alive_between(start, end)
        if self._also_dead is not None:
            first, last = np.searchsorted(self._also_dead, (start, end))
            mask[self._also_dead[first:last] - start] = False
        return mask

    def every_row(self, group: int) -> Mask:
        """A mask of all rows of a row group, also deleted ones."""
        return np.ones(self.rows(group), dtype=np.bool_)

    def read(self, group: int, names: Sequence[str], mask: Mask) -> pl.DataFrame:
        """Reads the rows of a row group that are in the mask; at least one column, partition columns included."""
        return self.read_several(range(group, group + 1), names, mask)

    def read_several(self, groups: range, names: Sequence[str], mask: Mask) -> pl.DataFrame:
        """Reads the rows in the mask of row groups that follow each other."""
        first, last = _span(mask)
        inside = mask[first:last]
        start = int(self.starts[groups.start]) + first
        rows = _decoded([(self, groups)], names, inside, lambda scan: scan.slice(start, len(inside)))
        return _with_partitions(rows, [(self, rows.height)], names)

    @contextmanager
    def part(self, groups: Iterable[int], names: Sequence[str]) -> Iterator[str]:
        """Opens those columns of some row groups as a local file, and checks their bytes; yields its path."""
        footer, sums = self.footer.metadata, self.footer.checksums
        ranges = self._ranges(groups, names)
        with self.storage.open_read(self.path) as source:
            pieces = ranges if sums is None else sums.pieces(ranges)
            with source.part([footer_range(footer, source.size), *pieces]) as part:
                if sums is not None:
                    sums.check_tail(part.view)
                    sums.check(part.view, pieces)
                yield part.path

    @property
    def is_read_whole(self) -> bool:
        """Returns whether the file is so small that its bytes are decoded from memory, where they were checked."""
        return (
            self.footer.checksums is not None
            and self.footer.checksums.size <= _SMALL_BYTES
            and self.storage.local_path(self.path) is not None
        )

    def whole(self, groups: Iterable[int], names: Sequence[str]) -> bytes:
        """Reads the whole file, and checks those columns of some row groups."""
        sums = self.footer.checksums
        assert sums is not None
        with self.storage.open_read(self.path) as source:
            data = source.read(0, sums.size)
        view = memoryview(data)
        sums.check_tail(lambda start, end: view[start:end])
        sums.check(lambda start, end: view[start:end], sums.pieces(self._ranges(groups, names)))
        return data

    def _ranges(self, groups: Iterable[int], names: Sequence[str]) -> list[ByteRange]:
        stored = {self.columns.schema.column(name).in_files for name in names}
        if stored >= self.footer.types.keys():
            return [self.footer.chunks.whole(group) for group in groups]
        return [found for group in groups for found in self.footer.chunks.ranges(group, stored)]


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Rows that are decoded together: one row group, or all rows of several small files.

    Decoding a file takes a fixed time however few rows it has; with many small files that would be most of the time.

    Attributes:
        parts: Files with a row group of each; several only if `decode_batches` grouped them.
    """

    parts: tuple[tuple[RowGroups, int], ...]

    @property
    def sizes(self) -> list[int]:
        """The number of rows of each part."""
        return [groups.rows(group) for groups, group in self.parts]

    def alive(self) -> Mask:
        """A mask of the live rows."""
        masks = [groups.alive(group) for groups, group in self.parts]
        return masks[0] if len(masks) == 1 else np.concatenate(masks)

    def read(self, names: Sequence[str], mask: Mask) -> pl.DataFrame:
        """Reads the rows in the mask; at least one column, partition columns included."""
        masks = np.split(mask, np.cumsum(self.sizes)[:-1])
        wanted = [(part, rows) for part, rows in zip(self.parts, masks, strict=True) if rows.any()]
        if len(wanted) < 2:
            (groups, group), rows = wanted[0] if wanted else (self.parts[0], masks[0])
            return groups.read(group, names, rows)
        try:
            return _read_together([part for part, _ in wanted], names, [rows for _, rows in wanted])
        except (Corrupt, NotFound):
            for (groups, group), rows in wanted:  # the damaged or missing file raises an error that names it
                groups.read(group, names, rows)
            raise


def decode_batches(hits: Iterable[tuple[RowGroups, int]], rows: int) -> Iterator[DecodeBatch]:
    """Groups row groups, in their order, into batches that are decoded together.

    Args:
        hits: Files with a row group of each.
        rows: The largest number of rows of a batch of small files: that of a row group.
    """
    parts: list[tuple[RowGroups, int]] = []
    held_rows = held_bytes = 0
    for groups, group in hits:
        held_rows += groups.rows(group)
        held_bytes += groups.footer.size
        fits = len(parts) < _MOST_FILES and held_rows <= rows and held_bytes <= _MOST_BYTES
        if parts and not (fits and _alike(parts[-1][0], groups)):
            yield DecodeBatch(tuple(parts))
            parts, held_rows, held_bytes = [], groups.rows(group), groups.footer.size
        parts.append((groups, group))
    if parts:
        yield DecodeBatch(tuple(parts))


def _alike(one: RowGroups, other: RowGroups) -> bool:
    """Returns whether both files have a single row group and the same columns, so that they can be decoded together."""
    return len(one) == len(other) == 1 and bool(one.footer.schema.equals(other.footer.schema))


def _read_together(parts: Sequence[tuple[RowGroups, int]], names: Sequence[str], masks: Sequence[Mask]) -> pl.DataFrame:
    ranges = [(groups, range(group, group + 1)) for groups, group in parts]
    rows = _decoded(ranges, names, np.concatenate(masks), lambda scan: scan)
    counts = [(groups, int(mask.sum())) for (groups, _), mask in zip(parts, masks, strict=True)]
    return _with_partitions(rows, counts, names)


def _decoded(
    parts: Sequence[tuple[RowGroups, range]],
    names: Sequence[str],
    mask: Mask,
    cut: Callable[[pl.LazyFrame], pl.LazyFrame],
) -> pl.DataFrame:
    """Decodes stored columns of files with equal columns: the rows that `cut` keeps and the mask selects."""
    first = parts[0][0]
    stored = [name for name in names if name not in first.partition]
    expressions = first.columns.expressions(stored)
    if not any(first.columns.holds(name) for name in stored):
        return pl.DataFrame(height=int(mask.sum())).with_columns(expressions)
    with ExitStack() as opened, readable(first.path):
        sources: list[bytes] | list[str]
        if all(file.is_read_whole for file, _ in parts):
            sources = [file.whole(groups, stored) for file, groups in parts]
        else:
            sources = [opened.enter_context(file.part(groups, stored)) for file, groups in parts]
        scan = pl.scan_parquet(sources, glob=False, hive_partitioning=False, use_statistics=False)
        rows = cut(scan).select(expressions).collect()
    return rows if mask.all() else rows.filter(pl.Series(mask))


def _span(mask: Mask) -> tuple[int, int]:
    """The part of a row group to decode: pages at its ends without a wanted row are skipped."""
    if not len(mask):
        return 0, 0
    first, last = int(mask.argmax()), len(mask) - int(mask[::-1].argmax())
    if not mask[first]:
        return 0, 0
    return (first, last) if 2 * (last - first) <= len(mask) else (0, len(mask))


def _with_partitions(rows: pl.DataFrame, counts: Sequence[tuple[RowGroups, int]], names: Sequence[str]) -> pl.DataFrame:
    """Adds the files' partition columns to rows; `counts` says how many of the rows each file has."""
    first = counts[0][0]
    constant = [name for name in first.partition if name in names]
    if not constant:
        return rows.select(names)
    schema = first.columns.schema.select(constant).to_arrow()
    numbers = np.repeat(np.arange(len(counts)), [count for _, count in counts])
    columns = []
    for name, kind in polars_schema(schema).items():
        texts = [groups.partition[name] for groups, _ in counts]
        values = [partition_column(text, schema.field(name).type, 1)[0].as_py() for text in texts]
        columns.append(pl.Series(name, values, dtype=kind).gather(numbers))
    return rows.with_columns(columns).select(names)
