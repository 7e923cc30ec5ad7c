"""A data file row group by row group, decoded by polars: in 0.8 of pyarrow's time, and strings are not copied.

Footers and vectors come through the storage, columns by the path itself, which polars must be able to open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from filestore.errors import Corrupt, NotFound
from filestore.files.columns import FileColumns
from filestore.files.dead_rows import dead_rows_of
from filestore.files.footers import footer_of
from filestore.files.parquet import readable
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile
from filestore.rows.frames import polars_schema
from filestore.rows.partitions import partition_column

__all__ = ["Mask", "RowGroups", "Stretch", "stretches"]

Mask = npt.NDArray[np.bool_]

_MOST_FILES = 64
_MOST_BYTES = 16 << 20


class RowGroups:
    """One file, opened. Memory: the footer, the dead rows, and what a call returns.

    Args:
        table: The table.
        file: One of its files.
        dead: Ascending positions of rows that are dead beyond the file's vector.
    """

    def __init__(self, table: TableFiles, file: DataFile, dead: npt.NDArray[np.int64] | None = None) -> None:
        self.file = file
        self.path = table.path(file.path)
        self.partition = dict(file.slot.partition)
        self.footer = footer_of(table, file.path)
        self._starts = self.footer.starts
        self.columns = FileColumns(table.definition.schema, self.footer.types)
        self._dead = dead_rows_of(table, file)
        self._killed = dead

    @property
    def casts(self) -> bool:
        """Whether a column of the table has a narrower type in the file."""
        return self.columns.casts

    def __len__(self) -> int:
        """How many row groups the file has."""
        return len(self._starts) - 1

    def rows(self, group: int) -> int:
        """How many rows a row group has."""
        return int(self._starts[group + 1] - self._starts[group])

    def alive(self, group: int) -> Mask:
        """Which rows of a row group are not dead."""
        start, end = int(self._starts[group]), int(self._starts[group + 1])
        mask = self._dead.alive_between(start, end)
        if self._killed is not None:
            first, last = np.searchsorted(self._killed, (start, end))
            mask[self._killed[first:last] - start] = False
        return mask

    def every_row(self, group: int) -> Mask:
        """All rows of a row group, the dead ones too."""
        return np.ones(self.rows(group), dtype=np.bool_)

    def rows_around(self, rows: npt.NDArray[np.int64]) -> int:
        """How many rows the row groups have that hold the rows at those ascending positions."""
        cuts = np.searchsorted(rows, self._starts)
        return int(np.diff(self._starts)[np.diff(cuts) > 0].sum())

    def read(self, group: int, names: Sequence[str], mask: Mask) -> pl.DataFrame:
        """Those rows of a row group that the mask names; at least one column, partition columns included."""
        first, last = _span(mask)
        inside = mask[first:last]
        start = int(self._starts[group]) + first
        rows = _decoded([self], names, inside, lambda scan: scan.slice(start, len(inside)))
        return _with_partitions(rows, [(self, rows.height)], names)

    def read_at(self, rows: npt.NDArray[np.int64], names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows at those ascending positions of the file, dead or alive."""
        for group in range(len(self)):
            start, end = self._starts[group], self._starts[group + 1]
            first, last = np.searchsorted(rows, (start, end))
            if first < last:
                mask = np.zeros(end - start, dtype=np.bool_)
                mask[rows[first:last] - start] = True
                yield self.read(group, names, mask)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows that are decoded at once: a row group, or all rows of several small files, one after the other.

    To decode a file takes a while however few rows it has: in a table of many small files that would be most of the
    time.

    Attributes:
        parts: Files with a row group of each; several only if `stretches` put them together.
    """

    parts: tuple[tuple[RowGroups, int], ...]

    @property
    def sizes(self) -> list[int]:
        """The rows of each part."""
        return [groups.rows(group) for groups, group in self.parts]

    def alive(self) -> Mask:
        """Which rows are not dead."""
        masks = [groups.alive(group) for groups, group in self.parts]
        return masks[0] if len(masks) == 1 else np.concatenate(masks)

    def read(self, names: Sequence[str], mask: Mask) -> pl.DataFrame:
        """Those rows that the mask names; at least one column, partition columns included."""
        masks = np.split(mask, np.cumsum(self.sizes)[:-1])
        wanted = [(part, rows) for part, rows in zip(self.parts, masks, strict=True) if rows.any()]
        if len(wanted) < 2:
            (groups, group), rows = wanted[0] if wanted else (self.parts[0], masks[0])
            return groups.read(group, names, rows)
        try:
            return _read_together([part for part, _ in wanted], names, [rows for _, rows in wanted])
        except (Corrupt, NotFound):
            for (groups, group), rows in wanted:  # the file that is damaged or gone is named by its own error
                groups.read(group, names, rows)
            raise


def stretches(hits: Iterable[tuple[RowGroups, int]], rows: int) -> Iterator[Stretch]:
    """Row groups in their order as what is decoded at once.

    Args:
        hits: Files with a row group of each.
        rows: How many rows small files may have together: as many as a row group.
    """
    parts: list[tuple[RowGroups, int]] = []
    held_rows = held_bytes = 0
    for groups, group in hits:
        held_rows += groups.rows(group)
        held_bytes += groups.footer.size
        fits = len(parts) < _MOST_FILES and held_rows <= rows and held_bytes <= _MOST_BYTES
        if parts and not (fits and _alike(parts[-1][0], groups)):
            yield Stretch(tuple(parts))
            parts, held_rows, held_bytes = [], groups.rows(group), groups.footer.size
        parts.append((groups, group))
    if parts:
        yield Stretch(tuple(parts))


def _alike(one: RowGroups, other: RowGroups) -> bool:
    """Whether two files have a row group each and the same columns, so that one decoding suits both."""
    return len(one) == len(other) == 1 and bool(one.footer.schema.equals(other.footer.schema))


def _read_together(parts: Sequence[tuple[RowGroups, int]], names: Sequence[str], masks: Sequence[Mask]) -> pl.DataFrame:
    files = [groups for groups, _ in parts]
    rows = _decoded(files, names, np.concatenate(masks), lambda scan: scan)
    return _with_partitions(rows, [(groups, int(mask.sum())) for groups, mask in zip(files, masks, strict=True)], names)


def _decoded(
    files: Sequence[RowGroups], names: Sequence[str], mask: Mask, cut: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> pl.DataFrame:
    """The columns that are stored in files which are alike: of what `cut` leaves of them, the rows in the mask."""
    first = files[0]
    stored = [name for name in names if name not in first.partition]
    expressions = first.columns.expressions(stored)
    if not any(first.columns.holds(name) for name in stored):
        return pl.DataFrame(height=int(mask.sum())).with_columns(expressions)
    scan = pl.scan_parquet([f.path for f in files], glob=False, hive_partitioning=False, use_statistics=False)
    with readable(first.path):
        rows = cut(scan).select(expressions).collect()
    return rows if mask.all() else rows.filter(pl.Series(mask))


def _span(mask: Mask) -> tuple[int, int]:
    """The part of a row group that is decoded: pages without a wanted row at its ends need not be."""
    if not len(mask):
        return 0, 0
    first, last = int(mask.argmax()), len(mask) - int(mask[::-1].argmax())
    if not mask[first]:
        return 0, 0
    return (first, last) if 2 * (last - first) <= len(mask) else (0, len(mask))


def _with_partitions(rows: pl.DataFrame, counts: Sequence[tuple[RowGroups, int]], names: Sequence[str]) -> pl.DataFrame:
    """The rows with their files' partition columns in place; of each file come so many rows."""
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
