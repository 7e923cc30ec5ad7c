"""Tombstones: merges files of deleted keys when there are many, and removes them when their retention is over.

Such a commit changes no row and adds nothing to the log (FORMAT.md section 11.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from filestore.commit.proposal import Proposal, RunChanges
from filestore.commit.protocol import CommitAttempt
from filestore.delta.state import TableState
from filestore.files.columns import FileColumns
from filestore.files.leftovers import discard
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.merge import deduplicate
from filestore.model.files import Slot, Tombstones
from filestore.model.snapshot import Operation, Snapshot
from filestore.rows.casting import cast_rows
from filestore.sorting.chunks import whole_keys
from filestore.sorting.merge import merge
from filestore.table import FileStore
from filestore.writing.deleted_keys import DELETED_COLUMN, DeletedKeysWriter, tombstone_schema

__all__ = ["TombstoneCleanup", "clean_tombstones", "plan_tombstone_cleanups"]


@dataclass(frozen=True, slots=True)
class TombstoneCleanup:
    """The tombstones of a slot that are merged or removed.

    Attributes:
        slot: The slot.
        forgotten: The files that are removed.
        merged: Those of them whose keys are kept, in one new file.
    """

    slot: Slot
    forgotten: tuple[Tombstones, ...]
    merged: tuple[Tombstones, ...] = ()


def plan_tombstone_cleanups(state: TableState, now_ms: int) -> list[TombstoneCleanup]:
    """Plans to remove tombstones that are older than ``sequence.tombstone-retention``.

    If there are as many others as ``num-sorted-run.compaction-trigger``, they are merged into one file. Pure.
    """
    definition = state.definition
    remembered_ms = now_ms - definition.tombstone_retention_ms
    cleanups = []
    for slot in state.tombstones.slots:
        runs = state.tombstones.of(slot)
        young = tuple(run for run in runs if run.modified_ms >= remembered_ms)
        merged = young if len(young) >= definition.options["num-sorted-run.compaction-trigger"] else ()
        if merged or len(young) < len(runs):
            cleanups.append(
                TombstoneCleanup(slot, runs if merged else tuple(run for run in runs if run not in young), merged)
            )
    return cleanups


def clean_tombstones(store: FileStore) -> Snapshot | None:
    """Merges and removes tombstones as needed; returns None if there is nothing to do.

    Raises:
        Conflict: another process or an overwrite was faster. Nothing was changed.
    """
    committed = store.commit(lambda base: nullcontext(_CleanUp(store, base)))
    return None if committed is None else committed.snapshot


class _CleanUp(CommitAttempt):
    """A commit that merges and forgets tombstones."""

    def __init__(self, store: FileStore, base: TableState) -> None:
        self.base = base
        self._table = store.table_files(base)
        self._written: list[Tombstones] = []

    def prepare(self) -> Proposal | None:
        now_ms = self._table.ambient.now_ms()
        cleanups = plan_tombstone_cleanups(self.base, now_ms)
        if not cleanups:
            return None
        for cleanup in cleanups:
            if (run := _merged(self._table, cleanup, now_ms)) is not None:
                self._written.append(run)
        forgotten = tuple(run for cleanup in cleanups for run in cleanup.forgotten)
        return Proposal(
            Operation.COMPACT,
            self._table.ambient.new_id(),
            self.base.version,
            runs=RunChanges(tombstones=tuple(self._written), forgotten=forgotten),
        )

    def discard(self, *, again: bool) -> None:
        discard(self._table, self._written)


def _merged(table: TableFiles, cleanup: TombstoneCleanup, now_ms: int) -> Tombstones | None:
    """Keeps the highest sequence of each key, with its time; leaves out keys whose retention is over."""
    definition = table.definition
    remembered_ms = now_ms - definition.tombstone_retention_ms
    keys, sequence = definition.sort_key, definition.sequence_field
    pieces = merge((_rows(table, run) for run in cleanup.merged), keys)
    with DeletedKeysWriter(table, cleanup.slot) as writer:
        for rows in whole_keys(pieces, keys):
            young = rows.filter(pc.greater_equal(rows.column(DELETED_COLUMN), remembered_ms))
            writer.write(deduplicate.reduce(young, keys, sequence) if young.num_rows else young)
        return writer.finish()


def _rows(table: TableFiles, run: Tombstones) -> Iterator[pa.Table]:
    wanted = tombstone_schema(table.definition)
    with ParquetReader(table.storage, table.path(run.path)) as file:
        known = FileColumns.of(table.definition.schema, file)
        for group in range(len(file.group_rows)):
            yield cast_rows(known.read(file, group, wanted.names), wanted)
