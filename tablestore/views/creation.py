"""Creates the tables of views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from filestore.errors import AlreadyExists
from filestore.model.definition import TableDefinition
from tablestore.table import Table
from tablestore.table_names import split
from tablestore.views.engines.either import Engine, Engines
from tablestore.views.join_arguments import asks_for, join_of_arguments, ordered
from tablestore.views.opening import check_no_cycle, existing, open_view
from tablestore.views.plan.join_query import JoinKind, JoinQuery
from tablestore.views.plan.join_table import own_options
from tablestore.views.plan.scope import NotPlainError
from tablestore.views.plan.two_tables import join_of
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import VIEW_QUERY, parse_view, view_of_statement
from tablestore.views.view import View
from tablestore.views.view_creation import MaterializedView, ViewTable, view_table, with_own

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
    tables = {table.identifier: table for table in (first, second)}  # as the catalog spells them
    definitions = {name: table.definition for name, table in tables.items()}
    sides = ordered(first.identifier, second.identifier, definitions)
    kind = JoinKind.of(asked.kind)
    sides.check(kind, asked.at)

    table = existing(store, asked.into)
    found = None if table is None else table.definition.options[VIEW_QUERY]
    known = None if found is None else _join_in(found, definitions)
    join = join_of_arguments(sides, asked.on, kind, asked.select, asked.at, known)
    if table is None:
        with_own(own_options(join, definitions[join.left]), asked.options)  # a statement may choose other buckets
        statement = MaterializedView(asked.into, join.sql(), Place("", ""), asked.options)
        made = view_table(parse_view(statement.query), statement, {}, tables, Engines())
        with suppress(AlreadyExists):  # another process was faster
            _create(store, asked.into, made)
        found = store.table(asked.into).definition.options[VIEW_QUERY]
        known = None if found is None else _join_in(found, definitions)
    if known is None or not asks_for(asked.select, join, known):
        raise AlreadyExists(
            f"{asked.into} is {'another table' if found is None else f'the result of {found}'}: give the view another "
            "name, or drop the table",
            code="table-exists",
        )
    return open_view(store, asked.into)


def _join_in(text: str, definitions: Mapping[str, TableDefinition]) -> JoinQuery | None:
    """Returns the query of a view as a join of some tables; None if it is none."""
    query = parse_view(text)
    if set(query.tables) != set(definitions):
        return None
    try:
        return join_of(query, definitions)
    except NotPlainError:
        return None


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
        See `view_of_statement` and `view_table`.
    """
    tables: dict[str, Table] = {}

    def definition_of(name: str) -> TableDefinition:
        if name not in tables:
            tables[name] = store.table(name)
        return tables[name].definition

    query = view_of_statement(asked.query, asked.place, definition_of)
    made = view_table(query, asked, settings, tables, Engines(spark))
    inputs = [tables[name] for name in parse_view(made.options[VIEW_QUERY]).tables]
    return PlannedView(store, asked, inputs, made, spark)


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


def _create(store: Store, name: str, made: ViewTable, comment: str | None = None) -> None:
    key, options = made.primary_key, made.options
    store.create_table(name, made.schema, primary_key=key, options=options, comment=comment)
