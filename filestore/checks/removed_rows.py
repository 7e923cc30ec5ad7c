"""Checks the rows that change data says were removed, where a value of them is null (FORMAT.md section 12.6).

A writer that knows only a key knows no more of the row. Versions of Tablestore before decision 119 wrote such rows to
the change data of tables with ``changelog-producer = input``: with nulls, which readers of NOT NULL columns take for
zeros. So these rows are compared with the stored ones. It reads the change files, and the files with their keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.changelog.arrived import lacks_a_value
from filestore.checks.report import Findings, Invariant
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import NotFound
from filestore.files.writer import TableFiles
from filestore.lookup.file_lookup import FileLookup
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.files import ChangeFile, DataFile
from filestore.reading.change_files import change_files, recorded_changes
from filestore.rows.equality import same_rows
from filestore.rows.fitting import putting
from filestore.rows.frames import frame_of
from filestore.rows.keys import changes

__all__ = ["check_removed_rows"]

_REMEDY = (
    "take the consumers of the feed to the rows of a later version, and expire this one (docs/changes.md, 'Feeds with "
    "untrue changes')"
)


def check_removed_rows(table: TableFiles, findings: Findings, before: TableState, entry: Commit) -> None:
    """Reports rows that the version before did not have.

    Args:
        table: The table in that version.
        findings: Takes what is found.
        before: The version before.
        entry: The commit with the change data.
    """
    definition = table.definition
    if definition.changelog_producer is not ChangelogProducer.INPUT or not definition.primary_key:
        return
    for file in change_files(entry, definition):
        try:
            untrue = _untrue(table, file, before.files.of(file.slot))
        except NotFound:  # the version before has expired
            return
        if untrue:
            message = (
                f"version {entry.version}: {file.path} says of {untrue} removed or replaced rows that they had "
                f"nulls, and the version before had other rows, or none: {_REMEDY}"
            )
            findings.add(Invariant.CHANGE_ROW, message, file.path, entry.version)


def _untrue(table: TableFiles, file: ChangeFile, base: Sequence[DataFile]) -> int:
    """Counts the keys of a change file whose removed row lacks a value that the stored row has."""
    lookups = [FileLookup(table, data) for data in base]
    return sum(_differing(table, rows, lookups) for rows in recorded_changes(table, file))


def _differing(table: TableFiles, rows: pa.Table, lookups: Sequence[FileLookup]) -> int:
    definition = table.definition
    removed = rows.filter(pa.array(~putting(rows) & lacks_a_value(rows, definition) & ~_just_put(rows, definition)))
    if not removed.num_rows:
        return 0
    first = np.append(True, changes(removed, definition.sort_key))
    removed = removed.filter(pa.array(first)).select(definition.schema.names)
    frame, equal = frame_of(removed), 0
    for lookup in lookups:
        for match in lookup.find(removed):
            stored = lookup.frame_at(match.positions, definition.schema.names)
            equal += int(same_rows(stored, frame[match.probes]).sum())
    return int(removed.num_rows) - equal


def _just_put(rows: pa.Table, definition: TableDefinition) -> npt.NDArray[np.bool_]:
    """Marks the rows that the row before them has put: a commit may put a row and remove it."""
    frame = frame_of(rows.select(definition.schema.names))
    repeats = ~changes(rows, definition.sort_key) & putting(rows)[:-1]
    return np.append(False, repeats & same_rows(frame[:-1], frame[1:]))
