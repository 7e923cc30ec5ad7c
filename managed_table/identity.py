"""`TableIdentity`: the names, the id and the location of a managed table."""

from __future__ import annotations

from dataclasses import dataclass

from filestore.model.definition import TableDefinition
from log.table.config import LogConfig, log_config

__all__ = ["TableIdentity"]


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """Identifies a managed table by a few strings, which can be sent to any process.

    The names are those of the catalog, which a table's folder need not have: a table that is opened by its location
    alone is a `filestore.table.FileStore`, which has no name.

    Attributes:
        database: Name of the database in the catalog.
        name: Name of the table in this database.
        table_id: A UUID. A table of the same name that is created later has another.
        location: The folder of the Delta table.
    """

    database: str
    name: str
    table_id: str
    location: str

    @property
    def folder(self) -> str:
        """The name of the table's folder, and in its log's topic: unlike its name in the catalog it never changes."""
        return self.location.rstrip("/").rpartition("/")[2]

    @property
    def identifier(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.name}"

    def log_config(self, definition: TableDefinition) -> LogConfig | None:
        """Returns the config that opens the table's log with a definition's columns; None for a table without a log.

        Raises:
            InvalidRequest: ``log-location``, ``log-topic``: see `log.table.config.log_config`.
        """
        return log_config(
            definition,
            database=self.database,
            table=self.name,
            folder=self.folder,
            table_id=self.table_id,
            location=self.location,
        )
