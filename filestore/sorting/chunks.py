"""Cuts a sorted stream of batches into chunks that contain whole keys and single slots (FORMAT.md section 7).

The input is sorted by slot and key, in batches of any size. Writers need chunks of about a row group that divide no key
and no slot. It takes the memory of one chunk and one batch, whatever their rows are: a number of bytes ends a chunk,
too, and of a key with very many rows only the one that wins is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from filestore.merge import deduplicate
from filestore.model.definition import TableDefinition
from filestore.model.files import Partition, Slot
from filestore.rows.keys import changes
from filestore.rows.partitions import partition_values

__all__ = ["BUCKET_COLUMN", "WholeKeys", "by_slot", "cut_chunks", "whole_keys"]

BUCKET_COLUMN = "_bucket"
_CHUNK_BYTES = 64 << 20


def cut_chunks(
    batches: Iterable[pa.RecordBatch], definition: TableDefinition, rows: int, *, every_row: bool = False
) -> Iterator[tuple[Slot, pa.Table]]:
    """Cuts chunks of about `rows` rows or 64 MB; a slot's last may be smaller, others at most twice as large.

    Args:
        batches: Batches with the schema's columns and `BUCKET_COLUMN`, sorted by partition columns, bucket and key.
        definition: The table's definition, which names these columns.
        rows: The number of rows that a chunk should have.
        every_row: Whether a chunk has all rows of a key, and not only the one that wins
            (`filestore.merge.deduplicate`): that takes less for all slots at once than for each.
    """
    slot_columns = (*definition.partition_by, BUCKET_COLUMN)
    group_columns = (*slot_columns, *definition.sort_key)
    reducible = bool(definition.primary_key) and not every_row

    def parts(table: pa.Table) -> Iterator[tuple[Slot, pa.Table]]:
        won = deduplicate.reduce(table, group_columns, definition.sequence_field) if reducible else table
        return by_slot(won, definition)

    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = least = 0
    for batch in itertools.chain.from_iterable(_sliced(batch, rows) for batch in batches):
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
        if (held_rows < rows and held_bytes < _CHUNK_BYTES) or held_rows < least:
            continue
        table = pa.Table.from_batches(held).combine_chunks()
        cut = _last_cut(table, group_columns) if definition.primary_key else table.num_rows
        yield from parts(table.slice(0, cut))
        rest = table.slice(cut)
        if reducible and rest.num_rows > rows // 2:
            rest = deduplicate.reduce_part(rest, group_columns, definition.sequence_field)
        held, held_rows, held_bytes = rest.to_batches(), rest.num_rows, rest.nbytes
        least = 2 * held_rows if cut == 0 else 0  # a single key that cannot be reduced is checked more and more rarely
    if held_rows:
        yield from parts(pa.Table.from_batches(held).combine_chunks())


def _sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Slices a batch so that no slice has more rows or many more bytes than a chunk."""
    size = max(1, min(rows, batch.num_rows * _CHUNK_BYTES // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)


def _last_cut(table: pa.Table, columns: Sequence[str]) -> int:
    """Returns where the table's last key begins: later batches may have more of its rows. 0 if it is the only key."""
    borders = np.flatnonzero(changes(table, columns))
    return int(borders[-1]) + 1 if len(borders) else 0


def by_slot(table: pa.Table, definition: TableDefinition) -> Iterator[tuple[Slot, pa.Table]]:
    """Splits rows that are sorted by partition and `BUCKET_COLUMN` into slots."""
    slot_columns = (*definition.partition_by, BUCKET_COLUMN)
    if not table.num_rows:
        return
    borders = [0, *(np.flatnonzero(changes(table, slot_columns)) + 1).tolist(), table.num_rows]
    for start, end in itertools.pairwise(borders):
        part = table.slice(start, end - start)
        partition: Partition = partition_values(part, definition.partition_by)
        yield Slot(partition, part.column(BUCKET_COLUMN)[0].as_py()), part


class WholeKeys:
    """Collects pieces of sorted rows, and returns them cut so that no key is in two parts.

    Args:
        keys: The columns of the key.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._held: list[pa.Table] = []

    def add(self, piece: pa.Table) -> pa.Table | None:
        """Returns the rows of all keys that have ended; None if none has. It copies each row once."""
        if not piece.num_rows:
            return None
        edge = [rows.slice(rows.num_rows - 1) for rows in self._held[-1:]]
        around = pa.concat_tables([rows.select(self._keys) for rows in (*edge, piece)])
        borders = np.flatnonzero(changes(around, self._keys))
        if not len(borders):
            self._held.append(piece)
            return None
        cut = int(borders[-1]) + 1 - len(edge)
        ended, self._held = [*self._held, piece.slice(0, cut)], [piece.slice(cut)]
        return pa.concat_tables(ended).combine_chunks()

    def rest(self) -> pa.Table | None:
        """Returns the rows of the last key; None if there are none."""
        held, self._held = self._held, []
        return pa.concat_tables(held).combine_chunks() if held else None


def whole_keys(pieces: Iterable[pa.Table], keys: Sequence[str]) -> Iterator[pa.Table]:
    """Cuts the same sorted rows so that no key is in two pieces."""
    whole = WholeKeys(keys)
    for piece in pieces:
        if (ended := whole.add(piece)) is not None:
            yield ended
    if (rest := whole.rest()) is not None:
        yield rest
