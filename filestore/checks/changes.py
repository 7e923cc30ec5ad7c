"""Checks change data against the versions that name it: files, columns, types, and counts (FORMAT.md section 12.6).

It looks at all bytes of each change file, and decodes one column, row group by row group; others only where the footer
does not count their nulls, or may hide values. Rows are read where they may be untrue
(`filestore.checks.removed_rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from filestore.changelog.arrived import by_look_up
from filestore.changelog.images import change_schema
from filestore.checks.damage import damage_of
from filestore.checks.hidden import HiddenValues
from filestore.checks.removed_rows import check_removed_rows
from filestore.checks.report import Findings, Invariant, cause_of
from filestore.decoding import MALFORMED
from filestore.delta.actions import CHANGE_FEED_PROPERTY, Action, file_key, slot_of
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import Corrupt, InvalidRequest, NotFound, Unsupported
from filestore.files.columns import stored_schema
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.model.changelog import CHANGE_TYPE_COLUMN, ChangelogProducer, ChangeType
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Slot
from filestore.model.snapshot import Operation
from filestore.operations.replaced_rows import needs_change_data
from filestore.retention.rules import is_retained

__all__ = ["BROKEN", "check_changes", "check_lost_changes"]

Counts = Counter[str]

BROKEN = (*MALFORMED, Corrupt, NotFound, InvalidRequest, Unsupported)
"""The errors of reading an entry that does not conform to FORMAT.md. A storage that does not answer is no damage."""

_FILTER = "let readers of changes other than our own filter after they have read, until this version expires"

_MERGING = (Operation.WRITE, Operation.FOLD)
_REPLACING = (Operation.OVERWRITE, Operation.DROP_PARTITION, Operation.ROLLBACK)
_CHANGING = (*_MERGING, *_REPLACING)
"""Operations whose commits may contain change data."""


def check_changes(
    table: TableFiles, findings: Findings, before: TableState, after: TableState, entry: Commit
) -> str | None:
    """Checks the change data of one version; returns the path of a missing file, which may be gone after an expiry."""
    try:
        return _check(table, findings, before, after, entry)
    except BROKEN as error:
        message = f"the change data of version {entry.version} cannot be read: {type(error).__name__}: {error}"
        findings.add(Invariant.CHANGE_FEED, message, version=entry.version)
        return None


def _check(table: TableFiles, findings: Findings, before: TableState, after: TableState, entry: Commit) -> str | None:
    definition = after.definition
    _check_feed(findings, definition, entry)
    found: dict[Slot, Counts] = {}
    for action in (a["cdc"] for a in entry.actions if "cdc" in a):
        path = file_key(action)
        try:
            counts = _types(table, findings, entry.version, definition, action)
        except NotFound:
            return path
        if isinstance(counts, str):
            findings.add(Invariant.CHANGE_FILE, f"version {entry.version}: {path} {counts}", path)
            return None
        found.setdefault(slot_of(action, definition.partition_by), Counter()).update(counts)
    operation = entry.snapshot().operation
    if (operation in _MERGING and _is_exact(definition, operation)) or (
        needs_change_data(definition) and operation in _REPLACING
    ):
        _check_counts(findings, before, after, entry, found)
    check_removed_rows(table, findings, before, entry)
    return None


def _is_exact(definition: TableDefinition, operation: Operation) -> bool:
    """Returns whether the change data of a commit that merges rows are those before and after each change."""
    known = by_look_up(definition) if operation is Operation.FOLD else definition
    return known.changelog_producer.images


def check_lost_changes(findings: Findings, newest: TableState, lost: Mapping[int, str]) -> None:
    """Reports missing change files of versions that have not expired. `lost` has a missing path of each version."""
    for version, path in lost.items():
        if is_retained(newest, version):
            message = f"version {version}: {path} is named as change data, but is not on storage"
            findings.add(Invariant.CHANGE_FILE, message, path)


def _check_feed(findings: Findings, definition: TableDefinition, entry: Commit) -> None:
    wanted = definition.changelog_producer is not ChangelogProducer.NONE
    for metadata in (a["metaData"] for a in entry.actions if "metaData" in a):
        configured = metadata["configuration"].get(CHANGE_FEED_PROPERTY)
        if (configured == "true") != wanted:
            message = (
                f"has {CHANGE_FEED_PROPERTY} = {configured} and changelog-producer = {definition.changelog_producer}"
            )
            findings.add(Invariant.CHANGE_FEED, f"version {entry.version} {message}", version=entry.version)
    for action in (a["cdc"] for a in entry.actions if "cdc" in a):
        operation = entry.snapshot().operation
        if not wanted or operation not in _CHANGING or action["dataChange"]:
            message = (
                f"version {entry.version} is a {operation} of a table with changelog-producer = "
                f"{definition.changelog_producer} and has a cdc action with dataChange = {action['dataChange']}"
            )
            findings.add(Invariant.CHANGE_FEED, message, version=entry.version)


def _types(
    table: TableFiles, findings: Findings, version: int, definition: TableDefinition, action: Mapping[str, Any]
) -> Counts | str:
    """Counts each type of change in a file, or returns a text that says what is wrong. `NotFound` if it is missing."""
    path = file_key(action)
    try:
        with ParquetReader(table.storage, table.path(path)) as parquet:
            if parquet.size != action["size"]:
                return f"has {parquet.size} bytes, the log says {action['size']}"
            if (damage := damage_of(parquet)) is not None:
                return f"{damage}: restore it from a copy, or let readers of changes begin behind this version"
            stored = {f.name: f.type for f in parquet.arrow_schema}
            if stored != {f.name: f.type for f in stored_schema(change_schema(definition), definition.schema)}:
                return f"has columns {', '.join(stored)}, or other types than the table"
            rows = _Rows(parquet, definition)
            if rows.empty:
                return f"has nulls in the column {rows.empty[0]}, which is NOT NULL"
            for what in rows.hidden:
                findings.add(Invariant.HIDDEN_VALUE, f"version {version}: {path} has {what}: {_FILTER}", path, version)
    except Corrupt as error:
        return f"is not readable Parquet: {cause_of(error)}"
    unknown = sorted(str(kind) for kind in set(rows.types) - set(ChangeType))
    return f"has {CHANGE_TYPE_COLUMN} {unknown[0]!r}" if unknown else rows.types


class _Rows:
    """The facts about the rows of a change file.

    Attributes:
        types: How many rows have each type of change.
        empty: The NOT NULL columns that have a null.
        hidden: The values that readers miss which skip row groups.
    """

    def __init__(self, parquet: ParquetReader, definition: TableDefinition) -> None:
        self.types: Counts = Counter()
        self.empty: list[str] = []
        self.hidden: list[str] = []
        full = definition.changelog_producer.images  # of others only the removed rows can lack a value
        needed = {column.in_files: column.name for column in definition.schema if full and not column.nullable}
        hidden = HiddenValues(parquet)
        for group in range(len(parquet.group_rows)):
            nulls = _null_counts(parquet, group)
            columns = dict.fromkeys(
                [CHANGE_TYPE_COLUMN, *hidden.columns(group), *(n for n in needed if n not in nulls)]
            )
            rows = parquet.read(group, list(columns))
            nulls |= {name: rows.column(name).null_count for name in rows.column_names}
            self.empty += [name for in_files, name in needed.items() if nulls[in_files]]
            self.hidden += hidden.found(group, rows)
            types = pc.value_counts(rows.column(CHANGE_TYPE_COLUMN))
            self.types.update({pair["values"]: pair["counts"] for pair in types.to_pylist()})


def _null_counts(parquet: ParquetReader, group: int) -> dict[str, int]:
    """Returns how many nulls the columns of a row group have, by its statistics, which some columns lack."""
    chunks = parquet.footer.row_group(group)
    counted = (chunks.column(number) for number in range(chunks.num_columns))
    return {
        chunk.path_in_schema: chunk.statistics.null_count
        for chunk in counted
        if chunk.statistics is not None and chunk.statistics.has_null_count
    }


def _check_counts(
    findings: Findings, before: TableState, after: TableState, entry: Commit, found: Mapping[Slot, Counts]
) -> None:
    grown, come, gone = _growth(before, after, entry.actions)
    plain = all(file.vector is None for file in (*come, *gone))
    operation, unread = entry.snapshot().operation, entry.snapshot().unread
    if not found and unread and operation in _REPLACING:
        return  # its writer could not read the rows that left the table
    if not found and plain and (not gone or (operation in _REPLACING and not come)):
        return  # readers read the rows of whole files as inserts, or as deletes
    if not found and operation in _REPLACING and (come or gone):
        message = f"version {entry.version} is a {operation} of which readers cannot derive the changes, and has none"
        findings.add(Invariant.CHANGE_COUNT, message, version=entry.version)
        return
    for slot in {*grown, *found}:
        counts = found.get(slot, Counter())
        images = counts[ChangeType.UPDATE_BEFORE], counts[ChangeType.UPDATE_AFTER]
        if counts[ChangeType.INSERT] - counts[ChangeType.DELETE] != grown[slot] or images[0] != images[1]:
            findings.add(
                Invariant.CHANGE_COUNT,
                f"version {entry.version} changes the rows of bucket {slot.bucket} of partition "
                f"{dict(slot.partition)} by {grown[slot]}, but its change data are {dict(counts)}",
                f"{slot}",
                entry.version,
            )


def _growth(
    before: TableState, after: TableState, actions: Sequence[Action]
) -> tuple[Counter[Slot], list[DataFile], list[DataFile]]:
    """Returns by how many live rows each slot grew, the files that were added, and those that were removed."""
    gone = [_there(before, action["remove"]) for action in actions if "remove" in action]
    come = [_there(after, action["add"]) for action in actions if "add" in action]
    grown: Counter[Slot] = Counter()
    for sign, files in ((-1, gone), (1, come)):
        for file in files:
            grown[file.slot] += sign * file.live_rows
    return grown, come, gone


def _there(state: TableState, action: Action) -> DataFile:
    if (file := state.named(action)) is None:
        raise KeyError(file_key(action))
    return file
