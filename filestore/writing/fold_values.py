"""Merges rows into a slot for the engines whose result depends on the stored row (FORMAT.md section 10).

For each chunk it looks the keys up, reads the stored rows, merges them with the changes, writes the merged rows that
differ from the stored ones, marks those that they replace, and sends the new rows to the log. A reader that applies
the log by key gets the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.changelog.arrived import Arrived
from filestore.changelog.files import ChangeWriter
from filestore.changelog.images import change_schema, images, log_changes
from filestore.errors import InvalidRequest
from filestore.files.writer import DataWriter, TableFiles
from filestore.lazily import pl
from filestore.lookup.file_lookup import FileLookup
from filestore.merge.first_row import first_rows
from filestore.merge.history import GROUP, STORED, History, Stored, group_starts, history
from filestore.merge.in_turn import merge_history
from filestore.merge.out_of_range import named_key
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Slot
from filestore.model.merging import MergeEngine
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.equality import same_rows
from filestore.rows.frames import arrow_table
from filestore.writing.deleted_keys import DeletedKeysWriter
from filestore.writing.slot_result import ChangeSink, MarkedRows, SlotResult, Tally, with_vectors

__all__ = ["MergedChunk", "Outcome", "fold_values", "merged_chunks", "whole_rows"]

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def fold_values(
    table: TableFiles,
    slot: Slot,
    base: Sequence[DataFile],
    chunks: Iterable[pa.Table],
    log: ChangeSink | None = None,
    producer: ChangelogProducer = ChangelogProducer.NONE,
) -> SlotResult:
    """Merges sorted rows into a slot; for arguments and errors see `filestore.writing.fold.fold`."""
    definition = table.definition
    superseded, tally = MarkedRows(table, base), Tally()
    with (
        DataWriter(table, slot) as writer,
        DeletedKeysWriter(table, slot) as deletes,
        ChangeWriter(table, slot) as changes,
    ):
        for chunk in merged_chunks(table, base, chunks):
            chunk.mark(superseded)
            outcome = chunk.outcome
            puts = whole_rows(outcome.puts(), definition)
            gone = outcome.known & outcome.changed & ~outcome.alive
            writer.write(puts)
            deletes.write(_gone(outcome, gone, definition))
            tally.written += puts.num_rows
            tally.deleted += int(gone.sum())
            if producer is ChangelogProducer.INPUT:
                changes.write(_as_arrived(Arrived.of(chunk.rows, definition), outcome, puts, definition))
            elif producer.images:
                changes.write(_images(outcome, puts, definition))
            if log is not None:
                log(slot, _log_changes(outcome, puts, definition))
        written = None if producer is ChangelogProducer.NONE else changes.finish()
        raw = SlotResult(slot, writer.finish(), deleted_keys=deletes.finish(), changes=written)
        return with_vectors(table, raw, MarkedRows(table, ()), superseded, tally)


@dataclass(frozen=True, slots=True)
class MergedChunk:
    """A chunk of changes and the outcome for its keys.

    Attributes:
        rows: The changes.
        places: The positions of the keys' stored rows.
        outcome: The outcome for each key.
    """

    rows: pa.Table
    places: Sequence[_Place]
    outcome: Outcome

    def mark(self, superseded: MarkedRows) -> None:
        """Marks the stored rows that the merge has changed or deleted."""
        for place in self.places:
            superseded.add(place.file.path, place.positions[self.outcome.changed[place.groups]])


def merged_chunks(table: TableFiles, base: Sequence[DataFile], chunks: Iterable[pa.Table]) -> Iterator[MergedChunk]:
    """Merges chunks of sorted changes with the stored rows of a slot; writes nothing."""
    definition = table.definition
    files = [(file, FileLookup(table, file, cache=table.cache)) for file in base]
    for rows in chunks:
        starts = group_starts(rows, definition.sort_key)
        probes = rows.select(definition.sort_key).take(pa.array(starts))
        places = [place for file, lookup in files for place in _places(file, lookup, probes)]
        yield MergedChunk(rows, places, _merged(rows, starts, places, definition))


@dataclass(frozen=True, slots=True)
class _Place:
    """The positions of some keys' stored rows in one file, ascending, with the keys' numbers."""

    file: DataFile
    lookup: FileLookup
    positions: Rows
    groups: Rows


def _places(file: DataFile, lookup: FileLookup, probes: pa.Table) -> Iterator[_Place]:
    if found := list(lookup.find(probes)):
        positions = np.concatenate([match.positions for match in found])
        yield _Place(file, lookup, positions, np.concatenate([match.probes for match in found]))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The stored and the merged rows of a chunk's keys; every field has one row for each key.

    Attributes:
        past: Their stored rows, if those were read, and the changes.
        before: The stored rows; None if they were not read. A key without a stored row has nulls.
        rows: The merged rows; for a key without one only the key columns are valid.
        known: Which keys have a stored row.
        alive: Which keys have a row after the merge.
        changed: Which keys have another row than before, or none any more.
    """

    past: History
    before: pl.DataFrame | None
    rows: pl.DataFrame
    known: Mask
    alive: Mask
    changed: Mask

    def puts(self) -> pl.DataFrame:
        """Returns the merged rows that differ from the stored ones."""
        return self.rows.filter(self.alive & self.changed)


