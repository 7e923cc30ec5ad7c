"""The changes of a table between two versions, in some of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.state import TableState
from filestore.lazily import pl
from filestore.model.rowkind import KIND_COLUMN
from filestore.reading.difference import SlotDifference, Spill, VersionPair, changed_rows, differences
from filestore.rows.fitting import adding
from filestore.rows.frames import frame_of
from filestore.sorting.runs import gathered, local_runs
from filestore.table import FileStore

__all__ = ["PIECE_BYTES", "PIECE_ROWS", "Change", "Changes", "changes_between"]

PIECE_ROWS, PIECE_BYTES = 1 << 17, 32 << 20
"""Small pieces are joined together: each look-up and each join has a cost of its own."""


@dataclass(frozen=True, slots=True)
class Change:
    """A piece of the changes from one version of a table to another.

    Attributes:
        now: The rows of the later version, in the wanted columns.
        gone: The keys that have no row any more.
    """

    now: pl.DataFrame
    gone: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes from one version of a table to another in some columns, by slot. Picklable.

    Attributes:
        pair: The versions.
        slots: The slots that differ.
    """

    pair: VersionPair
    slots: tuple[SlotDifference, ...]

    def of_bucket(self, bucket: int) -> Changes:
        """Returns the changes of one bucket."""
        return replace(self, slots=tuple(slot for slot in self.slots if slot.slot.bucket == bucket))

    def pieces(self, disk: Spill) -> Iterator[Change]:
        """Reads the changes; of a changed row that is equal in the wanted columns there is none.

        Args:
            disk: Opens a place for rows that do not fit into memory.
        """
        key = list(self.pair.after.definition.primary_key)
        for some in gathered(self.images(disk), PIECE_BYTES, PIECE_ROWS):
            rows = pa.concat_tables(some)
            adds = adding(rows)
            gone = pc.equal(rows.column(KIND_COLUMN), "-D")
            yield Change(
                frame_of(rows.filter(adds).drop_columns([KIND_COLUMN])), frame_of(rows.filter(gone).select(key))
            )

    def key_pieces(self) -> Iterator[pl.DataFrame]:
        """Reads the primary keys whose rows have changed, each in one piece."""
        key = list(self.pair.after.definition.primary_key)
        return (frame_of(rows.select(key)).unique() for rows in self.images(local_runs))

    def images(self, disk: Spill) -> Iterator[pa.Table]:
        """Reads the changed rows of both versions, with ``_kind``; see `filestore.reading.difference.changed_rows`."""
        for slot in self.slots:
            yield from changed_rows(self.pair, slot, disk)


def changes_between(store: FileStore, before: TableState, after: TableState, columns: Sequence[str]) -> Changes:
    """Plans the changes between two versions of a table, in some columns, its key among them. Reads metadata only."""
    wanted = after.definition.schema.numbered().select(columns)
    pair = VersionPair(store.table_files(before), store.table_files(after), wanted)
    return Changes(pair, tuple(differences(before, after)))
