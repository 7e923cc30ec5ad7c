"""Merging the files of one slot into new ones. Memory is bounded, whatever the slot's size.

Each live key stands in one file only, so merging is reading key range by key range: up to the key with which the
first of the open row groups ends, nothing can be missing. Files that do not overlap are read one behind the other. More
than may be open at once, by what the footers say of their row groups, are merged in passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from compaction.choice import chains
from compaction.leftovers import discard
from filestore.files.parquet import ParquetReader
from filestore.files.row_groups import RowGroups
from filestore.files.writer import DataWriter, TableFiles
from filestore.model.files import DataFile, Slot
from filestore.rows.frames import arrow_table
from filestore.sorting.merge import merge_frames

__all__ = ["CompactionResult", "CompactionTask", "compact_slot", "cut"]

_OPEN_ROW_GROUPS = 16
"""How many full row groups may be held at once; smaller ones count by their rows."""
_GROUP_BYTES = 64 << 20
"""Wide rows make row groups of about so many bytes, as a write does."""

Chain = Sequence[DataFile]


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """The work in one slot: picklable, and independent of all others."""

    slot: Slot
    files: tuple[DataFile, ...]
    level: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a task did. Nothing is visible yet.

    Attributes:
        slot: The slot.
        inputs: The files that were merged, with the vectors that they had then.
        adds: What takes their place.
    """

    slot: Slot
    inputs: tuple[DataFile, ...]
    adds: tuple[DataFile, ...]


def compact_slot(table: TableFiles, files: Sequence[DataFile], level: int) -> CompactionResult:
    """Merges files of one slot into sorted files of about the target size, without their dead rows.

    After an error nothing stays.
    """
    slot = files[0].slot
    if not table.definition.primary_key:
        return CompactionResult(slot, tuple(files), _written(table, slot, level, _in_turn(table, files)))
    passing: list[DataFile] = []
    try:
        waiting = _by_rows(chains(files, table.definition))
        while len(some := _that_fit(table, waiting)) < len(waiting):
            merged = _written(table, slot, level, _merged(table, some))
            passing += merged
            waiting = _by_rows([*waiting[len(some) :], merged])
        return CompactionResult(slot, tuple(files), _written(table, slot, level, _merged(table, waiting)))
    finally:
        discard(table, passing)


def _by_rows(found: Iterable[Chain]) -> list[Chain]:
    """The small ones first: they are what several passes rewrite."""
    return sorted(found, key=lambda chain: sum(file.live_rows for file in chain))


def _that_fit(table: TableFiles, waiting: Sequence[Chain]) -> Sequence[Chain]:
    """As many of the first chains, at least two, as may be open at once."""
    room = 1.0
    for count, chain in enumerate(waiting):
        room -= max(_share(table, file) for file in chain)
        if room < 0 and count >= 2:
            return waiting[:count]
    return waiting


def _share(table: TableFiles, file: DataFile) -> float:
    """The part of the room for open row groups that the largest one of a file takes, by its rows or by its bytes."""
    options = table.definition.options
    rows, size = _OPEN_ROW_GROUPS * options["row-group.rows"], options["write-buffer-size"]
    with ParquetReader(table.storage, table.path(file.path)) as parquet:
        groups = [parquet.footer.row_group(number) for number in range(len(parquet.group_rows))]
    return float(max(max(group.num_rows / rows, group.total_byte_size / size) for group in groups))


def _written(table: TableFiles, slot: Slot, level: int, frames: Iterable[pl.DataFrame]) -> tuple[DataFile, ...]:
    schema = table.file_schema
    with DataWriter(table, slot, level) as writer:
        for frame in cut(frames, table.definition.options["row-group.rows"]):
            writer.write(arrow_table(frame, schema))
        return writer.finish()


def cut(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """The same rows in frames of that many, or of about `_GROUP_BYTES`, but for the last."""
    held: list[pl.DataFrame] = []
    held_rows = held_bytes = 0
    for frame in frames:
        held.append(frame)
        held_rows += frame.height
        held_bytes += int(frame.estimated_size())
        if held_rows < rows and held_bytes < _GROUP_BYTES:
            continue
        joined = pl.concat(held, rechunk=False)
        size = max(1, min(rows, held_rows * _GROUP_BYTES // max(held_bytes, 1)))
        whole = held_rows - held_rows % size
        yield from (joined.slice(start, size) for start in range(0, whole, size))
        rest = joined.slice(whole)
        held, held_rows, held_bytes = [rest], rest.height, int(rest.estimated_size())
    if held_rows:
        yield pl.concat(held, rechunk=False)


def _merged(table: TableFiles, found: Sequence[Chain]) -> Iterator[pl.DataFrame]:
    """The live rows of all chains in key order."""
    return merge_frames([_in_turn(table, chain) for chain in found], table.definition.sort_key)


def _in_turn(table: TableFiles, files: Iterable[DataFile]) -> Iterator[pl.DataFrame]:
    for file in files:
        yield from _live_rows(table, file)


def _live_rows(table: TableFiles, file: DataFile) -> Iterator[pl.DataFrame]:
    groups = RowGroups(table, file)
    names = table.file_schema.names
    for group in range(len(groups)):
        alive = groups.alive(group)
        if alive.any():
            yield groups.read(group, names, alive)
