"""Changes a table's definition, and the retention of its log with it."""

from __future__ import annotations

from collections.abc import Sequence

from filestore.model.changes import Change
from filestore.model.snapshot import Snapshot
from filestore.operations.alter import alter
from filestore.operations.fold import fold_table
from filestore.operations.rewrite import TableRewrite
from log.table.retention import RetentionChange
from managed_table.opened import OpenedTable

__all__ = ["alter_table"]


def alter_table(table: OpenedTable, changes: Sequence[Change]) -> Snapshot:
    """Implements `tablestore.Table.alter`. The log is changed first, so that it can refuse."""
    retention = RetentionChange(table.log_config, table.ambient)
    return alter(table.filestore, changes, TableRewrite, lambda store: fold_table(store, full=True), retention)
