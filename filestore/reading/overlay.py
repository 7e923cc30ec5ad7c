"""Reads a slot with pending runs: merges them as a fold would, without writing (FORMAT.md section 11).

With deduplicate a run is read like one more file: only keys are read to find out which rows of files and runs are
superseded, so a reader prunes columns and row groups of runs as it does of files. The engines that merge values produce
new rows, chunk by chunk, and mark the rows that those replace as deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.merge import deduplicate
from filestore.model.files import DataFile, PendingRun, Slot
from filestore.rows.fitting import putting
from filestore.rows.frames import frame_of, with_maps
from filestore.writing.fold_values import MergedChunk, merged_chunks
from filestore.writing.pending import POSITION_BITS, KeyFilter, pending_chunks
from filestore.writing.slot_lookup import SlotLookup
from filestore.writing.slot_result import MarkedRows

__all__ = [
    "MergedKeys",
    "PendingSlot",
    "SupersededRows",
    "dead_rows",
    "merged_chunks_of",
    "merged_keys",
    "merged_rows",
    "pending_slots",
    "slot_at",
]

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PendingSlot:
    """A slot: all its live files and tombstones, and its pending runs in the order in which they apply."""

    slot: Slot
    base: tuple[DataFile, ...]
    runs: tuple[PendingRun, ...]


def pending_slots(state: TableState) -> tuple[PendingSlot, ...]:
    """Returns the slots of a version that have pending runs."""
    return tuple(slot_at(state, slot) for slot in state.pending.slots)


def slot_at(state: TableState, slot: Slot) -> PendingSlot:
    """Returns a slot of a version, with pending runs or without."""
    return PendingSlot(slot, state.lookup_files(state.timestamp_ms).of(slot), state.pending.of(slot))


def dead_rows(
    table: TableFiles, pending: PendingSlot, base: Sequence[DataFile] | None = None
) -> Mapping[str, Positions]:
    """Finds the rows that runs delete in addition to the files' vectors, in a table with merge-engine = deduplicate.

    Args:
        table: The table.
        pending: The slot.
        base: The files that will be read; all of the slot if None. Without a sequence field only these are searched.

    Returns:
        Ascending positions by path, of files and of all runs. It takes their memory, and a byte for each pending row.
    """
    sequence = table.definition.sequence_field
    extra = (sequence,) if sequence else ()
    files = pending.base if sequence or base is None else base
    superseded = MarkedRows(table, files)
    lookup = SlotLookup(table, files, superseded, extra, images=False)
    alive = [np.zeros(run.rows, dtype=np.bool_) for run in pending.runs]
    for rows in pending_chunks(table, pending.slot, pending.runs, extra):
        puts = putting(rows)
        stays = puts & ~lookup.find(rows, puts).lost
        ordinals = rows.column(deduplicate.ORDINAL_COLUMN).to_numpy()[stays]
        for number, position in _by_run(ordinals):
            alive[number][position] = True
    dead = {run.path: np.flatnonzero(~rows) for run, rows in zip(pending.runs, alive, strict=True)}
    return dead | superseded.rows()


def _by_run(ordinals: Positions) -> Iterator[tuple[int, Positions]]:
    numbers = ordinals >> POSITION_BITS
    positions = ordinals & ((1 << POSITION_BITS) - 1)
    for number in np.unique(numbers).tolist():
        yield number, positions[numbers == number]


@dataclass(slots=True)
class SupersededRows:
    """The rows of files that the rows of `merged_chunks_of` replace, as far as it has been read."""

    dead: MarkedRows


def merged_chunks_of(
    table: TableFiles, pending: PendingSlot, found: SupersededRows, wanted: KeyFilter | None = None
) -> Iterator[MergedChunk]:
    """Merges runs in a table whose engine merges values: yields the merged rows of all or the wanted keys, by chunk.

    Once it is exhausted, `found` has all superseded rows of files with those keys.
    """
    chunks = pending_chunks(table, pending.slot, pending.runs, wanted=wanted)
    for chunk in merged_chunks(table, pending.base, chunks):
        chunk.mark(found.dead)
        yield chunk


def merged_rows(table: TableFiles, chunk: MergedChunk) -> pl.DataFrame:
    """Returns the merged rows of a chunk that differ from the stored ones, with the types that a scan of files has."""
    return with_maps(chunk.outcome.puts(), table.definition.schema.to_arrow())


@dataclass(frozen=True, slots=True)
class MergedKeys:
    """Keys whose rows are determined by runs, and not by the files alone.

    Attributes:
        keys: The columns of the primary key.
        rows: The rows of the keys that have one.
    """

    keys: pl.DataFrame
    rows: pl.DataFrame


def merged_keys(
    table: TableFiles, pending: PendingSlot, columns: Sequence[str], wanted: KeyFilter
) -> Iterator[MergedKeys]:
    """Merges the changes of the wanted keys. Keys whose stored row does not change are left out.

    Args:
        table: The table.
        pending: The slot.
        columns: The columns of the rows.
        wanted: The keys whose changes are merged. It takes the memory of these, and of one row group of each run.
    """
    keys, names = list(table.definition.primary_key), list(columns)
    if table.definition.merges_values:
        for chunk in merged_chunks_of(table, pending, SupersededRows(MarkedRows(table, pending.base)), wanted):
            outcome = chunk.outcome
            changed = outcome.rows.filter(outcome.changed)
            yield MergedKeys(changed.select(keys), merged_rows(table, chunk).select(names))
        return
    sequence = table.definition.sequence_field
    extra = (sequence,) if sequence else ()
    files = pending.base if sequence else ()  # without a sequence field a change always replaces the stored row
    lookup = SlotLookup(table, files, MarkedRows(table, files), extra, images=False)
    for rows in pending_chunks(table, pending.slot, pending.runs, [*keys, *columns, *extra], wanted):
        puts = putting(rows)
        wins = ~lookup.find(rows, puts).lost
        yield MergedKeys(
            frame_of(rows.select(keys)).filter(pl.Series(wins)),
            frame_of(rows.select(names)).filter(pl.Series(wins & puts)),
        )
