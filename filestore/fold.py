"""Fold: pending rows + a slot's files → new files, deletion vectors, counts (FORMAT.md section 10).

The heart of a merge-on-write commit. Chunk by chunk: reduce to one row a key, look the keys up in the slot's files,
mark what is superseded, write what stays, hand the accepted changes to the log. Nothing becomes visible: a `SlotResult`
says what a commit would change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.delta.vectors import positions
from filestore.lookup import FileLookup
from filestore.merge import deduplicate
from filestore.model.files import DataFile, Slot
from filestore.model.rowkind import RowKind
from filestore.parquet import ParquetReader
from filestore.read import take_rows
from filestore.rows import adding, checked, compensation, named_kinds
from filestore.runs import DeletedKeysWriter
from filestore.slot_result import ChangeSink, Dying, SlotResult, Tally, settled
from filestore.writer import DataWriter, TableFiles

__all__ = ["Found", "fold", "look_again", "look_up"]


def fold(
    table: TableFiles,
    slot: Slot,
    base: Sequence[DataFile],
    chunks: Iterable[pa.Table],
    log: ChangeSink | None = None,
) -> SlotResult:
    """Merges sorted rows into a slot.

    Args:
        table: The table.
        slot: The slot that all rows belong to.
        base: The slot's live files.
        chunks: Rows sorted by key, no key in two chunks (`filestore.chunks`); `KIND_COLUMN` and
            `deduplicate.ORDINAL_COLUMN` are optional.
        log: Where accepted changes go, if the table has a log.

    Raises:
        InvalidRequest: a null key, an unknown row kind, or a delete for a table without a key.
    """
    definition = table.definition
    sequence = definition.sequence_field
    extra = (sequence,) if sequence else ()
    lookups = {f.path: FileLookup(table, f, extra) for f in base} if definition.primary_key else {}
    superseded, tally = Dying(table, base), Tally()
    born_dead: list[tuple[int, npt.NDArray[np.int64]]] = []
    with DataWriter(table, slot) as writer, DeletedKeysWriter(table, slot) as deletes:
        for chunk in chunks:
            rows = checked(chunk, definition)
            if definition.primary_key:
                rows = deduplicate.reduce(rows, definition.sort_key, sequence)
            found = look_up(rows, lookups, superseded, sequence)
            rows = named_kinds(rows, found.known)
            puts = adding(rows).to_numpy()
            if (late := np.flatnonzero(found.lost[puts])).size:
                file, row = writer.position
                born_dead.append((file, late + row))
            writer.write(_only(rows, puts))
            deletes.write(_only(rows, ~puts))
            tally.add(puts, found.lost)
            if log is not None and not found.lost.all():
                log(slot, _only(rows, ~found.lost))
        files = writer.finish()
        own = Dying(table, files)
        for number, late_rows in born_dead:
            own.add(files[number].path, late_rows)
        return settled(table, SlotResult(slot, files, deleted_keys=deletes.finish()), own, superseded, tally)


def look_again(
    table: TableFiles, base: Sequence[DataFile], earlier: SlotResult, log: ChangeSink | None = None
) -> SlotResult:
    """Works a slot's result out again after another commit changed the slot: the new files stay as they are.

    Rows that lose now to a stored row with a higher sequence are dead from birth, rows that lost before and win now
    live. The log has what won before, so what changed goes to it behind: replaying the log still gives the table.

    Args:
        table: The table.
        base: The slot's live files in the newest version.
        earlier: The result on the older version.
        log: Where compensating changes go, if the table has a log.
    """
    if not table.definition.primary_key:
        return earlier
    raw = replace(earlier, adds=earlier.new_files)
    sequence = table.definition.sequence_field
    extra = tuple(table.file_schema.names if log is not None else (sequence,)) if sequence else ()
    lookups = {f.path: FileLookup(table, f, extra) for f in base}
    superseded, own, tally = Dying(table, base), Dying(table, raw.adds), Tally()
    for keys in _own_keys(table, raw):
        found = look_up(keys.rows, lookups, superseded, sequence)
        tally.add(np.full(keys.rows.num_rows, keys.path is not None), found.lost)
        if keys.path is not None:
            own.add(keys.path, keys.positions[found.lost])
        if log is not None and sequence is not None:
            for winners in found.winners:
                log(earlier.slot, compensation(winners, earlier.slot, table.definition, RowKind.UPDATE_AFTER))
            if earlier.rows_late:
                _log_revived(table, earlier, keys, found, log)
    return settled(table, raw, own, superseded, tally)


@dataclass(slots=True)
class Found:
    """What a look-up says of each probe.

    Attributes:
        known: Whether its key is stored.
        lost: Whether the stored row's sequence beats its own.
        winners: The stored rows that did, with the columns that were asked for.
    """

    known: npt.NDArray[np.bool_]
    lost: npt.NDArray[np.bool_]
    winners: list[pa.Table] = field(default_factory=list)


def look_up(rows: pa.Table, lookups: Mapping[str, FileLookup], superseded: Dying, sequence: str | None) -> Found:
    """Looks rows up, one a key and sorted, and notes the stored rows that they supersede.

    Args:
        rows: A chunk; chunks come in ascending order.
        lookups: The slot's files by path; they read the sequence field too, if there is one.
        superseded: Where the positions go.
        sequence: The sequence field.
    """
    found = Found(np.zeros(rows.num_rows, dtype=np.bool_), np.zeros(rows.num_rows, dtype=np.bool_))
    if not rows.num_rows:
        return found
    for path, lookup in lookups.items():
        for match in lookup.find(rows):
            found.known[match.probes] = True
            if sequence is None or match.values is None:
                superseded.add(path, match.positions)
                continue
            new = rows.column(sequence).take(pa.array(match.probes))
            wins = deduplicate.beats(new, match.values.column(sequence))
            superseded.add(path, match.positions[wins])
            found.lost[match.probes[~wins]] = True
            if not wins.all():
                found.winners.append(match.values.filter(pa.array(~wins)))
    return found


def _only(rows: pa.Table, wanted: npt.NDArray[np.bool_]) -> pa.Table:
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def _log_revived(table: TableFiles, earlier: SlotResult, keys: _OwnKeys, found: Found, log: ChangeSink) -> None:
    """Own rows that lost last time and win now: the log has the former winners behind them, so they go to it again.

    Which deletes had lost was not kept: those that win are simply repeated.
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
    """Keys that a write brought: of its file, or (path None) of its deletes."""

    path: str | None
    positions: npt.NDArray[np.int64]
    rows: pa.Table


def _own_keys(table: TableFiles, result: SlotResult) -> Iterator[_OwnKeys]:
    definition = table.definition
    columns = list(dict.fromkeys((*definition.sort_key, *filter(None, [definition.sequence_field]))))
    sources: list[tuple[str | None, str]] = [(f.path, f.path) for f in result.adds]
    if result.deleted_keys is not None:
        sources.append((None, result.deleted_keys))
    for name, path in sources:
        start = 0
        with ParquetReader(table.storage, table.path(path)) as file:
            for group, size in enumerate(file.group_rows):
                yield _OwnKeys(name, np.arange(start, start + size), file.read(group, columns))
                start += size
