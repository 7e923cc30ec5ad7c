"""The system tables of rows, ``audit_log`` and ``changes``: planned as parts that tasks can read one by one.

Parts are picklable and have only metadata. Rows begin with the kind, as in Paimon, and those of the audit log end with
the commit of the change, as in Delta's change data feed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from filestore.delta.log import Commit
from filestore.errors import InvalidRequest, Unsupported
from filestore.files.writer import TableFiles
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.reading.difference import SlotDifference, Spill, VersionPair, changed_rows, differences
from filestore.reading.scan import ScanPlan, scan
from filestore.retention.rules import first_retained
from filestore.rows.casting import cast_rows
from filestore.rows.reshape import reshaped
from filestore.table import FileStore
from log.table.config import LogConfig
from managed_table.own_log import OwnRecords
from tablestore.following.hybrid import FromLog, Replaced, steps
from tablestore.following.records import RecordReader, definition_after

__all__ = ["KIND", "AuditPart", "ChangesPart", "audit_parts", "audit_schema", "changes_parts", "changes_schema"]

KIND = "rowkind"
"""The column with the kind of a change."""
_COMMIT = [pa.field("_commit_version", pa.int64()), pa.field("_commit_timestamp", pa.timestamp("us", tz="UTC"))]
_VERSIONS_OF_A_PART = 100


def changes_schema(definition: TableDefinition) -> pa.Schema:
    """The columns of ``changes``: ``rowkind`` and those of the table.

    Raises:
        Unsupported: the table has a column of that name (``rowkind-column``).
    """
    if clash := [name for name in definition.schema.names if name.lower() == KIND]:
        raise Unsupported(
            f"the table has a column {clash[0]!r}, so its changes cannot have one of that name for their kind: use "
            "follow(), which calls it _kind",
            code="rowkind-column",
        )
    columns = (field.with_nullable(True) for field in definition.schema.to_arrow())
    return pa.schema([pa.field(KIND, pa.string()), *columns])


def audit_schema(definition: TableDefinition) -> pa.Schema:
    """The columns of ``audit_log``: those of ``changes``, and those of the commit."""
    return pa.schema([*changes_schema(definition), *_COMMIT])


@dataclass(frozen=True, slots=True)
class ChangesPart:
    """The difference in one slot. Picklable."""

    compared: VersionPair
    difference: SlotDifference
    schema: pa.Schema

    def rows(self, spill: Spill) -> Iterator[pa.Table]:
        """Computes the changes, in the order of the key."""
        for rows in changed_rows(self.compared, self.difference, spill):
            yield cast_rows(_with_kind_first(rows), self.schema)


def changes_parts(
    store: FileStore, from_version: int, to_version: int, columns: int | None = None
) -> list[ChangesPart]:
    """Plans the changes from the rows of one version to those of another, which may be an earlier one. Reads metadata.

    Rows have the table's current columns, whatever it had then, or those of the version `columns`; they are those that
    our readers see, with pending runs merged.
    """
    before, after = store.state(from_version), store.state(to_version)
    wanted = store.state(columns).definition
    compared = VersionPair(store.table_files(before), store.table_files(after), wanted.schema)
    return [ChangesPart(compared, difference, changes_schema(wanted)) for difference in differences(before, after)]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Parts of a version's scan whose rows were all removed, or all added, by one commit."""

    table: TableFiles
    parts: tuple[ScanPlan, ...]
    kind: RowKind


@dataclass(frozen=True, slots=True)
class _Commit:
    """The changes of a commit in the buckets of a part."""

    version: int
    timestamp_ms: int
    written: Schema
    changes: tuple[FromLog | _Rows, ...]


@dataclass(frozen=True, slots=True)
class AuditPart:
    """The changes of some commits in one bucket, in their order. Picklable."""

    table: TableFiles
    log: LogConfig
    bucket: int
    commits: tuple[_Commit, ...]

    def rows(self) -> Iterator[pa.Table]:
        """Reads the changes as they were committed."""
        schema, wanted = audit_schema(self.table.definition), self.table.definition.schema
        with RecordReader(self.log, wanted, self.table.ambient) as log:
            for commit in self.commits:
                for change in commit.changes:
                    if isinstance(change, FromLog):
                        found = log.read(change.transactions, commit.written, self.bucket, change.committed_ms)
                    else:
                        found = _scanned(change, wanted)
                    for rows in found:
                        yield cast_rows(_with_commit(_with_kind_first(rows), commit), schema)


