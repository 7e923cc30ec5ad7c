"""The errors of names: of what is not there, and of what is there already."""

from __future__ import annotations

from collections.abc import Sequence

from filestore.errors import AlreadyExists, NotFound
from filestore.model.text import meant

__all__ = ["database_not_found", "is_view", "table_exists", "table_not_found", "view_not_found"]


def table_exists(database: str, name: str) -> AlreadyExists:
    """The error of a new name that a table or a view has already."""
    return AlreadyExists(
        f"{database!r} has a table or a view {name!r} already: choose another name, or drop it first",
        code="table-exists",
    )


def is_view(database: str, name: str) -> NotFound:
    """The error of an operation on a table if the name is a view's."""
    return NotFound(f"{database}.{name} is a view, and not a table", code="is-view")


def database_not_found(name: str, names: Sequence[str] = ()) -> NotFound:
    """The error of every operation on a database that does not exist.

    Args:
        name: The name.
        names: Those that exist: the error says which one may be meant.
    """
    return _not_found("database", name, "", names)


def table_not_found(database: str, name: str, names: Sequence[str] = ()) -> NotFound:
    """The error of every operation on a table that does not exist. Args as for `database_not_found`."""
    return _not_found("table", name, f" in database {database!r}", names)


def view_not_found(database: str, name: str, names: Sequence[str] = ()) -> NotFound:
    """The error of every operation on a view that does not exist. Args as for `database_not_found`."""
    return _not_found("view", name, f" in database {database!r}", names)


def _not_found(what: str, name: str, where: str, names: Sequence[str]) -> NotFound:
    near = meant(name, names)
    hint = "" if near is None else f"did you mean {near!r}? Else "
    message = f"there is no {what} {name!r}{where}: {hint}create it, or look at the list of {what}s"
    return NotFound(message, code=f"{what}-not-found")