def _merged(rows: pa.Table, starts: Rows, places: Sequence[_Place], definition: TableDefinition) -> Outcome:
    spec = definition.merging
    known = np.zeros(len(starts), dtype=np.bool_)
    for place in places:
        known[place.groups] = True
    if spec.engine is MergeEngine.FIRST_ROW:
        past = history(rows, starts, (), None)
        merged = first_rows(past, spec)
        alive = merged.alive.to_numpy()
        return Outcome(past, None, merged.rows, known, alive, ~known & alive)
    names = definition.schema.names
    old = [Stored(place.groups, place.lookup.frame_at(place.positions, names)) for place in places]
    past = history(rows, starts, old, spec.sequence)
    merged = merge_history(past, spec, definition.primary_key)
    before = past.every_key(past.frame.filter(pl.col(STORED)).select(GROUP, *merged.rows.columns))
    alive = merged.alive.to_numpy()
    changed = np.where(known, ~(alive & same_rows(before, merged.rows)), alive)
    return Outcome(past, before, merged.rows, known, alive, changed)


def whole_rows(rows: pl.DataFrame, definition: TableDefinition) -> pa.Table:
    """Returns rows as they are written to files.

    Raises:
        InvalidRequest: ``null-value``: merging has left a NOT NULL column without a value.
    """
    for column in definition.schema:
        if not column.nullable and rows[column.name].null_count():
            empty = rows.filter(pl.col(column.name).is_null()).select(definition.primary_key)
            raise InvalidRequest(
                f"column {column.name!r} is NOT NULL, and merging leaves {empty.height} rows without a value, such as "
                f"that of the key {named_key(empty.row(0, named=True))}: write rows with a value, or let it be null "
                f"(ALTER COLUMN {column.name} DROP NOT NULL)",
                code="null-value",
            )
    return arrow_table(rows.select(definition.schema.names), definition.schema.to_arrow())


def _gone(outcome: Outcome, gone: Mask, definition: TableDefinition) -> pa.Table:
    """Returns the keys that have no row any more, with the highest sequence that they had."""
    names = list(definition.sort_key)
    rows = outcome.rows.select(names)
    if sequence := definition.sequence_field:
        highest = outcome.past.frame.group_by(GROUP, maintain_order=True).agg(pl.col(sequence).last())
        rows, names = rows.with_columns(outcome.past.every_key(highest)), [*names, sequence]
    schema = definition.schema.to_arrow()
    return arrow_table(rows.filter(gone), pa.schema([schema.field(name).with_nullable(True) for name in names]))


def _images(outcome: Outcome, puts: pa.Table, definition: TableDefinition) -> pa.Table:
    """Returns the change data of a chunk; `puts` are its rows that are put."""
    replaced = outcome.known & outcome.changed
    before = None if outcome.before is None else outcome.before.filter(replaced)
    return images(before, outcome.alive[replaced], puts, outcome.known[outcome.alive & outcome.changed], definition)


def _places_of_changes(outcome: Outcome) -> Rows:
    """Returns for each change that `_images` returns the number of its key."""
    changed, known, alive = outcome.changed, outcome.known, outcome.alive
    return np.concatenate([np.flatnonzero(known & changed), np.flatnonzero(alive & changed)])


def _as_arrived(arrived: Arrived, outcome: Outcome, puts: pa.Table, definition: TableDefinition) -> pa.Table:
    """Returns the change data of a chunk whose rows are taken as they arrived."""
    if not arrived.incomplete.any():
        return arrived.changes(change_schema(definition).empty_table(), np.empty(0, dtype=np.int64), definition)
    places = _places_of_changes(outcome)
    asked = arrived.incomplete[places]
    images = _images(outcome, puts, definition).filter(pa.array(asked))
    return arrived.changes(images, places[asked], definition)


def _log_changes(outcome: Outcome, puts: pa.Table, definition: TableDefinition) -> pa.Table:
    """Returns the changes of a chunk for the log."""
    if not definition.logs_images:
        return _upserts(outcome, definition)
    return log_changes(_images(outcome, puts, definition), _places_of_changes(outcome))


def _upserts(outcome: Outcome, definition: TableDefinition) -> pa.Table:
    """Returns whole rows with their kinds; for a deleted key the row before, if it was read, else only the key."""
    wanted = outcome.changed & (outcome.known | outcome.alive)
    update = np.where(outcome.known, str(RowKind.UPDATE_AFTER), str(RowKind.INSERT))
    kinds = np.where(outcome.alive, update, str(RowKind.DELETE))
    rows = outcome.rows.select(definition.schema.names)
    if outcome.before is not None and not outcome.alive[wanted].all():
        there, before = pl.lit(pl.Series(outcome.alive)), outcome.before
        rows = rows.select(pl.when(there).then(name).otherwise(before[name]).alias(name) for name in rows.columns)
    schema = pa.schema([field.with_nullable(True) for field in definition.schema.to_arrow()])
    result = arrow_table(rows.filter(wanted), schema)
    return result.append_column(KIND_COLUMN, pa.array(kinds[wanted].tolist(), pa.string()))