def _scanned(change: _Rows, wanted: Schema) -> Iterator[pa.Table]:
    for part in change.parts:
        for rows in scan(change.table, part):
            changes = rows.append_column(KIND_COLUMN, pa.repeat(str(change.kind), rows.num_rows))
            yield reshaped(changes, change.table.definition.schema, wanted)


def audit_parts(store: FileStore, log: LogConfig, from_version: int | None, to_version: int | None) -> list[AuditPart]:
    """Plans the changes after a version (None: the first retained one) up to another (None: the newest).

    It reads only metadata. Rows have the table's current columns, whatever it had when they were written.

    Raises:
        NotFound: there are no such versions; ``log-gap``: their records were in a log that was lost.
        InvalidRequest: the first is after the second (``bad-versions``).
    """
    newest = store.state()
    last = newest.version if to_version is None else to_version
    # the rows that older overwrites replaced may be gone, although their log entries exist
    first = max(first_retained(newest), OwnRecords.known(store).first) if from_version is None else from_version
    if first > last:
        raise InvalidRequest(
            f"from_version={first} is after to_version={last}: the audit log cannot go backward", code="bad-versions"
        )
    store.snapshot(first)
    table, definition = store.table_files(newest), store.definition(first)
    store.snapshot(last)
    buckets = range(table.definition.buckets)
    parts = []
    for start in range(first, last, _VERSIONS_OF_A_PART):
        planned: dict[int, list[_Commit]] = {bucket: [] for bucket in buckets}
        for version in range(start + 1, min(start + _VERSIONS_OF_A_PART, last) + 1):
            commit = store.required(version)
            definition = definition_after(commit, definition)
            _plan(store, commit, definition, planned)
        parts += [AuditPart(table, log, bucket, tuple(commits)) for bucket, commits in planned.items() if commits]
    return parts


def _plan(store: FileStore, commit: Commit, definition: TableDefinition, planned: Mapping[int, list[_Commit]]) -> None:
    """Adds the changes of a version to each bucket that it changed."""
    snapshot = commit.snapshot()
    timestamp_ms = snapshot.timestamp_ms
    for step in steps([snapshot], OwnRecords.known(store), keyed=bool(definition.primary_key)):
        by_bucket = _logged(step) if isinstance(step, FromLog) else _replaced(store, step)
        for bucket, changes in by_bucket.items():
            planned[bucket].append(_Commit(commit.version, timestamp_ms, definition.schema, tuple(changes)))


def _logged(step: FromLog) -> dict[int, list[FromLog | _Rows]]:
    return {r.bucket: [step] for t in step.transactions for r in t.ranges}


def _replaced(store: FileStore, step: Replaced) -> dict[int, list[FromLog | _Rows]]:
    """The removed and the added parts of each bucket."""
    before, after = store.state(step.version - 1), store.state(step.version)
    sides = (
        (before, Replaced.removed(before, after), RowKind.DELETE),
        (after, Replaced.added(before, after), RowKind.INSERT),
    )
    found: dict[int, list[FromLog | _Rows]] = {}
    for state, parts, kind in sides:
        for bucket in {part.bucket for part in parts}:
            chosen = tuple(part for part in parts if part.bucket == bucket)
            found.setdefault(bucket, []).append(_Rows(store.table_files(state), chosen, kind))
    return found


def _with_kind_first(rows: pa.Table) -> pa.Table:
    kinds = rows.column(KIND_COLUMN)
    return rows.drop_columns([KIND_COLUMN]).add_column(0, KIND, kinds)


def _with_commit(rows: pa.Table, commit: _Commit) -> pa.Table:
    version, timestamp = _COMMIT
    moments = pa.repeat(pa.scalar(commit.timestamp_ms * 1000, timestamp.type), rows.num_rows)
    return rows.append_column(version, pa.repeat(pa.scalar(commit.version, version.type), rows.num_rows)).append_column(
        timestamp, moments
    )
