"""`TableHandle`: where a table lies. Light to import, since every process that Spark starts opens tables by it."""

from __future__ import annotations

from dataclasses import dataclass

from filestore.ambient import Ambient
from filestore.errors import NotFound, Unsupported
from filestore.metrics.meter import NO_METER, Meter
from filestore.model.definition import TableDefinition
from filestore.storage import Storage
from filestore.table import FileStore
from log.store import LogConfig, log_config

__all__ = ["TableHandle"]


@dataclass(frozen=True, slots=True)
class TableHandle:
    """Where a table lies and which it is: enough to open it in any process. Picklable.

    Attributes:
        database: Name of the database.
        name: Name of the table in it.
        table_id: A table of the same name made later has another.
        location: The Delta table's path.
        storage: Its storage.
        ambient: Clock, ids, chance.
        meter: Takes what is measured.
    """

    database: str
    name: str
    table_id: str
    location: str
    storage: Storage
    ambient: Ambient
    meter: Meter = NO_METER

    @property
    def identifier(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.name}"

    def files(self) -> FileStore:
        """Opens the FileStore.

        Raises:
            NotFound: the table was dropped, perhaps made again under the same name.
        """
        files = FileStore.open(self.storage, self.location, self.ambient)
        if files.state().table_id != self.table_id:
            raise NotFound(
                f"table {self.identifier} was dropped and made again: open it again with store.table()",
                code="table-replaced",
            )
        return files

    def log(self, definition: TableDefinition) -> LogConfig | None:
        """The log's configuration; None for a table without one."""
        return log_config(
            definition,
            database=self.database,
            table=self.name,
            table_id=self.table_id,
            location=self.location,
        )

    def required_log(self, definition: TableDefinition) -> LogConfig:
        """The log of a table whose changes are asked for.

        Raises:
            Unsupported: ``no-log``.
        """
        config = self.log(definition)
        if config is None:
            raise Unsupported(
                f"table {self.identifier} has no log (log.system = none), so its changes cannot be followed: "
                "create it with log.system = embedded or kafka",
                code="no-log",
            )
        return config
