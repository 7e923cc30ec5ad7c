"""Reads data files without Spark: their live rows by row group, with the partition columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.delta.vectors import positions
from filestore.files.columns import FileColumns
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile
from filestore.rows.casting import cast_rows
from filestore.rows.partitions import with_partition

__all__ = ["read_file", "take_rows"]


def read_file(table: TableFiles, file: DataFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Reads the live rows of a file in order: one table for each row group that has any.

    Args:
        table: The table.
        file: One of its files.
        columns: The columns, which are returned in the schema's order; all if None.
    """
    schema = table.definition.schema.to_arrow()
    chosen, values = set(schema.names if columns is None else columns), dict(file.slot.partition)
    wanted = pa.schema([f for f in schema if f.name in chosen])
    stored = [name for name in wanted.names if name not in values]
    dead = positions(table.storage, table.location, file.vector).astype(np.int64)
    partition = tuple((n, v) for n, v in file.slot.partition if n in wanted.names)
    start = 0
    with ParquetReader(table.storage, table.path(file.path)) as parquet:
        columns_of = FileColumns.of(table.definition.schema, parquet)
        for group, size in enumerate(parquet.group_rows):
            gone = dead[np.searchsorted(dead, start) : np.searchsorted(dead, start + size)] - start
            start += size
            if len(gone) == size:
                continue
            rows = columns_of.read(parquet, group, stored)
            if len(gone):
                alive = np.ones(size, dtype=np.bool_)
                alive[gone] = False
                rows = rows.filter(pa.array(alive))
            yield with_partition(rows, partition, wanted) if partition else cast_rows(rows, wanted)


def take_rows(table: TableFiles, path: str, rows: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    """Reads the rows at ascending positions of a file, live or deleted, by row group."""
    start = 0
    with ParquetReader(table.storage, table.path(path)) as parquet:
        columns = FileColumns.of(table.definition.schema, parquet)
        for group, size in enumerate(parquet.group_rows):
            inside = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + size)] - start
            start += size
            if len(inside):
                yield columns.read(parquet, group).take(pa.array(inside))
