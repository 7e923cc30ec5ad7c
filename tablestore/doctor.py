"""Examines a table by its name, with the rows of a view, or all tables. `tablestore doctor` prints the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from filestore.checks.report import Report
from filestore.errors import TableStoreError
from tablestore.care import examine_opened, why_unread
from tablestore.views.creation import compare_view

if TYPE_CHECKING:
    from tablestore.store import Store
    from tablestore.views.maintained_query import QueryEngine

__all__ = ["Examined", "examine_all", "examine_named"]

_NOT_HERE = ("connector-table", "table-not-found", "database-not-found")
"""The codes of names without files: topics, and tables that were dropped meanwhile."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of examining one of many tables.

    Attributes:
        name: ``database.table``.
        report: The report; None if there is none.
        error: Why there is no report.
    """

    name: str
    report: Report | None
    error: TableStoreError | None = None

    @property
    def healthy(self) -> bool:
        """Returns whether it was examined, and no invariant is broken."""
        return self.report is not None and self.report.healthy


def examine_named(store: Store, name: str, engine: QueryEngine | None = None) -> Report:
    """Checks a table, and of a maintained view also that its rows are the result of the query.

    Args:
        store: The store.
        name: ``database.table``.
        engine: Computes queries that need one; without it the rows of such views are not compared.

    Raises:
        Unsupported: ``connector-table``.
        NotFound: there is no such table.
        Unavailable: as `examine_opened`.
    """
    table = store.unread_table(name)
    report = examine_opened(table)
    if why_unread(table) is not None or not table.definition.is_view:
        return report
    return report.with_more(compare_view(store, name, engine))


def examine_all(store: Store, database: str | None) -> Iterator[Examined]:
    """Checks all managed tables, or those of a database, one after the other; see `tablestore.Store.examine_all`."""
    for one in store.list_databases() if database is None else [database]:
        for table in store.list_tables(one):
            name = f"{one}.{table}"
            try:
                yield Examined(name, examine_named(store, name))
            except TableStoreError as error:
                if error.code not in _NOT_HERE:
                    yield Examined(name, None, error)
