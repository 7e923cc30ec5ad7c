"""Writes a version with pending runs as a Delta table of its own, for readers that read Delta tables natively.

The overlay's only log entry names the version's files where they are, with vectors of the rows that the runs delete.
With deduplicate the runs are files of the overlay; the engines that merge values write their new rows beside the entry.
Files are not copied, except runs from before a column was widened, since Delta requires a feature for narrower types.
The first reader of a version creates its overlay; since a version never changes, later readers use it, and removing
it loses nothing (FORMAT.md section 11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np

from filestore import layout
from filestore.commit.plan import commit_info
from filestore.commit.proposal import Proposal
from filestore.delta.actions import Action, add_action, metadata_action, protocol_action
from filestore.delta.entry import encode
from filestore.delta.state import TableState
from filestore.delta.vectors import VectorFileBuilder, grown, vector_file
from filestore.errors import AlreadyExists
from filestore.files.leftovers import write_file
from filestore.files.row_groups import RowGroups
from filestore.files.writer import DataWriter, TableFiles
from filestore.model.definition import TYPE_WIDENING
from filestore.model.files import DataFile, Slot, Tombstones
from filestore.model.snapshot import Operation
from filestore.reading.overlay import PendingSlot, SupersededRows, dead_rows, merged_chunks_of
from filestore.rows.frames import arrow_table
from filestore.storage.schemes import is_local
from filestore.writing.fold_values import whole_rows
from filestore.writing.slot_result import MarkedRows

__all__ = ["OverlayFile", "commit_overlay", "overlay_location", "overlay_slot"]


@dataclass(frozen=True, slots=True)
class OverlayFile:
    """A file that an overlay names.

    Attributes:
        file: The file with the vector that it has in the overlay.
        own: Whether the file is in the overlay's folder, and not in the table's.
        own_vector: Whether its vector is.
    """

    file: DataFile
    own: bool = False
    own_vector: bool = False


def overlay_location(table: TableFiles, version: int) -> str:
    """Returns the folder for the overlay of a version."""
    return table.path(layout.overlay_path(version))


def overlay_slot(
    table: TableFiles, pending: PendingSlot, location: str, *, merged: bool = False
) -> tuple[OverlayFile, ...]:
    """Returns the files of the overlay for a slot with pending runs; writes its vectors, and merged rows.

    Args:
        table: The table.
        pending: The slot.
        location: The overlay's folder.
        merged: Whether the rows of runs are merged already: of a key the last one wins, or the highest sequence.
    """
    own: list[DataFile] = []
    files = [file for file in pending.base if not isinstance(file, Tombstones)]
    if table.definition.merges_values and not merged:
        found = SupersededRows(MarkedRows(table, pending.base))
        with DataWriter(replace(table, location=location), pending.slot) as writer:
            for chunk in merged_chunks_of(table, pending, found):
                writer.write(whole_rows(chunk.outcome.puts(), table.definition))
            own += writer.finish()
        dead = found.dead.rows()
    else:
        dead = dict(dead_rows(table, pending))
        for run in pending.runs:
            rows = RowGroups(table, run.as_file(), dead[run.path])
            if rows.casts and TYPE_WIDENING not in table.definition.features:
                own += _copied(replace(table, location=location), pending.slot, rows)
            else:
                files.append(run.as_file())
    builder = VectorFileBuilder(table.ambient.new_id())
    named = [
        overlaid for file in files if (overlaid := _overlaid(table, file, dead.get(file.path), builder)) is not None
    ]
    if not builder.empty:
        write_file(replace(table, location=location), builder.path, builder.content)
    return (*named, *(OverlayFile(file, own=True) for file in own))


def _copied(table: TableFiles, slot: Slot, rows: RowGroups) -> tuple[DataFile, ...]:
    """Copies the live rows of a run into a file with the table's current types."""
    with DataWriter(table, slot) as writer:
        for group in range(len(rows)):
            if (alive := rows.alive(group)).any():
                frame = rows.read(group, table.definition.schema.names, alive)
                writer.write(arrow_table(frame, table.file_schema))
        return writer.finish()


def _overlaid(
    table: TableFiles,
    file: DataFile,
    dead: np.ndarray[tuple[int], np.dtype[np.int64]] | None,
    builder: VectorFileBuilder,
) -> OverlayFile | None:
    """Adds rows to the file's vector; returns None if no live row is left."""
    if dead is None or not len(dead):
        return OverlayFile(file)
    after = grown(table.storage, table.location, file.vector, dead)
    if len(after) == file.rows:
        return None
    return OverlayFile(file.with_vector(builder.add(after)), own_vector=True)


def commit_overlay(
    table: TableFiles,
    state: TableState,
    overlaid: Collection[Slot],
    named: Iterable[OverlayFile],
    location: str,
) -> None:
    """Writes the overlay's log entry, which creates it. If another reader was faster, its overlay is as good.

    Args:
        table: The table.
        state: The version of the overlay.
        overlaid: The slots whose files `named` has; other slots keep the version's files.
        named: The results of `overlay_slot`.
        location: The overlay's folder.
    """
    others = [OverlayFile(file) for file in state.files if file.slot not in overlaid]
    proposal = Proposal(Operation.CREATE, table.ambient.new_id(), -1)
    actions = [
        commit_info(proposal, None, state.timestamp_ms),
        protocol_action(state.definition.features),
        metadata_action(state.definition, table.ambient.new_id(), state.timestamp_ms),
        *(_add(table, file) for file in (*others, *named)),
    ]
    try:
        table.storage.write_new(layout.join(location, layout.log_entry_path(0)), encode(actions))
    except AlreadyExists:
        return  # our files beside it are orphans, which the orphan clean-up removes


def _add(table: TableFiles, overlaid: OverlayFile) -> Action:
    action = add_action(overlaid.file, data_change=True)
    add = action["add"]
    if not overlaid.own:
        add["path"] = _absolute(table, overlaid.file.path)
    if overlaid.file.vector is not None and not overlaid.own_vector:
        path = _absolute(table, vector_file(overlaid.file.vector))
        add["deletionVector"] |= {"storageType": "p", "pathOrInlineDv": path}
    return action


def _absolute(table: TableFiles, relative: str) -> str:
    """Names a file of the table for another Delta table (Delta protocol, "Add File": an absolute path)."""
    path = table.path(relative)
    return Path(path).absolute().as_uri() if is_local(path) else quote(path, safe="/:")
