"""Completes words for a shell, behind Tab: names of databases, tables, columns. ``--install-completion`` turns it on.

A shell asks in a process of its own, and there is nobody to read an error: where the catalog does not answer, nothing
is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from filestore.errors import TableStoreError

if TYPE_CHECKING:
    from catalog_service.client import Catalog

__all__ = ["columns", "databases", "names", "tables"]


def databases(context: typer.Context, incomplete: str) -> list[str]:
    """Completes a database."""
    return _asked(context, incomplete, lambda catalog: catalog.list_databases())


def tables(context: typer.Context, incomplete: str) -> list[str]:
    """Completes a table: first its database, then the tables of that."""
    return _asked(context, incomplete, lambda catalog: _relations(catalog, incomplete, views=False))


def names(context: typer.Context, incomplete: str) -> list[str]:
    """Completes a database, a table or a view."""
    return _asked(
        context, incomplete, lambda catalog: [*catalog.list_databases(), *_relations(catalog, incomplete, views=True)]
    )


def columns(context: typer.Context, incomplete: str) -> list[str]:
    """Completes the last one of the columns of ``--columns a,b``; the table is before it on the line."""
    # an option without its value ends the parsing, so the table may not be a parameter yet
    typed = context.params.get("name") or next((word for word in context.args if "." in word), "")
    database, _, name = typed.partition(".")
    if not name:
        return []
    before, comma, _ = incomplete.rpartition(",")
    taken = set(before.split(","))

    def found(catalog: Catalog) -> Iterable[str]:
        listed = [column.name for column in catalog.get_table(database, name).columns]
        return [f"{before}{comma}{column}" for column in listed if column not in taken]

    return _asked(context, incomplete, found)


def _relations(catalog: Catalog, incomplete: str, *, views: bool) -> Iterable[str]:
    """Lists what is in the database that is typed, or in all: those of 100 databases are more than one can read."""
    database, dot, _ = incomplete.partition(".")
    for name in [database] if dot else catalog.list_databases():
        found = catalog.list_tables(name)
        yield from (f"{name}.{table}" for table in (*found, *(catalog.list_views(name) if views else ())))


def _asked(context: typer.Context, incomplete: str, ask: Callable[[Catalog], Iterable[str]]) -> list[str]:
    # imported here because the catalog's packages load slowly, and `--help` should not wait for them
    from tablestore.cli.arguments import DEFAULT_WAREHOUSE
    from tablestore.cli.opening import open_catalog

    place = context.params.get("catalog") or DEFAULT_WAREHOUSE
    try:
        with open_catalog(place, context.params.get("token")) as catalog:
            return [name for name in ask(catalog) if name.startswith(incomplete)]
    except TableStoreError:
        return []
