"""Creates the table of a view, or opens it if it exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from filestore.checks.report import Report
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from tablestore.table import Table
from tablestore.views.examination import unchecked
from tablestore.views.join_query import JoinKind, JoinQuery, join_query, parse_join
from tablestore.views.maintained import MaintainedJoin
from tablestore.views.output_table import VIEW_QUERY, output_key, output_options, output_schema
from tablestore.views.statement import Place, join_of_statement

if TYPE_CHECKING:
    from tablestore.store import Store

__all__ = ["AskedJoin", "MaterializedView", "begin_join", "create_view", "drop_view", "examine_view", "open_join"]


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


def begin_join(store: Store, asked: AskedJoin) -> MaintainedJoin:
    """Implements `tablestore.Store.maintain_join`."""
    left, right = store.managed_table(asked.left), store.managed_table(asked.right)
    definitions = left.definition, right.definition
    sides = (asked.left, definitions[0]), (asked.right, definitions[1])
    kind = JoinKind.of(asked.kind)

    def query_of(known: JoinQuery | None) -> JoinQuery:
        return join_query(*sides, asked.on, kind, asked.select, known)

    table = _existing(store, asked.into)
    if table is None:
        with suppress(AlreadyExists):  # another process was faster
            _create(store, asked.into, query_of(None), asked.options, *definitions)
        table = store.managed_table(asked.into)
    found = table.definition.options[VIEW_QUERY]
    if found is None or (known := parse_join(found)) != query_of(known):
        raise AlreadyExists(
            f"{asked.into} is {'another table' if found is None else f'the result of {found}'}: give the view another "
            "name, or drop the table",
            code="table-exists",
        )
    return MaintainedJoin(table, left, right)


def drop_view(store: Store, name: str, *, if_exists: bool = False) -> None:
    """Drops a view, and lets the versions of its inputs expire that it has read.

    Raises:
        InvalidRequest: ``no-view``: a table that is written to.
        NotFound: ``table-not-found``: there is none.
    """
    table = _existing(store, name) if if_exists else store.managed_table(name)
    if table is None:
        return
    if not table.definition.is_view:
        raise _no_view(name)
    with suppress(NotFound, Unsupported):  # what it reads may be gone
        open_join(store, name).drop_holds()
    store.drop_table(name, if_exists=if_exists)


@dataclass(frozen=True, slots=True)
class MaterializedView:
    """The parts of ``CREATE MATERIALIZED VIEW``.

    Attributes:
        name: ``database.table``.
        query: The text of its query.
        place: Completes the names of tables in it.
        options: Options of its table.
        comment: Free text.
    """

    name: str
    query: str
    place: Place
    options: Mapping[str, str]
    comment: str | None = None


def create_view(store: Store, asked: MaterializedView) -> MaintainedJoin:
    """Creates a view that nobody has refreshed yet.

    Raises:
        AlreadyExists: ``table-exists``: a table or a view has the name. For others see `join_of_statement`.
    """
    tables: dict[str, Table] = {}

    def definition_of(name: str) -> TableDefinition:
        tables[name] = store.managed_table(name)
        return tables[name].definition

    query = join_of_statement(asked.query, asked.place, definition_of)
    left, right = tables[query.left], tables[query.right]
    _create(store, asked.name, query, asked.options, left.definition, right.definition, asked.comment)
    return MaintainedJoin(store.managed_table(asked.name), left, right)


def _create(
    store: Store,
    name: str,
    query: JoinQuery,
    options: Mapping[str, str],
    left: TableDefinition,
    right: TableDefinition,
    comment: str | None = None,
) -> None:
    schema, key = output_schema(query, left, right), output_key(query, left)
    store.create_table(name, schema, primary_key=key, options=output_options(query, left, options), comment=comment)


def open_join(store: Store, name: str) -> MaintainedJoin:
    """Implements `tablestore.Store.maintained_join`."""
    table = store.managed_table(name)
    text = table.definition.options[VIEW_QUERY]
    if text is None:
        raise _no_view(name)
    query = parse_join(text)
    return MaintainedJoin(table, store.managed_table(query.left), store.managed_table(query.right))


def examine_view(store: Store, table: Table) -> Report:
    """Checks the table of a view, and its rows if the tables of the query are there."""
    try:
        view = open_join(store, table.identifier)
    except (NotFound, Unsupported) as error:
        return table.examine().with_more([unchecked(error.message)])
    return view.examine()


def _no_view(name: str) -> InvalidRequest:
    return InvalidRequest(f"{name} is a table that is written to, and no maintained view", code="no-view")


def _existing(store: Store, name: str) -> Table | None:
    try:
        return store.managed_table(name)
    except NotFound as error:
        if error.code == "is-view":
            raise AlreadyExists(f"there is a view {name} already: take another name", code="table-exists") from error
        if error.code != "table-not-found":
            raise
        return None
