"""One table's files and log: the steps of making and removing them, each of which may be repeated.

What may call them, in which order, and what a crash between them leaves, is decided in
`catalog_service.lifecycle`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from filestore import layout
from filestore.alter import alter, plan_alter
from filestore.ambient import Ambient
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, Corrupt, NotFound
from filestore.model.changes import Change
from filestore.model.definition import TableDefinition
from filestore.model.log_mode import retention_note
from filestore.model.snapshot import Snapshot
from filestore.refused import refused
from filestore.storage import Storage
from filestore.table import FileStore
from log.connectors.declaration import KafkaDeclaration
from log.retention import retention_changed
from log.store import LogConfig, LogStore, log_config
from log.systems import open_log

__all__ = ["ManagedTables", "PhysicalTable", "TableSteps"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PhysicalTable:
    """What the steps need to know of a table."""

    database: str
    name: str
    table_id: str
    location: str
    definition: TableDefinition
    keeps_topic: bool = False


class TableSteps(Protocol):
    """Every step may fail with `Unavailable`, and may be called again after it failed or succeeded."""

    def check_new(self, table: PhysicalTable) -> bool:
        """Changes nothing. What is found at the table's place afterwards may be removed with this table.

        Files that a dropped table's writer left there are no hindrance: no version will name them.

        Returns:
            Whether its log is a topic that is there already: that one stays when the table goes.

        Raises:
            AlreadyExists: ``location-not-empty`` or ``log-exists``: files of somebody else, or a topic that has held
                records or has other partitions.
            InvalidRequest: ``log-topic``: the topic's settings are not those of a log.
            Unavailable: the log's server does not answer.
        """

    def check_topic(self, declaration: KafkaDeclaration) -> None:
        """Sees that a table with a connector can work; makes its topic, if the declaration says so.

        Raises:
            InvalidRequest: the topic is not there, or not as declared, or the client refuses ``properties.*``.
            Unavailable: the brokers do not answer.
        """

    def create_log(self, table: PhysicalTable) -> None:
        """Makes the log. `AlreadyExists`: somebody else's is there. `Unsupported`: the broker's limits."""

    def create_files(self, table: PhysicalTable) -> None:
        """Writes version 0, which names the log. `AlreadyExists` if another table lies there."""

    def drop_log(self, table: PhysicalTable) -> None:
        """Removes the log, if there is one that was made for the table."""

    def delete_files(self, table: PhysicalTable) -> None:
        """Removes the table's folder, unless another table lies in it."""

    def delete_database_folder(self, location: str) -> None:
        """Removes a database's folder if no file is left in it."""

    def state(self, table: PhysicalTable) -> TableState:
        """The newest version. `NotFound` if no table lies there, `Corrupt` if another does."""

    def alter(self, table: PhysicalTable, changes: Sequence[Change]) -> Snapshot:
        """Changes what the table is; `Unsupported` if files have to be written anew. Errors as of `state`, too."""

    def snapshots(self, table: PhysicalTable, limit: int, before: int | None) -> list[Snapshot]:
        """At most `limit` snapshots older than version `before`, newest first. Errors as of `state`."""


class ManagedTables:
    """The real steps, on a `FileStore` and a `LogStore`."""

    def __init__(self, storage: Storage, ambient: Ambient) -> None:
        self._storage = storage
        self._ambient = ambient

    def check_new(self, table: PhysicalTable) -> bool:
        """Looks for files and for the topic."""
        prefix = layout.join(table.location, "")
        paths = (info.path for info in self._storage.walk(table.location))
        found = next((path for path in paths if not layout.is_stray(path.removeprefix(prefix))), None)
        if found is not None:
            raise AlreadyExists(
                f"{table.location} is not empty (it has {found}), and this catalog has no table there: "
                "move the files away, or choose another name",
                code="location-not-empty",
            )
        with self._log(table) as log:
            if log is None or not log.exists():
                return False
            log.check_adoptable()
            return True

    def check_topic(self, declaration: KafkaDeclaration) -> None:
        """By Kafka's admin client, unless ``topic.check = false``."""
        if declaration["topic.check"]:
            from log.kafka.declared_topic import DeclaredTopic  # librdkafka takes 80 ms to load

            DeclaredTopic(declaration, self._ambient).require()

    def create_log(self, table: PhysicalTable) -> None:
        """Once for a table, however often it is called."""
        with self._log(table) as log:
            if log is None:
                return
            if table.definition.options["log.system"] == "embedded" and not log.exists():
                # It is renamed into its place, so leases of a dropped table's writers must not be there.
                self._storage.delete_tree(layout.join(table.location, layout.LOG_STORE))
            log.create()
        if (note := retention_note(table.definition)) is not None:
            logger.warning("table %s.%s: %s", table.database, table.name, note)

    def create_files(self, table: PhysicalTable) -> None:
        """Binds the log's identity into version 0."""
        with self._log(table) as log:
            identity = log.identity() if log is not None else None
        FileStore.create(self._storage, table.location, table.definition, table.table_id, self._ambient, identity)

    def drop_log(self, table: PhysicalTable) -> None:
        """A log that was never made is no error. One that was there before the table stays."""
        if table.keeps_topic:
            return
        with self._log(table) as log:
            if log is not None:
                log.drop()

    def delete_files(self, table: PhysicalTable) -> None:
        """Also what a half-done creation or removal left."""
        if self._table_id_at(table.location) in (None, table.table_id):
            self._storage.delete_tree(table.location)

    def delete_database_folder(self, location: str) -> None:
        """Only folders are left in it, if any."""
        if next(iter(self._storage.walk(location)), None) is None:
            self._storage.delete_tree(location)

    def state(self, table: PhysicalTable) -> TableState:
        """Replays the table's Delta log from its last checkpoint."""
        return self._open(table).state()

    def alter(self, table: PhysicalTable, changes: Sequence[Change]) -> Snapshot:
        """In the table's own log: the catalog keeps what it was created as."""
        store = self._open(table)
        definition = store.state().definition
        before, after = (_log_config(table, d) for d in (definition, plan_alter(store, changes).definition))
        with retention_changed(before, after, self._ambient):
            return alter(store, changes)

    def snapshots(self, table: PhysicalTable, limit: int, before: int | None) -> list[Snapshot]:
        """Reads one commit for each snapshot."""
        return self._open(table).snapshots(limit, before)

    def _open(self, table: PhysicalTable) -> FileStore:
        store = FileStore.open(self._storage, table.location, self._ambient)
        found = store.state().table_id
        if found != table.table_id:
            raise Corrupt(
                f"{table.location} holds another table ({found}) than the catalog's "
                f"{table.database}.{table.name} "
                f"({table.table_id}): restore its files",
                code="table-replaced",
            )
        return store

    def _table_id_at(self, location: str) -> str | None:
        try:
            return FileStore.open(self._storage, location, self._ambient).state().table_id
        except (NotFound, Corrupt):
            return None  # nothing, or what a half-done creation or removal left

    @contextmanager
    def _log(self, table: PhysicalTable) -> Iterator[LogStore | None]:
        config = _log_config(table, table.definition)
        if config is None:
            yield None
            return
        try:
            with open_log(config, self._ambient) as log:
                yield log
        except OSError as error:
            raise refused(f"the log of {table.database}.{table.name} failed", error, "log-unavailable") from error


def _log_config(table: PhysicalTable, definition: TableDefinition) -> LogConfig | None:
    return log_config(
        definition,
        database=table.database,
        table=table.name,
        table_id=table.table_id,
        location=table.location,
    )
