"""Reads a few rows of a scan that are drawn at random: only the pages that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from filestore.files.row_groups import RowGroups
from filestore.files.rows_at import RowsAt
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.reading.scan import ScanPlan

__all__ = ["drawn_rows"]


def drawn_rows(table: TableFiles, plan: ScanPlan, number: int, chance: Callable[[], float]) -> Iterator[pl.DataFrame]:
    """Yields at most so many rows of the files of a plan, each with the same chance, in the order of the files.

    Deleted rows are left out, and slots with pending runs, which may have replaced any of their rows.

    Args:
        table: The table.
        plan: The plan, of which the condition is not looked at.
        number: How many positions are drawn; those of deleted rows count, and one that is drawn twice.
        chance: Returns a float in [0, 1).
    """
    replaced = {slot.slot for slot in plan.pending}
    files = [file for file in plan.files if file.slot not in replaced]
    ends = np.cumsum(np.fromiter((file.rows for file in files), np.int64, len(files)))
    total = int(ends[-1]) if len(ends) else 0
    drawn = np.unique(np.array([int(chance() * total) for _ in range(number)] if total else [], dtype=np.int64))
    numbers = np.searchsorted(ends, drawn, side="right")
    for number_of_file in np.unique(numbers).tolist():
        file = files[number_of_file]
        own = drawn[numbers == number_of_file] - (ends[number_of_file] - file.rows)
        groups = RowGroups(table, file)
        alive = np.concatenate([groups.alive(group) for group in range(len(groups))])
        yield from RowsAt(groups, own[alive[own]], plan.schema.names).frames()
