"""Java's requests about databases. The database ``default`` is always there, as in Spark's own catalog.

Clients of JDBC and Thrift begin each session with ``USE default``, so that a server whose default catalog is ours would
refuse them all without one. Nothing is stored for it until it gets a table or a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from filestore.errors import NotFound, Unsupported
from tablestore.spark.sql.requests import OF_SPARK, Request, name_of
from tablestore.store import Store

__all__ = [
    "create_database",
    "drop_database",
    "ensure_default",
    "list_databases",
    "list_tables",
    "list_views",
    "load_database",
    "missing_in_missing_database",
]

_DEFAULT = "default"


def list_databases(store: Store, request: Request) -> list[str]:
    """Returns the names of all databases that are stored."""
    return store.list_databases()


def load_database(store: Store, request: Request) -> dict[str, str]:
    """Returns the properties of a database: none. It raises `NotFound` if there is no such database."""
    list_tables(store, request)
    return {}


def create_database(store: Store, request: Request) -> None:
    """Creates a database; `Unsupported` (``database-property``) for a comment or properties."""
    kept = {name: value for name, value in request["properties"].items() if name not in OF_SPARK}
    if kept:
        raise Unsupported(
            f"a database of Tablestore has a name and nothing else: leave {', '.join(sorted(kept))} out",
            code="database-property",
        )
    store.create_database(request["database"])


def drop_database(store: Store, request: Request) -> bool:
    """Drops a database; returns whether there was one."""
    try:
        store.drop_database(request["database"], cascade=request["cascade"])
    except NotFound:
        return bool(request["database"] == _DEFAULT)
    return True


def list_tables(store: Store, request: Request) -> list[str]:
    """Returns the names of a database's tables."""
    return _names(store.list_tables, request["database"])


def list_views(store: Store, request: Request) -> list[str]:
    """Returns the names of a database's views."""
    return _names(store.list_views, request["database"])


def _names(names_in: Callable[[str], list[str]], database: str) -> list[str]:
    try:
        return names_in(database)
    except NotFound:
        if database != _DEFAULT:
            raise
        return []


def missing_in_missing_database(
    load: Callable[[Store, Request], Any], code: str = "table-not-found"
) -> Callable[..., Any]:
    """Makes a request say that a table or a view is missing where its database is.

    Whoever asks whether a table exists, such as ``DROP TABLE IF EXISTS``, gets no for an answer then, as from Spark's
    own catalog.
    """

    def loaded(store: Store, request: Request) -> Any:
        try:
            return load(store, request)
        except NotFound as error:
            if error.code != "database-not-found":
                raise
            raise NotFound(f"there is no {name_of(request)}", code=code) from error

    return loaded


def ensure_default(store: Store, request: Request) -> None:
    """Stores the database ``default`` if the request creates something in it."""
    if request["database"] == _DEFAULT:
        store.create_database(_DEFAULT, if_not_exists=True)
