"""Writes with merge-on-read: looks no key up, and adds one pending run to each slot (FORMAT.md section 11)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from filestore.files.writer import TableFiles
from filestore.merge import deduplicate
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.merge.fieldwise import columns_to_check, effective_rows
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

    A put without a row kind becomes a ``+U``, since nothing has checked whether its key exists.
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
    """Returns the rows in the order in which they apply: one for each key if the last one wins, else all of them."""
    keys = definition.sort_key
    if not definition.merges_values:
        return deduplicate.reduce(rows, keys, definition.sequence_field)
    _refuse(rows, definition)
    return in_order(rows, [*keys, ORDINAL_COLUMN]) if ORDINAL_COLUMN in rows.column_names else rows


def _refuse(rows: pa.Table, definition: TableDefinition) -> None:
    """Refuses rows that the engine cannot merge. A fold would find them too late: by then they are committed."""
    if KIND_COLUMN in rows.column_names:
        spec, keys = definition.merging, definition.primary_key
        checked = rows.select([*keys, *columns_to_check(spec), KIND_COLUMN])
        effective_rows(history(checked, group_starts(checked, definition.sort_key), (), None), spec, keys)
