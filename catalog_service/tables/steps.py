"""Creates and removes one table's files and log in steps, each of which may be repeated.

`lifecycle` decides the order of the steps, and what happens after a crash between them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from filestore import layout
from filestore.ambient import Ambient
from filestore.commit.claims import Claims
from filestore.commit.create import create
from filestore.commit.held import HeldStorage
from filestore.delta.log import DeltaLog
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, Corrupt, NotFound, TableStoreError, Unsupported
from filestore.model.changes import Change
from filestore.model.definition import TableDefinition
from filestore.model.log_mode import retention_note
from filestore.model.snapshot import Snapshot
from filestore.operations.alter import alter
from filestore.refused import refused
from filestore.storage.interface import Storage
from filestore.storage.race_probe import require_conditions, require_exclusive
from filestore.storage.schemes import is_local
from filestore.table import FileStore
from log.connector.declaration import KafkaDeclaration
from log.table.store import LogStore
from log.table.systems import open_log
from managed_table.identity import TableIdentity
from managed_table.log_change import LogChange
from managed_table.own_log import require_own_log

__all__ = ["ManagedTables", "TableSteps"]

logger = logging.getLogger(__name__)


class TableSteps(Protocol):
    """The operations on a table's files and log. Each may fail with `Unavailable`, and may be repeated at any time."""

    def check_warehouse(self, location: str) -> None:
        """Checks that concurrent commits are possible in a new warehouse.

        Raises:
            Unsupported: ``not-exclusive``.
        """

    def check_new(self, table: TableIdentity, definition: TableDefinition) -> bool:
        """Checks that a new table's place is free. What is found there afterwards may be removed with this table.

        Files that a dropped table's writer left there do not matter: no version will name them.

        Returns:
            Whether its log is a topic that exists already: that topic stays after the table's drop.

        Raises:
            AlreadyExists: ``location-not-empty`` or ``log-exists``: there are files of another owner, or a topic that
                has held records or has a different number of partitions.
            InvalidRequest: ``log-topic``: the topic's settings are not those of a log.
            Unsupported: ``no-conditional-writes``: the storage cannot keep the leases that writers of a log need.
            Unavailable: the log's server does not answer.
        """

    def check_topic(self, declaration: KafkaDeclaration) -> None:
        """Checks that a table with a connector can work; creates its topic, if the declaration says so.

        Raises:
            InvalidRequest: the topic does not exist, or is not as declared, or the client refuses ``properties.*``.
            Unavailable: the brokers do not answer.
        """

    def create_log(self, table: TableIdentity, definition: TableDefinition) -> None:
        """Creates the log. Raises `AlreadyExists` if another owner's is there, `Unsupported` for a broker's limits."""

    def create_files(self, table: TableIdentity, definition: TableDefinition) -> TableState:
        """Writes version 0, which names the log, and returns it. Raises `AlreadyExists` if another table is there."""

    def drop_log(self, table: TableIdentity, definition: TableDefinition) -> None:
        """Deletes the log, if there is one."""

    def delete_files(self, table: TableIdentity) -> None:
        """Deletes the table's folder, unless another table is in it."""

    def delete_database_folder(self, location: str) -> None:
        """Deletes a database's folder if no file is left in it."""

    def state(self, table: TableIdentity) -> TableState:
        """Returns the newest version. Raises `NotFound` if no table is there, `Corrupt` if another one is."""

    def found(self, location: str) -> TableState:
        """Returns the newest version of whatever table is at a location.

        Raises:
            NotFound: ``no-table``.
            Corrupt: it cannot be read.
            Unsupported: ``not-a-managed-table``: it is a Delta table that Tablestore has not made.
        """

    def log_problem(self, table: TableIdentity, state: TableState) -> str | None:
        """Returns why the next write to a table would not find its log; None if it would, or has none."""

    def alter(self, table: TableIdentity, changes: Sequence[Change]) -> Snapshot:
        """Changes the table's metadata; raises `Unsupported` if files have to be rewritten, and as `state`."""

    def snapshots(self, table: TableIdentity, limit: int, before: int | None) -> list[Snapshot]:
        """Returns at most `limit` snapshots older than version `before`, newest first. Raises as `state`."""


