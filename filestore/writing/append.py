"""Writes with merge-on-read: one pending run for each slot; looks no key up without need (FORMAT.md section 11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from filestore.files.writer import TableFiles
from filestore.lookup.file_lookup import FileLookup
from filestore.merge import deduplicate
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.merge.fieldwise import columns_to_check, effective_rows
from filestore.merge.history import group_starts, history
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, PendingRun, Slot
from filestore.model.rowkind import KIND_COLUMN
from filestore.rows.fitting import named_kinds, putting
from filestore.sorting.order import in_order
from filestore.writing.pending import PendingRunWriter
from filestore.writing.slot_lookup import SlotLookup
from filestore.writing.slot_result import ChangeSink, MarkedRows, SlotResult

__all__ = ["StoredSequences", "append"]


class StoredSequences:
    """The sequences of a slot with which a conditional write compares its own: it is refused if a row would be late.

    Other writes need not know whether a row is late, so only conditional ones look their keys up.

    Args:
        table: The table, with merge-engine = deduplicate and a sequence field.
        base: The slot's live files, and its tombstones.
        runs: Its pending runs.
    """

    def __init__(self, table: TableFiles, base: Sequence[DataFile], runs: Sequence[PendingRun]) -> None:
        assert table.definition.sequence_field is not None
        self._sequence = table.definition.sequence_field
        self._folded = SlotLookup(table, base, MarkedRows(table, base), [self._sequence], images=False)
        self._pending = [FileLookup(table, run.as_file(), [self._sequence]) for run in runs]

    def late(self, rows: pa.Table) -> int:
        """Counts the rows of a chunk with a lower sequence than a row or a delete of their key; chunks ascend."""
        lost = self._folded.find(rows, putting(rows)).lost
        for run in self._pending:
            for match in run.find(rows):
                assert match.values is not None
                own = rows.column(self._sequence).take(pa.array(match.probes))
                lost[match.probes[~deduplicate.beats(own, match.values.column(self._sequence))]] = True
        return int(lost.sum())


def append(
    table: TableFiles,
    slot: Slot,
    chunks: Iterable[pa.Table],
    log: ChangeSink | None = None,
    stored: StoredSequences | None = None,
) -> SlotResult:
    """Writes sorted rows as a pending run; for other arguments and errors see `filestore.writing.fold.fold`.

    A put without a row kind becomes a ``+U``, since nothing has checked whether its key exists. Late rows are counted
    if the stored sequences are given.
    """
    definition = table.definition
    written = deleted = late = 0
    with PendingRunWriter(table, slot) as writer:
        for chunk in chunks:
            rows = _applied(chunk, definition)
            rows = named_kinds(rows, np.ones(rows.num_rows, dtype=np.bool_))
            writer.write(rows)
            puts = putting(rows)
            written += int(puts.sum())
            deleted += int((~puts).sum())
            late += 0 if stored is None else stored.late(rows)
            if log is not None:
                log(slot, rows)
        return SlotResult(slot, runs=writer.finish(), rows_written=written, rows_deleted=deleted, rows_late=late)


def _applied(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Returns the rows in the order in which they apply, if several of a key do."""
    if not definition.merges_values:
        return rows
    _refuse(rows, definition)
    by = [*definition.sort_key, ORDINAL_COLUMN]
    return in_order(rows, by) if ORDINAL_COLUMN in rows.column_names else rows


def _refuse(rows: pa.Table, definition: TableDefinition) -> None:
    """Refuses rows that the engine cannot merge. A fold would find them too late: by then they are committed."""
    if KIND_COLUMN in rows.column_names:
        spec, keys = definition.merging, definition.primary_key
        checked = rows.select([*keys, *columns_to_check(spec), KIND_COLUMN])
        effective_rows(history(checked, group_starts(checked, definition.sort_key), (), None), spec, keys)
