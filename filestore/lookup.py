"""Keys to positions: where the rows of given keys stand in sorted data files (FORMAT.md section 10).

Probes come as sorted chunks in ascending order, files are sorted, so each row group's key columns are read once,
pruned by the footer's statistics. A single integer-like key is found by binary search in numpy, any other key by a
polars join. Memory: the key columns of one row group for each file that the probes have reached and not yet passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from filestore.delta.vectors import positions
from filestore.frames import frame_of
from filestore.keys import Key, decode_key, key_at
from filestore.model.files import DataFile
from filestore.parquet import ParquetReader
from filestore.writer import TableFiles

__all__ = ["FileLookup", "Matches"]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Matches:
    """Live rows of a file whose keys are among the probes.

    Attributes:
        positions: Row positions in the file.
        probes: For each, the row of the probe table with the same key.
        values: The extra columns of those rows, if any were asked for.
    """

    positions: Rows
    probes: Rows
    values: pa.Table | None


class FileLookup:
    """Looks keys up in one file; use it with chunks of probes in ascending order."""

    def __init__(self, table: TableFiles, file: DataFile, extra: Sequence[str] = ()) -> None:
        self._table = table
        self._file = file
        self._keys = table.definition.sort_key
        types = [table.definition.schema.column(c).type for c in self._keys]
        self._lowest = None if file.min_key is None else decode_key(file.min_key, types)
        self._highest = None if file.max_key is None else decode_key(file.max_key, types)
        self._extra = tuple(extra)
        self._parquet: ParquetReader | None = None
        self._starts: Rows = np.empty(0, dtype=np.int64)
        self._cached: tuple[int, pa.Table] | None = None
        self._dead: npt.NDArray[np.uint64] | None = None

    @property
    def holds_file(self) -> bool:
        """Whether the file is open."""
        return self._parquet is not None

    def find(self, probes: pa.Table) -> Iterator[Matches]:
        """The matches of a sorted chunk of unique keys, row group by row group."""
        low, high = key_at(probes, self._keys, 0), key_at(probes, self._keys, probes.num_rows - 1)
        if self._highest is not None and self._highest < low:
            self._let_go()  # probes ascend
        if not self._overlaps(low, high):
            return
        for group in self._groups(low[0], high[0]):
            rows = self._read(group)
            found, probe = _match(rows, probes, self._keys)
            alive = self._alive(found + self._starts[group])
            found, probe = found[alive], probe[alive]
            if len(found):
                values = rows.select(self._extra).take(pa.array(found)) if self._extra else None
                yield Matches(found + self._starts[group], probe, values)

    def _overlaps(self, low: Key, high: Key) -> bool:
        return (self._lowest is None or self._lowest <= high) and (self._highest is None or low <= self._highest)

    def _let_go(self) -> None:
        if self._parquet is not None:
            self._parquet.close()
        self._parquet = self._cached = self._dead = None

    def _open(self) -> ParquetReader:
        if self._parquet is None:
            self._parquet = ParquetReader(self._table.storage, self._table.path(self._file.path))
            self._starts = np.concatenate([[0], np.cumsum(self._parquet.group_rows)]).astype(np.int64)
        return self._parquet

    def _groups(self, low: Any, high: Any) -> Iterator[int]:
        footer = self._open().footer
        column = _leaf(self._open(), self._keys[0])
        for group in range(footer.num_row_groups):
            bounds = footer.row_group(group).column(column).statistics
            if bounds is None or not bounds.has_min_max or (bounds.min <= high and low <= bounds.max):
                yield group

    def _read(self, group: int) -> pa.Table:
        if self._cached is None or self._cached[0] != group:
            columns = list(dict.fromkeys((*self._keys, *self._extra)))
            self._cached = (group, self._open().read(group, columns))
        return self._cached[1]

    def _alive(self, rows: Rows) -> npt.NDArray[np.bool_]:
        if self._dead is None:
            self._dead = positions(self._table.storage, self._table.location, self._file.vector)
        if not len(self._dead):
            return np.ones(len(rows), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self._dead, rows.astype(np.uint64)), len(self._dead) - 1)
        return np.not_equal(self._dead[at], rows.astype(np.uint64))


def _match(rows: pa.Table, probes: pa.Table, keys: Sequence[str]) -> tuple[Rows, Rows]:
    """Positions in `rows` and in `probes` of equal keys, ascending. Both are sorted, keys are unique in each."""
    stored = _as_integers(rows.column(keys[0])) if len(keys) == 1 else None
    wanted = _as_integers(probes.column(keys[0])) if len(keys) == 1 else None
    if stored is not None and wanted is not None:
        at = np.searchsorted(stored, wanted)
        hit = np.flatnonzero(stored[np.minimum(at, len(stored) - 1)] == wanted)
        return at[hit].astype(np.int64), hit.astype(np.int64)
    stored_rows, wanted_rows = _numbered(rows, keys, "row"), _numbered(probes, keys, "probe")
    joined = stored_rows.join(
        wanted_rows, on=[str(n) for n in range(len(keys))], how="inner", maintain_order="left"
    ).select(pl.col("row").cast(pl.Int64), pl.col("probe").cast(pl.Int64))
    return joined["row"].to_numpy(), joined["probe"].to_numpy()


def _numbered(table: pa.Table, keys: Sequence[str], index: str) -> pl.DataFrame:
    """The key columns under their numbers, so that no name of theirs meets that of the row index."""
    numbered = table.select(list(keys)).rename_columns([str(n) for n in range(len(keys))])
    return frame_of(numbered).with_row_index(index)


def _leaf(parquet: ParquetReader, column: str) -> int:
    """Which of the file's leaf columns a top-level column is; a struct may have a field of the same name."""
    schema = parquet.schema
    return next(n for n in range(len(schema)) if schema.column(n).path == column)


def _as_integers(column: pa.ChunkedArray) -> npt.NDArray[np.int64] | None:
    """The column as int64 if its order is that of integers; None for any other type."""
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif not pa.types.is_signed_integer(kind):
        return None
    return np.asarray(column.cast(pa.int64()), dtype=np.int64)
