"""The catalog without a service: the same use cases, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from catalog_service.engine import default_database_url
from catalog_service.pages import PAGE_SIZE_MAX
from catalog_service.service import CatalogService, open_service
from catalog_service.wire import CreateDatabase, CreateTable, TableInfo
from filestore.errors import Unsupported

__all__ = ["EmbeddedCatalog", "warehouse_and_database"]


class EmbeddedCatalog:
    """See `catalog_service.client.Catalog`. Several processes may open one warehouse at once.

    Args:
        warehouse: Folder of the databases; made if it is not there.
        database: The catalog's database; ``<warehouse>/catalog.db`` if None.
    """

    def __init__(self, warehouse: str, database: str | None = None) -> None:
        self._service = open_service(*warehouse_and_database(warehouse, database))

    @classmethod
    def around(cls, service: CatalogService) -> Self:
        """A client of a service that is open already."""
        catalog = cls.__new__(cls)
        catalog._service = service
        return catalog

    def create_database(self, name: str, *, if_not_exists: bool = False, comment: str | None = None) -> None:
        """Creates a database."""
        self._service.create_database(CreateDatabase(name=name, comment=comment), if_not_exists=if_not_exists)

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Drops a database."""
        self._service.drop_database(name, if_exists=if_exists, cascade=cascade)

    def list_databases(self) -> list[str]:
        """All names, in order."""
        names: list[str] = []
        token: str | None = None
        while True:
            page = self._service.list_databases(PAGE_SIZE_MAX, token)
            names += [d.name for d in page.databases]
            token = page.next_page_token
            if token is None:
                return names

    def create_table(self, database: str, table: CreateTable, *, if_not_exists: bool = False) -> TableInfo:
        """Creates a table."""
        return self._service.create_table(database, table, if_not_exists=if_not_exists)[0]

    def get_table(self, database: str, name: str, *, with_snapshot: bool = False) -> TableInfo:
        """A table in full."""
        return self._service.get_table(database, name, with_snapshot=with_snapshot)

    def list_tables(self, database: str) -> list[str]:
        """All names, in order."""
        names: list[str] = []
        token: str | None = None
        while True:
            page = self._service.list_tables(database, PAGE_SIZE_MAX, token)
            names += [t.name for t in page.tables]
            token = page.next_page_token
            if token is None:
                return names

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a table."""
        self._service.drop_table(database, name, if_exists=if_exists)

    def close(self) -> None:
        """Lets go of the database's connections."""
        self._service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def warehouse_and_database(warehouse: str, database: str | None) -> tuple[str, str]:
    """The warehouse as an absolute path, and the URL of its catalog's database.

    Raises:
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
    absolute = str(Path(path).expanduser().absolute())
    return absolute, database or default_database_url(absolute)
