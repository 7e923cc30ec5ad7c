"""Creates and removes one table: its row, log and files, in the order that `lifecycle` explains."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from catalog_service.database.locks import LOCK_LOST, NameLocks, lock_lost
from catalog_service.database.repository import Repository
from catalog_service.database.schema import Definition, State, TableRow, managed
from catalog_service.model.names import hidden_name
from catalog_service.model.paths import check_for_creation
from catalog_service.tables.steps import TableSteps
from catalog_service.tables.topics import shares_topic
from filestore import layout
from filestore.ambient import Ambient
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, TableStoreError
from filestore.model.definition import TableDefinition
from log.connector.declaration import KafkaDeclaration
from managed_table.identity import TableIdentity

__all__ = ["DEBT_RETRY_MS", "Construction", "key_of"]

logger = logging.getLogger(__name__)

DEBT_RETRY_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class Construction:
    """The steps of a creation and of a removal. REQUIRES: the lock of the table's name, for each of them.

    Attributes:
        warehouse: Where the databases are: a path or URL.
        repository: The catalog's rows.
        steps: The operations on files and logs.
        locks: The locks of names.
        ambient: The clock, and the source of ids.
    """

    warehouse: str
    repository: Repository
    steps: TableSteps
    locks: NameLocks
    ambient: Ambient

    def identity(self, row: TableRow) -> TableIdentity:
        """A row's managed table; raises `Unsupported` (``connector-table``) for a table with a connector."""
        managed(row)
        location = layout.table_location(self.warehouse, row.database, row.folder or row.name)
        return TableIdentity(row.database, row.name, row.table_id, location)

    def declare(self, row: TableRow, declaration: KafkaDeclaration) -> TableRow:
        """Adds a table with a connector, which is only its row; raises as `TableSteps.check_topic`."""
        self.steps.check_topic(declaration)
        self.repository.add_table(row)
        return row

    def new_row(self, database: str, name: str, definition: Definition, *, staged: bool) -> TableRow:
        """Returns the row of a new table, which is not in the catalog yet. A staged one has a hidden name."""
        now_ms, table_id = self.ambient.now_ms(), self.ambient.new_id()
        hidden = hidden_name(name, table_id)
        row = TableRow(database, hidden if staged else name, table_id, State.CREATING, definition, now_ms)
        if not isinstance(definition, TableDefinition):
            return replace(row, state=State.STAGED if staged else State.ACTIVE)
        return replace(row, folder=hidden if self.repository.has_folder(database, name) else name)

    def begin(self, row: TableRow) -> TableRow:
        """Checks that the table's place is free, and adds its row, which is CREATING.

        Raises:
            AlreadyExists: ``location-not-empty``, ``log-exists``, ``table-exists``.
            InvalidRequest: ``bad-path``, ``log-topic``.
        """
        check_for_creation(self.warehouse)
        self.require_own_topic(row)
        try:
            row = replace(row, keeps_topic=self.steps.check_new(self.identity(row), managed(row)))
        except AlreadyExists:
            self._check(row)  # what is there may be a table that another process has just created
            raise
        try:
            self.repository.add_table(row)
        except Exception:
            # A commit that reports an error may have succeeded all the same.
            self._undo(row, keep_log=True)
            raise
        return row

    def require_own_topic(self, row: TableRow) -> None:
        """Refuses a topic that is another table's log: each table would trim, and delete, the other's records."""
        if (other := self._sharing_topic(row)) is not None:
            raise AlreadyExists(
                f"topic {managed(row).options['log.kafka.topic']!r} is the log of table "
                f"{key_of(other.database, other.name)}: choose another log.kafka.topic",
                code="log-exists",
            )

    def _sharing_topic(self, row: TableRow) -> TableRow | None:
        if managed(row).options["log.kafka.topic"] is None:
            return None
        others = (o for o in self.repository.tables_with_option("log.kafka.topic") if o.table_id != row.table_id)
        return next((other for other in others if shares_topic(managed(row), other.definition)), None)

    def _check(self, row: TableRow) -> None:
        """Raises `Unavailable` (``lock-lost``) if another process may be working at the table."""
        self.locks.check(key_of(row.database, row.name))

    def remove_late_writes(self, row: TableRow) -> None:
        """Removes what a creation wrote after another process had taken its lock and undone it."""
        try:
            with self.locks.hold(key_of(row.database, row.name)):
                other = self.repository.leftover(row.database, row.name)
                if other is not None and other.table_id == row.table_id:
                    return  # the row says what is left to do
                if _log_can_wait(managed(row)):
                    self.drop_log(row)
                if other is None and not self.repository.has_folder(row.database, row.folder or row.name):
                    self.steps.delete_files(self.identity(row))
                if self.repository.database(row.database) is None:
                    self.steps.delete_database_folder(layout.join(self.warehouse, row.database))
        except TableStoreError as error:
            logger.warning("files of %s.%s (%s) may be left: %s", row.database, row.name, row.table_id, error)

    def build(self, row: TableRow, target: State) -> TableState:
        """Creates the log and version 0, and moves the row to its `target` state; undoes all of it after an error."""
        table, definition = self.identity(row), managed(row)
        try:
            self.require_own_topic(row)  # of two concurrent creations at least one sees the other's row
        except Exception:
            self._undo(row, keep_log=True)
            raise
        try:
            self._check(row)
            self.steps.create_log(table, definition)
        except Exception as error:
            # A topic that appeared since check_new belongs to another catalog: it stays.
            self._undo(row, keep_log=isinstance(error, AlreadyExists))
            raise
        try:
            self._check(row)
            state = self.steps.create_files(table, definition)
            if not self.repository.set_state(row, target):
                raise lock_lost(key_of(row.database, row.name), "another process has undone the creation")
        except Exception:
            self._undo(row, keep_log=False)
            raise
        return state

    def _undo(self, row: TableRow, *, keep_log: bool) -> None:
        try:
            self.discard(row, keep_log=keep_log)
        except TableStoreError as error:
            if error.code == LOCK_LOST:
                raise  # whatever failed before: another process decides what becomes of the row
            logger.warning("creation of %s.%s is undone later: %s", row.database, row.name, error)

    def discard(self, row: TableRow, *, keep_log: bool = False) -> TableStoreError | None:
        """Removes a table in any state; returns the error if its log could not be deleted and becomes a debt.

        REQUIRES: the name's lock.
        """
        if not isinstance(row.definition, TableDefinition):
            self.repository.remove_table(row, debt_due_ms=None)
            return None
        self._check(row)
        if row.state is not State.DROPPING and not self.repository.set_state(row, State.DROPPING):
            return None  # it was never added, or is removed
        debt = None
        try:
            # a table that lost its topic to another one may be removed later by a process that does not know of that
            if not keep_log and self._sharing_topic(row) is None:
                self.drop_log(row)
        except TableStoreError as error:  # brokers may not answer, and a login or a right may be missing, too
            if not _log_can_wait(managed(row)):
                raise
            logger.warning("the log of %s.%s is dropped later: %s", row.database, row.name, error)
            debt = error
        self._check(row)
        self.steps.delete_files(self.identity(row))
        due_ms = None if debt is None else self.ambient.now_ms() + DEBT_RETRY_MS
        self.repository.remove_table(row, debt_due_ms=due_ms)
        return debt

    def drop_log(self, row: TableRow) -> None:
        """Deletes the log; a topic that existed before the table stays."""
        if not row.keeps_topic:
            self.steps.drop_log(self.identity(row), managed(row))


def key_of(database: str, table: str) -> str:
    """Returns the name of a table's lock, which is also how messages name the table."""
    return f"{database}.{table}"


def _log_can_wait(definition: TableDefinition) -> bool:
    """Returns whether a log may outlive its table's row: its topic's name contains the table's UUID."""
    return definition.options["log.system"] == "kafka" and definition.options["log.kafka.topic"] is None
