"""Converts rows and states of tables to the values of `catalog_service.wire`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from catalog_service.database.definitions import connector_of
from catalog_service.database.schema import DatabaseRow, LeaseRow, TableEntry, TableRow, managed
from catalog_service.model.view_definition import ViewDefinition
from catalog_service.use_cases.definitions import effective_options
from catalog_service.wire.columns import column_infos
from catalog_service.wire.databases import DatabaseInfo, TableSummary
from catalog_service.wire.leases import LeaseInfo
from catalog_service.wire.tables import CurrentSnapshot, SnapshotInfo, TableInfo
from catalog_service.wire.views import ViewInfo, ViewSummary
from filestore.delta.state import TableState
from filestore.model.snapshot import Snapshot
from log.connector.declaration import KafkaDeclaration

__all__ = [
    "database_info",
    "kafka_table_info",
    "lease_info",
    "snapshot_info",
    "table_info",
    "table_summary",
    "view_info",
    "view_summary",
]


def database_info(row: DatabaseRow, location: str) -> DatabaseInfo:
    """Describes a database."""
    return DatabaseInfo(name=row.name, comment=row.comment, location=location, created_at=_time(row.created_at_ms))


def lease_info(row: LeaseRow) -> LeaseInfo:
    """Describes a lease."""
    return LeaseInfo(table_id=row.table_id, owner=row.owner, expires_at=_time(row.expires_at_ms))


def table_summary(entry: TableEntry, location: str | None) -> TableSummary:
    """Describes a table in a list."""
    return TableSummary(
        database=entry.database,
        name=entry.name,
        table_id=entry.table_id,
        connector=entry.connector,
        location=location,
        comment=entry.comment,
        created_at=_time(entry.created_at_ms),
    )


def kafka_table_info(row: TableRow, declaration: KafkaDeclaration) -> TableInfo:
    """Describes a table with a connector in full."""
    return TableInfo(
        database=row.database,
        name=row.name,
        table_id=row.table_id,
        connector=connector_of(declaration),
        format=None,
        location=None,
        columns=column_infos(declaration.columns),
        primary_key=list(declaration.primary_key),
        partition_by=[],
        options=declaration.options,
        effective_options=declaration.effective_options,
        comment=declaration.comment,
        created_at=_time(row.created_at_ms),
        current_snapshot=None,
    )


def table_info(
    row: TableRow,
    location: str,
    state: TableState | None,
    storage_options: Mapping[str, str] | None = None,
    commits: str = "store",
) -> TableInfo:
    """Describes a managed table in full: as its newest version says, or (without one) as it was created."""
    definition = managed(row) if state is None else state.definition
    return TableInfo(
        database=row.database,
        name=row.name,
        table_id=row.table_id,
        location=location,
        storage_options=dict(storage_options or {}),
        commits=commits,
        columns=column_infos(definition.schema),
        primary_key=list(definition.primary_key),
        partition_by=list(definition.partition_by),
        options=definition.options.as_dict(),
        effective_options=effective_options(definition.options),
        keeps_topic=row.keeps_topic,
        comment=definition.comment,
        created_at=_time(row.created_at_ms),
        current_snapshot=None if state is None else _current(state),
    )


def snapshot_info(snapshot: Snapshot) -> SnapshotInfo:
    """Describes one version of a table."""
    return SnapshotInfo(
        version=snapshot.version,
        timestamp=snapshot.timestamp,
        operation=snapshot.operation.value,
        commit_id=snapshot.commit_id,
        log_offsets=dict(snapshot.log_offsets),
        metrics=dict(snapshot.metrics),
        notes=list(snapshot.notes),
    )


def view_info(row: TableRow, definition: ViewDefinition) -> ViewInfo:
    """Describes a view in full."""
    return ViewInfo(
        database=row.database,
        name=row.name,
        view_id=row.table_id,
        query=definition.query,
        columns=definition.columns,
        context=dict(definition.context),
        properties=dict(definition.properties),
        comment=definition.comment,
        created_at=_time(row.created_at_ms),
    )


def view_summary(entry: TableEntry) -> ViewSummary:
    """Describes a view in a list."""
    return ViewSummary(
        database=entry.database,
        name=entry.name,
        view_id=entry.table_id,
        comment=entry.comment,
        created_at=_time(entry.created_at_ms),
    )


def _current(state: TableState) -> CurrentSnapshot:
    return CurrentSnapshot(
        version=state.version,
        timestamp=_time(state.timestamp_ms),
        files=len(state.files),
        bytes=state.totals.size,
        rows=state.totals.live_rows,
        log_offsets=state.log.offsets,
    )


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
