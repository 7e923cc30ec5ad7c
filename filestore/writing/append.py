"""A write with merge-on-read: nothing is looked up, each slot gets one pending run (FORMAT.md section 11)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from filestore.files.writer import TableFiles
from filestore.merge import deduplicate
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.merge.fieldwise import lasting, needed
from filestore.merge.history import group_starts, history
from filestore.model.definition import TableDefinition
from filestore.model.files import Slot
from filestore.model.rowkind import KIND_COLUMN
from filestore.rows.fitting import accepted, named_kinds, putting
from filestore.sorting.order import in_order
from filestore.writing.pending import PendingRunWriter
from filestore.writing.slot_result import ChangeSink, SlotResult

__all__ = ["append"]


def append(table: TableFiles, slot: Slot, chunks: Iterable[pa.Table], log: ChangeSink | None = None) -> SlotResult:
    """Writes sorted rows as a pending run; for arguments and errors see `filestore.writing.fold.fold`.

    A put that does not say its kind is a ``+U``, since nobody has looked whether its key is there.
    """
    definition = table.definition
    written = deleted = 0
    with PendingRunWriter(table, slot) as writer:
        for chunk in chunks:
            rows = _applied(accepted(chunk, definition), definition)
            if not rows.num_rows:
                continue
            rows = named_kinds(rows, np.ones(rows.num_rows, dtype=np.bool_))
            writer.write(rows)
            puts = putting(rows)
            written += int(puts.sum())
            deleted += int((~puts).sum())
            if log is not None:
                log(slot, rows)
        return SlotResult(slot, runs=writer.finish(), rows_written=written, rows_deleted=deleted)


def _applied(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """The rows in the order in which they apply: one a key if the last wins, else all that the engine can merge."""
    keys = definition.sort_key
    if not definition.merges_values:
        return deduplicate.reduce(rows, keys, definition.sequence_field)
    _refuse(rows, definition)
    return in_order(rows, [*keys, ORDINAL_COLUMN]) if ORDINAL_COLUMN in rows.column_names else rows


def _refuse(rows: pa.Table, definition: TableDefinition) -> None:
    """Rows that the engine cannot merge are refused now: at the fold nobody could take them back."""
    if KIND_COLUMN in rows.column_names:
        spec, keys = definition.merging, definition.primary_key
        told = rows.select([*keys, *needed(spec), KIND_COLUMN])
        lasting(history(told, group_starts(told, definition.sort_key), (), None), spec, keys)
