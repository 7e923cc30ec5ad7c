"""`OpenTables`: opens the tables that a catalog describes, each once for all users of a store."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from catalog_service.client import Catalog, storage_of_table
from catalog_service.wire.tables import TableInfo
from filestore.ambient import Ambient
from filestore.metrics.meter import Meter
from filestore.storage.locations import Storages
from managed_table.opened import OpenedTable
from tablestore.table import Table

if TYPE_CHECKING:
    from tablestore.kafka_table import KafkaTable

__all__ = ["OpenTables"]

_MOST_OPEN = 100
"""The number of tables that a store keeps open, with their newest versions; it keeps those that were used last."""


class OpenTables:
    """Opens tables, and keeps those that were used last, so that all users share what was read of them.

    Args:
        catalog: Stays open as long as the tables are used.
        storages: The storages of this process.
        ambient: Clock, ids, chance.
        meter: Takes what is measured.
    """

    def __init__(self, catalog: Catalog, storages: Storages, ambient: Ambient, meter: Meter) -> None:
        self._catalog = catalog
        self._storages = storages
        self._ambient = ambient
        self._meter = meter
        self._known: dict[str, OpenedTable] = {}
        self._lock = threading.Lock()

    def open(self, info: TableInfo) -> Table | KafkaTable:
        """Opens a table, and reads the newest version of one that has versions."""
        declaration = info.declaration()
        if declaration is None:
            return Table(self.unread(info))
        from tablestore.kafka_table import KafkaTable  # here, since it loads polars, and most stores have none

        return KafkaTable(info.database, info.name, info.table_id, declaration, self._ambient)

    def unread(self, info: TableInfo) -> OpenedTable:
        """Returns a table of which nothing need be readable. REQUIRES: it has no connector."""
        identity = info.identity()
        storage = storage_of_table(self._catalog, info, self._storages, self._ambient)
        with self._lock:
            known = self._known.pop(identity.identifier, None)
            if known is None or known.identity != identity:
                known = OpenedTable(identity, storage, self._ambient, self._meter)
            self._known[identity.identifier] = known
            if len(self._known) > _MOST_OPEN:
                del self._known[next(iter(self._known))]
            return known
