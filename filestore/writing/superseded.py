"""Finds the stored rows that a write replaces or deletes, to see whether others changed them since it read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from filestore.delta.vectors import positions
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile
from filestore.writing.slot_result import SlotResult

__all__ = ["same_rows", "superseded_rows"]

Rows = Mapping[str, npt.NDArray[np.uint64]]
"""Positions of rows by file, ascending."""


def superseded_rows(table: TableFiles, base: Sequence[DataFile], result: SlotResult) -> Rows:
    """Returns the rows of a slot's files that the write marks as dead.

    Args:
        table: The table.
        base: The slot's live files in the version on which the result was computed.
        result: The result.
    """
    before = {file.path: file for file in base}
    found = {}
    for file in result.vectors:
        found[file.path] = np.setdiff1d(
            positions(table.storage, table.location, file.vector),
            positions(table.storage, table.location, before[file.path].vector),
            assume_unique=True,
        )
    for removed in result.removes:
        file = before[removed.path]
        dead = positions(table.storage, table.location, file.vector)
        found[file.path] = np.setdiff1d(np.arange(file.rows, dtype=np.uint64), dead, assume_unique=True)
    return found


def same_rows(one: Rows, other: Rows) -> bool:
    """Returns whether both are the same rows; one that was written again, as by a compaction, is another. Pure."""
    return one.keys() == other.keys() and all(np.array_equal(one[path], other[path]) for path in one)
