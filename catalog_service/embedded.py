"""The catalog without a service: the use cases run in this process."""

from __future__ import annotations

import threading
from functools import partial
from typing import Self
from urllib.parse import unquote, urlsplit

from catalog_service.engine import default_database_url, is_there
from catalog_service.lease_wire import LeaseInfo, LeaseRequest
from catalog_service.names import fold_name
from catalog_service.pages import PAGE_SIZE_MAX, every_page
from catalog_service.paths import local_path
from catalog_service.repository import database_not_found
from catalog_service.service import CatalogService, open_service
from catalog_service.wire import AlterTable, CreateDatabase, CreateTable, SnapshotInfo, TableInfo
from filestore.arguments import checks_arguments
from filestore.contexts import Closing
from filestore.errors import NotFound, Unsupported

__all__ = ["EmbeddedCatalog", "warehouse_and_database"]


@checks_arguments()
class EmbeddedCatalog(Closing):
    """Implements `catalog_service.client.Catalog`. Several processes may open one warehouse at once.

    The first database creates the catalog. Until then it is empty, so that reading from a mistyped path creates no
    files.

    Args:
        warehouse: The folder of the databases.
        database: The URL of the catalog's database; ``<warehouse>/catalog.db`` if None.
    """

    def __init__(self, warehouse: str, database: str | None = None) -> None:
        self._warehouse, self._database = warehouse_and_database(warehouse, database)
        self._opening = threading.Lock()
        self._service: CatalogService | None = None
        self._existing_service()

    @classmethod
    def around(cls, service: CatalogService) -> Self:
        """Makes a client of a service that is open already."""
        catalog = cls.__new__(cls)
        catalog._service = service
        return catalog

    def _existing_service(self) -> CatalogService | None:
        """Returns the service; None if no process has created the catalog yet."""
        if self._service is None and is_there(self._database):
            return self._open_service()
        return self._service

    def _open_service(self) -> CatalogService:
        if self._service is not None:
            return self._service
        with self._opening:
            if self._service is None:
                self._service = open_service(self._warehouse, self._database)
            return self._service

    def _service_with(self, database: str) -> CatalogService:
        """Returns the service for a request about a database; raises `NotFound` while there is no catalog."""
        service = self._existing_service()
        if service is None:
            raise database_not_found(fold_name("database", database))
        return service

    def create_database(self, name: str, *, if_not_exists: bool = False, comment: str | None = None) -> None:
        """Creates a database."""
        request = CreateDatabase(name=name, comment=comment)
        fold_name("database", name)  # checked first: a wrong name must not create a catalog
        self._open_service().create_database(request, if_not_exists=if_not_exists)

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Drops a database."""
        try:
            service = self._service_with(name)
        except NotFound:
            if not if_exists:
                raise
        else:
            service.drop_database(name, if_exists=if_exists, cascade=cascade)

    def list_databases(self) -> list[str]:
        """Returns the names of all databases in order."""
        service = self._existing_service()
        if service is None:
            return []
        pages = every_page(partial(service.list_databases, PAGE_SIZE_MAX))
        return [database.name for page in pages for database in page.databases]

    def create_table(self, database: str, table: CreateTable, *, if_not_exists: bool = False) -> TableInfo:
        """Creates a table."""
        return self._service_with(database).create_table(database, table, if_not_exists=if_not_exists)[0]

    def get_table(self, database: str, name: str, *, with_snapshot: bool = False) -> TableInfo:
        """Returns a table in full."""
        return self._service_with(database).get_table(database, name, with_snapshot=with_snapshot)

    def alter_table(self, database: str, name: str, changes: AlterTable) -> SnapshotInfo:
        """Changes a table's columns, comments and options."""
        return self._service_with(database).alter_table(database, name, changes)

    def list_tables(self, database: str) -> list[str]:
        """Returns the names of a database's tables in order."""
        pages = every_page(partial(self._service_with(database).list_tables, database, PAGE_SIZE_MAX))
        return [table.name for page in pages for table in page.tables]

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a table."""
        try:
            service = self._service_with(database)
        except NotFound:
            if not if_exists:
                raise
        else:
            service.drop_table(database, name, if_exists=if_exists)

    def acquire_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Takes a table's lease."""
        return self._service_with(database).acquire_lease(database, name, request)

    def renew_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Extends a lease."""
        return self._service_with(database).renew_lease(database, name, request)

    def release_lease(self, database: str, name: str, owner: str) -> None:
        """Ends a lease."""
        self._service_with(database).release_lease(database, name, owner)

    def close(self) -> None:
        """Closes the database's connections."""
        if self._service is not None:
            self._service.close()


def warehouse_and_database(warehouse: str, database: str | None) -> tuple[str, str]:
    """The warehouse as an absolute path, and the URL of its catalog's database.

    Raises:
        InvalidRequest: ``bad-path``.
        Unsupported: ``warehouse-storage``: the warehouse is not on a local disk.
    """
    path = warehouse
    if "://" in warehouse:
        parts = urlsplit(warehouse)
        if parts.scheme != "file":
            raise Unsupported(
                f"warehouse {warehouse!r}: only local disks are supported yet; give a path",
                code="warehouse-storage",
            )
        path = unquote(parts.path)
    absolute = local_path(path)
    return absolute, database or default_database_url(absolute)
