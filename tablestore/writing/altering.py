"""Changes a table's definition, and its log with it."""

from __future__ import annotations

from collections.abc import Sequence

from filestore.model.changes import Change
from filestore.model.snapshot import Snapshot
from filestore.operations.alter import alter
from filestore.operations.fold import fold_table
from filestore.operations.rewrite import TableRewrite
from managed_table.log_change import LogChange
from managed_table.opened import OpenedTable

__all__ = ["alter_table"]


def alter_table(table: OpenedTable, changes: Sequence[Change]) -> Snapshot:
    """Implements `tablestore.Table.alter`. The log is changed first, so that it can refuse."""
    change = LogChange(table.log_config, table.ambient)
    return alter(table.filestore, changes, TableRewrite, lambda store: fold_table(store, full=True), change)
