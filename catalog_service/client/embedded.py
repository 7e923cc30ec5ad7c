"""The catalog without a service: the use cases run in this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Self

from catalog_service.database.engine import is_there
from catalog_service.database.name_errors import database_not_found
from catalog_service.model.names import fold_name
from catalog_service.model.paths import warehouse_location
from catalog_service.tables.registration import table_folders
from catalog_service.use_cases.opening import open_service, warehouse_and_database
from catalog_service.use_cases.service import CatalogService
from catalog_service.wire.claims import ClaimRequest, NewestClaim, PublishRequest
from catalog_service.wire.databases import CreateDatabase
from catalog_service.wire.leases import LeaseInfo, LeaseRequest
from catalog_service.wire.page_tokens import PAGE_SIZE_MAX, every_page
from catalog_service.wire.registrations import Registration
from catalog_service.wire.tables import AlterTable, CreateTable, SnapshotInfo, TableInfo
from catalog_service.wire.views import CreateView, ViewInfo
from filestore.arguments import checks_arguments
from filestore.contexts import Closing
from filestore.errors import NotFound
from filestore.storage.locations import storage_of

__all__ = ["EmbeddedCatalog"]


@checks_arguments()
class EmbeddedCatalog(Closing):
    """Implements `catalog_service.client.Catalog`. Several processes may open one warehouse at once.

    The first database creates the catalog. Until then it is empty, so that reading from a mistyped path creates no
    files.

    Args:
        warehouse: The folder of the databases: a path, or a URL such as ``s3://bucket/folder``.
        database: The URL of the catalog's database. ``<warehouse>/catalog.db`` if None, which needs a local disk.
        storage_options: How to reach the warehouse: `filestore.storage.s3_settings.S3Settings.of`.
        brokers: Kafka's brokers for logs of tables that name none: `catalog_service.use_cases.opening.open_service`.
        commits: Who keeps commits apart: `catalog_service.database.held_commits.HeldCommits`.
    """

    def __init__(
        self,
        warehouse: str,
        database: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        brokers: str | None = None,
        commits: str | None = None,
    ) -> None:
        self._warehouse, self._database = warehouse_and_database(warehouse, database)
        self._storage = storage_of(self._warehouse, storage_options)
        self._storage_options = dict(storage_options or {})
        self._brokers = brokers
        self._commits = commits
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
                self._service = open_service(
                    self._warehouse,
                    self._database,
                    storage_options=self._storage_options,
                    brokers=self._brokers,
                    commits=self._commits,
                )
            return self._service

    def _service_with(self, database: str) -> CatalogService:
        """Returns the service for a request about a database; raises `NotFound` while there is no catalog."""
        service = self._existing_service()
        if service is None:
            raise database_not_found(fold_name("database", database))
        return service

    def _service_to_drop(self, database: str, *, if_exists: bool) -> CatalogService | None:
        """Returns the service to drop something of a database; None if there is no catalog, and nothing need be."""
        try:
            return self._service_with(database)
        except NotFound:
            if not if_exists:
                raise
            return None

    def create_database(self, name: str, *, if_not_exists: bool = False, comment: str | None = None) -> None:
        """Creates a database."""
        request = CreateDatabase(name=name, comment=comment)
        fold_name("database", name)  # checked first: a wrong name must not create a catalog
        self._open_service().create_database(request, if_not_exists=if_not_exists)

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Drops a database."""
        if (service := self._service_to_drop(name, if_exists=if_exists)) is not None:
            service.drop_database(name, if_exists=if_exists, cascade=cascade)

    def list_databases(self) -> list[str]:
        """Returns the names of all databases in order."""
        service = self._existing_service()
        if service is None:
            return []
        pages = every_page(partial(service.list_databases, PAGE_SIZE_MAX))
        return [database.name for page in pages for database in page.databases]

    def create_table(
        self, database: str, table: CreateTable, *, if_not_exists: bool = False, staged: bool = False
    ) -> TableInfo:
        """Creates a table."""
        service = self._service_with(database)
        return service.create_table(database, table, if_not_exists=if_not_exists, staged=staged)[0]

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

    def rename_table(self, database: str, name: str, new_name: str, *, replace: bool = False) -> TableInfo:
        """Gives a table another name."""
        return self._service_with(database).rename_table(database, name, new_name, replace=replace)

    def create_view(
        self, database: str, view: CreateView, *, if_not_exists: bool = False, or_replace: bool = False
    ) -> ViewInfo:
        """Creates a view."""
        views = self._service_with(database).views
        return views.create(database, view, if_not_exists=if_not_exists, or_replace=or_replace)[0]

    def get_view(self, database: str, name: str) -> ViewInfo:
        """Returns a view."""
        return self._service_with(database).views.get(database, name)

    def list_views(self, database: str) -> list[str]:
        """Returns the names of a database's views in order."""
        pages = every_page(partial(self._service_with(database).views.list, database, PAGE_SIZE_MAX))
        return [view.name for page in pages for view in page.views]

    def rename_view(self, database: str, name: str, new_name: str) -> ViewInfo:
        """Gives a view another name."""
        return self._service_with(database).views.rename(database, name, new_name)

    def drop_view(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a view."""
        if (service := self._service_to_drop(database, if_exists=if_exists)) is not None:
            service.views.drop(database, name, if_exists=if_exists)

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a table."""
        if (service := self._service_to_drop(database, if_exists=if_exists)) is not None:
            service.drop_table(database, name, if_exists=if_exists)

    def register(self, place: str | None = None, name: str | None = None) -> list[Registration]:
        """Enters tables in the catalog whose files are in the warehouse already."""
        location = self._warehouse if place is None else warehouse_location(place)
        folders = table_folders(self._storage, self._warehouse, location)  # a mistyped path creates no catalog
        return self._open_service().registering.register(folders, name)

    def acquire_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Takes a table's lease."""
        return self._service_with(database).acquire_lease(database, name, request)

    def renew_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Extends a lease."""
        return self._service_with(database).renew_lease(database, name, request)

    def release_lease(self, database: str, name: str, owner: str) -> None:
        """Ends a lease."""
        self._service_with(database).release_lease(database, name, owner)

    def newest_claim(self, database: str, name: str, table_id: str) -> NewestClaim:
        """Returns the newest claim of a table's versions."""
        return self._service_with(database).newest_claim(database, name, table_id)

    def claim_version(self, database: str, name: str, request: ClaimRequest) -> NewestClaim:
        """Claims a version."""
        return self._service_with(database).claim_version(database, name, request)

    def publish_claim(self, database: str, name: str, request: PublishRequest) -> NewestClaim:
        """Notes that a claimed version is published."""
        return self._service_with(database).publish_claim(database, name, request)

    def close(self) -> None:
        """Closes the database's connections."""
        if self._service is not None:
            self._service.close()
