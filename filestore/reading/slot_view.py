"""Finds the rows of a slot in one version as positions in files; it merges pending runs as our readers do.

With deduplicate a run is one more file with some deleted rows. The engines that merge values produce new rows, which
are written as a sorted run to a local disk: the rows that they replace are known only after all have been merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.delta.vectors import positions
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.model.files import DataFile
from filestore.reading.overlay import PendingSlot, SupersededRows, dead_rows, merged_chunks_of
from filestore.sorting.runs import RunFiles
from filestore.writing.slot_result import MarkedRows

__all__ = ["SlotView", "slot_view"]

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SlotView:
    """The rows of a slot in one version.

    Attributes:
        table: The table in that version.
        files: The files by path; also pending runs, where their rows are read as they are.
        killed: By path the rows that pending runs delete in addition to the files' vectors; ascending positions.
        merged: A run with the merged rows of pending runs; None if there are none.
    """

    table: TableFiles
    files: Mapping[str, DataFile]
    killed: Mapping[str, Positions] = field(default_factory=dict)
    merged: str | None = None

    def dead(self, file: DataFile) -> Positions:
        """The ascending positions of all deleted rows of a file."""
        dead = positions(self.table.storage, self.table.location, file.vector).astype(np.int64)
        killed = self.killed.get(file.path)
        return dead if killed is None else np.union1d(dead, killed)


def slot_view(
    table: TableFiles,
    files: Sequence[DataFile],
    pending: PendingSlot | None,
    disk: Callable[[], RunFiles],
    shaped: Callable[[pl.DataFrame], pa.Table],
) -> SlotView:
    """Determines the rows of a slot in one version.

    It takes the memory of an overlay: the positions of deleted rows, and a chunk.

    Args:
        table: The table in that version.
        files: The files to consider; all of the slot if it has pending runs.
        pending: Its pending runs, if it has any.
        disk: Opens the place for merged rows; called only if there are any.
        shaped: Converts merged rows to those of the run.
    """
    by_path = {file.path: file for file in files}
    if pending is None:
        return SlotView(table, by_path)
    if not table.definition.merges_values:
        runs = {run.path: run.as_file() for run in pending.runs}
        return SlotView(table, by_path | runs, dead_rows(table, pending))
    found = SupersededRows(MarkedRows(table, pending.base))
    rows = _merged(table, pending, found, shaped)
    first = next(rows, None)
    run = None if first is None else disk().put(chain([first], rows))
    return SlotView(table, by_path, found.dead.rows(), run)


def _merged(
    table: TableFiles, pending: PendingSlot, found: SupersededRows, shaped: Callable[[pl.DataFrame], pa.Table]
) -> Iterator[pa.Table]:
    names = table.definition.schema.names
    for chunk in merged_chunks_of(table, pending, found):
        rows = chunk.outcome.puts()
        if rows.height:
            yield shaped(rows.select(names))
