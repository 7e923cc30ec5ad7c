"""Rows on their way from a data source's tasks to its one commit: sorted runs under ``_runs``.

A Python data source has no session, so it cannot shuffle: each task sorts what it gets and puts it away, run by run,
and the driver's commit reads all runs together, in the order of slot and key, as one sorted stream. Memory on either
side is bounded: one run's rows in a task, one row group of each run in the driver.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from filestore.chunks import BUCKET_COLUMN
from filestore.layout import RUNS
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.parquet import ParquetReader
from filestore.storage import writing
from filestore.write import sort_rows
from filestore.writer import TableFiles

__all__ = ["merged", "remove", "stage"]

_RUN_ROWS = 500_000
_RUN_BYTES = 128 << 20
_GROUP_ROWS = 16_384
_TASK_SHIFT = 40  # the ordinal's bits below the task's number

Key = tuple[Any, ...]


def stage(table: TableFiles, batches: Iterable[pa.Table], task: int) -> tuple[str, ...]:
    """Puts a task's rows away; gives the runs' paths, relative to the table. After an error nothing stays.

    Args:
        table: The table.
        batches: Rows in the table's types.
        task: Its number: rows of a later task are later rows.
    """
    paths: list[str] = []
    held: list[pa.Table] = []
    first = task << _TASK_SHIFT
    try:
        for batch in batches:
            held.append(batch)
            rows = sum(t.num_rows for t in held)
            if rows >= _RUN_ROWS or sum(t.nbytes for t in held) >= _RUN_BYTES:
                paths.append(_run(table, held, first))
                held, first = [], first + rows
        if held:
            paths.append(_run(table, held, first))
    except BaseException:
        remove(table, paths)
        raise
    return tuple(paths)


def remove(table: TableFiles, paths: Iterable[str]) -> None:
    """Removes runs."""
    for path in paths:
        table.storage.delete(table.path(path))


def _run(table: TableFiles, held: Sequence[pa.Table], first: int) -> str:
    rows = pa.concat_tables(held)
    ordinals = np.arange(first, first + rows.num_rows)
    rows = sort_rows(rows.append_column(ORDINAL_COLUMN, pa.array(ordinals)), table.definition)
    path = f"{RUNS}/staged-{table.ambient.new_id()}.parquet"
    with writing(table.path(path)), table.storage.open_write(table.path(path)) as sink:
        pq.write_table(rows, sink, row_group_size=_GROUP_ROWS, compression="lz4")
    return path


# ---------------------------------------------------------------------------------------------- all runs as one stream


class _Source:
    """A run that is being read: the rest of one row group, and those that come behind it."""

    def __init__(self, by: Sequence[str], groups: Iterator[pa.Table]) -> None:
        self._by = by
        self._coming = groups
        self._rows: pa.Table | None = None

    def fill(self) -> bool:
        """Reads on if nothing is held; whether there are rows now."""
        if self._rows is None or not self._rows.num_rows:
            self._rows = next(self._coming, None)
        return self._rows is not None

    @property
    def last(self) -> Key:
        """The place of the last row that is held."""
        assert self._rows is not None
        return self._key(self._rows.num_rows - 1)

    def take(self, reach: Key) -> pa.Table:
        """The rows up to that place, which are held no longer."""
        assert self._rows is not None
        count = bisect.bisect_right(range(self._rows.num_rows), reach, key=self._key)
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken

    def _key(self, row: int) -> Key:
        """A row's place; null partitions come first, as the sort has them."""
        assert self._rows is not None
        values = (self._rows.column(name)[row].as_py() for name in self._by)
        return tuple((value is not None, value) for value in values)


def merged(table: TableFiles, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The rows of all runs in the order that `filestore.write.fold_sorted` wants.

    Up to the place with which the first of the held row groups ends, no row can be missing.
    """
    by = [*table.definition.partition_by, BUCKET_COLUMN, *table.definition.sort_key]
    sources = [_Source(by, _groups(table, path)) for path in paths]
    while sources := [source for source in sources if source.fill()]:
        reach = min(source.last for source in sources)
        parts = [part for source in sources if (part := source.take(reach)).num_rows]
        rows = parts[0] if len(parts) == 1 else _sorted(pa.concat_tables(parts), [*by, ORDINAL_COLUMN])
        yield from rows.to_batches()


def _sorted(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    keys = pl.from_arrow(rows.select(list(by)))
    assert isinstance(keys, pl.DataFrame)
    return rows.take(keys.with_row_index("_row").sort(list(by))["_row"].to_arrow())


def _groups(table: TableFiles, path: str) -> Iterator[pa.Table]:
    with ParquetReader(table.storage, table.path(path)) as file:
        for group in range(len(file.group_rows)):
            yield file.read(group)
