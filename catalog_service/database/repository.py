"""Reads and writes the catalog's rows; no other module has SQL. Each method is one transaction.

A change of a table's row names the table's UUID and the states that it may change, so that a process which lost the
lock of a name without noticing changes nothing that another process has done since.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, String, bindparam, delete, exists, insert, literal, or_, select, update
from sqlalchemy.exc import IntegrityError

from catalog_service.database.definitions import VIEW, connector_of, encode_definition
from catalog_service.database.engine import insert_into, now_ms, reading, writing
from catalog_service.database.name_errors import database_not_found, table_exists, table_not_found, view_not_found
from catalog_service.database.schema import (
    DATABASES,
    LEASES,
    LOG_DEBTS,
    TABLES,
    DatabaseRow,
    Definition,
    LeaseRow,
    State,
    TableEntry,
    TableRow,
)
from catalog_service.database.stored_rows import database_of, entry_of, lease_of, table_of
from filestore.errors import AlreadyExists, Conflict, NotFound

__all__ = ["Repository"]

_KAFKA_LOG = '"log.system": "kafka"'  # as `encode_definition` spells it
_COMPARED = 200
"""The most names among which an error looks for the one that may be meant."""

_OF_AN_ENTRY = (
    TABLES.c.name,
    TABLES.c.table_id,
    TABLES.c.connector,
    TABLES.c.definition,
    TABLES.c.created_at_ms,
    TABLES.c.folder,
)

# It is made once: making a statement costs more than executing it.
_TABLE_AND_DATABASE = (
    select(TABLES, DATABASES.c.state.label("database_state"))
    .select_from(
        DATABASES.outerjoin(
            TABLES, (TABLES.c.database == DATABASES.c.name) & (TABLES.c.name == bindparam("called", type_=String))
        )
    )
    .where(DATABASES.c.name == bindparam("in_database", type_=String))
)


class Repository:
    """The catalog's rows. A method raises `Unavailable`, and changes nothing, if the database cannot be used."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def ping(self) -> None:
        """Raises `Unavailable` if the database does not answer."""
        with reading(self._engine) as connection:
            connection.execute(select(DATABASES.c.name).limit(1)).all()

    # ------------------------------------------------------------------------------------------ databases

    def databases(self, after: str | None, limit: int) -> list[DatabaseRow]:
        """Returns ACTIVE databases by name, from after `after`."""
        query = select(DATABASES).where(DATABASES.c.state == State.ACTIVE).order_by(DATABASES.c.name).limit(limit)
        if after is not None:
            query = query.where(DATABASES.c.name > after)
        with reading(self._engine) as connection:
            return [database_of(row) for row in connection.execute(query)]

    def database(self, name: str) -> DatabaseRow | None:
        """Returns a database in any state."""
        with reading(self._engine) as connection:
            return _find_database(connection, name)

    def add_database(self, row: DatabaseRow) -> None:
        """Adds a database; `AlreadyExists` if the name is taken."""
        values = {
            "name": row.name,
            "state": row.state,
            "comment": row.comment,
            "created_at_ms": row.created_at_ms,
        }
        try:
            with writing(self._engine, may_contradict=True) as connection:
                connection.execute(insert(DATABASES).values(values))
        except IntegrityError as error:
            raise AlreadyExists(f"database {row.name!r} exists already", code="database-exists") from error

    def mark_database_dropping(self, name: str, *, cascade: bool) -> None:
        """Marks a database and all its tables as DROPPING: from here on they are invisible.

        Raises:
            NotFound: ``database-not-found``.
            Conflict: ``database-not-empty``: it has tables, and `cascade` is false.
        """
        with writing(self._engine) as connection:
            _require_active(connection, name, to_write=True)
            here = TABLES.c.database == name
            tables = connection.scalars(select(TABLES.c.name).where(here).order_by(TABLES.c.name).limit(4)).all()
            if tables and not cascade:
                shown = ", ".join(tables[:3]) + (", …" if len(tables) > 3 else "")
                raise Conflict(
                    f"database {name!r} has tables ({shown}): drop them first, or pass cascade=true",
                    code="database-not-empty",
                )
            active = here & (TABLES.c.state == State.ACTIVE)
            connection.execute(update(TABLES).where(active).values(state=State.DROPPING))
            connection.execute(update(DATABASES).where(DATABASES.c.name == name).values(state=State.DROPPING))

    def remove_database(self, name: str) -> None:
        """Removes a DROPPING database that has no table row left."""
        empty = ~exists().where(TABLES.c.database == name)
        with writing(self._engine) as connection:
            connection.execute(
                delete(DATABASES).where(DATABASES.c.name == name, DATABASES.c.state == State.DROPPING, empty)
            )

    # ------------------------------------------------------------------------------------------ tables

    def tables(self, database: str, after: str | None, limit: int, *, views: bool = False) -> list[TableEntry]:
        """Returns ACTIVE tables by name, or with `views` the views, from after `after`.

        Raises:
            NotFound: ``database-not-found``: the database is not ACTIVE.
        """
        is_view = TABLES.c.connector.is_not_distinct_from(VIEW)
        query = (
            select(*_OF_AN_ENTRY)
            .where(TABLES.c.database == database, TABLES.c.state == State.ACTIVE, is_view if views else ~is_view)
            .order_by(TABLES.c.name)
            .limit(limit)
        )
        if after is not None:
            query = query.where(TABLES.c.name > after)
        with reading(self._engine) as connection:
            _require_active(connection, database)
            rows = connection.execute(query).all()
        return [entry_of(database, row) for row in rows]

    def table(self, database: str, name: str) -> TableRow | None:
        """Returns a table, in any state, of an ACTIVE database; raises `NotFound` unless the database is ACTIVE."""
        with reading(self._engine) as connection:
            row = connection.execute(_TABLE_AND_DATABASE, {"in_database": database, "called": name}).one_or_none()
            if row is None or row.database_state != State.ACTIVE:
                raise _no_database(connection, database)
        return None if row.name is None else table_of(row)

    def no_database(self, name: str) -> NotFound:
        """Returns the error of a database that is not there, with the one that may be meant."""
        with reading(self._engine) as connection:
            return _no_database(connection, name)

    def no_table(self, database: str, name: str) -> NotFound:
        """Returns the error of a table that is not there, with the one that may be meant."""
        return table_not_found(database, name, self._near(database, views=False))

    def no_view(self, database: str, name: str) -> NotFound:
        """Returns the error of a view that is not there, with the one that may be meant."""
        return view_not_found(database, name, self._near(database, views=True))

    def _near(self, database: str, *, views: bool) -> list[str]:
        return [entry.name for entry in self.tables(database, None, _COMPARED, views=views)]

    def table_of(self, table_id: str) -> TableRow | None:
        """Returns the table with an id, in any state."""
        with reading(self._engine) as connection:
            row = connection.execute(select(TABLES).where(TABLES.c.table_id == table_id)).one_or_none()
        return None if row is None else table_of(row)

    def leftover(self, database: str, name: str) -> TableRow | None:
        """Returns a table in any state of a database in any state."""
        with reading(self._engine) as connection:
            return _find_table(connection, database, name)

    def table_names(self, database: str) -> list[str]:
        """Returns the names of tables in any state of a database in any state."""
        with reading(self._engine) as connection:
            return list(connection.scalars(select(TABLES.c.name).where(TABLES.c.database == database)))

    def unfinished(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Returns what is in work or left by a crash: databases, and tables as (database, name); not what is staged."""
        with reading(self._engine) as connection:
            databases = connection.scalars(select(DATABASES.c.name).where(DATABASES.c.state != State.ACTIVE)).all()
            tables = connection.execute(
                select(TABLES.c.database, TABLES.c.name).where(TABLES.c.state.not_in([State.ACTIVE, State.STAGED]))
            ).all()
        return list(databases), [(row.database, row.name) for row in tables]

    def tables_with_option(self, option: str) -> list[TableRow]:
        """Returns tables in any state whose stored definition contains the option's name as text."""
        query = select(TABLES).where(TABLES.c.definition.contains(option, autoescape=True))
        with reading(self._engine) as connection:
            return [table_of(row) for row in connection.execute(query)]

    def asks_brokers(self, database: str, name: str | None) -> bool:
        """Returns whether a change of a table, or of a database's tables, may have to reach the broker of a log."""
        at = [t.c.database == database for t in (TABLES, LOG_DEBTS)]
        if name is not None:
            at = [here & (t.c.name == name) for here, t in zip(at, (TABLES, LOG_DEBTS), strict=True)]
        with_log = TABLES.c.definition.contains(_KAFKA_LOG, autoescape=True)
        query = select(or_(exists().where(at[0], with_log), exists().where(at[1])))
        with reading(self._engine) as connection:
            return bool(connection.scalar(query))

    def add_table(self, row: TableRow) -> None:
        """Adds a table. REQUIRES: the name's lock.

        Raises:
            NotFound: ``database-not-found``: the database is not ACTIVE.
            AlreadyExists: ``table-exists``: another process had the lock meanwhile.
        """
        values = {
            "database": row.database,
            "name": row.name,
            "table_id": row.table_id,
            "state": row.state,
            "definition": encode_definition(row.definition),
            "created_at_ms": row.created_at_ms,
            "connector": connector_of(row.definition),
            "keeps_topic": row.keeps_topic,
            "folder": row.folder,
        }
        try:
            with writing(self._engine, may_contradict=True) as connection:
                _require_active(connection, row.database, to_write=True)
                connection.execute(insert(TABLES).values(values))
        except IntegrityError as error:
            raise table_exists(row.database, row.name) from error

    def replace_definition(self, row: TableRow, definition: Definition) -> bool:
        """Replaces what an ACTIVE view is, and returns whether it is still there."""
        here = (TABLES.c.table_id == row.table_id) & (TABLES.c.state == State.ACTIVE)
        with writing(self._engine) as connection:
            values = {"definition": encode_definition(definition)}
            return connection.execute(update(TABLES).where(here).values(values)).rowcount > 0

    def rename(self, row: TableRow, new_name: str, replaced: TableRow | None) -> None:
        """Gives an ACTIVE or STAGED table another name, under which it is ACTIVE. REQUIRES: the locks of both names.

        Args:
            row: The table.
            new_name: The new name.
            replaced: The ACTIVE table that has that name, as it is afterwards: with a hidden name, and DROPPING.

        Raises:
            NotFound: ``table-not-found``: the table is not there any more.
            AlreadyExists: ``table-exists``: another table has the name.
        """
        movable = [State.ACTIVE, State.STAGED]
        here = (TABLES.c.table_id == row.table_id) & TABLES.c.state.in_(movable)
        try:
            with writing(self._engine, may_contradict=True) as connection:
                _require_active(connection, row.database, to_write=True)
                if replaced is not None:
                    old = TABLES.c.table_id == replaced.table_id
                    connection.execute(update(TABLES).where(old).values(name=replaced.name, state=replaced.state))
                moved = connection.execute(update(TABLES).where(here).values(name=new_name, state=State.ACTIVE))
                if moved.rowcount == 0:
                    raise NotFound(f"table {row.table_id} was dropped just now", code="table-not-found")
        except IntegrityError as error:
            raise table_exists(row.database, new_name) from error

    def has_folder(self, database: str, folder: str) -> bool:
        """Returns whether a table, in any state and of any name, has the folder."""
        with reading(self._engine) as connection:
            here = (TABLES.c.database == database) & (TABLES.c.folder == folder)
            return bool(connection.scalar(select(exists().where(here))))

    def staged_before(self, time_ms: int) -> list[TableRow]:
        """Returns tables that were staged before a time."""
        query = select(TABLES).where(TABLES.c.state == State.STAGED, TABLES.c.created_at_ms < time_ms)
        with reading(self._engine) as connection:
            return [table_of(row) for row in connection.execute(query)]

    def set_state(self, row: TableRow, state: State) -> bool:
        """Moves a table to another state, and returns whether it could. REQUIRES: the name's lock.

        A table that another process drops, or has removed, never becomes ACTIVE or STAGED.
        """
        states = list(State) if state is State.DROPPING else [State.CREATING, state]
        here = (TABLES.c.table_id == row.table_id) & TABLES.c.state.in_(states)
        with writing(self._engine) as connection:
            return connection.execute(update(TABLES).where(here).values(state=state)).rowcount > 0

    def drop_with_database(self, row: TableRow) -> bool:
        """Moves a table to DROPPING, and returns whether it could: not if its database is in use (again)."""
        dropping = exists().where(DATABASES.c.name == row.database, DATABASES.c.state == State.DROPPING)
        here = (TABLES.c.table_id == row.table_id) & dropping
        with writing(self._engine) as connection:
            return connection.execute(update(TABLES).where(here).values(state=State.DROPPING)).rowcount > 0

    def remove_table(self, row: TableRow, *, debt_due_ms: int | None) -> None:
        """Removes a table's row, which frees its name. It may be gone: then another process has completed the drop.

        Args:
            row: The table. REQUIRES: the name's lock.
            debt_due_ms: When to try again to delete its log; None if the log is gone.
        """
        with writing(self._engine) as connection:
            removed = connection.execute(delete(TABLES).where(TABLES.c.table_id == row.table_id)).rowcount
            if removed and debt_due_ms is not None:
                connection.execute(
                    insert(LOG_DEBTS).values(
                        table_id=row.table_id,
                        database=row.database,
                        name=row.name,
                        definition=encode_definition(row.definition),
                        created_at_ms=row.created_at_ms,
                        retry_at_ms=debt_due_ms,
                        folder=row.folder,
                    )
                )

    # ------------------------------------------------------------------------------------------ log debts

    def log_debts(self, *, due_ms: int | None = None, of: tuple[str, str] | None = None) -> list[TableRow]:
        """Returns removed tables whose log is still to be deleted: those due at a time, or those of one name."""
        query = select(LOG_DEBTS, literal(State.DROPPING).label("state"), literal(False).label("keeps_topic"))
        if due_ms is not None:
            query = query.where(LOG_DEBTS.c.retry_at_ms <= due_ms)
        if of is not None:
            query = query.where(LOG_DEBTS.c.database == of[0], LOG_DEBTS.c.name == of[1])
        with reading(self._engine) as connection:
            return [table_of(row) for row in connection.execute(query)]

    def defer_debt(self, row: TableRow, due_ms: int) -> None:
        """Postpones the next attempt to delete a log whose server still does not answer."""
        with writing(self._engine) as connection:
            connection.execute(update(LOG_DEBTS).where(LOG_DEBTS.c.table_id == row.table_id).values(retry_at_ms=due_ms))

    def remove_debt(self, row: TableRow) -> None:
        """Removes the debt of a log that is deleted."""
        with writing(self._engine) as connection:
            connection.execute(delete(LOG_DEBTS).where(LOG_DEBTS.c.table_id == row.table_id))

    # ------------------------------------------------------------------------------------------ leases

    def acquire_lease(self, table_id: str, owner: str, seconds: float) -> LeaseRow | None:
        """Grants a table's lease; returns None if another owner has one that has not expired.

        Raises:
            NotFound: ``table-not-found``: the table was dropped meanwhile.
        """
        now = now_ms(self._engine)
        granted = {"owner": owner, "expires_at_ms": now + int(seconds * 1000)}
        free = or_(LEASES.c.expires_at_ms <= now, LEASES.c.owner == owner)
        statement = (
            insert_into(self._engine, LEASES)
            .values(table_id=table_id, **granted)
            .on_conflict_do_update(index_elements=[LEASES.c.table_id], set_=granted, where=free)
            .returning(LEASES)
        )
        try:
            with writing(self._engine, may_contradict=True) as connection:
                return lease_of(connection.execute(statement).one_or_none())
        except IntegrityError as error:
            raise NotFound(f"table {table_id} was dropped just now", code="table-not-found") from error

    def renew_lease(self, table_id: str, owner: str, seconds: float) -> LeaseRow | None:
        """Extends a lease, also one that expired and that nobody took; None if the owner does not have it."""
        own = (LEASES.c.table_id == table_id) & (LEASES.c.owner == owner)
        until = now_ms(self._engine) + int(seconds * 1000)
        with writing(self._engine) as connection:
            return lease_of(
                connection.execute(
                    update(LEASES).where(own).values(expires_at_ms=until).returning(LEASES)
                ).one_or_none()
            )

    def release_lease(self, table_id: str, owner: str) -> None:
        """Ends a lease, unless it is another owner's."""
        with writing(self._engine) as connection:
            connection.execute(delete(LEASES).where(LEASES.c.table_id == table_id, LEASES.c.owner == owner))

    def lease(self, table_id: str) -> LeaseRow | None:
        """Returns the lease of a table; it may have expired."""
        with reading(self._engine) as connection:
            return lease_of(connection.execute(select(LEASES).where(LEASES.c.table_id == table_id)).one_or_none())


def _require_active(connection: Connection, name: str, *, to_write: bool = False) -> None:
    found = _find_database(connection, name, to_write=to_write)
    if found is None or found.state is not State.ACTIVE:
        raise _no_database(connection, name)


def _no_database(connection: Connection, name: str) -> NotFound:
    names = select(DATABASES.c.name).where(DATABASES.c.state == State.ACTIVE).limit(_COMPARED)
    return database_not_found(name, connection.scalars(names).all())


def _find_database(connection: Connection, name: str, *, to_write: bool = False) -> DatabaseRow | None:
    query = select(DATABASES).where(DATABASES.c.name == name)
    if to_write:
        # SQLite has locked the whole file; PostgreSQL needs a row lock, or a drop and a creation could overlap.
        query = query.with_for_update()
    row = connection.execute(query).one_or_none()
    return None if row is None else database_of(row)


def _find_table(connection: Connection, database: str, name: str) -> TableRow | None:
    query = select(TABLES).where(TABLES.c.database == database, TABLES.c.name == name)
    row = connection.execute(query).one_or_none()
    return None if row is None else table_of(row)
