"""`OpenedTable`: a managed table as one process has opened it: its files, its log, its clock and its meter.

Its constructor takes a `TableIdentity`. Each source of tables has one function that returns an identity:

    a catalog's response    `catalog_service.wire.tables.TableInfo.identity`
    a row of the catalog    `catalog_service.tables.lifecycle.Lifecycle.identity`
    Spark's options         `tablestore.spark.opened.opened`

It is fast to import, since every process that Spark starts opens tables with it.
"""

from __future__ import annotations

from filestore.ambient import Ambient
from filestore.errors import NotFound, Unsupported
from filestore.metrics.meter import NO_METER, Meter
from filestore.model.definition import TableDefinition
from filestore.storage.interface import Storage
from filestore.table import FileStore
from log.table.config import LogConfig
from log.table.systems import open_log
from managed_table.identity import TableIdentity
from managed_table.own_log import OwnRecords

__all__ = ["OpenedTable"]


class OpenedTable:
    """A managed table: its identity, and what this process needs to read and write it.

    The files are opened once, at their first use; from then on `filestore` caches the newest version and reads only
    newer entries. Threads may share it. A pickle has only identity, storage and ambient: another process opens the
    table, and measures, for itself.

    Args:
        identity: Which table it is.
        storage: The storage of the table.
        ambient: Clock, ids, chance.
        meter: Takes what is measured.
    """

    def __init__(self, identity: TableIdentity, storage: Storage, ambient: Ambient, meter: Meter = NO_METER) -> None:
        self.identity = identity
        self.storage = storage
        self.ambient = ambient
        self.meter = meter
        self._filestore: FileStore | None = None

    def __reduce__(self) -> tuple[type[OpenedTable], tuple[TableIdentity, Storage, Ambient]]:
        return OpenedTable, (self.identity, self.storage, self.ambient)

    def __repr__(self) -> str:
        return f"OpenedTable({self.identity.identifier!r}, {self.identity.location!r})"

    @property
    def filestore(self) -> FileStore:
        """The table's files, with the newest version that was read.

        Raises:
            NotFound: the table was dropped (``no-table``), or another of its name was created (``table-replaced``).
        """
        if self._filestore is None:
            filestore = FileStore(self.storage, self.identity.location, self.ambient, self.identity.identifier)
            if filestore.state().table_id != self.identity.table_id:
                raise NotFound(
                    f"table {self.identity.identifier} was dropped and made again: open it again with store.table()",
                    code="table-replaced",
                )
            self._filestore = filestore
        return self._filestore

    @property
    def definition(self) -> TableDefinition:
        """Schema, keys and options of the newest version."""
        return self.filestore.state().definition

    def log_config(self, definition: TableDefinition | None = None) -> LogConfig | None:
        """Returns the config that opens the log in any process; None for a table without a log.

        Args:
            definition: The definition with the log's columns and options; the newest version's if None.
        """
        return self.identity.log_config(definition or self.definition)

    def required_log(self, definition: TableDefinition | None = None) -> LogConfig:
        """Returns `log_config` for a reader of changes, which needs a log.

        Raises:
            Unsupported: ``no-log``.
        """
        config = self.log_config(definition)
        if config is None:
            raise Unsupported(
                f"table {self.identity.identifier} has no log (log.system = none), so its changes cannot be followed: "
                "create it with log.system = embedded or kafka",
                code="no-log",
            )
        return config

    def own_log(self) -> LogConfig:
        """Returns `required_log` for a reader that is about to begin; checks that the log is still the table's.

        Raises:
            Unsupported: ``no-log``.
            Corrupt: ``log-replaced``.
            NotFound: ``log-gap``: the log has lost its end.
            Unavailable: the log does not answer.
        """
        records = OwnRecords.newest(self.filestore)
        config = self.required_log(records.state.definition)
        with open_log(config, self.ambient) as log:
            records.compare(log)
        return config
