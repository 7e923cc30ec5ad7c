"""The catalog as programs use it: one protocol, over HTTP or embedded. Other packages import this package.

    catalog = connect("http://127.0.0.1:8080")          # a service
    catalog = connect("/data/warehouse")                # its SQLite file in the warehouse, no service
    catalog.create_database("shop", if_not_exists=True)
    orders = CreateTable.of("orders", "id BIGINT, name STRING", primary_key=["id"])
    info = catalog.create_table("shop", orders)

Both raise the same errors with the same codes.

    catalog      the `Catalog` protocol, and `connect`
    embedded     its implementation in this process      remote       its implementation over HTTP
    connecting   connections to a service, TLS           claims       a table's storage, with its claims of versions
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from catalog_service.client.catalog import Catalog, connect
from catalog_service.model.paths import is_service, warehouse_location

if TYPE_CHECKING:
    from catalog_service.client.claims import storage_of_table
    from catalog_service.client.embedded import EmbeddedCatalog
    from catalog_service.client.remote import HttpCatalog
    from catalog_service.wire.leases import LeaseInfo, LeaseRequest
    from catalog_service.wire.tables import AlterTable, CreateTable, SnapshotInfo, TableInfo
    from catalog_service.wire.views import CreateView, ViewInfo

__all__ = [
    "AlterTable",
    "Catalog",
    "CreateTable",
    "CreateView",
    "EmbeddedCatalog",
    "HttpCatalog",
    "LeaseInfo",
    "LeaseRequest",
    "SnapshotInfo",
    "TableInfo",
    "ViewInfo",
    "connect",
    "is_service",
    "storage_of_table",
    "warehouse_location",
]


# These names load when they are first used: a program that lists a service's tables needs neither SQLAlchemy nor Arrow,
# which take a second.
_HOMES = {
    "EmbeddedCatalog": "catalog_service.client.embedded",
    "HttpCatalog": "catalog_service.client.remote",
    "LeaseInfo": "catalog_service.wire.leases",
    "LeaseRequest": "catalog_service.wire.leases",
    "AlterTable": "catalog_service.wire.tables",
    "CreateTable": "catalog_service.wire.tables",
    "SnapshotInfo": "catalog_service.wire.tables",
    "TableInfo": "catalog_service.wire.tables",
    "CreateView": "catalog_service.wire.views",
    "ViewInfo": "catalog_service.wire.views",
    "storage_of_table": "catalog_service.client.claims",
}


def __getattr__(name: str) -> Any:
    """Loads a name of `_HOMES` when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
