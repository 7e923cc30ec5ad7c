"""Creates and drops databases and tables: the order of the steps, and what is left of them after a crash.

A table is a row in the catalog, a log and a folder, and no transaction spans the three. The row is the
decision record:

    create   check_new ─► row CREATING ─► log ─► files (version 0) ─► row ACTIVE
    drop     row DROPPING ─► log ─► files ─► row removed

Rule 1. Only ACTIVE rows are visible. So a table appears and disappears in one SQL statement.
Rule 2. The row is written before the first file or topic is created and removed after the last is deleted, so every
        leftover belongs to a row. Before the row is written, `check_new` has seen that the place is empty: files and
        topics that are found there later were created for this row and may be removed with it. "Empty" ignores
        files that a writer of a dropped table wrote after the drop: they must not block the name for ever, and no
        version can name them any more. To remove them at once would need proof that no table owns them; so they
        are removed with the new table, and its doctor lists them.
Rule 3. A process that changes a name holds its lock (`catalog_service.locks`), which ends with the process. A CREATING
        or DROPPING row with a free lock was left by a crash, and the next process that uses the name finishes it: a
        retry with the same definition completes a creation, anything else undoes it; a removal is completed. At
        start-up `recover` does so for all names.
Rule 4. Files and logs are removed only after a committed transaction has set the row to DROPPING, also when a creation
        is undone: if the catalog does not answer, nothing is removed.
Rule 5. A database is dropped with its tables in one transaction (all DROPPING at once); the removals follow.

Rule 6. A process can lose a lock without ending (`catalog_service.locks`), and another one then finishes its row. So it
        checks the lock before each step on logs and files, and a row changes only from the states that the step
        expects. A creation that finds its lock lost stops; if its row is gone by then, it takes the name's lock again
        and removes what it wrote late.

A table with a connector is only its row: it appears and disappears in one SQL statement, and its topic stays as it is.

A Kafka cluster that does not answer must not block a name for ever: the files are removed, the row moves to
``log_debts``, the drop of the table raises `Unavailable`, and a retry or a later start-up deletes the topic. A topic
with a name that the user chose keeps its row instead, since a new table could use the same topic.

A topic that the user chose and that exists already becomes the log if it is empty and fits. The row says so before
anything is created (`keeps_topic`), and no operation on the table deletes that topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from catalog_service.held_commits import HeldCommits
from catalog_service.locks import LOCK_LOST, NameLocks, lock_lost
from catalog_service.paths import check_for_creation
from catalog_service.repository import Repository
from catalog_service.schema import DatabaseRow, State, TableRow, managed
from catalog_service.tables import TableSteps
from catalog_service.topics import shares_topic
from filestore import layout
from filestore.ambient import Ambient
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, TableStoreError, Unavailable
from filestore.model.definition import TableDefinition
from log.connector.declaration import KafkaDeclaration
from managed_table.identity import TableIdentity

__all__ = ["Creation", "Lifecycle"]

logger = logging.getLogger(__name__)

DEBT_RETRY_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class Creation:
    """The result of a creation.

    Attributes:
        row: The table's row.
        created: Whether this call created (or completed) the table.
        state: Its first version, if this call wrote it.
    """

    row: TableRow
    created: bool
    state: TableState | None = None


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Creates and drops databases and tables, and recovers after crashes. Names are in lower case already.

    Attributes:
        warehouse: Where the databases are: a path or URL.
        repository: The catalog's rows.
        steps: The operations on files and logs.
        locks: The locks of names.
        ambient: The clock, and the source of ids.
        commits: Who keeps commits apart.
    """

    warehouse: str
    repository: Repository
    steps: TableSteps
    locks: NameLocks
    ambient: Ambient
    commits: HeldCommits

    # ------------------------------------------------------------------------------------------ databases

    def create_database(self, name: str, comment: str | None) -> tuple[DatabaseRow, bool]:
        """Returns the database of that name, and whether this call created it.

        Raises:
            InvalidRequest: ``bad-path``.
            Unsupported: ``not-exclusive``.
        """
        with self.locks.hold(name):
            row = self.repository.database(name)
            if row is not None and row.state is State.ACTIVE:
                return row, False
            if row is not None:
                self._finish_database(name)
            check_for_creation(self.warehouse)
            if not self.repository.databases(None, 1):
                if not self.commits.in_catalog:
                    self.steps.check_warehouse(self.warehouse)
                self.commits.decide()
            row = DatabaseRow(name, State.ACTIVE, comment, self.ambient.now_ms())
            self.repository.add_database(row)
            return row, True

    def drop_database(self, name: str, *, cascade: bool) -> None:
        """Drops a database, with `cascade` also its tables.

        Raises:
            NotFound: ``database-not-found``.
            Conflict: ``database-not-empty``.
        """
        with self.locks.hold(name):
            row = self.repository.database(name)
            if row is None or row.state is State.ACTIVE:
                self._finish_leftovers(name)
                self.repository.mark_database_dropping(name, cascade=cascade)
            self._finish_database(name)

    # ------------------------------------------------------------------------------------------ tables

    def create_table(self, database: str, name: str, definition: TableDefinition | KafkaDeclaration) -> Creation:
        """Creates (or completes) the table of that name, or returns the one that exists.

        Raises:
            NotFound: ``database-not-found``.
            AlreadyExists: files or a log that the catalog does not know are in its place.
            InvalidRequest: ``bad-path``; or the brokers or the topic of a table with a connector are not as declared.
            Unavailable: a server or the storage does not answer.
        """
        begun: TableRow | None = None
        try:
            with self.locks.hold(_key(database, name)):
                row = self.repository.table(database, name)
                if row is not None and row.state is State.ACTIVE:
                    return Creation(row, created=False)
                if row is not None and (row.state is State.DROPPING or row.definition != definition):
                    self._discard(row)
                    row = None
                if isinstance(definition, KafkaDeclaration):
                    return Creation(self._declare(database, name, definition), created=True)
                begun = row or self._begin(database, name, definition)
                state = self._build(begun)
                return Creation(replace(begun, state=State.ACTIVE), created=True, state=state)
        except Unavailable as error:
            if begun is not None and error.code == LOCK_LOST:
                self._remove_late_writes(begun)
            raise

    def drop_table(self, database: str, name: str) -> bool:
        """Drops a table, or completes a drop; returns whether there was anything to drop.

        Raises:
            NotFound: ``database-not-found``.
            Unavailable: ``log-left``: the table is gone and its topic is left; else its files could not be removed. A
                retry continues.
        """
        with self.locks.hold(_key(database, name)):
            row = self.repository.table(database, name)
            if row is None:
                return self._drop_left_logs(self.repository.log_debts(of=(database, name)))
            log_error = self._discard(row)
            if log_error is not None:
                raise _topic_left(row, log_error)
            return row.state is not State.CREATING

    def recover(self) -> list[str]:
        """Finishes what crashes left, unless a live process works at it or a server does not answer.

        Returns:
            A line for each thing that was finished or could not be, for the operator's log.
        """
        databases, tables = self.repository.unfinished()
        report = [self._recover(name, partial(self._finish_database, name)) for name in databases]
        report += [self._recover(_key(d, t), partial(self._finish_table, d, t)) for d, t in tables]
        return [line for line in report if line] + self._recover_debts()

    def identity(self, row: TableRow) -> TableIdentity:
        """A row's managed table; raises `Unsupported` (``connector-table``) for a table with a connector."""
        managed(row)
        location = layout.table_location(self.warehouse, row.database, row.name)
        return TableIdentity(row.database, row.name, row.table_id, location)

    # ------------------------------------------------------------------------------------------ steps

    def _declare(self, database: str, name: str, declaration: KafkaDeclaration) -> TableRow:
        self.steps.check_topic(declaration)
        now_ms = self.ambient.now_ms()
        row = TableRow(database, name, self.ambient.new_id(), State.ACTIVE, declaration, now_ms)
        self.repository.add_table(row)
        return row

    def _begin(self, database: str, name: str, definition: TableDefinition) -> TableRow:
        check_for_creation(self.warehouse)
        now_ms = self.ambient.now_ms()
        row = TableRow(database, name, self.ambient.new_id(), State.CREATING, definition, now_ms)
        self._require_own_topic(row)
        try:
            row = replace(row, keeps_topic=self.steps.check_new(self.identity(row), definition))
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

    def _require_own_topic(self, row: TableRow) -> None:
        """Refuses a topic that is another table's log: each table would trim, and delete, the other's records."""
        if (other := self._sharing_topic(row)) is not None:
            raise AlreadyExists(
                f"topic {managed(row).options['log.kafka.topic']!r} is the log of table "
                f"{_key(other.database, other.name)}: choose another log.kafka.topic",
                code="log-exists",
            )

    def _sharing_topic(self, row: TableRow) -> TableRow | None:
        if managed(row).options["log.kafka.topic"] is None:
            return None
        others = (o for o in self.repository.tables_with_option("log.kafka.topic") if o.table_id != row.table_id)
        return next((other for other in others if shares_topic(managed(row), other.definition)), None)

    def _check(self, row: TableRow) -> None:
        """Raises `Unavailable` (``lock-lost``) if another process may be working at the table."""
        self.locks.check(_key(row.database, row.name))

    def _remove_late_writes(self, row: TableRow) -> None:
        """Removes what a creation wrote after another process had taken its lock and undone it."""
        try:
            with self.locks.hold(_key(row.database, row.name)):
                other = self.repository.leftover(row.database, row.name)
                if other is not None and other.table_id == row.table_id:
                    return  # the row says what is left to do
                if _log_can_wait(managed(row)):
                    self._drop_log(row)
                if other is None:
                    self.steps.delete_files(self.identity(row))
                if self.repository.database(row.database) is None:
                    self.steps.delete_database_folder(layout.join(self.warehouse, row.database))
        except TableStoreError as error:
            logger.warning("files of %s.%s (%s) may be left: %s", row.database, row.name, row.table_id, error)

    def _build(self, row: TableRow) -> TableState:
        table, definition = self.identity(row), managed(row)
        try:
            self._require_own_topic(row)  # of two concurrent creations at least one sees the other's row
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
            if not self.repository.set_state(row, State.ACTIVE):
                raise lock_lost(_key(row.database, row.name), "another process has undone the creation")
        except Exception:
            self._undo(row, keep_log=False)
            raise
        return state

    def _undo(self, row: TableRow, *, keep_log: bool) -> None:
        try:
            self._discard(row, keep_log=keep_log)
        except TableStoreError as error:
            if error.code == LOCK_LOST:
                raise  # whatever failed before: another process decides what becomes of the row
            logger.warning("creation of %s.%s is undone later: %s", row.database, row.name, error)

    def _discard(self, row: TableRow, *, keep_log: bool = False) -> TableStoreError | None:
        """Removes a table in any state; returns the error if its log could not be deleted and becomes a debt.

        REQUIRES: the name's lock.
        """
        if isinstance(row.definition, KafkaDeclaration):
            self.repository.remove_table(row, debt_due_ms=None)
            return None
        self._check(row)
        if row.state is not State.DROPPING and not self.repository.set_state(row, State.DROPPING):
            return None  # it was never added, or is removed
        debt = None
        try:
            # a table that lost its topic to another one may be removed later by a process that does not know of that
            if not keep_log and self._sharing_topic(row) is None:
                self._drop_log(row)
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

    def _drop_log(self, row: TableRow) -> None:
        """Deletes the log; a topic that existed before the table stays."""
        if not row.keeps_topic:
            self.steps.drop_log(self.identity(row), managed(row))

    # ------------------------------------------------------------------------------------------ finishing

    def _finish_table(self, database: str, name: str) -> str:
        """Finishes a table that a crash left. REQUIRES: the table's lock."""
        row = self.repository.leftover(database, name)
        if row is None or row.state is State.ACTIVE:
            return ""
        self._discard(row)
        done = "undid the creation of" if row.state is State.CREATING else "completed the drop of"
        return f"{done} table {database}.{name}"

    def _finish_leftovers(self, database: str) -> None:
        for name in self.repository.table_names(database):
            with self.locks.try_hold(_key(database, name)) as held:
                if held:
                    self._finish_table(database, name)

    def _finish_database(self, name: str) -> str:
        """Finishes the drop of a database. REQUIRES: the database's lock."""
        row = self.repository.database(name)
        if row is None or row.state is State.ACTIVE:
            return ""
        for table in self.repository.table_names(name):
            with self.locks.hold(_key(name, table)):
                # in any state: a creation that began before the drop may just have ended
                left = self.repository.leftover(name, table)
                if left is not None and self.repository.drop_with_database(left):
                    self._discard(replace(left, state=State.DROPPING))
        self.steps.delete_database_folder(layout.join(self.warehouse, name))
        self.repository.remove_database(name)
        return f"completed the drop of database {name}"

    def _drop_left_logs(self, debts: list[TableRow]) -> bool:
        for row in debts:
            try:
                self._drop_log(row)
            except TableStoreError as error:
                raise _topic_left(row, error) from error
            self.repository.remove_debt(row)
        return bool(debts)

    # ------------------------------------------------------------------------------------------ recovery

    def _recover(self, key: str, finish: Callable[[], str]) -> str:
        with self.locks.try_hold(key) as held:
            if not held:
                return ""
            try:
                return finish()
            except TableStoreError as error:
                return f"could not finish {key}: {error}"

    def _recover_debts(self) -> list[str]:
        report = []
        now = self.ambient.now_ms()
        for row in self.repository.log_debts(due_ms=now):
            key = _key(row.database, row.name)
            try:
                self._drop_left_logs([row])
                report.append(f"dropped the log of table {key}")
            except Unavailable as error:
                self.repository.defer_debt(row, now + DEBT_RETRY_MS)
                report.append(f"could not drop the log of table {key}: {error}")
        return report


def _topic_left(row: TableRow, error: TableStoreError) -> Unavailable:
    """The error of a drop whose topic could not be deleted. REQUIRES: the topic has the default name of a log."""
    return Unavailable(
        f"table {_key(row.database, row.name)} is dropped: its rows are gone, and its name is free. Its topic "
        f"{_key(row.database, row.name)}.{row.table_id} is left ({error.message}). To delete it drop the table again, "
        "unless a new table has the name by then; the catalog also tries each time it starts",
        code="log-left",
    )


def _key(database: str, table: str) -> str:
    return f"{database}.{table}"


def _log_can_wait(definition: TableDefinition) -> bool:
    """Whether a log may outlive its table's row: its topic's name contains the table's UUID."""
    return definition.options["log.system"] == "kafka" and definition.options["log.kafka.topic"] is None
