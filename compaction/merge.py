"""Merges the files of one slot into new ones. Memory is bounded for slots of any size.

Each key has a live row in one file only, so key ranges are merged one after the other: keys up to the smallest last
key of the open row groups are complete. Files that do not overlap are read one after the other. More files than may be
open at once, by the sizes of row groups in their footers, are merged in passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from compaction.choice import chains
from filestore.files.leftovers import discard
from filestore.files.parquet import ParquetReader
from filestore.files.row_groups import RowGroups
from filestore.files.writer import DataWriter, TableFiles
from filestore.lazily import pl
from filestore.model.files import DataFile, Slot
from filestore.progress import Counter
from filestore.rows.frames import arrow_table, row_group_frames
from filestore.sorting.merge import merge_frames

__all__ = ["CompactionResult", "CompactionTask", "compact_slot"]

_OPEN_ROW_GROUPS = 16
"""The number of full row groups that may be open at once; smaller ones count in proportion to their rows."""


Chain = Sequence[DataFile]


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """The work in one slot: picklable, and independent of all other tasks."""

    slot: Slot
    files: tuple[DataFile, ...]
    level: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a task. Readers do not see it until it is committed.

    Attributes:
        slot: The slot.
        inputs: The merged files, with the deletion vectors that they had then.
        adds: The files that replace them.
    """

    slot: Slot
    inputs: tuple[DataFile, ...]
    adds: tuple[DataFile, ...]


def compact_slot(
    table: TableFiles, files: Sequence[DataFile], level: int, merging: Counter | None = None
) -> CompactionResult:
    """Merges files of one slot into sorted files of about the target size, without their deleted rows.

    After an error no new file is left. `merging` counts the rows of the result.
    """
    slot = files[0].slot
    if not table.definition.primary_key:
        return CompactionResult(slot, tuple(files), _written(table, slot, level, _in_turn(table, files), merging))
    passing: list[DataFile] = []
    try:
        waiting = _by_rows(chains(files, table.definition))
        while len(some := _that_fit(table, waiting)) < len(waiting):
            merged = _written(table, slot, level, _merged(table, some))
            passing += merged
            waiting = _by_rows([*waiting[len(some) :], merged])
        return CompactionResult(slot, tuple(files), _written(table, slot, level, _merged(table, waiting), merging))
    finally:
        discard(table, passing)


def _by_rows(found: Iterable[Chain]) -> list[Chain]:
    """Sorts the small chains first, since several passes rewrite the first ones."""
    return sorted(found, key=lambda chain: sum(file.live_rows for file in chain))


def _that_fit(table: TableFiles, waiting: Sequence[Chain]) -> Sequence[Chain]:
    """Returns as many of the first chains, at least two, as may be open at once."""
    room = 1.0
    for count, chain in enumerate(waiting):
        room -= max(_share(table, file) for file in chain)
        if room < 0 and count >= 2:
            return waiting[:count]
    return waiting


def _share(table: TableFiles, file: DataFile) -> float:
    """The share of the limit for open row groups that a file's largest one takes, by its rows or by its bytes."""
    options = table.definition.options
    rows, size = _OPEN_ROW_GROUPS * options["row-group.rows"], options["write-buffer-size"]
    with ParquetReader(table.storage, table.path(file.path)) as parquet:
        groups = [parquet.footer.row_group(number) for number in range(len(parquet.group_rows))]
    return float(max(max(group.num_rows / rows, group.total_byte_size / size) for group in groups))


def _written(
    table: TableFiles, slot: Slot, level: int, frames: Iterable[pl.DataFrame], counter: Counter | None = None
) -> tuple[DataFile, ...]:
    schema = table.file_schema
    with DataWriter(table, slot, level) as writer:
        for frame in row_group_frames(frames, table.definition.options["row-group.rows"]):
            writer.write(arrow_table(frame, schema))
            if counter is not None:
                counter.add(frame.height)
        return writer.finish()


def _merged(table: TableFiles, found: Sequence[Chain]) -> Iterator[pl.DataFrame]:
    """Yields the live rows of all chains in key order."""
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
