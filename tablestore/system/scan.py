"""`SystemScan`: a system table that is read when its rows are requested, as `tablestore.Scan` is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from filestore.errors import InvalidRequest, NotFound
from filestore.model.definition import TableDefinition
from filestore.model.snapshot import Snapshot
from filestore.retention.rules import first_retained
from filestore.sorting.runs import local_runs
from filestore.table import FileStore
from managed_table.opened import OpenedTable
from tablestore.reading.results import Results
from tablestore.system.changes import audit_parts, audit_schema, changes_parts, changes_schema
from tablestore.system.metadata import OF_A_VERSION, OF_HISTORY, schemas_of, snapshots_of
from tablestore.system.names import SYSTEM_TABLES

__all__ = ["SystemScan", "Versions", "metadata_rows", "system_scan", "system_schema"]

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that a system table is read for.

    Attributes:
        at: The version, for tables of one version; the newest if None.
        after: For ``audit_log`` and ``changes``: the version before the first change.
        until: For the same tables: the version of the last change; the newest if None.
        columns: For ``changes``: the version whose columns the rows have; the newest if None.
    """

    at: int | None = None
    after: int | None = None
    until: int | None = None
    columns: int | None = None

    def check(self, name: str) -> None:
        """Refuses versions that the system table does not use.

        Raises:
            NotFound: there is no such system table (``no-system-table``).
            InvalidRequest: ``bad-versions``.
        """
        if name not in SYSTEM_TABLES:
            raise NotFound(
                f"there is no system table {name!r}; there are {', '.join(SYSTEM_TABLES)}", code="no-system-table"
            )
        ranged = name in ("audit_log", "changes")
        if self.at is not None and name not in OF_A_VERSION:
            problem = "takes no version" + (": pass from_version and to_version" if ranged else "")
        elif (self.after is not None or self.until is not None) and not ranged:
            problem = "takes no from_version and to_version" + (": pass version" if name in OF_A_VERSION else "")
        elif name == "changes" and self.after is None:
            problem = "needs from_version: the version whose rows are compared with those of to_version, or the newest"
        else:
            return
        raise InvalidRequest(f"system table {name!r} {problem}", code="bad-versions")


@dataclass(frozen=True, slots=True, repr=False)
class SystemScan(Results):
    """The rows of a system table.

    Attributes:
        schema: Its columns.
    """

    schema: pa.Schema
    _tables: Callable[[], Iterable[pa.Table]]

    def __repr__(self) -> str:
        return f"SystemScan(columns={self.schema.names})"

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields batches; those of ``audit_log`` and ``changes`` have about a row group, so memory stays bounded."""
        for rows in self._tables():
            yield from rows.to_batches()


def system_schema(name: str, definition: TableDefinition) -> pa.Schema:
    """Returns the columns of a system table of a table."""
    match name:
        case "audit_log":
            return audit_schema(definition)
        case "changes":
            return changes_schema(definition)
    return OF_HISTORY[name] if name in OF_HISTORY else OF_A_VERSION[name][0]


def system_scan(table: OpenedTable, name: str, versions: Versions) -> SystemScan:
    """Plans the read of a system table for the existing versions. Errors are those of `tablestore.Table.system`."""
    versions.check(name)
    store = table.filestore
    schema = system_schema(name, store.state(versions.columns).definition)
    match name:
        case "audit_log":
            log = table.own_log()
            audited = audit_parts(store, log, versions.after, versions.until)
            return SystemScan(schema, lambda: (rows for part in audited for rows in part.rows()))
        case "changes":
            assert versions.after is not None
            until = store.state().version if versions.until is None else versions.until
            changed = changes_parts(store, versions.after, until, versions.columns)
            return SystemScan(schema, lambda: (rows for part in changed for rows in part.rows(local_runs)))
    at = store.state(versions.at).version
    return SystemScan(schema, lambda: metadata_rows(store, name, at))


def metadata_rows(store: FileStore, name: str, version: int) -> Iterator[pa.Table]:
    """Returns the rows of a system table that is read from the Delta log, up to a version."""
    match name:
        case "snapshots":
            return snapshots_of(_history(store, version))
        case "schemas":
            oldest = store.state(first_retained(store.state()))  # log entries of older, expired versions may exist
            later = (
                commit for commit in store.delta_log.read_entries_after(oldest.version) if commit.version <= version
            )
            return schemas_of(oldest, later)
    return OF_A_VERSION[name][1](store.state(version))


def _history(store: FileStore, version: int) -> Iterator[Snapshot]:
    """Yields snapshots from a version on, newest first, reading some at a time."""
    before = version + 1
    while page := store.snapshots(_PAGE, before):
        yield from page
        before = page[-1].version
