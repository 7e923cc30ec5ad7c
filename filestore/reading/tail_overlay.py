"""Makes runs of an overlay from changes that no version has yet, such as a log's tail (FORMAT.md section 11.3).

The runs are in the overlay's own folder; the rows that they supersede are found as for pending runs. It takes the
memory of a chunk, and of `filestore.reading.overlay.dead_rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from filestore import layout
from filestore.delta.by_slot import LookupFiles
from filestore.files.writer import TableFiles
from filestore.model.files import PendingRun, Slot
from filestore.reading.overlay import PendingSlot
from filestore.reading.overlay_table import OverlayFile, overlay_slot
from filestore.rows.fitting import named_kinds
from filestore.sorting.chunks import cut_chunks
from filestore.writing.pending import PendingRunWriter

__all__ = ["overlay_changes"]

_CHUNK_ROWS = 1 << 16


def overlay_changes(
    table: TableFiles, base: LookupFiles, changes: Iterable[pa.RecordBatch], folder: str
) -> Iterator[tuple[Slot, tuple[OverlayFile, ...]]]:
    """Yields the overlay's files of each slot that the changes touch; writes their rows and vectors.

    Args:
        table: The table, which has a primary key.
        base: At least the live files and tombstones of these slots.
        changes: Sorted by partition, bucket and key, with `ORDINAL_COLUMN`, `BUCKET_COLUMN` and `KIND_COLUMN`. Their
            rows are merged already: of a key the last one wins, with a sequence field the highest.
        folder: The overlay's folder, in the table's.
    """
    chunks = cut_chunks(changes, table.definition, _CHUNK_ROWS)
    location = table.path(folder)
    for slot, found in groupby(chunks, key=lambda chunk: chunk[0]):
        runs = _runs(replace(table, location=location), slot, (rows for _, rows in found))
        named = tuple(replace(run, path=layout.join(folder, run.path)) for run in runs)
        yield slot, overlay_slot(table, PendingSlot(slot, base.of(slot), named), location, merged=True)


def _runs(table: TableFiles, slot: Slot, chunks: Iterable[pa.Table]) -> tuple[PendingRun, ...]:
    with PendingRunWriter(table, slot) as writer:
        for rows in chunks:
            writer.write(named_kinds(rows, np.ones(rows.num_rows, dtype=np.bool_)))
        return writer.finish()
