"""Rows on their way from a data source's tasks to its one commit: sorted runs under ``_runs``.

A Python data source has no session, so it cannot shuffle: each task sorts what it gets and puts it away, run by run,
and the driver's commit reads all runs together, in the order of slot and key, as one sorted stream. Memory on either
side is bounded, however many tasks there were: one run's rows, or one row group of each run that is open, of which
there are at most `_OPEN_RUNS`. More runs are merged in passes, into runs that are removed in the end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from types import TracebackType
from typing import Any, Self

import numpy as np
import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.parquet as pq

from filestore.chunks import BUCKET_COLUMN
from filestore.errors import TableStoreError
from filestore.layout import RUNS
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.parquet import ParquetReader
from filestore.storage import writing
from filestore.write import sort_rows
from filestore.writer import TableFiles

__all__ = ["merged", "remove", "stage"]

logger = logging.getLogger(__name__)

_RUN_ROWS = 2_000_000
_RUN_BYTES = 128 << 20
_GROUP_ROWS = 16_384
_GROUP_BYTES = 2 << 20
_OPEN_RUNS = 64
_TASK_SHIFT = 40  # the ordinal's bits below the task's number

Key = tuple[tuple[bool, Any], ...]
"""A row's place; null partitions come first, as the sort has them."""


def stage(table: TableFiles, batches: Iterable[pa.Table], task: int) -> tuple[str, ...]:
    """Puts a task's rows away; gives the runs' paths, relative to the table. After an error nothing stays.

    Args:
        table: The table.
        batches: Rows in the table's types.
        task: Its number: rows of a later task are later rows.
    """
    paths: list[str] = []
    first = task << _TASK_SHIFT
    try:
        for rows in _gathered(batches, _RUN_ROWS, _RUN_BYTES):
            ordinals = np.arange(first, first + rows.num_rows)
            first += rows.num_rows
            rows = sort_rows(rows.append_column(ORDINAL_COLUMN, pa.array(ordinals)), table.definition)
            paths.append(_new_path(table))
            _put(table, paths[-1], [rows])
    except BaseException:
        remove(table, paths)
        raise
    return tuple(paths)


def remove(table: TableFiles, paths: Iterable[str]) -> None:
    """Removes runs. One that cannot be removed is logged and no error: nothing refers to it, commit or no commit."""
    for path in paths:
        try:
            table.storage.delete(table.path(path))
        except TableStoreError as error:
            logger.warning("a staged run stays behind, which `tablestore doctor` lists as orphan: %s", error)


