"""Reads and writes the rows by which the catalog's database keeps commits apart, and the settings of the catalog.

Each method is one transaction.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, insert, select, update

from catalog_service.database.engine import insert_into, reading, writing
from catalog_service.database.schema import COMMITS, DATABASES, SETTINGS, TABLES, State
from filestore.commit.claims import Claim
from filestore.errors import NotFound

__all__ = ["ClaimRows"]


class ClaimRows:
    """The newest claims of tables' versions. A method raises `Unavailable`, and changes nothing, if that fails."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def has_databases(self) -> bool:
        """Returns whether the catalog has databases already, in any state."""
        with reading(self._engine) as connection:
            return connection.execute(select(DATABASES.c.name).limit(1)).one_or_none() is not None

    def setting(self, name: str) -> str | None:
        """Returns a setting of the catalog; None if it was not decided yet."""
        with reading(self._engine) as connection:
            return connection.scalar(select(SETTINGS.c.value).where(SETTINGS.c.name == name))

    def decide_once(self, name: str, value: str) -> str:
        """Decides a setting, unless another process has done it; returns its value."""
        with writing(self._engine) as connection:
            row = insert_into(self._engine, SETTINGS).values(name=name, value=value)
            connection.execute(row.on_conflict_do_nothing())
            return str(connection.scalar(select(SETTINGS.c.value).where(SETTINGS.c.name == name)))

    def newest_claim(self, table_id: str) -> Claim | None:
        """Returns the newest claim of a table; raises `NotFound` (``table-not-found``) if it was dropped."""
        with reading(self._engine) as connection:
            _require_table(connection, table_id)
            return _newest_claim(connection, table_id)

    def claim_version(self, table_id: str, wanted: Claim, after: Claim | None) -> Claim:
        """Makes a claim the newest of a table if that is still `after`; returns the newest (`Claims.claim`).

        Raises:
            NotFound: ``table-not-found``: the table is dropped.
        """
        with writing(self._engine) as connection:
            _require_table(connection, table_id, to_write=True)
            newest = _newest_claim(connection, table_id)
            if not _may_follow(wanted, after, newest):
                assert newest is not None
                return newest
            values = {"version": wanted.version, "file": wanted.file, "published": False}
            if newest is None:
                connection.execute(insert(COMMITS).values(table_id=table_id, **values))
            else:
                connection.execute(update(COMMITS).where(COMMITS.c.table_id == table_id).values(**values))
            return wanted

    def publish_claim(self, table_id: str, claim: Claim) -> Claim | None:
        """Notes that the newest claim is published, unless there is a newer one; returns the newest.

        Raises:
            NotFound: ``table-not-found``: the table is dropped.
        """
        here = (COMMITS.c.table_id == table_id) & (COMMITS.c.version == claim.version) & (COMMITS.c.file == claim.file)
        with writing(self._engine) as connection:
            _require_table(connection, table_id)
            connection.execute(update(COMMITS).where(here).values(published=True))
            return _newest_claim(connection, table_id)


def _may_follow(wanted: Claim, after: Claim | None, newest: Claim | None) -> bool:
    """Returns whether a claim becomes the newest one. Pure."""
    if newest is None:
        return True
    known = after is not None and (after.version, after.file) == (newest.version, newest.file)
    return known and newest.published and wanted.version > newest.version


def _newest_claim(connection: Connection, table_id: str) -> Claim | None:
    row = connection.execute(select(COMMITS).where(COMMITS.c.table_id == table_id)).one_or_none()
    return None if row is None else Claim(row.version, row.file, row.published)


def _require_table(connection: Connection, table_id: str, *, to_write: bool = False) -> None:
    """Refuses a table that is dropped; PostgreSQL's row lock makes the claims of one table wait for each other."""
    query = select(TABLES.c.state).where(TABLES.c.table_id == table_id)
    state = connection.scalar(query.with_for_update() if to_write else query)
    if state is None or state == State.DROPPING:
        raise NotFound(f"table {table_id} was dropped: open it again", code="table-not-found")