class ManagedTables:
    """Implements the steps with a `FileStore` and a `LogStore`.

    Args:
        storage: The storage of the warehouse.
        ambient: The clock, and the source of ids.
        claims: Returns the claims of a table by its id; None if the store keeps writers apart.
    """

    def __init__(
        self, storage: Storage, ambient: Ambient, claims: Callable[[str], Claims | None] = lambda _: None
    ) -> None:
        self._storage = storage
        self._ambient = ambient
        self._claims = claims
        self._keeps_leases = False  # whether the store has shown it: it is asked once in each process

    def _storage_of(self, table: TableIdentity) -> Storage:
        claims = self._claims(table.table_id)
        if claims is None:
            return self._storage
        return HeldStorage(self._storage, table.location, claims, self._ambient.new_id)

    def check_warehouse(self, location: str) -> None:
        """Lets writers race for files, unless it is on a local disk, where hard links are exclusive."""
        if not is_local(location):
            require_exclusive(self._storage, layout.join(location, "_race-probe"), self._ambient.new_id)

    def check_new(self, table: TableIdentity, definition: TableDefinition) -> bool:
        """Looks for files and for the topic."""
        prefix = layout.join(table.location, "")
        paths = (info.path for info in self._storage.walk(table.location))
        found = next((path for path in paths if not layout.is_stray(path.removeprefix(prefix))), None)
        if found is not None:
            raise AlreadyExists(
                f"{table.location} is not empty (it contains {found}), and this catalog has no table there: "
                "move the files away, or choose another name; if they are a table, `tablestore register` "
                "(Store.register) enters it in the catalog",
                code="location-not-empty",
            )
        with self._log(table, definition) as log:
            if log is not None and not is_local(table.location) and not self._keeps_leases:
                # leases of its writers will be objects
                require_conditions(self._storage, layout.join(table.location, layout.LEASES), self._ambient.new_id)
                self._keeps_leases = True
            if log is None or not log.exists():
                return False
            log.check_adoptable()
            return True

    def check_topic(self, declaration: KafkaDeclaration) -> None:
        """Asks Kafka's admin client, unless ``topic.check = false``."""
        if declaration["topic.check"]:
            from log.connector.topic import ConnectorTopic  # librdkafka takes 80 ms to load

            ConnectorTopic(declaration, self._ambient).require()

    def create_log(self, table: TableIdentity, definition: TableDefinition) -> None:
        """Creates the log once, however often it is called."""
        with self._log(table, definition) as log:
            if log is None:
                return
            if definition.options["log.system"] == "embedded" and not log.exists():
                # A rename puts the log in its place, so leases of a dropped table's writers must not be there.
                self._storage.delete_tree(layout.join(table.location, layout.LOG_STORE))
            log.create()
        if (note := retention_note(definition)) is not None:
            logger.warning("table %s: %s", table.identifier, note)

    def create_files(self, table: TableIdentity, definition: TableDefinition) -> TableState:
        """Stores the log's identity in version 0."""
        with self._log(table, definition) as log:
            identity = log.identity() if log is not None else None
        delta_log = DeltaLog(self._storage_of(table), table.location)
        return create(delta_log, definition, table.table_id, identity, self._ambient)

    def drop_log(self, table: TableIdentity, definition: TableDefinition) -> None:
        """Deletes the log; a log that was never created is no error.

        An embedded log is in the table's folder, which may be another table's by now, as in `delete_files`.
        """
        if definition.options["log.system"] == "embedded" and not self._may_remove(table):
            return
        with self._log(table, definition) as log:
            if log is not None:
                log.drop()

    def delete_files(self, table: TableIdentity) -> None:
        """Deletes the folder, also one that a half-done creation or removal left."""
        if self._may_remove(table):
            self._storage.delete_tree(table.location)

    def delete_database_folder(self, location: str) -> None:
        """Deletes the folder if only folders are left in it."""
        if next(iter(self._storage.walk(location)), None) is None:
            self._storage.delete_tree(location)

    def state(self, table: TableIdentity) -> TableState:
        """Replays the table's Delta log from its last checkpoint."""
        return self._opened(table)[1]

    def found(self, location: str) -> TableState:
        """Reads the newest version, and its commit: only our writers give it an id."""
        filestore = FileStore(self._storage, location, self._ambient)
        state = filestore.state()
        try:
            filestore.snapshot(state.version)
        except Corrupt as error:
            raise Unsupported(
                f"{location} is no table of Tablestore, or its newest entry is damaged ({error.message}): a table that "
                "others have made is read by its path, and copied into a new one",
                code="not-a-managed-table",
            ) from error
        return state

    def log_problem(self, table: TableIdentity, state: TableState) -> str | None:
        """Asks the log."""
        try:
            with self._log(table, state.definition) as log:
                if log is not None:
                    require_own_log(log, state)
        except TableStoreError as error:
            return error.message
        return None

    def alter(self, table: TableIdentity, changes: Sequence[Change]) -> Snapshot:
        """Changes the table in its own Delta log: the catalog keeps the definition with which it was created."""
        return alter(self._opened(table)[0], changes, effect=LogChange(table.log_config, self._ambient))

    def snapshots(self, table: TableIdentity, limit: int, before: int | None) -> list[Snapshot]:
        """Reads one commit for each snapshot."""
        return self._opened(table)[0].snapshots(limit, before)

    def _opened(self, table: TableIdentity) -> tuple[FileStore, TableState]:
        """Returns the table's files, and the newest version, which it has just read."""
        filestore = FileStore(self._storage_of(table), table.location, self._ambient)
        state = filestore.state()
        if state.table_id != table.table_id:
            raise Corrupt(
                f"{table.location} contains another table than {table.identifier} of the catalog ({table.table_id}): "
                "restore its files",
                code="table-replaced",
            )
        return filestore, state

    def _may_remove(self, table: TableIdentity) -> bool:
        """Returns whether its folder is its own, and not one of a table that was created there since."""
        try:
            return DeltaLog(self._storage, table.location).latest().table_id == table.table_id
        except (NotFound, Corrupt):
            return True  # there is nothing, or what a half-done creation or removal left

    @contextmanager
    def _log(self, table: TableIdentity, definition: TableDefinition) -> Iterator[LogStore | None]:
        config = table.log_config(definition)
        if config is None:
            yield None
            return
        try:
            with open_log(config, self._ambient) as log:
                yield log
        except OSError as error:
            raise refused(f"the log of {table.identifier} failed", error, "log-unavailable") from error
