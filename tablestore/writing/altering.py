"""Changing a table: its files, and what its log takes from its options."""

from __future__ import annotations

from collections.abc import Sequence

from compaction.folding import fold_table
from compaction.rewrite import TableRewrite
from filestore.alter import alter, plan_alter
from filestore.model.changes import Change
from filestore.model.snapshot import Snapshot
from filestore.table import FileStore
from log.retention import retention_changed
from tablestore.handle import TableHandle

__all__ = ["alter_table"]


def alter_table(handle: TableHandle, files: FileStore, changes: Sequence[Change]) -> Snapshot:
    """See `tablestore.Table.alter`; the log is first, so that it can refuse."""
    before, after = files.state().definition, plan_alter(files, changes).definition
    with retention_changed(handle.log(before), handle.log(after), handle.ambient):
        return alter(files, changes, TableRewrite, lambda store: fold_table(store, full=True))
