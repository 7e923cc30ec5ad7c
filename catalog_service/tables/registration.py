"""Enters tables whose files are there into a catalog that does not have them: the way back after a lost database.

Rule 1. A registration is one SQL statement, which adds the table's ACTIVE row. It writes no file and removes none: a
        row in another state would, after a crash, make the next process remove the files.
Rule 2. It holds the locks of the table's name and of its folder's name, as whoever creates or renames a table does.
Rule 3. A table has one row. A copy of its folder has its id, too, and is refused as long as the row is there.

Rule 4. Of several folders that have one table, or would get one name, none is registered, unless the user gives one
        alone (`candidates.py`).

Options and keys are those of the newest version. Names are not in a table's files: it gets that of its folder, which
is the name with which it was created.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog_service.database.name_errors import table_exists
from catalog_service.database.schema import State, TableRow
from catalog_service.model.names import fold_name, fold_table, shown_name
from catalog_service.tables.candidates import Candidate, undecided
from catalog_service.tables.construction import key_of
from catalog_service.tables.lifecycle import Lifecycle
from filestore import layout
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, TableStoreError
from filestore.model.definition import TableDefinition
from filestore.storage.interface import Storage

__all__ = ["Registered", "Registration", "table_folders"]

_DEPTH = 2  # folders of a table in its warehouse: its database and itself


@dataclass(frozen=True, slots=True)
class Registered:
    """A table that the catalog has.

    Attributes:
        row: Its row.
        state: Its newest version.
        created: Whether this call has added the row.
        notes: What an operator has to do before it works as ever.
    """

    row: TableRow
    state: TableState
    created: bool
    notes: tuple[str, ...] = ()


def table_folders(storage: Storage, warehouse: str, place: str) -> list[tuple[str, str]]:
    """Returns the tables' folders at a place: databases and names of folders, in order.

    It lists all files there, since storages have no list of folders.

    Args:
        storage: The storage of the warehouse.
        warehouse: Its location.
        place: The warehouse, the folder of a database, or that of a table.

    Raises:
        InvalidRequest: ``outside-warehouse``.
        NotFound: ``no-table``: there is none.
    """
    warehouse, place = warehouse.rstrip("/"), place.rstrip("/")
    parts = place.removeprefix(warehouse).strip("/").split("/") if place != warehouse else []
    if not f"{place}/".startswith(f"{warehouse}/") or len(parts) > _DEPTH:
        raise InvalidRequest(
            f"{place} is no folder of a table in the warehouse {warehouse}, where tables are in "
            f"{warehouse}/<database>/<table>: move the folder there, or name the warehouse that it is in",
            code="outside-warehouse",
        )
    start, mark = len(warehouse) + 1, f"/{layout.DELTA_LOG}/"
    logs = {path[start:].partition(mark)[0] for info in storage.walk(place) if mark in (path := info.path)}
    tables = sorted((parts[0], parts[1]) for log in logs if len(parts := log.split("/")) == _DEPTH)
    if not tables:
        raise NotFound(f"there is no table at {place}: no folder <database>/<table> with a _delta_log", code="no-table")
    return tables


@dataclass(frozen=True, slots=True)
class Registration:
    """Registers tables of a warehouse."""

    lifecycle: Lifecycle

    def register(self, database: str, folder: str, name: str | None = None) -> Registered:
        """Adds the table of a folder, or returns it if it is there already.

        Raises:
            InvalidRequest: ``bad-name``; ``other-commits``: its commits are kept apart otherwise than this catalog's.
            NotFound: ``no-table``.
            Corrupt, Unsupported: it cannot be read, or is no table of Tablestore (``not-a-managed-table``).
            AlreadyExists: ``table-registered``: the catalog has this table in another folder, or by another name;
                ``table-exists``: another table has the name; ``folder-taken``: another table has the folder;
                ``log-exists``: another table has its topic.
        """
        if not _is_named(database, folder):
            raise InvalidRequest(
                f"{database}/{folder}: names of databases and tables begin with a letter a-z and continue with "
                "letters, digits and underscores, in lower case: rename the folder",
                code="bad-name",
            )
        location = layout.table_location(self.lifecycle.warehouse, database, folder)
        state = self.lifecycle.steps.found(location)
        self._check_commits(location, state)
        wanted = shown_name(folder) if name is None else fold_name("table", name)
        self.lifecycle.create_database(database, None)
        with self.lifecycle.held(database, {wanted, folder}):
            known = self._known(state, database, folder, name)
            if known is not None:
                return Registered(known, state, created=False, notes=self._notes(known, state))
            if self.lifecycle.finished(database, wanted) is not None:
                raise table_exists(database, wanted)
            state = self.lifecycle.steps.found(location)  # what a crash had left of a drop is finished now
            row = self._new_row(database, wanted, folder, state)
            for held in (wanted, folder):
                self.lifecycle.locks.check(key_of(database, held))
            self.lifecycle.repository.add_table(row)
            return Registered(row, state, created=True, notes=self._notes(row, state))

    def undecided(self, folders: Iterable[tuple[str, str]]) -> dict[tuple[str, str], AlreadyExists]:
        """Returns the folders of which a user has to choose, before one of them is registered."""
        found = undecided(filter(None, (self._candidate(database, folder) for database, folder in folders)))
        return {(candidate.database, candidate.folder): error for candidate, error in found.items()}

    def _candidate(self, database: str, folder: str) -> Candidate | None:
        """Reads a folder; None if the catalog has its table, or a table in this folder."""
        location = layout.table_location(self.lifecycle.warehouse, database, folder)
        if self.lifecycle.repository.has_folder(database, folder):
            return None
        name = shown_name(folder) if _is_named(database, folder) else None
        try:
            state = self.lifecycle.steps.found(location)
        except TableStoreError:  # it is reported when the folder is registered
            return Candidate(database, folder, location, name)
        if _is_kept(self.lifecycle.repository.table_of(state.table_id)):
            return None
        return Candidate(database, folder, location, name, state.table_id, state.version, state.timestamp_ms)

    def _check_commits(self, location: str, state: TableState) -> None:
        if state.catalog_commits != self.lifecycle.commits.in_catalog:
            made = "catalog" if state.catalog_commits else "store"
            raise InvalidRequest(
                f"{location} was made with commits = {made}, and this catalog is another one: writers would overwrite "
                f"each other's commits. Connect with commits = {made} ($TABLESTORE_COMMITS), with a new database if "
                "this one has decided otherwise",
                code="other-commits",
            )

    def _known(self, state: TableState, database: str, folder: str, name: str | None) -> TableRow | None:
        row = self.lifecycle.repository.table_of(state.table_id)
        if row is None or not _is_kept(row):
            self._require_free(database, folder)
            return None
        here = (row.database, row.folder or row.name) == (database, folder)
        if here and name in (None, row.name):
            return row
        taken = f"the catalog has table {state.table_id} already: it is {key_of(row.database, row.name)}"
        if here:
            raise AlreadyExists(f"{taken}: rename it", code="table-registered")
        raise AlreadyExists(f"{taken} in the folder {self._copies(row, state)}", code="table-registered")

    def _copies(self, row: TableRow, state: TableState) -> str:
        """Says of two folders with one table which the catalog has, and how to have the other one."""
        folder = row.folder or row.name
        location = layout.table_location(self.lifecycle.warehouse, row.database, folder)
        try:
            its = f"version {self.lifecycle.steps.found(location).version}"
        except TableStoreError as error:
            its = f"which cannot be read: {error.message}"
        return (
            f"{row.database}/{folder} ({its}), and this one (version {state.version}) is a copy of it, or it of this "
            f"one. Move the one that is not needed out of the warehouse. If this is the right one, move it to "
            f"{location} then: to drop the table would delete its log, too"
        )

    def _require_free(self, database: str, folder: str) -> None:
        """Refuses a folder that is another table's in the catalog."""
        self.lifecycle.finished(database, folder)
        if self.lifecycle.repository.has_folder(database, folder):
            raise AlreadyExists(
                f"the folder {database}/{folder} is another table's in the catalog, whose files are not there: drop "
                "that table first, which leaves the files of this one",
                code="folder-taken",
            )

    def _new_row(self, database: str, name: str, folder: str, state: TableState) -> TableRow:
        own_topic = state.definition.options["log.kafka.topic"] is not None
        row = TableRow(
            database,
            name,
            state.table_id,
            State.ACTIVE,
            state.definition,
            state.created_ms,
            keeps_topic=own_topic,  # it may have been there before the table, so nothing of ours deletes it
            folder=folder,
        )
        self.lifecycle.construction.require_own_topic(row)
        return row

    def _notes(self, row: TableRow, state: TableState) -> tuple[str, ...]:
        assert isinstance(row.definition, TableDefinition)
        problem = self.lifecycle.steps.log_problem(self.lifecycle.identity(row), state)
        return () if problem is None else (problem,)


def _is_kept(row: TableRow | None) -> bool:
    """Returns whether a row is that of a table which stays: others are finished, and then they are gone."""
    return row is not None and row.state in (State.ACTIVE, State.STAGED)


def _is_named(database: str, folder: str) -> bool:
    """Returns whether a folder has a name that a catalog gives to folders of tables."""
    try:
        return fold_name("database", database) == database and fold_table(folder) == folder
    except InvalidRequest:
        return False
