"""Records what the rows of a fold change: in its change data, and in the log (FORMAT.md section 13)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.changelog.arrived import Arrived
from filestore.changelog.files import ChangeWriter
from filestore.changelog.images import as_log_changes
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.files import Slot
from filestore.rows.fitting import named_kinds
from filestore.writing.slot_lookup import Found
from filestore.writing.slot_result import ChangeSink

__all__ = ["Recording"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Recording:
    """Records the changes of one slot.

    Attributes:
        definition: The table's definition.
        slot: The slot.
        producer: Which changes are written as change data.
        changes: Takes them.
        log: Takes the accepted changes; None for a table without a log.
    """

    definition: TableDefinition
    slot: Slot
    producer: ChangelogProducer
    changes: ChangeWriter
    log: ChangeSink | None

    @property
    def reads_old(self) -> bool:
        """Returns whether the stored row of every changed key has to be read."""
        return self.producer.images or (self.log is not None and self.definition.logs_images)

    def arrived(self, chunk: pa.Table) -> Arrived | None:
        """Returns the rows of a chunk as they arrived, if these are what is recorded."""
        return Arrived.of(chunk, self.definition) if self.producer is ChangelogProducer.INPUT else None

    def write(self, arrived: Arrived | None, rows: pa.Table, puts: Mask, found: Found) -> None:
        """Records the changes of a chunk.

        Args:
            arrived: Its rows as they arrived, or None.
            rows: The row of each key that counts.
            puts: Which of them are puts.
            found: The result of their look-up.
        """
        if arrived is not None:
            self._write_arrived(arrived, rows, puts, found)
            return
        images = found.images(rows, puts, self.definition) if self.reads_old else rows.slice(0, 0)
        if self.producer.images:
            self.changes.write(images)
        if self.log is None:
            return
        if self.definition.logs_images:
            self.log(self.slot, found.log_changes(images, puts))
        else:
            self._log_upserts(rows, found)

    def _write_arrived(self, arrived: Arrived, rows: pa.Table, puts: Mask, found: Found) -> None:
        asked = arrived.incomplete
        part, part_puts = found.only(asked), puts[asked]
        images = part.images(rows.filter(pa.array(asked)), part_puts, self.definition)
        changes = arrived.changes(images, np.flatnonzero(asked)[part.places(part_puts)], self.definition)
        self.changes.write(changes)
        if self.log is None:
            return
        if self.definition.logs_input:
            self.log(self.slot, as_log_changes(changes))
        else:
            self._log_upserts(rows, found)

    def _log_upserts(self, rows: pa.Table, found: Found) -> None:
        assert self.log is not None
        won = ~found.lost
        rows = named_kinds(rows, found.known)
        self.log(self.slot, rows if won.all() else rows.filter(pa.array(won)))
