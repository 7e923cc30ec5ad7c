"""Creates the tables of views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from filestore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from tablestore.table import Table
from tablestore.table_names import split
from tablestore.views.engines.either import Engine, Engines
from tablestore.views.joins.join_query import JoinKind, JoinQuery, parse_join
from tablestore.views.joins.join_sides import ordered
from tablestore.views.joins.statement import join_of_statement, looks_up_events
from tablestore.views.opening import check_no_cycle, existing, open_view
from tablestore.views.plan.view_plan import check_key
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import VIEW_QUERY, view_of_statement
from tablestore.views.view import View
from tablestore.views.view_creation import MaterializedView, ViewTable, join_table, query_table

if TYPE_CHECKING:
    from tablestore.store import Store

__all__ = ["AskedJoin", "PlannedView", "begin_join", "created_here", "planned_view"]


@dataclass(frozen=True, slots=True)
class AskedJoin:
    """The arguments of `tablestore.Store.maintain_join`."""

    into: str
    left: str
    right: str
    on: str | Sequence[str]
    kind: str
    select: str | Sequence[str] | None
    options: Mapping[str, str]
    at: str | None = None


def begin_join(store: Store, asked: AskedJoin) -> View:
    """Implements `tablestore.Store.maintain_join`."""
    first, second = (store.table(name) for name in (asked.left, asked.right))
    definitions = {table.identifier: table.definition for table in (first, second)}
    sides = ordered(first.identifier, second.identifier, definitions)  # as the catalog spells them
    kind = JoinKind.of(asked.kind)
    sides.check(kind, asked.at)

    def query_of(known: JoinQuery | None) -> JoinQuery:
        return sides.query(asked.on, kind, asked.select, known, asked.at)

    table = existing(store, asked.into)
    if table is None:
        made = join_table(asked.into, query_of(None), definitions, asked.options)
        with suppress(AlreadyExists):  # another process was faster
            _create(store, asked.into, made)
        table = store.table(asked.into)
    found = table.definition.options[VIEW_QUERY]
    if found is None or (known := parse_join(found)) != query_of(known):
        raise AlreadyExists(
            f"{asked.into} is {'another table' if found is None else f'the result of {found}'}: give the view another "
            "name, or drop the table",
            code="table-exists",
        )
    return open_view(store, asked.into)


@dataclass(frozen=True, slots=True)
class PlannedView:
    """A view that can be created.

    Attributes:
        store: The store.
        asked: The statement.
        inputs: The tables that its query reads, in the order of `View.inputs`.
        made: The table of the view.
        spark: Spark, if this process has it.
    """

    store: Store
    asked: MaterializedView
    inputs: Sequence[Table]
    made: ViewTable
    spark: Engine | None

    def create(self) -> View:
        """Creates the view's table, which nobody has refreshed yet; `AlreadyExists` (``table-exists``)."""
        name = self.asked.name
        check_no_cycle(self.store, name, [table.identifier for table in self.inputs])
        _create(self.store, name, self.made, self.asked.comment)
        return View(self.store.table(name), self.inputs, self.spark)


def planned_view(
    store: Store, asked: MaterializedView, spark: Engine | None, settings: Mapping[str, str]
) -> PlannedView:
    """Plans a view.

    Args:
        store: The store.
        asked: The statement.
        spark: Spark, for queries that this process does not compute; None without it.
        settings: Options that such a view has, with the settings of Spark in which its query runs.

    Raises:
        See `view_of_statement` and `query_table`.
    """
    tables: dict[str, Table] = {}

    def definition_of(name: str) -> TableDefinition:
        if name not in tables:
            tables[name] = store.table(name)
        return tables[name].definition

    join = _plain_join(asked, definition_of)
    if join is not None:
        definitions = {name: table.definition for name, table in tables.items()}
        made = join_table(asked.name, join, definitions, asked.options)
        check_key(made.primary_key, asked.primary_key)
        return PlannedView(store, asked, (tables[join.left], tables[join.right]), made, spark)
    query = view_of_statement(asked.query, asked.place, definition_of)
    asked = replace(asked, options={**settings, **asked.options})
    made = query_table(query, asked, tables, Engines(spark))
    return PlannedView(store, asked, [tables[name] for name in query.tables], made, spark)


_SETTINGS = {"view.setting.spark.sql.ansi.enabled": "true", "view.setting.spark.sql.session.timeZone": "UTC"}
"""The settings of Spark by which a query means what this process computes: a Spark that refreshes it has them, too."""


def created_here(  # what a view can have are its arguments
    store: Store,
    name: str,
    query: str,
    primary_key: Sequence[str],
    options: Mapping[str, str],
    comment: str | None,
) -> View:
    """Implements `tablestore.Store.create_materialized_view`."""
    place = Place("", split(name)[0])
    asked = MaterializedView(name, query, place, options, comment, tuple(primary_key))
    return planned_view(store, asked, None, _SETTINGS).create()


def _plain_join(asked: MaterializedView, definition_of: Callable[[str], TableDefinition]) -> JoinQuery | None:
    """Returns the query as a join that is maintained bucket by bucket; None if it is none."""
    try:
        return join_of_statement(asked.query, asked.place, definition_of)
    except (Unsupported, InvalidRequest):
        if looks_up_events(asked.query):
            raise
        return None
    except NotFound as error:
        # it may be a name that only Spark knows
        if error.code != "unknown-column" or looks_up_events(asked.query):
            raise
        return None


def _create(store: Store, name: str, made: ViewTable, comment: str | None = None) -> None:
    key, options = made.primary_key, made.options
    store.create_table(name, made.schema, primary_key=key, options=options, comment=comment)
