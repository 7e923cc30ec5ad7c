"""Creates and drops databases and tables: the order of the steps, and what is left of them after a crash.

A table is a row in the catalog, a log and a folder, and no transaction spans the three. The row is the
decision record:

    create   check_new ─► row CREATING ─► log ─► files (version 0) ─► row ACTIVE
    drop     row DROPPING ─► log ─► files ─► row removed
    stage    as create, with a hidden name ─► row STAGED ─► a client fills it ─► rename
    rename   row gets another name, and is ACTIVE; a table that it replaces gets a hidden name, and is DROPPING

Rule 1. Only ACTIVE rows are visible. So a table appears and disappears in one SQL statement.
Rule 2. The row is written before the first file or topic is created and removed after the last is deleted, so every
        leftover belongs to a row. Before the row is written, `check_new` has seen that the place is empty: files and
        topics that are found there later were created for this row and may be removed with it. "Empty" ignores
        files that a writer of a dropped table wrote after the drop: they must not block the name for ever, and no
        version can name them any more. To remove them at once would need proof that no table owns them; so they
        are removed with the new table, and its doctor lists them.
Rule 3. A process that changes a name holds its lock (`catalog_service.database.locks`), which ends with the process. A
        CREATING or DROPPING row with a free lock was left by a crash, and the next process that uses the name finishes
        it: a retry with the same definition completes a creation, anything else undoes it; a removal is completed. At
        start-up `recover` does so for all names.
Rule 4. Files and logs are removed only after a committed transaction has set the row to DROPPING, also when a creation
        is undone: if the catalog does not answer, nothing is removed.
Rule 5. A database is dropped with its tables in one transaction (all DROPPING at once); the removals follow.

Rule 6. A process can lose a lock without ending, and another one then finishes its row. So it checks the lock before
        each step on logs and files, and a row changes only from the states that the step expects. A creation that finds
        its lock lost stops; if its row is gone by then, it takes the name's lock again and removes what it wrote late.

Rule 7. The folder of a table keeps its name when the table is renamed, and so does the topic of its log. Whoever wants
        a folder holds the lock of the name that the folder has. A table whose folder is taken, by one that was renamed
        or is about to be replaced, gets a folder with a hidden name.
Rule 8. A staged table belongs to the client that fills it, and no lock lasts so long. `recover` drops it after a day.

A table with a connector is only its row: it appears and disappears in one SQL statement, and its topic stays as it is.
A view is only its row, too.

A Kafka cluster that does not answer must not block a name for ever: the files are removed, the row moves to
``log_debts``, the drop of the table raises `Unavailable`, and a retry or a later start-up deletes the topic. A topic
with a name that the user chose keeps its row instead, since a new table could use the same topic.

A topic that the user chose and that exists already becomes the log if it is empty and fits. The row says so before
anything is created (`keeps_topic`), and no operation on the table deletes that topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from catalog_service.database.held_commits import HeldCommits
from catalog_service.database.locks import LOCK_LOST, NameLocks
from catalog_service.database.name_errors import is_view, table_exists
from catalog_service.database.repository import Repository
from catalog_service.database.schema import DatabaseRow, State, TableRow
from catalog_service.model.names import hidden_name
from catalog_service.model.paths import check_for_creation
from catalog_service.model.view_definition import ViewDefinition
from catalog_service.tables.construction import DEBT_RETRY_MS, Construction, key_of
from catalog_service.tables.steps import TableSteps
from filestore import layout
from filestore.ambient import Ambient
from filestore.delta.state import TableState
from filestore.errors import TableStoreError, Unavailable
from filestore.model.definition import TableDefinition
from log.connector.declaration import KafkaDeclaration
from managed_table.identity import TableIdentity

__all__ = ["Creation", "Lifecycle"]

logger = logging.getLogger(__name__)

STAGED_MAX_MS = 24 * 3_600_000
"""The time that a staged table waits for its client."""


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

    @property
    def construction(self) -> Construction:
        """Makes and removes single tables."""
        return Construction(self.warehouse, self.repository, self.steps, self.locks, self.ambient)

    def identity(self, row: TableRow) -> TableIdentity:
        """A row's managed table; raises `Unsupported` (``connector-table``, ``view``) if it is none."""
        return self.construction.identity(row)

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
        with self._creating(database, name) as begun:
            row = self.repository.table(database, name)
            if row is not None and row.state is State.ACTIVE:
                return Creation(row, created=False)
            if row is not None and (row.state is State.DROPPING or row.definition != definition):
                self.construction.discard(row)
                row = None
            new = self.construction.new_row(database, name, definition, staged=False)
            if isinstance(definition, KafkaDeclaration):
                return Creation(self.construction.declare(new, definition), created=True)
            begun.append(row or self.construction.begin(new))
            return self._built(begun[0], State.ACTIVE)

    def stage_table(self, database: str, name: str, definition: TableDefinition | KafkaDeclaration) -> Creation:
        """Creates a table that nobody sees until `rename` publishes it. The row in the result has its hidden name.

        Args:
            database: The name of its database.
            name: The name under which it will be published. It may be taken.
            definition: What is created.

        Raises:
            NotFound, AlreadyExists, InvalidRequest, Unavailable: as `create_table`.
        """
        with self._creating(database, name) as begun:  # holds the name for the folder that has it
            self.repository.table(database, name)  # raises if there is no such database
            row = self.construction.new_row(database, name, definition, staged=True)
            with self.locks.hold(key_of(database, row.name)):
                if isinstance(definition, KafkaDeclaration):
                    return Creation(self.construction.declare(row, definition), created=True)
                begun.append(self.construction.begin(row))
                return self._built(begun[0], State.STAGED)

    @contextmanager
    def _creating(self, database: str, name: str) -> Iterator[list[TableRow]]:
        """Holds a name while a table is created; if its lock is lost, removes what the row in the list wrote late."""
        begun: list[TableRow] = []
        try:
            with self.locks.hold(key_of(database, name)):
                yield begun
        except Unavailable as error:
            if begun and error.code == LOCK_LOST:
                self.construction.remove_late_writes(begun[0])
            raise

    def _built(self, row: TableRow, target: State) -> Creation:
        state = self.construction.build(row, target)
        return Creation(replace(row, state=target), created=True, state=state)

    def rename(self, database: str, name: str, new_name: str, *, replaces: bool = False) -> TableRow:
        """Gives a table or a view another name; a staged table is published by it.

        Args:
            database: The name of the database.
            name: Its name until now.
            new_name: Its new name.
            replaces: Whether a table that has the new name is dropped in the same moment; of a view, a view.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``.
            AlreadyExists: ``table-exists``: also with `replaces`, if one is a view and the other a table.
        """
        with self.held(database, {name, new_name}):
            row = self.repository.table(database, name)
            if row is None or row.state not in (State.ACTIVE, State.STAGED):
                raise self.repository.no_table(database, name)
            if name == new_name:
                raise table_exists(database, name)
            other = self.finished(database, new_name)
            if other is not None and not (replaces and _is_view(row) == _is_view(other)):
                raise table_exists(database, new_name)
            for held in (name, new_name):
                self.locks.check(key_of(database, held))
            self._rename(row, new_name, other)
        return replace(row, name=new_name, state=State.ACTIVE)

    def drop_table(self, database: str, name: str) -> bool:
        """Drops a table, or completes a drop; returns whether there was anything to drop.

        Raises:
            NotFound: ``database-not-found``; ``is-view``.
            Unavailable: ``log-left``: the table is gone and its topic is left; else its files could not be removed. A
                retry continues.
        """
        with self.locks.hold(key_of(database, name)):
            row = self.repository.table(database, name)
            if row is not None and isinstance(row.definition, ViewDefinition):
                raise is_view(database, name)
            if row is None:
                return self._drop_left_logs(self.repository.log_debts(of=(database, name)))
            log_error = self.construction.discard(row)
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
        report += [self._recover(key_of(d, t), partial(self._finish_table, d, t)) for d, t in tables]
        staged = self.repository.staged_before(self.ambient.now_ms() - STAGED_MAX_MS)
        report += [self._recover(key_of(r.database, r.name), partial(self._drop_staged, r)) for r in staged]
        return [line for line in report if line] + self._recover_debts()

    # ------------------------------------------------------------------------------------------ names

    def _rename(self, row: TableRow, new_name: str, other: TableRow | None) -> None:
        """Renames in one transaction, and then removes the table that had the name. REQUIRES: the names' locks."""
        if other is None:
            self.repository.rename(row, new_name, None)
            return
        hidden = replace(other, name=hidden_name(new_name, other.table_id), state=State.DROPPING)
        with self.locks.hold(key_of(hidden.database, hidden.name)):  # nobody else can know this name yet
            self.repository.rename(row, new_name, hidden)
            try:
                self.construction.discard(hidden)
            except TableStoreError as error:  # it is renamed all the same
                logger.warning("%s.%s, which was replaced, is removed later: %s", row.database, new_name, error)

    @contextmanager
    def held(self, database: str, names: set[str]) -> Iterator[None]:
        """Holds the locks of some names of a database."""
        with ExitStack() as held:
            for name in sorted(names):  # always in one order, so that no two processes wait for each other
                held.enter_context(self.locks.hold(key_of(database, name)))
            yield

    # ------------------------------------------------------------------------------------------ finishing

    def finished(self, database: str, name: str) -> TableRow | None:
        """Returns the table that has a name, after what a crash left of it was finished. REQUIRES: the name's lock."""
        self.repository.table(database, name)  # raises if there is no such database
        self._finish_table(database, name)
        return self.repository.table(database, name)

    def _finish_table(self, database: str, name: str) -> str:
        """Finishes a table that a crash left. REQUIRES: the table's lock."""
        row = self.repository.leftover(database, name)
        if row is None or row.state in (State.ACTIVE, State.STAGED):
            return ""
        self.construction.discard(row)
        done = "undid the creation of" if row.state is State.CREATING else "completed the drop of"
        return f"{done} table {database}.{name}"

    def _drop_staged(self, row: TableRow) -> str:
        """Drops a table that its client has left. REQUIRES: the table's lock."""
        now = self.repository.leftover(row.database, row.name)
        if now is None or now.state is not State.STAGED:
            return ""
        self.construction.discard(now)
        return f"dropped table {row.database}.{row.name}, which was staged and never published"

    def _finish_leftovers(self, database: str) -> None:
        for name in self.repository.table_names(database):
            with self.locks.try_hold(key_of(database, name)) as held:
                if held:
                    self._finish_table(database, name)

    def _finish_database(self, name: str) -> str:
        """Finishes the drop of a database. REQUIRES: the database's lock."""
        row = self.repository.database(name)
        if row is None or row.state is State.ACTIVE:
            return ""
        for table in self.repository.table_names(name):
            with self.locks.hold(key_of(name, table)):
                # in any state: a creation that began before the drop may just have ended
                left = self.repository.leftover(name, table)
                if left is not None and self.repository.drop_with_database(left):
                    self.construction.discard(replace(left, state=State.DROPPING))
        self.steps.delete_database_folder(layout.join(self.warehouse, name))
        self.repository.remove_database(name)
        return f"completed the drop of database {name}"

    def _drop_left_logs(self, debts: list[TableRow]) -> bool:
        for row in debts:
            try:
                self.construction.drop_log(row)
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
            key = key_of(row.database, row.name)
            try:
                self._drop_left_logs([row])
                report.append(f"dropped the log of table {key}")
            except Unavailable as error:
                self.repository.defer_debt(row, now + DEBT_RETRY_MS)
                report.append(f"could not drop the log of table {key}: {error}")
        return report


def _is_view(row: TableRow) -> bool:
    return isinstance(row.definition, ViewDefinition)


def _topic_left(row: TableRow, error: TableStoreError) -> Unavailable:
    """The error of a drop whose topic could not be deleted. REQUIRES: the topic has the default name of a log."""
    return Unavailable(
        f"table {key_of(row.database, row.name)} is dropped: its rows are gone, and its name is free. Its topic "
        f"{key_of(row.database, row.folder or row.name)}.{row.table_id} is left ({error.message}). To delete it drop "
        "the table again, unless a new table has the name by then; the catalog also tries each time it starts",
        code="log-left",
    )
