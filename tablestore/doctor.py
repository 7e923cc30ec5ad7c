"""Examines a table by its name, with the rows of a view, or all tables. `tablestore doctor` prints the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from filestore.checks.report import Report
from filestore.errors import NotFound, TableStoreError, Unsupported
from filestore.progress import Observe
from tablestore.care import examine_opened, why_unread
from tablestore.views.opening import compare_view

if TYPE_CHECKING:
    from tablestore.store import Store
    from tablestore.views.engines.either import Engine

__all__ = ["Examined", "examine_all", "examine_named"]


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


def examine_named(store: Store, name: str, engine: Engine | None = None, observe: Observe | None = None) -> Report:
    """Checks a table, and of a maintained view also that its rows are the result of the query.

    Args:
        store: The store.
        name: ``database.table``.
        engine: Computes queries that need one; without it the rows of such views are not compared.
        observe: Takes how many files were read.

    Raises:
        Unsupported: ``connector-table``.
        NotFound: there is no such table.
        Unavailable: as `examine_opened`.
    """
    table = store.unread_table(name)
    report = examine_opened(table, observe)
    if why_unread(table) is not None or not table.definition.is_view:
        return report
    return report.with_more(compare_view(store, name, engine))


def examine_all(store: Store, database: str | None) -> Iterator[Examined]:
    """Checks all managed tables, or those of a database, one after the other; see `tablestore.Store.examine_all`."""
    if database is not None:
        yield from _of_database(store, database)
        return
    for one in store.list_databases():
        with suppress(NotFound):  # it was dropped meanwhile
            yield from _of_database(store, one)


def _of_database(store: Store, database: str) -> Iterator[Examined]:
    for table in store.list_tables(database):
        name = f"{database}.{table}"
        try:
            yield Examined(name, examine_named(store, name))
        except TableStoreError as error:
            if _is_managed(store, name):
                yield Examined(name, None, error)


def _is_managed(store: Store, name: str) -> bool:
    """Returns whether the catalog has such a table: it may be a topic, or have been dropped since it was listed."""
    try:
        store.unread_table(name)
    except (NotFound, Unsupported):
        return False
    except TableStoreError:
        return True
    return True
