"""A data file row group by row group, decoded by polars: in 0.8 of pyarrow's time, and strings are not copied.

Footers and vectors come through the storage, columns by the path itself, which polars must be able to open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from filestore.delta.vectors import positions
from filestore.files.columns import FileColumns
from filestore.files.parquet import ParquetReader, readable
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile
from filestore.model.schema import Schema
from filestore.rows.frames import polars_schema
from filestore.rows.partitions import partition_column

__all__ = ["Mask", "RowGroups"]

Mask = npt.NDArray[np.bool_]


class RowGroups:
    """One file, opened. Memory: the footer, the dead rows' positions, and what a call returns.

    Args:
        table: The table.
        file: One of its files.
        dead: Ascending positions of rows that are dead beyond the file's vector.
    """

    def __init__(self, table: TableFiles, file: DataFile, dead: npt.NDArray[np.int64] | None = None) -> None:
        self._path = table.path(file.path)
        with ParquetReader(table.storage, self._path) as parquet:
            self.footer = parquet.footer
            self._starts = np.cumsum([0, *parquet.group_rows])
            self._columns = FileColumns.of(table.definition.schema, parquet)
        self._rows = pl.scan_parquet(self._path, glob=False, hive_partitioning=False, use_statistics=False)
        self._dead = positions(table.storage, table.location, file.vector).astype(np.int64)
        if dead is not None:
            self._dead = np.union1d(self._dead, dead)
        self._constants = _partition_constants(file, table.definition.schema)

    @property
    def casts(self) -> bool:
        """Whether a column of the table has a narrower type in the file."""
        return self._columns.casts

    def __len__(self) -> int:
        """How many row groups the file has."""
        return len(self._starts) - 1

    def alive(self, group: int) -> Mask:
        """Which rows of a row group are not dead."""
        start, end = self._starts[group], self._starts[group + 1]
        mask = np.ones(end - start, dtype=np.bool_)
        first, last = np.searchsorted(self._dead, (start, end))
        mask[self._dead[first:last] - start] = False
        return mask

    def every_row(self, group: int) -> Mask:
        """All rows of a row group, the dead ones too."""
        return np.ones(self._starts[group + 1] - self._starts[group], dtype=np.bool_)

    def rows_around(self, rows: npt.NDArray[np.int64]) -> int:
        """How many rows the row groups have that hold the rows at those ascending positions."""
        cuts = np.searchsorted(rows, self._starts)
        return int(np.diff(self._starts)[np.diff(cuts) > 0].sum())

    def read(self, group: int, names: Sequence[str], mask: Mask) -> pl.DataFrame:
        """Those rows of a row group that the mask names; at least one column, partition columns included."""
        stored = [name for name in names if name not in self._constants]
        if stored:
            with readable(self._path):
                rows = self._read(int(self._starts[group]), len(mask), stored)
            rows = rows if mask.all() else rows.filter(pl.Series(mask))
        else:
            rows = pl.DataFrame(height=int(mask.sum()))
        return rows.with_columns(self._constants[n] for n in names if n in self._constants).select(names)

    def _read(self, start: int, size: int, names: Sequence[str]) -> pl.DataFrame:
        if not any(self._columns.holds(name) for name in names):
            return pl.DataFrame(height=size).with_columns(self._columns.expressions(names))
        return self._rows.slice(start, size).select(self._columns.expressions(names)).collect()

    def read_at(self, rows: npt.NDArray[np.int64], names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows at those ascending positions of the file, dead or alive."""
        for group in range(len(self)):
            start, end = self._starts[group], self._starts[group + 1]
            first, last = np.searchsorted(rows, (start, end))
            if first < last:
                mask = np.zeros(end - start, dtype=np.bool_)
                mask[rows[first:last] - start] = True
                yield self.read(group, names, mask)


def _partition_constants(file: DataFile, schema: Schema) -> Mapping[str, pl.Expr]:
    """The partition's values, as columns."""
    if not file.slot.partition:
        return {}
    types = polars_schema(schema.select(name for name, _ in file.slot.partition).to_arrow())
    values = {n: partition_column(text, schema.column(n).type, 1)[0].as_py() for n, text in file.slot.partition}
    return {name: pl.lit(value, dtype=types[name]).alias(name) for name, value in values.items()}
