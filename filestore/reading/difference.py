"""Computes the difference between two versions from their files, vectors and pending runs, slot by slot.

Files that both versions have with the same deleted rows are not read. From the others, rows that only one version has
are merged in key order: a key on both sides is an update, or no change if its row is equal, as after a compaction. A
slot with pending runs has the rows that our readers see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.delta.by_slot import BySlot
from filestore.delta.state import TableState
from filestore.files.row_groups import RowGroups
from filestore.files.rows_at import RowsAt
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.model.files import DataFile, Slot
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.reading.overlay import PendingSlot, slot_at
from filestore.reading.slot_view import SlotView, slot_view
from filestore.rows.equality import same_rows
from filestore.rows.frames import arrow_table, frame_of, larger_frames
from filestore.rows.keys import Key, changes, decode_key
from filestore.rows.reshape import reshaped
from filestore.sorting.chunks import whole_keys
from filestore.sorting.merge import merge
from filestore.sorting.runs import RunFiles

__all__ = [
    "SlotDifference",
    "Spill",
    "VersionPair",
    "changed_rows",
    "differences",
    "file_differences",
]

Spill = Callable[[], AbstractContextManager[RunFiles]]
"""Opens a place for sorted runs; the end of its context removes them."""

_OPEN_ROW_GROUPS = 16
_PIECE_ROWS, _PIECE_BYTES = 1 << 16, 16 << 20
_SIDE = "_side"
_KINDS = tuple(str(kind) for kind in (RowKind.DELETE, RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER))


@dataclass(frozen=True, slots=True)
class SlotDifference:
    """The files and runs of a slot that differs between two versions. Picklable.

    Attributes:
        slot: The slot.
        before: Files that the later version lacks or has with other deleted rows; all files if there are pending runs.
        after: Files that the earlier version lacks or has with other deleted rows; all files if there are pending runs.
        pending: The pending runs of the earlier version and of the later one.
    """

    slot: Slot
    before: tuple[DataFile, ...]
    after: tuple[DataFile, ...]
    pending: tuple[PendingSlot | None, PendingSlot | None] = (None, None)

    @property
    def most_rows(self) -> int:
        """The largest possible number of changes; an update counts as two."""
        files = ({file.path: file for file in side} for side in (self.before, self.after))
        old, new = files
        shared = old.keys() & new.keys()
        rows = sum(file.live_rows for side in (old, new) for path, file in side.items() if path not in shared)
        rows += sum(abs(old[path].live_rows - new[path].live_rows) for path in shared)
        runs = ({run for run in slot.runs} if slot else set() for slot in self.pending)
        return rows + 2 * sum(run.rows for run in set.symmetric_difference(*runs))


def differences(before: TableState, after: TableState) -> list[SlotDifference]:
    """Returns the slots whose rows may differ between two versions of a table, in either order. Pure."""
    found = {difference.slot: difference for difference in file_differences(before.files, after.files)}
    same_rules = before.definition == after.definition
    for slot in {*before.pending.slots, *after.pending.slots}:
        old, new = (slot_at(state, slot) if state.pending.of(slot) else None for state in (before, after))
        if slot in found or not (same_rules and _same(old, new)):
            found[slot] = SlotDifference(slot, before.files.of(slot), after.files.of(slot), (old, new))
    return list(found.values())


def file_differences(before: BySlot[DataFile], after: BySlot[DataFile]) -> list[SlotDifference]:
    """Returns the slots whose files differ, as for readers that ignore runs. Pure."""
    found = []
    for slot in before.differing(after):
        gone, come = (
            tuple(f for f in here.of(slot) if (other := there.current(f)) is None or other.vector != f.vector)
            for here, there in ((before, after), (after, before))
        )
        if gone or come:
            found.append(SlotDifference(slot, gone, come))
    return found


def _same(old: PendingSlot | None, new: PendingSlot | None) -> bool:
    """Returns whether the runs apply to the same base: the same files and tombstones."""
    return old is not None and new is not None and old.runs == new.runs and set(old.base) == set(new.base)


@dataclass(frozen=True, slots=True)
class VersionPair:
    """Two versions of a table, and the columns in which their rows are compared. Picklable.

    Attributes:
        before: The earlier version.
        after: The later version.
        wanted: The columns; a column that a version lacks is null in its rows.
    """

    before: TableFiles
    after: TableFiles
    wanted: Schema


def changed_rows(compared: VersionPair, difference: SlotDifference, spill: Spill) -> Iterator[pa.Table]:
    """Yields the changes from one version's rows to the other's, with `KIND_COLUMN`; each -U is before its +U.

    With a key they are in key order. Without a key rows are not compared: those of removed files are deletes (``-D``),
    those of added files inserts (``+I``), so a compaction shows as both. It takes the memory of a row group for each
    chain of files that overlap, of which at most `_OPEN_ROW_GROUPS` are open; more are written as small runs to a local
    disk first. Pending runs take the memory of an overlay (`filestore.reading.overlay`).

    Args:
        compared: The versions, which have the same key.
        difference: The slot to read.
        spill: Opens a place for runs.

    Raises:
        NotFound: a file of the earlier version was removed after the version expired.
        Unsupported: ``schema-changed``: a value does not fit the wanted columns, which are those of an older version.
    """
    with ExitStack() as stack:
        disk = cache(lambda: stack.enter_context(spill()))
        before = _view(compared, 0, difference.before, difference.pending[0], disk)
        after = _view(compared, 1, difference.after, difference.pending[1], disk)
        sources = _sources(compared.wanted, before, after)
        keys = compared.after.definition.sort_key
        if not keys:
            for source in sorted(sources, key=lambda s: s.side):
                for rows in source.rows():
                    yield _with_kinds(rows, np.full(rows.num_rows, source.side))
            return
        merged = [run for run in (before.merged, after.merged) if run is not None]
        for piece in whole_keys(_in_order(_chains(sources), merged, [*keys, _SIDE], disk), keys):
            yield from _changes(piece, keys)


def _view(
    compared: VersionPair,
    side: int,
    files: Sequence[DataFile],
    pending: PendingSlot | None,
    disk: Callable[[], RunFiles],
) -> SlotView:
    table = (compared.before, compared.after)[side]
    return slot_view(table, files, pending, disk, lambda frame: _shaped(frame, table, compared.wanted, side))


def _in_order(
    chains: Sequence[Sequence[_Source]], merged: Sequence[str], by: Sequence[str], disk: Callable[[], RunFiles]
) -> Iterator[pa.Table]:
    """Merges the rows of all chains of files, and of runs that are on the disk already."""
    if len(chains) + len(merged) > _OPEN_ROW_GROUPS:
        files = disk()
        runs = [files.put(rows) for some in chains for rows in _unless_empty(_rows_of(some))]
        yield from (pa.Table.from_batches([batch]) for batch in files.merged([*runs, *merged], by))
        return
    yield from merge([*map(_rows_of, chains), *(disk().read(run) for run in merged)], by)


def _unless_empty(rows: Iterator[pa.Table]) -> Iterator[Iterator[pa.Table]]:
    first = next(rows, None)
    if first is not None:
        yield chain([first], rows)


# ---------------------------------------------------------------------------------------------- rows of one version


@dataclass(frozen=True, slots=True)
class _Source:
    """Rows of a file that one version has and the other lacks: all live ones, or those at some positions."""

    view: SlotView
    wanted: Schema
    file: DataFile
    side: int
    positions: npt.NDArray[np.int64] | None

    def rows(self) -> Iterator[pa.Table]:
        for frame in self._frames(_read_columns(self.view.table.definition.schema, self.wanted)):
            yield _shaped(frame, self.view.table, self.wanted, self.side)

    def _frames(self, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        groups = RowGroups(self.view.table, self.file, self.view.killed.get(self.file.path))
        if self.positions is not None:  # often few of each row group
            yield from larger_frames(RowsAt(groups, self.positions, names).frames(), _PIECE_ROWS, _PIECE_BYTES)
            return
        for group in range(len(groups)):
            alive = groups.alive(group)
            if alive.any():
                yield groups.read(group, names, alive)


def _read_columns(written: Schema, wanted: Schema) -> list[str]:
    """Returns the columns of a version that become the wanted ones; at least one, so that rows can be counted."""
    ids = {column.id for column in wanted.numbered()}
    return [column.name for column in written.numbered() if column.id in ids] or list(written.names[:1])


def _shaped(frame: pl.DataFrame, table: TableFiles, wanted: Schema, side: int) -> pa.Table:
    """Converts rows of one version to the wanted columns, and adds the side of the version."""
    written = table.definition.schema.numbered().select(frame.columns)
    rows = reshaped(arrow_table(frame, _nullable(written)), written, wanted)
    rows = pa.table(rows.columns, schema=_nullable(wanted))
    return rows.append_column(_SIDE, pa.array(np.full(rows.num_rows, side, dtype=np.int8)))


def _nullable(schema: Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema.to_arrow()])


def _sources(wanted: Schema, before: SlotView, after: SlotView) -> list[_Source]:
    found = []
    for side, here, there in ((0, before, after), (1, after, before)):
        for path, file in here.files.items():
            if (other := there.files.get(path)) is None:
                found.append(_Source(here, wanted, file, side, None))
            elif len(alive := np.setdiff1d(there.dead(other), here.dead(file), assume_unique=True)):
                found.append(_Source(here, wanted, file, side, alive))
    return found


def _chains(sources: Iterable[_Source]) -> list[list[_Source]]:
    """Groups sources of one side without overlapping keys into chains: of each only one file is open at a time."""
    chains: list[tuple[int, Key, list[_Source]]] = []
    bounds = ((_bounds(source.file, source.view.table), source) for source in sources)
    for (low, high), source in sorted(bounds, key=lambda pair: pair[0][0]):
        for number, (side, last, files) in enumerate(chains):
            if side == source.side and last < low:
                chains[number] = (side, high, [*files, source])
                break
        else:
            chains.append((source.side, high, [source]))
    return [files for _, _, files in chains]


def _bounds(file: DataFile, table: TableFiles) -> tuple[Key, Key]:
    types = [table.definition.schema.column(name).type for name in table.definition.sort_key]
    assert file.min_key is not None, f"{file.path} of a table with a key has no key tags"
    assert file.max_key is not None, f"{file.path} of a table with a key has no key tags"
    return decode_key(file.min_key, types), decode_key(file.max_key, types)


def _rows_of(sources: Iterable[_Source]) -> Iterator[pa.Table]:
    return chain.from_iterable(source.rows() for source in sources)


# ---------------------------------------------------------------------------------------------- rows of both


def _changes(rows: pa.Table, keys: Sequence[str]) -> Iterator[pa.Table]:
    """Turns the rows of whole keys, each with its row before and after, into changes."""
    paired = ~changes(rows, keys)
    first, second = np.append(paired, False), np.append(False, paired)
    kinds = rows.column(_SIDE).to_numpy().astype(np.int64)
    kinds[first | second] += 2
    wanted = np.ones(rows.num_rows, dtype=np.bool_)
    if paired.any():
        values = frame_of(rows.drop_columns([_SIDE]))
        before, after = values.filter(pl.Series(first)), values.filter(pl.Series(second))
        same = same_rows(before, after)
        wanted[np.flatnonzero(first)[same]] = False
        wanted[np.flatnonzero(second)[same]] = False
    if wanted.any():
        changed = _with_kinds(rows, kinds)
        yield changed if wanted.all() else changed.filter(pa.array(wanted))


def _with_kinds(rows: pa.Table, kinds: npt.NDArray[np.int64]) -> pa.Table:
    return rows.drop_columns([_SIDE]).append_column(KIND_COLUMN, pa.array(_KINDS).take(pa.array(kinds)))
