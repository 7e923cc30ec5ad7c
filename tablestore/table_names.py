"""Splits names of tables, ``database.table``. Pure."""

from __future__ import annotations

from filestore.errors import InvalidRequest

__all__ = ["in_one_database", "split"]


def split(name: str) -> tuple[str, str]:
    """Returns the database and the name in it; `InvalidRequest` (``bad-name``) for a text of another form."""
    database, dot, table = name.partition(".")
    if not dot or not database or not table or "." in table:
        more = ", without a catalog before it" if dot and "." in table else ""
        raise InvalidRequest(f"{name!r} is not a table name: write database.table{more}", code="bad-name")
    return database, table


def in_one_database(name: str, new_name: str) -> tuple[str, str, str]:
    """Returns the database and the two names in it; `InvalidRequest` (``other-database``) if they are in two."""
    (database, old), (other, new) = split(name), split(new_name)
    if database.lower() != other.lower():
        raise InvalidRequest(
            f"{name} cannot become {new_name}: a table or a view stays in its database", code="other-database"
        )
    return database, old, new
