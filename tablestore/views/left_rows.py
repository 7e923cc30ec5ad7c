"""The changes of a table between two versions in some of its columns, and the rows of one of its buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.lookup.search import search
from filestore.model.rowkind import KIND_COLUMN
from filestore.reading.difference import SlotDifference, Spill, VersionPair, changed_rows, differences, on_local_disk
from filestore.reading.scan import plan_scan, scan_frames
from filestore.rows.fitting import adding
from filestore.rows.frames import frame_of
from filestore.sorting.runs import gathered
from filestore.table import FileStore

__all__ = ["Change", "Changes", "changed_keys", "changes_between", "rows_of"]

_PIECE_ROWS, _PIECE_BYTES = 1 << 17, 32 << 20
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
        for some in gathered(self._rows(disk), _PIECE_BYTES, _PIECE_ROWS):
            rows = pa.concat_tables(some)
            adds = adding(rows)
            gone = pc.equal(rows.column(KIND_COLUMN), "-D")
            yield Change(
                frame_of(rows.filter(adds).drop_columns([KIND_COLUMN])), frame_of(rows.filter(gone).select(key))
            )

    def key_pieces(self) -> Iterator[pl.DataFrame]:
        """Reads the primary keys whose rows have changed, each in one piece."""
        key = list(self.pair.after.definition.primary_key)
        return (frame_of(rows.select(key)).unique() for rows in self._rows(on_local_disk))

    def _rows(self, disk: Spill) -> Iterator[pa.Table]:
        for slot in self.slots:
            yield from changed_rows(self.pair, slot, disk)


def changes_between(store: FileStore, before: TableState, after: TableState, columns: Sequence[str]) -> Changes:
    """Plans the changes between two versions of a table with a key, in some of its columns. Reads metadata only."""
    wanted = after.definition.schema.numbered().select(columns)
    pair = VersionPair(store.table_files(before), store.table_files(after), wanted)
    return Changes(pair, tuple(differences(before, after)))


def changed_keys(changes: Changes, most: int) -> pl.DataFrame | None:
    """Reads the keys whose rows have changed; returns None if there are more than `most`."""
    key = list(changes.pair.after.definition.primary_key)
    pieces = [frame_of(changes.pair.after.definition.schema.select(key).to_arrow().empty_table())]
    count = 0
    for keys in changes.key_pieces():
        count += keys.height
        if count > most:
            return None
        pieces.append(keys)
    return pl.concat(pieces)


def rows_of(
    table: TableFiles, state: TableState, bucket: int, columns: Sequence[str], where: pl.Expr | None = None
) -> Iterator[pl.DataFrame]:
    """Reads some columns of the rows of one bucket.

    With a condition, which must not fail for any value, it reads those that fulfil it.
    """
    plan = plan_scan(state, columns, where)
    files = tuple(file for file in plan.files if file.slot.bucket == bucket)
    pending = tuple(slot for slot in plan.pending if slot.slot.bucket == bucket)
    if where is None or plan.keys is not None:
        return _joined_together(scan_frames(table, replace(plan, files=files, pending=pending)))
    merged = {slot.slot for slot in pending}
    overlaid = replace(plan, files=tuple(file for file in files if file.slot in merged), pending=pending)
    found = search(table, (file for file in files if file.slot not in merged), where, columns, _PIECE_ROWS)
    return _joined_together(chain(scan_frames(table, overlaid), found))


def _joined_together(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    held: list[pl.DataFrame] = []
    for frame in frames:
        held.append(frame)
        if sum(some.height for some in held) >= _PIECE_ROWS or sum(f.estimated_size() for f in held) >= _PIECE_BYTES:
            yield pl.concat(held)
            held = []
    if held:
        yield pl.concat(held)
