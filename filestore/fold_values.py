"""Fold for the engines whose result depends on the stored row (FORMAT.md section 10).

Chunk by chunk: look the keys up, read the stored rows, merge them with the changes, write the rows that came out
different, mark those they replace, and hand the new rows to the log: whoever replays it by key gets the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.frames import arrow_table
from filestore.lookup import FileLookup
from filestore.merge.fieldwise import Merged, merge_fields
from filestore.merge.first_row import first_rows
from filestore.merge.history import GROUP, STORED, History, Stored, group_starts, history
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Slot
from filestore.model.merging import MergeEngine
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.row_groups import RowGroups
from filestore.rows import checked
from filestore.runs import DeletedKeysWriter
from filestore.slot_result import ChangeSink, Dying, SlotResult, Tally, settled
from filestore.writer import DataWriter, TableFiles

__all__ = ["MergedChunk", "fold_values", "merged_chunks", "whole_rows"]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the stored rows of some keys stand in one file: ascending positions, and the keys' numbers."""

    path: str
    positions: Rows
    groups: Rows


def fold_values(
    table: TableFiles,
    slot: Slot,
    base: Sequence[DataFile],
    chunks: Iterable[pa.Table],
    log: ChangeSink | None = None,
) -> SlotResult:
    """Merges sorted rows into a slot; for arguments and errors see `filestore.fold.fold`."""
    definition = table.definition
    superseded, tally = Dying(table, base), Tally()
    with DataWriter(table, slot) as writer, DeletedKeysWriter(table, slot) as deletes:
        for chunk in merged_chunks(table, base, chunks):
            for place in chunk.places:
                superseded.add(place.path, place.positions[chunk.changed[place.groups]])
            gone = chunk.known & ~chunk.alive
            puts = whole_rows(chunk.puts(), definition)
            writer.write(puts)
            deletes.write(_gone(chunk.past, chunk.merged, gone, definition))
            tally.written += puts.num_rows
            tally.deleted += int(gone.sum())
            if log is not None:
                told = chunk.changed & (chunk.known | chunk.alive)
                _tell(log, slot, chunk.merged, told, chunk.known, definition)
        raw = SlotResult(slot, writer.finish(), deleted_keys=deletes.finish())
    return settled(table, raw, Dying(table, ()), superseded, tally)


@dataclass(frozen=True, slots=True)
class MergedChunk:
    """What became of the keys of a chunk.

    Attributes:
        past: The stored rows and the changes.
        merged: What came of them.
        places: Where the stored rows stand.
        known: For each key whether it has a stored row.
        changed: For each key whether it is not as it was.
    """

    past: History
    merged: Merged
    places: Sequence[_Place]
    known: npt.NDArray[np.bool_]
    changed: npt.NDArray[np.bool_]

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """For each key whether it has a row now."""
        return self.merged.alive.to_numpy()

    def puts(self) -> pl.DataFrame:
        """The rows of the keys that have one and are not as they were."""
        return self.merged.rows.filter(self.alive & self.changed)


def merged_chunks(table: TableFiles, base: Sequence[DataFile], chunks: Iterable[pa.Table]) -> Iterator[MergedChunk]:
    """Merges chunks of sorted changes with the stored rows of a slot; writes nothing."""
    definition = table.definition
    files = {file.path: _StoredRows(table, file) for file in base}
    for chunk in chunks:
        rows = checked(chunk, definition)
        starts = group_starts(rows, definition.sort_key)
        probes = rows.select(definition.sort_key).take(pa.array(starts))
        places = [place for file in files.values() for place in file.find(probes)]
        past, merged, changed = _merged(rows, starts, places, files, definition)
        known = np.zeros(len(starts), dtype=np.bool_)
        for place in places:
            known[place.groups] = True
        yield MergedChunk(past, merged, places, known, changed)


