"""A table as another process has it: opened again, optionally with another storage or another clock."""

from __future__ import annotations

from filestore.ambient import Ambient
from filestore.metrics.meter import Meter
from filestore.storage.interface import Storage
from filestore.table import FileStore
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore import Table

__all__ = ["again", "opened_again", "under_a_name"]


def again(
    table: Table, *, storage: Storage | None = None, ambient: Ambient | None = None, meter: Meter | None = None
) -> Table:
    """The same table, opened anew."""
    return Table(opened_again(table.opened, storage=storage, ambient=ambient, meter=meter))


def opened_again(
    opened: OpenedTable,
    *,
    storage: Storage | None = None,
    ambient: Ambient | None = None,
    meter: Meter | None = None,
) -> OpenedTable:
    """The same table, opened anew."""
    return OpenedTable(
        opened.identity, storage or opened.storage, ambient or opened.ambient, opened.meter if meter is None else meter
    )


def under_a_name(store: FileStore, name: str = "t", database: str = "d") -> OpenedTable:
    """Files that no catalog knows, under a name."""
    identity = TableIdentity(database, name, store.state().table_id, store.location)
    return OpenedTable(identity, store.storage, store.ambient)
