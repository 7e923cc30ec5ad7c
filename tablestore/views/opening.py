"""Opens views, lists, drops and compares them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from filestore.checks.report import Finding
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, TableStoreError, Unavailable, Unsupported
from tablestore.table import Table
from tablestore.views.engines.either import Engine
from tablestore.views.examination import unchecked
from tablestore.views.refresh_order import refresh_order
from tablestore.views.view import View

if TYPE_CHECKING:
    from tablestore.store import Store

__all__ = ["all_views", "check_no_cycle", "compare_view", "drop_view", "existing", "inputs_of", "open_view"]

logger = logging.getLogger(__name__)


def open_view(store: Store, name: str, spark: Engine | None = None) -> View:
    """Opens a view.

    Args:
        store: The store.
        name: Its name.
        spark: Spark, if this process has it.

    Raises:
        InvalidRequest: ``no-view``: the table is none.
        NotFound: ``table-not-found``: there is no such view, or a table that it reads is not there any more.
    """
    table = store.table(name)
    if not table.definition.is_view:
        raise _no_view(name)
    return View(table, [_read(store, table, one) for one in View.tables_of(table.definition)], spark)


def _read(store: Store, view: Table, name: str) -> Table:
    """Opens a table that a view reads; an error names the view, which whoever refreshes many has not named."""
    try:
        return store.table(name)
    except TableStoreError as error:
        raise error.about(f"the view {view.identifier} reads {name}") from error


def drop_view(store: Store, name: str, *, if_exists: bool = False) -> None:
    """Drops a view, and lets the versions of its inputs expire that it has read.

    Where a table that it reads does not answer, or nothing may be written there, these expire later: the hold ends by
    itself after ``consumer.expiration-time``.

    Raises:
        InvalidRequest: ``no-view``: a table that is written to.
        NotFound: ``table-not-found``: there is none.
    """
    table = existing(store, name) if if_exists else store.table(name)
    if table is None:
        return
    if not table.definition.is_view:
        raise _no_view(name)
    _release(store, name)
    store.drop_table(name, if_exists=if_exists)


def _release(store: Store, name: str) -> None:
    """Ends what a view holds in its inputs, as far as they are there and this process has the right to it."""
    try:
        open_view(store, name).drop_holds()
    except (NotFound, Unsupported):  # what it reads may be gone
        return
    except Unavailable as error:
        logger.warning("what %s has read is held until consumer.expiration-time: %s", name, error)


def inputs_of(store: Store, name: str) -> tuple[str, ...] | None:
    """Returns the tables that a view reads; None for a table that is no view, and for one that is gone."""
    try:
        table = existing(store, name)
    except Unsupported:  # a Kafka topic
        return None
    return View.tables_of(table.definition) if table is not None and table.definition.is_view else None


def all_views(store: Store) -> list[str]:
    """Returns the names of all maintained views of a store, each behind those that it reads.

    A table that cannot be opened is among them, since it may be a view: whoever opens it gets the error.
    """

    def known_inputs(name: str) -> tuple[str, ...] | None:
        try:
            return inputs_of(store, name)
        except TableStoreError:
            return ()

    tables = (f"{database}.{table}" for database in store.list_databases() for table in store.list_tables(database))
    known = {name: known_inputs(name) for name in tables}
    return refresh_order([name for name, inputs in known.items() if inputs is not None], known.get)


def check_no_cycle(store: Store, name: str, inputs: Sequence[str]) -> None:
    """Checks that a new view does not read itself by way of other views; raises `InvalidRequest` (``view-cycle``)."""
    own = name.lower()  # as the catalog spells it
    refresh_order([own], lambda one: inputs if one == own else inputs_of(store, one))


def compare_view(store: Store, name: str, spark: Engine | None = None) -> list[Finding]:
    """Compares the rows of a view with its query, if the tables of the query are there and may be read."""
    try:
        view = open_view(store, name, spark)
    except TableStoreError as error:
        return [unchecked(error.message)]
    return view.compare()


def _no_view(name: str) -> InvalidRequest:
    return InvalidRequest(f"{name} is a table that is written to, and no maintained view", code="no-view")


def existing(store: Store, name: str) -> Table | None:
    """Opens a table; returns None if there is none, and raises `AlreadyExists` for a view of the catalog."""
    try:
        return store.table(name)
    except NotFound as error:
        if error.code == "is-view":
            raise AlreadyExists(f"there is a view {name} already: take another name", code="table-exists") from error
        if error.code != "table-not-found":
            raise
        return None