def merged(table: TableFiles, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The rows of all runs in the order that `filestore.write.fold_sorted` wants. The runs stay."""
    runs = list(paths)
    with _Passes(table) as passes:
        if len(runs) > _OPEN_RUNS:
            runs = passes.joined(runs)
        while len(runs) > _OPEN_RUNS:
            # no more than what brings the number down to what may be open: the first runs are not rewritten again
            count = min(_OPEN_RUNS, len(runs) - _OPEN_RUNS + 1)
            runs = [*runs[count:], passes.put(_merge(table, runs[:count]))]
        for rows in _merge(table, runs):
            yield from rows.to_batches()


# ---------------------------------------------------------------------------------------------------- runs as files


def _new_path(table: TableFiles) -> str:
    return f"{RUNS}/staged-{table.ambient.new_id()}.parquet"


def _put(table: TableFiles, path: str, parts: Iterable[pa.Table]) -> None:
    """Writes sorted rows as one run, in row groups of which `_OPEN_RUNS` fit into memory."""
    coming = _gathered(parts, _GROUP_ROWS, _GROUP_BYTES)
    first = next(coming)
    with (
        writing(table.path(path)),
        table.storage.open_write(table.path(path)) as sink,
        pq.ParquetWriter(sink, first.schema, compression="lz4") as file,
    ):
        for rows in chain([first], coming):
            file.write_table(rows, row_group_size=_group_rows(rows))


def _group_rows(rows: pa.Table) -> int:
    fitting = int(rows.num_rows) * _GROUP_BYTES // max(int(rows.nbytes), 1)
    return max(1, min(_GROUP_ROWS, fitting))


def _gathered(parts: Iterable[pa.Table], rows: int, size: int) -> Iterator[pa.Table]:
    """The same rows in tables of at least so many rows or bytes, but for the last."""
    held: list[pa.Table] = []
    held_rows = held_bytes = 0
    for part in parts:
        held.append(part)
        held_rows, held_bytes = held_rows + part.num_rows, held_bytes + part.nbytes
        if held_rows >= rows or held_bytes >= size:
            yield pa.concat_tables(held)
            held, held_rows, held_bytes = [], 0, 0
    if held_rows:
        yield pa.concat_tables(held)


class _Passes:
    """Runs that are made of runs on the way, and removed at the end, whatever it is."""

    def __init__(self, table: TableFiles) -> None:
        self._table = table
        self._made: list[str] = []

    def put(self, parts: Iterable[pa.Table]) -> str:
        """Makes a run of sorted parts."""
        self._made.append(_new_path(self._table))
        _put(self._table, self._made[-1], parts)
        return self._made[-1]

    def joined(self, runs: Sequence[str]) -> list[str]:
        """Runs of one row group, as many small tasks leave them, sorted together in memory; the others as they are.

        One is open at a time, so this takes one pass for any number of runs.
        """
        large: list[str] = []
        small = _gathered(self._small(runs, large), _RUN_ROWS, _RUN_BYTES)
        made = [self.put([_sorted(rows, _order(self._table))]) for rows in small]
        return [*made, *large]

    def _small(self, runs: Sequence[str], large: list[str]) -> Iterator[pa.Table]:
        for path in runs:
            with ParquetReader(self._table.storage, self._table.path(path)) as file:
                if len(file.group_rows) > 1:
                    large.append(path)
                    continue
                yield file.read(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        remove(self._table, self._made)


# ---------------------------------------------------------------------------------------------- runs as one stream


def _order(table: TableFiles) -> list[str]:
    """Slot, key and arrival: no two rows stand at one place, and rows of one key stay as they came."""
    return [*table.definition.partition_by, BUCKET_COLUMN, *table.definition.sort_key, ORDINAL_COLUMN]


def _merge(table: TableFiles, paths: Iterable[str]) -> Iterator[pa.Table]:
    """The runs' rows in order, all runs open. Up to where the first of the held row groups ends, none is missing."""
    by = _order(table)
    sources = [_Source(by, _groups(table, path)) for path in paths]
    while sources := [source for source in sources if source.fill()]:
        reach = min(source.last for source in sources)
        parts = [part for source in sources if (part := source.take(reach)).num_rows]
        yield parts[0] if len(parts) == 1 else _sorted(pa.concat_tables(parts), by)


def _sorted(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    keys = _frame(rows.select(list(by)))
    return rows.take(keys.with_row_index("_row").sort(list(by))["_row"].to_arrow())


def _frame(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _groups(table: TableFiles, path: str) -> Iterator[pa.Table]:
    with ParquetReader(table.storage, table.path(path)) as file:
        for group in range(len(file.group_rows)):
            yield file.read(group)


class _Source:
    """A run that is being read: the rest of one row group, and those that come behind it."""

    def __init__(self, by: Sequence[str], groups: Iterator[pa.Table]) -> None:
        self._by = list(by)
        self._coming = groups
        self._rows: pa.Table | None = None
        self._keys = pl.DataFrame()
        self.last: Key = ()
        """The place of the last row that is held."""

    def fill(self) -> bool:
        """Reads on if nothing is held; whether there are rows now."""
        if self._rows is None or not self._rows.num_rows:
            self._rows = next(self._coming, None)
            if self._rows is None:
                return False
            self._keys = _frame(self._rows.select(self._by)).with_columns(cs.temporal().to_physical())
            self.last = _place(self._keys, -1)
        return True

    def take(self, reach: Key) -> pa.Table:
        """The rows up to that place, which are held no longer."""
        assert self._rows is not None
        count = self._count(reach)
        taken, self._rows, self._keys = self._rows.slice(0, count), self._rows.slice(count), self._keys.slice(count)
        return taken

    def _count(self, reach: Key) -> int:
        """How many rows stand at that place or before it: a search in one column after the other."""
        if self.last <= reach:
            return self._keys.height
        first = _place(self._keys, 0)
        if reach < first:
            return 0
        # where the first row and the last are the same, all are, and `reach` lies between them
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, self.last, strict=True)))
        start, end = 0, self._keys.height
        for name, (_, value) in list(zip(self._by, reach, strict=True))[same:]:
            start, end = _range(self._keys[name], start, end, value)
        return end


def _place(keys: pl.DataFrame, row: int) -> Key:
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
