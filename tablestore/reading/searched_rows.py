"""The rows of a plan, by a search for its condition where that is faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.lookup.search import search
from filestore.reading.scan import ScanPlan, scan_frames
from filestore.rows.frames import larger_frames
from tablestore.reading.version_changes import PIECE_BYTES, PIECE_ROWS

__all__ = ["rows_of"]


def rows_of(table: TableFiles, plan: ScanPlan, where: pl.Expr | None = None) -> Iterator[pl.DataFrame]:
    """Reads the rows of a plan, in pieces that are worth a look-up.

    Args:
        table: The table.
        plan: The plan.
        where: Its condition, if it has one, which must not fail for any value: the column is searched for it first.
    """
    if where is None or plan.keys is not None:
        return larger_frames(scan_frames(table, plan), PIECE_ROWS, PIECE_BYTES)
    merged = {slot.slot for slot in plan.pending}
    overlaid = replace(plan, files=tuple(file for file in plan.files if file.slot in merged))
    found = search(
        table, (file for file in plan.files if file.slot not in merged), where, plan.schema.names, PIECE_ROWS
    )
    return larger_frames(chain(scan_frames(table, overlaid), found), PIECE_ROWS, PIECE_BYTES)
