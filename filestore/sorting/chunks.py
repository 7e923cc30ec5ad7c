"""A sorted stream of batches, cut into chunks of whole keys and single slots (FORMAT.md section 7).

What comes here is sorted by slot and key, in batches of any size. The kernel wants chunks of about a row group in
which no key and no slot is cut in two. Memory: one chunk and one batch, whatever is in them: a chunk ends at a number
of bytes too, and of a key with very many rows only the one that wins is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from filestore.merge import deduplicate
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.files import Partition, Slot
from filestore.rows.keys import changes
from filestore.rows.partitions import partition_values

__all__ = ["BUCKET_COLUMN", "by_slot", "cut_chunks", "whole_keys"]

BUCKET_COLUMN = "_bucket"
_CHUNK_BYTES = 64 << 20


def cut_chunks(
    batches: Iterable[pa.RecordBatch], definition: TableDefinition, rows: int
) -> Iterator[tuple[Slot, pa.Table]]:
    """Chunks of about `rows` rows or 64 MB, but for the last of a slot; larger only up to twice.

    Args:
        batches: Sorted by partition columns, bucket and key; with the columns of the schema and `BUCKET_COLUMN`.
        definition: Says which columns those are.
        rows: How many rows a chunk should have.
    """
    slot_columns = (*definition.partition_by, BUCKET_COLUMN)
    group_columns = (*slot_columns, *definition.sort_key)
    every_row = definition.merges_values or definition.changelog_producer is ChangelogProducer.INPUT
    reducible = bool(definition.primary_key) and not every_row
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
        yield from by_slot(table.slice(0, cut), definition)
        rest = table.slice(cut)
        if reducible and rest.num_rows > rows // 2:
            rest = deduplicate.reduce(rest, group_columns, definition.sequence_field)
        held, held_rows, held_bytes = rest.to_batches(), rest.num_rows, rest.nbytes
        least = 2 * held_rows if cut == 0 else 0  # one key that cannot be reduced: looked at ever more seldom
    if held_rows:
        yield from by_slot(pa.Table.from_batches(held).combine_chunks(), definition)


def _sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Pieces of at most so many rows and about so many bytes as a chunk has."""
    size = max(1, min(rows, batch.num_rows * _CHUNK_BYTES // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)


def _last_cut(table: pa.Table, columns: Sequence[str]) -> int:
    """Where the last key of the table begins: from there on more of its rows may come. 0 if it is the only key."""
    borders = np.flatnonzero(changes(table, columns))
    return int(borders[-1]) + 1 if len(borders) else 0


def by_slot(table: pa.Table, definition: TableDefinition) -> Iterator[tuple[Slot, pa.Table]]:
    """Rows that are sorted by partition and `BUCKET_COLUMN`, a slot at a time."""
    slot_columns = (*definition.partition_by, BUCKET_COLUMN)
    if not table.num_rows:
        return
    borders = [0, *(np.flatnonzero(changes(table, slot_columns)) + 1).tolist(), table.num_rows]
    for start, end in itertools.pairwise(borders):
        part = table.slice(start, end - start)
        partition: Partition = partition_values(part, definition.partition_by)
        yield Slot(partition, part.column(BUCKET_COLUMN)[0].as_py()), part


def whole_keys(pieces: Iterable[pa.Table], keys: Sequence[str]) -> Iterator[pa.Table]:
    """The same sorted rows, cut so that no key lies in two pieces."""
    held: pa.Table | None = None
    for piece in pieces:
        rows = (piece if held is None else pa.concat_tables([held, piece])).combine_chunks()
        borders = np.flatnonzero(changes(rows, keys))
        cut = int(borders[-1]) + 1 if len(borders) else 0
        held = rows.slice(cut)
        if cut:
            yield rows.slice(0, cut)
    if held is not None:
        yield held
