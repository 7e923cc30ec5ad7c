"""Tombstones: runs of deleted keys are merged when there are many, and forgotten when their time is over.

A commit that does so changes no row and leaves nothing in the log (FORMAT.md section 11.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from compaction.leftovers import discard
from filestore.delta.commit import touches_nothing
from filestore.delta.conflict import Proposal
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.files.columns import FileColumns
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.merge import deduplicate
from filestore.model.files import Slot, Tombstones
from filestore.model.snapshot import Operation, Snapshot
from filestore.sorting.chunks import whole_keys
from filestore.sorting.merge import merge
from filestore.table import FileStore
from filestore.writing.deleted_keys import DELETED_COLUMN, DeletedKeysWriter, tombstone_schema

__all__ = ["Burial", "bury", "plan_burials"]


@dataclass(frozen=True, slots=True)
class Burial:
    """What becomes of the tombstones of a slot.

    Attributes:
        slot: The slot.
        forgotten: Runs that go.
        merged: Those of them whose keys are remembered on, in one run.
    """

    slot: Slot
    forgotten: tuple[Tombstones, ...]
    merged: tuple[Tombstones, ...] = ()


def plan_burials(state: TableState, now_ms: int) -> list[Burial]:
    """Runs that are older than ``sequence.tombstone-retention`` go.

    As many others as ``num-sorted-run.compaction-trigger`` become one. Pure.
    """
    definition = state.definition
    remembered_ms = now_ms - definition.tombstone_retention_ms
    burials = []
    for slot, runs in state.tombstones().items():
        young = tuple(run for run in runs if run.modified_ms >= remembered_ms)
        merged = young if len(young) >= definition.options["num-sorted-run.compaction-trigger"] else ()
        if merged or len(young) < len(runs):
            burials.append(Burial(slot, runs if merged else tuple(run for run in runs if run not in young), merged))
    return burials


def bury(store: FileStore) -> Snapshot | None:
    """Merges and forgets tombstones as they are due; None if none is.

    Raises:
        Conflict: another process or an overwrite was faster. Nothing was changed.
    """
    state, now_ms = store.state(), store.ambient.now_ms()
    burials = plan_burials(state, now_ms)
    if not burials:
        return None
    table = store.files(state)
    with store.preparing(state):
        new = [run for burial in burials if (run := _merged(table, burial, now_ms)) is not None]
    proposal = Proposal(
        Operation.COMPACT,
        store.ambient.new_id(),
        state.version,
        tombstones=tuple(new),
        forgotten=tuple(run for burial in burials for run in burial.forgotten),
    )
    try:
        return store.commit(state, proposal, touches_nothing).snapshot
    except Conflict:
        discard(table, new)
        raise


def _merged(table: TableFiles, burial: Burial, now_ms: int) -> Tombstones | None:
    """Of each key the highest sequence, with its time; keys whose time is over are left out."""
    definition = table.definition
    remembered_ms = now_ms - definition.tombstone_retention_ms
    keys, sequence = definition.sort_key, definition.sequence_field
    pieces = merge((_rows(table, run) for run in burial.merged), keys)
    with DeletedKeysWriter(table, burial.slot) as writer:
        for rows in whole_keys(pieces, keys):
            young = rows.filter(pc.greater_equal(rows.column(DELETED_COLUMN), remembered_ms))
            writer.write(deduplicate.reduce(young, keys, sequence) if young.num_rows else young)
        return writer.finish()


def _rows(table: TableFiles, run: Tombstones) -> Iterator[pa.Table]:
    wanted = tombstone_schema(table.definition)
    with ParquetReader(table.storage, table.path(run.path)) as file:
        known = FileColumns.of(table.definition.schema, file)
        for group in range(len(file.group_rows)):
            yield known.read(file, group, wanted.names).cast(wanted)
