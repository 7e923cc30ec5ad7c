"""Merging the files of one slot into new ones. Memory is bounded, whatever the slot's size.

Each live key stands in one file only, so merging is reading key range by key range: up to the key with which the
first of the open row groups ends, nothing can be missing. More runs than may be open at once are merged in passes.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from compaction.choice import Run, sorted_runs
from filestore.frames import arrow_table
from filestore.keys import Key, decode_key
from filestore.model.files import DataFile, Slot
from filestore.parquet import ParquetReader
from filestore.row_groups import RowGroups
from filestore.writer import DataWriter, TableFiles

__all__ = ["CompactionResult", "CompactionTask", "compact_slot"]

_OPEN_ROW_GROUPS = 16
"""How many full row groups may be held at once; smaller ones count by their rows."""


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
    """Merges files of one slot into sorted files of about the target size, without their dead rows."""
    slot = files[0].slot
    if not table.definition.primary_key:
        rows = (frame for file in files for frame in _live_rows(table, file))
        return CompactionResult(slot, tuple(files), _written(table, slot, level, rows))
    passing: list[DataFile] = []
    try:
        runs = _by_rows(sorted_runs(files, table.definition))
        while len(some := _that_fit(table, runs)) < len(runs):
            merged = _written(table, slot, level, _merged(table, some))
            passing += merged
            runs = _by_rows([*runs[len(some) :], merged])
        return CompactionResult(slot, tuple(files), _written(table, slot, level, _merged(table, runs)))
    finally:
        for file in passing:
            table.storage.delete(table.path(file.path))


def _by_rows(runs: Iterable[Run]) -> list[Run]:
    """The small ones first: they are what several passes rewrite."""
    return sorted(runs, key=lambda run: sum(file.live_rows for file in run))


def _that_fit(table: TableFiles, runs: Sequence[Run]) -> Sequence[Run]:
    """As many of the first runs, at least two, as may be open at once."""
    room = _OPEN_ROW_GROUPS * int(table.definition.options["row-group.rows"])
    for count, run in enumerate(runs):
        room -= max(_largest_group(table, file) for file in run)
        if room < 0 and count >= 2:
            return runs[:count]
    return runs


def _largest_group(table: TableFiles, file: DataFile) -> int:
    with ParquetReader(table.storage, table.path(file.path)) as parquet:
        return max(parquet.group_rows)


def _written(table: TableFiles, slot: Slot, level: int, frames: Iterable[pl.DataFrame]) -> Run:
    schema = table.file_schema
    with DataWriter(table, slot, level) as writer:
        for frame in _cut(frames, table.definition.options["row-group.rows"]):
            writer.write(arrow_table(frame, schema))
        return writer.finish()


def _cut(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """The same rows in frames of that many, but for the last."""
    held: list[pl.DataFrame] = []
    held_rows = 0
    for frame in frames:
        held.append(frame)
        held_rows += frame.height
        if held_rows >= rows:
            joined = pl.concat(held, rechunk=False)
            whole = held_rows - held_rows % rows
            yield from (joined.slice(start, rows) for start in range(0, whole, rows))
            held, held_rows = [joined.slice(whole)], held_rows - whole
    if held_rows:
        yield pl.concat(held, rechunk=False)


def _live_rows(table: TableFiles, file: DataFile) -> Iterator[pl.DataFrame]:
    groups = RowGroups(table, file)
    names = table.file_schema.names
    for group in range(len(groups)):
        alive = groups.alive(group)
        if alive.any():
            yield groups.read(group, names, alive)


# ---------------------------------------------------------------------------------------------- key range by key range


@dataclass(slots=True)
class _Source:
    """A run that is being read: the rest of one row group, and what comes behind it."""

    keys: Sequence[str]
    coming: Iterator[pl.DataFrame]
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    ended: bool = False

    def fill(self) -> bool:
        """Reads on if nothing is held; whether there are rows now."""
        if not self.rows.height and not self.ended:
            following = next(self.coming, None)
            self.ended = following is None
            self.rows = self.rows if following is None else following
        return self.rows.height > 0

    @property
    def last(self) -> Key:
        """The last key that is held."""
        return self.rows.select(self.keys).row(-1)

    def take(self, key: Key) -> pl.DataFrame:
        """The rows up to a key, which are held no longer."""
        keys = self.rows.select(self.keys)
        count = bisect.bisect_right(range(keys.height), key, key=keys.row)
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return taken


def _merged(table: TableFiles, runs: Sequence[Run]) -> Iterator[pl.DataFrame]:
    """The live rows of runs in key order. A run is opened when its first key is reached."""
    keys = table.definition.sort_key
    types = [table.definition.schema.column(name).type for name in keys]
    waiting = sorted(((decode_key(run[0].min_key or "", types), run) for run in runs), key=lambda pair: pair[0])
    waiting.reverse()
    sources: list[_Source] = []
    while True:
        sources = [source for source in sources if source.fill()]
        if not sources and not waiting:
            return
        reach = min((source.last for source in sources), default=None)
        if waiting and (reach is None or waiting[-1][0] <= reach):
            sources.append(_opened(table, waiting.pop()[1], keys))
            continue
        assert reach is not None
        parts = [part for source in sources if (part := source.take(reach)).height]
        yield parts[0] if len(parts) == 1 else pl.concat(parts, rechunk=False).sort(keys)


def _opened(table: TableFiles, run: Run, keys: Sequence[str]) -> _Source:
    return _Source(keys, (frame for file in run for frame in _live_rows(table, file)))