class _StoredRows:
    """The rows of one file, found by key."""

    def __init__(self, table: TableFiles, file: DataFile) -> None:
        self._table = table
        self._file = file
        self._lookup = FileLookup(table, file)
        self._groups: RowGroups | None = None

    def find(self, probes: pa.Table) -> Iterator[_Place]:
        found = list(self._lookup.find(probes))
        if found:
            yield _Place(
                self._file.path,
                np.concatenate([match.positions for match in found]),
                np.concatenate([match.probes for match in found]),
            )

    def read(self, place: _Place) -> pl.DataFrame:
        if self._groups is None:
            self._groups = RowGroups(self._table, self._file)
        return pl.concat(self._groups.read_at(place.positions, self._table.definition.schema.names))


def _merged(
    rows: pa.Table,
    starts: Rows,
    places: Sequence[_Place],
    files: Mapping[str, _StoredRows],
    definition: TableDefinition,
) -> tuple[History, Merged, npt.NDArray[np.bool_]]:
    """What is known of each key of the chunk, what becomes of it, and which keys are not as they were."""
    spec = definition.merging
    if spec.engine is MergeEngine.FIRST_ROW:
        known = np.zeros(len(starts), dtype=np.bool_)
        for place in places:
            known[place.groups] = True
        past = history(rows, starts, (), None)
        merged = first_rows(past, spec)
        return past, merged, ~known & merged.alive.to_numpy()
    stored = [Stored(place.groups, files[place.path].read(place)) for place in places]
    past = history(rows, starts, stored, spec.sequence)
    merged = merge_fields(past, spec, definition.primary_key)
    before = past.every_key(past.frame.filter(pl.col(STORED)).select(GROUP, *merged.rows.columns))
    same = before.select(pl.all_horizontal(_equal(name, merged.rows) for name in merged.rows.columns)).to_series()
    stored_before = before[definition.sort_key[0]].is_not_null()
    changed = pl.select(pl.when(stored_before).then(~(merged.alive & same)).otherwise(merged.alive)).to_series()
    return past, merged, changed.to_numpy()


def _equal(name: str, rows: pl.DataFrame) -> pl.Expr:
    return pl.col(name).eq_missing(pl.lit(rows[name]))


def whole_rows(rows: pl.DataFrame, definition: TableDefinition) -> pa.Table:
    """Rows as they are written.

    Raises:
        InvalidRequest: ``null-value``: merging left a NOT NULL column without a value.
    """
    for column in definition.schema:
        if not column.nullable and rows[column.name].null_count():
            raise InvalidRequest(
                f"column {column.name!r} is NOT NULL, and merging leaves {rows[column.name].null_count()} rows without "
                "a value: fill it in the rows, or choose another aggregate function",
                code="null-value",
            )
    return arrow_table(rows.select(definition.schema.names), definition.schema.to_arrow())


def _gone(past: History, merged: Merged, gone: npt.NDArray[np.bool_], definition: TableDefinition) -> pa.Table:
    """The keys that have no row any more, with the highest sequence that they had."""
    names = list(definition.sort_key)
    rows = merged.rows.select(names)
    if sequence := definition.sequence_field:
        highest = past.frame.group_by(GROUP, maintain_order=True).agg(pl.col(sequence).last())
        rows, names = rows.with_columns(past.every_key(highest)), [*names, sequence]
    schema = definition.schema.to_arrow()
    return arrow_table(rows.filter(gone), pa.schema([schema.field(name).with_nullable(True) for name in names]))


def _tell(
    log: ChangeSink,
    slot: Slot,
    merged: Merged,
    changed: npt.NDArray[np.bool_],
    known: npt.NDArray[np.bool_],
    definition: TableDefinition,
) -> None:
    """The log gets whole rows, and of a deleted key the key."""
    if not changed.any():
        return
    alive = merged.alive.to_numpy()
    kinds = np.where(~alive, str(RowKind.DELETE), np.where(known, str(RowKind.UPDATE_AFTER), str(RowKind.INSERT)))
    schema = pa.schema([field.with_nullable(True) for field in definition.schema.to_arrow()])
    rows = arrow_table(merged.rows.select(definition.schema.names).filter(changed), schema)
    log(slot, rows.append_column(KIND_COLUMN, pa.array(kinds[changed].tolist(), pa.string())))
