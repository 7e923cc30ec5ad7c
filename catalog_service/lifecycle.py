"""Making and dropping databases and tables: the order of the steps, and what a crash in between leaves.

A table is a row in the catalog, a log and a folder, and no transaction spans the three. The row is the
decision record:

    create   check_new ─► row CREATING ─► log ─► files (version 0) ─► row ACTIVE
    drop     row DROPPING ─► log ─► files ─► row removed

Rule 1. Only ACTIVE rows are visible. So a table appears and disappears in one SQL statement.
Rule 2. The row is written before the first thing is made and removed after the last is gone, so everything
        that lies around is named by a row. Before it is written, `check_new` has seen that the place is
        empty: what is found there later was made for this row and may be removed with it. Empty but for
        files that the writer of a dropped table put there after the drop: they must not hold the name for
        ever, and nothing can name them any more. To remove them at once would need proof that they are
        nobody's; so they go with the new table, whose doctor lists them.
Rule 3. Who works at a name holds its lock (`catalog_service.locks`), which dies with its process. A CREATING
        or DROPPING row with a free lock was left by a crash. Whoever comes next to that name finishes it: a
        creation is completed by a retry with the same definition and undone by anything else, a removal is
        completed. So does `recover`, at start-up, for all names.
Rule 4. Files and logs are removed only after the row has been set to DROPPING in a committed transaction,
        also in an undo: if the catalog does not answer, nothing is touched.
Rule 5. A database goes with its tables in one transaction (all DROPPING at once); the removals follow.

A table with a connector is its row alone: it appears and goes in one SQL statement, whatever becomes of its topic.

A Kafka that does not answer must not hold a name for ever: the files are removed, the row moves to
``log_debts``, the drop of a table says so (`Unavailable`), and the topic is dropped by a retry or by a later
start-up. Topics named by the user hold their row instead, since a new table could take the same topic.

A topic that the user named, and that is there already, becomes the log if it is empty and fits. The row says so before
anything is made (`keeps_topic`), and nothing that happens to the table removes that topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from catalog_service.locks import NameLocks
from catalog_service.repository import Repository
from catalog_service.schema import DatabaseRow, State, TableRow, managed
from catalog_service.tables import PhysicalTable, TableSteps
from catalog_service.topics import shares_topic
from filestore import layout
from filestore.ambient import Ambient
from filestore.errors import AlreadyExists, TableStoreError, Unavailable
from filestore.model.definition import TableDefinition
from log.connectors.declaration import KafkaDeclaration

__all__ = ["Lifecycle"]

logger = logging.getLogger(__name__)

DEBT_RETRY_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The four changes, and recovery. Names are folded already.

    Attributes:
        warehouse: Where databases lie: a path or URL.
        repository: The catalog's rows.
        steps: What is done to files and logs.
        locks: Who works at a name.
        ambient: Clock, ids.
    """

    warehouse: str
    repository: Repository
    steps: TableSteps
    locks: NameLocks
    ambient: Ambient

    # ------------------------------------------------------------------------------------------ databases

    def create_database(self, name: str, comment: str | None) -> tuple[DatabaseRow, bool]:
        """The database of that name, and whether it was made now."""
        with self.locks.hold(name):
            row = self.repository.database(name)
            if row is not None and row.state is State.ACTIVE:
                return row, False
            if row is not None:
                self._finish_database(name)
            row = DatabaseRow(name, State.ACTIVE, comment, self.ambient.now_ms())
            self.repository.add_database(row)
            return row, True

    def drop_database(self, name: str, *, cascade: bool) -> None:
        """Drops a database, with its tables if told so.

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

    def create_table(
        self, database: str, name: str, definition: TableDefinition | KafkaDeclaration
    ) -> tuple[TableRow, bool]:
        """The table of that name, and whether it was made (or completed) now.

        Raises:
            NotFound: ``database-not-found``.
            AlreadyExists: files or a log of somebody else are in its place.
            InvalidRequest: of a table with a connector: its brokers or its topic are not as declared.
            Unavailable: a server or the storage does not answer.
        """
        with self.locks.hold(_key(database, name)):
            row = self.repository.table(database, name)
            if row is not None and row.state is State.ACTIVE:
                return row, False
            if row is not None and (row.state is State.DROPPING or row.definition != definition):
                self._discard(row)
                row = None
            if isinstance(definition, KafkaDeclaration):
                return self._declare(database, name, definition), True
            if row is None:
                row = self._begin(database, name, definition)
            self._build(row)
            return replace(row, state=State.ACTIVE), True

    def drop_table(self, database: str, name: str) -> bool:
        """Drops a table, or completes a drop; gives whether there was anything to drop.

        Raises:
            NotFound: ``database-not-found``.
            Unavailable: ``log-left``: the table is gone and its topic is left; else its files could not be removed. A
                retry goes on.
        """
        with self.locks.hold(_key(database, name)):
            row = self.repository.table(database, name)
            if row is None:
                return self._pay_debts(self.repository.log_debts(of=(database, name)))
            log_error = self._discard(row)
            if log_error is not None:
                raise _topic_left(row, log_error)
            return row.state is not State.CREATING

    def recover(self) -> list[str]:
        """Finishes what crashes left, as far as nobody lives who works at it and servers answer.

        Returns:
            A line for each thing done or left, for the operator's log.
        """
        databases, tables = self.repository.unfinished()
        report = [self._recover(name, partial(self._finish_database, name)) for name in databases]
        report += [self._recover(_key(d, t), partial(self._finish_table, d, t)) for d, t in tables]
        return [line for line in report if line] + self._recover_debts()

    def physical(self, row: TableRow) -> PhysicalTable:
        """The managed table that a row stands for; `Unsupported` (``connector-table``) if it is none."""
        location = layout.table_location(self.warehouse, row.database, row.name)
        return PhysicalTable(row.database, row.name, row.table_id, location, managed(row), row.keeps_topic)

    # ------------------------------------------------------------------------------------------ steps

    def _declare(self, database: str, name: str, declaration: KafkaDeclaration) -> TableRow:
        self.steps.check_topic(declaration)
        now_ms = self.ambient.now_ms()
        row = TableRow(database, name, self.ambient.new_id(), State.ACTIVE, declaration, now_ms)
        self.repository.add_table(row)
        return row

    def _begin(self, database: str, name: str, definition: TableDefinition) -> TableRow:
        now_ms = self.ambient.now_ms()
        row = TableRow(database, name, self.ambient.new_id(), State.CREATING, definition, now_ms)
        self._require_own_topic(row)
        row = replace(row, keeps_topic=self.steps.check_new(self.physical(row)))
        try:
            self.repository.add_table(row)
        except Exception:
            # A commit that reports an error may have happened all the same.
            self._undo(row, keep_log=True)
            raise
        return row

    def _require_own_topic(self, row: TableRow) -> None:
        """A topic is the log of one table: two would be trimmed, and dropped, by each other."""
        if (other := self._sharing_topic(row)) is not None:
            raise AlreadyExists(
                f"topic {managed(row).options['log.kafka.topic']!r} is the log of table "
                f"{_key(other.database, other.name)}: choose another log.kafka.topic",
                code="log-exists",
            )

    def _sharing_topic(self, row: TableRow) -> TableRow | None:
        if managed(row).options["log.kafka.topic"] is None:
            return None
        others = (o for o in self.repository.naming("log.kafka.topic") if o.table_id != row.table_id)
        return next((other for other in others if shares_topic(managed(row), other.definition)), None)

    def _build(self, row: TableRow) -> None:
        table = self.physical(row)
        try:
            self._require_own_topic(row)  # of two that come at once at least one sees the other
        except Exception:
            self._undo(row, keep_log=True)
            raise
        try:
            self.steps.create_log(table)
        except Exception as error:
            # A topic that appeared since check_new is another catalog's: it stays.
            self._undo(row, keep_log=isinstance(error, AlreadyExists))
            raise
        try:
            self.steps.create_files(table)
            self.repository.set_state(row, State.ACTIVE)
        except Exception:
            self._undo(row, keep_log=False)
            raise

    def _undo(self, row: TableRow, *, keep_log: bool) -> None:
        try:
            self._discard(row, keep_log=keep_log)
        except TableStoreError as error:
            logger.warning("creation of %s.%s is undone later: %s", row.database, row.name, error)

    def _discard(self, row: TableRow, *, keep_log: bool = False) -> TableStoreError | None:
        """Removes a table in whatever state; gives the error of a log that is left as a debt.

        REQUIRES: the name's lock.
        """
        if isinstance(row.definition, KafkaDeclaration):
            self.repository.remove_table(row, debt_due_ms=None)
            return None
        if row.state is not State.DROPPING:
            self.repository.set_state(row, State.DROPPING)
        table = self.physical(row)
        debt = None
        try:
            # one that lost its topic to another table may be removed by whoever comes later, and knows no more of that
            if not keep_log and self._sharing_topic(row) is None:
                self.steps.drop_log(table)
        except TableStoreError as error:  # the brokers may be away, and a login or a right may be missing, too
            if not _log_can_wait(table.definition):
                raise
            logger.warning("the log of %s.%s is dropped later: %s", row.database, row.name, error)
            debt = error
        self.steps.delete_files(table)
        due_ms = None if debt is None else self.ambient.now_ms() + DEBT_RETRY_MS
        self.repository.remove_table(row, debt_due_ms=due_ms)
        return debt

    # ------------------------------------------------------------------------------------------ finishing

    def _finish_table(self, database: str, name: str) -> str:
        """REQUIRES: the table's lock."""
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
        """REQUIRES: the database's lock, and that it is DROPPING."""
        row = self.repository.database(name)
        if row is None or row.state is State.ACTIVE:
            return ""
        for table in self.repository.table_names(name):
            with self.locks.hold(_key(name, table)):
                # in whatever state: a creation that began before the drop may just have ended
                if (left := self.repository.leftover(name, table)) is not None:
                    self._discard(left)
        self.steps.delete_database_folder(layout.join(self.warehouse, name))
        self.repository.remove_database(name)
        return f"completed the drop of database {name}"

    def _pay_debts(self, debts: list[TableRow]) -> bool:
        for row in debts:
            try:
                self.steps.drop_log(self.physical(row))
            except TableStoreError as error:
                raise _topic_left(row, error) from error
            self.repository.settle_debt(row)
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
                self._pay_debts([row])
                report.append(f"dropped the log of table {key}")
            except Unavailable as error:
                self.repository.defer_debt(row, now + DEBT_RETRY_MS)
                report.append(f"could not drop the log of table {key}: {error}")
        return report


def _topic_left(row: TableRow, error: TableStoreError) -> Unavailable:
    """What a drop says whose topic could not be removed. REQUIRES: the topic has the name that a log gives it."""
    return Unavailable(
        f"table {_key(row.database, row.name)} is dropped: its rows are gone, and its name is free. Its topic "
        f"{_key(row.database, row.name)}.{row.table_id} is left ({error.message}). To remove it drop the table again, "
        "unless a new one has the name by then; the catalog tries, too, each time that it starts",
        code="log-left",
    )


def _key(database: str, table: str) -> str:
    return f"{database}.{table}"


def _log_can_wait(definition: TableDefinition) -> bool:
    """Whether a log may outlive its table's row: a Kafka topic whose name holds the table's UUID."""
    return definition.options["log.system"] == "kafka" and definition.options["log.kafka.topic"] is None
