"""The rows of a slot in one version, as places in files; runs that are pending are merged as our readers merge them.

With deduplicate a run is one more file, of which some rows are dead; the engines that merge values give new rows, which
are put away as a sorted run on a local disk: what they replace is known only when all are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from filestore.delta.vectors import positions
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile
from filestore.reading.overlay import Overlaid, PendingSlot, dead_rows, merged_chunks_of
from filestore.sorting.runs import RunFiles
from filestore.writing.slot_result import Dying

__all__ = ["SlotView", "slot_view"]

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SlotView:
    """What a version has of a slot.

    Attributes:
        table: The table in that version.
        files: By path; pending runs among them where their rows are read as they stand.
        killed: By path, what the pending runs kill beyond the files' vectors; ascending positions.
        merged: A run with the rows that merging the pending ones gives; None without any.
    """

    table: TableFiles
    files: Mapping[str, DataFile]
    killed: Mapping[str, Positions] = field(default_factory=dict)
    merged: str | None = None

    def dead(self, file: DataFile) -> Positions:
        """All dead rows of a file, by ascending position."""
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
    """What a version has of a slot.

    Memory: that of an overlay: the positions of what dies, and a chunk.

    Args:
        table: The table in that version.
        files: The files to look at; all of the slot if it has pending runs.
        pending: Its pending runs, if it has any.
        disk: Where merged rows may be put away; asked only if there are any.
        shaped: Makes rows of the table what is put away.
    """
    by_path = {file.path: file for file in files}
    if pending is None:
        return SlotView(table, by_path)
    if not table.definition.merges_values:
        runs = {run.path: run.as_file() for run in pending.runs}
        return SlotView(table, by_path | runs, dead_rows(table, pending))
    found = Overlaid(Dying(table, pending.base))
    rows = _merged(table, pending, found, shaped)
    first = next(rows, None)
    run = None if first is None else disk().put(chain([first], rows))
    return SlotView(table, by_path, found.dead.rows(), run)


def _merged(
    table: TableFiles, pending: PendingSlot, found: Overlaid, shaped: Callable[[pl.DataFrame], pa.Table]
) -> Iterator[pa.Table]:
    names = table.definition.schema.names
    for chunk in merged_chunks_of(table, pending, found):
        rows = chunk.outcome.puts()
        if rows.height:
            yield shaped(rows.select(names))
