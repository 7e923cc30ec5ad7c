"""Merges rows into a slot's files; the result is new files, deletion vectors and counts (FORMAT.md section 10).

This is the core of a merge-on-write commit. For each chunk it keeps one row of each key, looks the keys up in the
slot's files, marks the stored rows that are replaced, writes the rows that stay, and sends the accepted changes to the
log. Nothing becomes visible: a `SlotResult` says what a commit would change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.changelog.arrived import Arrived
from filestore.changelog.files import ChangeWriter
from filestore.delta.vectors import positions
from filestore.files.columns import FileColumns
from filestore.files.live_rows import take_rows
from filestore.files.parquet import ParquetReader
from filestore.files.writer import DataWriter, TableFiles
from filestore.merge import deduplicate
from filestore.model.changelog import ChangelogProducer
from filestore.model.files import DataFile, Slot
from filestore.model.rowkind import RowKind
from filestore.rows.fitting import compensation, kinds_by, putting
from filestore.writing.deleted_keys import DeletedKeysWriter
from filestore.writing.recording import Recording
from filestore.writing.slot_lookup import Found, SlotLookup
from filestore.writing.slot_result import ChangeSink, MarkedRows, SlotResult, Tally, with_vectors

__all__ = ["fold", "rebase_slot"]


def fold(
    table: TableFiles,
    slot: Slot,
    base: Sequence[DataFile],
    chunks: Iterable[pa.Table],
    log: ChangeSink | None = None,
    producer: ChangelogProducer = ChangelogProducer.NONE,
    *,
    skip_unchanged: bool = False,
) -> SlotResult:
    """Merges sorted rows into a slot.

    Args:
        table: The table.
        slot: The slot that all rows belong to.
        base: The slot's live files, and its tombstones.
        chunks: Rows that may be written (`filestore.rows.fitting.accepted`), sorted by key; each key once, or with
            `ChangelogProducer.INPUT` in one chunk (`filestore.sorting.chunks`). `KIND_COLUMN` is optional.
        log: Takes the accepted changes, if the table has a log.
        producer: Which changes are written as change data (`filestore.changelog.images.recorded`).
        skip_unchanged: Leaves out rows that are stored as they are, and deletes of keys without a row, and names the
            kinds of the others by the look-up. Only for tables of which others write no row meanwhile: what is left
            out is not looked up again after a lost race.
    """
    definition = table.definition
    sequence = definition.sequence_field
    extra = (sequence,) if sequence else ()
    superseded, tally = MarkedRows(table, base), Tally()
    born_dead: list[tuple[int, npt.NDArray[np.int64]]] = []
    incomplete = False
    with (
        DataWriter(table, slot) as writer,
        DeletedKeysWriter(table, slot) as deletes,
        ChangeWriter(table, slot) as changes,
    ):
        recording = Recording(definition, slot, producer, changes, log)
        reads_old = recording.reads_old or skip_unchanged
        lookup = SlotLookup(table, base if definition.primary_key else (), superseded, extra, images=reads_old)
        for rows in chunks:
            arrived = recording.arrived(rows)
            if arrived is not None:
                incomplete = incomplete or bool(arrived.incomplete.any())
                rows = deduplicate.reduce(rows, definition.sort_key, sequence)
            rows, puts, found = _looked_up(lookup, rows, arrived, skip_unchanged=skip_unchanged)
            if (dead := np.flatnonzero(found.dead[puts])).size:
                file, row = writer.position
                born_dead.append((file, dead + row))
            writer.write(_only(rows, puts))
            if not puts.all():
                deletes.write(_only(rows, ~puts))
            tally.add(puts, found.lost, found.same)
            recording.write(arrived, rows, puts, found)
        files = writer.finish()
        own = MarkedRows(table, files)
        for number, dead_rows in born_dead:
            own.add(files[number].path, dead_rows)
        written = None if producer is ChangelogProducer.NONE else changes.finish()
        deleted = deletes.finish()
        remembered = (deleted,) if deleted is not None and definition.tombstone_retention_ms else ()
        raw = SlotResult(slot, files, deleted_keys=deleted, tombstones=remembered, changes=written)
        raw = replace(raw, rests_on_rows=incomplete)
        return with_vectors(table, raw, own, superseded, tally)


def rebase_slot(
    table: TableFiles, base: Sequence[DataFile], earlier: SlotResult, log: ChangeSink | None = None
) -> SlotResult:
    """Computes a slot's result again after another commit changed the slot; the new files stay as they are.

    Rows that now lose to a stored row with a higher sequence are dead from birth; rows that lost before and win now
    are alive. The log already has what won before, so the differences are appended to it: replaying the log still
    results in the table.

    Args:
        table: The table.
        base: The slot's live files and tombstones in the newest version.
        earlier: The result on the older version.
        log: Takes compensating changes, if the table has a log; None if the log has images, which are right only for
            the rows that the write found (`filestore.writing.write.rests_on_rows`).
    """
    if not table.definition.primary_key:
        return earlier
    definition = table.definition
    assert log is None or not definition.logs_images, "a log with images cannot be compensated"
    raw = replace(earlier, adds=earlier.new_files)
    sequence = definition.sequence_field
    extra = tuple(table.file_schema.names if log is not None else (sequence,)) if sequence else ()
    # with an engine that merges values no row of the slot has changed here (`rests_on_rows`): its changes stay valid
    anew = definition.changelog_producer.images and (earlier.changes is None or not definition.merges_values)
    superseded, own, tally = MarkedRows(table, base), MarkedRows(table, raw.adds), Tally()
    lookup = SlotLookup(table, base, superseded, extra, images=anew)
    with ChangeWriter(table, earlier.slot) as changes:
        for keys in _own_keys(table, raw, whole=anew):
            puts = np.full(keys.rows.num_rows, keys.path is not None)
            found = lookup.find(keys.rows, puts)
            tally.add(puts, found.lost, found.same)
            if keys.path is not None:
                own.add(keys.path, keys.positions[found.dead])
            if anew:
                changes.write(found.images(keys.rows, puts, definition))
            if log is not None and sequence is not None:
                for winners in found.winners:
                    log(earlier.slot, compensation(winners, earlier.slot, definition, RowKind.UPDATE_AFTER))
                if found.tombstoned.any():
                    deleted = _only(keys.rows, found.tombstoned)
                    log(earlier.slot, compensation(deleted, earlier.slot, definition, RowKind.DELETE))
                if earlier.rows_late:
                    _log_revived(table, earlier, keys, found, log)
        if anew:
            raw = replace(raw, changes=changes.finish())
        return with_vectors(table, raw, own, superseded, tally)


def _looked_up(
    lookup: SlotLookup, rows: pa.Table, arrived: Arrived | None, *, skip_unchanged: bool
) -> tuple[pa.Table, npt.NDArray[np.bool_], Found]:
    """Returns the rows that are written, which of them are puts, and the result of their look-up."""
    puts = putting(rows)
    found = lookup.find(rows, puts, None if arrived is None else arrived.incomplete)
    if not skip_unchanged:
        return rows, puts, found
    kept = ~found.same & (puts | found.known)
    return _only(kinds_by(found.known, rows, puts), kept), puts[kept], found.only(kept)


def _only(rows: pa.Table, wanted: npt.NDArray[np.bool_]) -> pa.Table:
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def _log_revived(table: TableFiles, earlier: SlotResult, keys: _OwnKeys, found: Found, log: ChangeSink) -> None:
    """Sends rows of the write that lost last time and win now to the log again: the former winners are behind them.

    The earlier result does not record which deletes lost: all deletes that win now are repeated.
    """
    if keys.path is None:
        rows = _only(keys.rows, ~found.lost)
        if rows.num_rows:
            log(earlier.slot, compensation(rows, earlier.slot, table.definition, RowKind.DELETE))
        return
    before = next((f for f in earlier.adds if f.path == keys.path), None)
    dead = keys.positions if before is None else positions(table.storage, table.location, before.vector)
    revived = np.isin(keys.positions, dead) & ~found.lost
    if not revived.any():
        return
    for rows in take_rows(table, keys.path, keys.positions[revived]):
        log(earlier.slot, compensation(rows, earlier.slot, table.definition, RowKind.UPDATE_AFTER))


@dataclass(frozen=True, slots=True)
class _OwnKeys:
    """Keys that a write contains: of one of its files, or (path None) of its deletes."""

    path: str | None
    positions: npt.NDArray[np.int64]
    rows: pa.Table


def _own_keys(table: TableFiles, result: SlotResult, *, whole: bool) -> Iterator[_OwnKeys]:
    """Yields the keys of a result row group by row group; `whole` adds all other columns of the rows in its files."""
    definition = table.definition
    keys = tuple(dict.fromkeys((*definition.sort_key, *filter(None, [definition.sequence_field]))))
    wanted = definition.schema.names if whole else keys
    sources: list[tuple[str | None, str, Sequence[str]]] = [(f.path, f.path, wanted) for f in result.adds]
    if result.deleted_keys is not None:
        sources.append((None, result.deleted_keys.path, keys))
    for name, path, columns in sources:
        start = 0
        with ParquetReader(table.storage, table.path(path)) as file:
            known = FileColumns.of(definition.schema, file)
            for group, size in enumerate(file.group_rows):
                yield _OwnKeys(name, np.arange(start, start + size), known.read(file, group, columns))
                start += size
