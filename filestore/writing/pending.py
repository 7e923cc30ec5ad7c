"""Writes and reads pending runs: changes that a commit leaves for a fold to merge (FORMAT.md section 11).

A run is one Parquet file of a slot, sorted by key. Its row groups are small, because a reader of many runs as one
stream holds one row group of each in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.files.columns import FileColumns, stored_rows
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles, encoding_of
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.merge.history import RUN_COLUMN
from filestore.model.files import PendingRun, Slot
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Schema
from filestore.rows.casting import cast_rows
from filestore.sorting.chunks import BUCKET_COLUMN, cut_chunks
from filestore.sorting.merge import merge
from filestore.writing.run_writer import RunWriter

__all__ = ["POSITION_BITS", "KeyFilter", "Mask", "PendingRunWriter", "pending_chunks", "run_schema"]

Mask = npt.NDArray[np.bool_]

_GROUP_ROWS = 16_384
POSITION_BITS = 40
"""An ordinal consists of the run's number and, in that many low bits, the row's position in the run."""


def run_schema(schema: Schema) -> pa.Schema:
    """Returns a run's columns: the table's, all nullable since a delete has only its key, and `KIND_COLUMN`."""
    fields = [field.with_nullable(True) for field in schema.to_arrow()]
    return pa.schema([*fields, pa.field(KIND_COLUMN, pa.string(), nullable=False)])


class PendingRunWriter(RunWriter):
    """Writes one run, and removes it after an error."""

    def __init__(self, table: TableFiles, slot: Slot) -> None:
        super().__init__(table, slot)
        self._schema = run_schema(table.definition.schema)

    def write(self, rows: pa.Table) -> None:
        """Adds changes with `KIND_COLUMN`, sorted by key; those of one key are in the order in which they apply."""
        if not rows.num_rows:
            return
        rows = stored_rows(cast_rows(rows, self._schema), self._table.definition.schema)
        how = encoding_of(self._table.definition, rows) if self._sink is None else {}
        self._add(rows, _GROUP_ROWS, **how)

    def finish(self) -> tuple[PendingRun, ...]:
        """Closes the run and makes it durable; returns no run if there were no rows."""
        size = self._closed()
        if size is None:
            return ()
        now = self._table.ambient.now_ms()
        return (PendingRun(self._path, self._slot, size, self._rows, now, *self._bounds),)


class KeyFilter(Protocol):
    """Chooses the keys whose changes are read: all changes of a key, or none."""

    def in_run(self, run: PendingRun) -> bool:
        """Returns whether a run may hold a wanted key, by the bounds that the Delta log has of it."""

    def in_groups(self, run: PendingRun, parquet: ParquetReader) -> Mask:
        """Returns for each row group whether it may hold a wanted key, by the footer."""

    def of_rows(self, rows: pa.Table) -> Mask:
        """Returns for each row whether its key is wanted; `rows` has the key columns."""


def pending_chunks(
    table: TableFiles,
    slot: Slot,
    runs: Sequence[PendingRun],
    columns: Sequence[str] | None = None,
    wanted: KeyFilter | None = None,
) -> Iterator[pa.Table]:
    """Yields the changes of several runs as if they were one write: sorted by key, no key in two chunks.

    Of each key they are those that count: with merge-engine = deduplicate one, else all.

    Args:
        table: The table.
        slot: The slot of all runs.
        runs: The runs in the order in which they apply; `ORDINAL_COLUMN` has this order. For engines that have to merge
            runs one after the other, `RUN_COLUMN` is added.
        columns: Which columns, the key among them; all if None. `KIND_COLUMN` is always added.
        wanted: The keys whose changes are read; all keys if None. Row groups without any are skipped.
    """
    definition = table.definition
    names = definition.schema.names if columns is None else columns
    read = list(dict.fromkeys((*names, *definition.partition_by, *definition.sort_key, KIND_COLUMN)))
    sources = (_numbered(table, run, number, read, wanted) for number, run in enumerate(runs))
    bucket = pa.scalar(slot.bucket, pa.int32())
    batches = (
        batch.append_column(BUCKET_COLUMN, pa.repeat(bucket, batch.num_rows))
        for rows in merge(sources, definition.sort_key)
        for batch in rows.to_batches()
    )
    every_row = definition.merges_values
    for _, rows in cut_chunks(batches, definition, definition.options["row-group.rows"], every_row=every_row):
        yield rows


def _numbered(
    table: TableFiles, run: PendingRun, number: int, columns: Sequence[str], wanted: KeyFilter | None
) -> Iterator[pa.Table]:
    """Yields a run's rows, row group by row group, with ordinals that order them among the rows of other runs.

    The rows have the columns that the table has now, whatever it had when the run was written.
    """
    if wanted is not None and not wanted.in_run(run):
        return
    start = number << POSITION_BITS
    schema = run_schema(table.definition.schema)
    named = pa.schema([schema.field(name) for name in columns])
    in_turn = table.definition.merging.in_turn
    with ParquetReader(table.storage, table.path(run.path)) as file:
        known = FileColumns.of(table.definition.schema, file)
        groups = None if wanted is None else wanted.in_groups(run, file)
        for group, size in enumerate(file.group_rows):
            ordinals = np.arange(start, start + size)
            start += size
            mask = None
            if wanted is not None and groups is not None:
                if not groups[group]:
                    continue
                mask = wanted.of_rows(known.read(file, group, table.definition.primary_key))
                if not mask.any():
                    continue
            rows = cast_rows(known.read(file, group, columns), named)
            rows = rows.append_column(ORDINAL_COLUMN, pa.array(ordinals))
            if in_turn:
                rows = rows.append_column(RUN_COLUMN, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
            yield rows if mask is None or mask.all() else rows.filter(pa.array(mask))
