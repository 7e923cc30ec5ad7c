"""Creates the table of a view, or opens it if it exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from filestore.checks.report import Report
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from tablestore.table import Table
from tablestore.views.examination import unchecked
from tablestore.views.join_query import JoinKind, JoinQuery, join_query, parse_join
from tablestore.views.maintained import MaintainedJoin
from tablestore.views.output_table import VIEW_QUERY, output_key, output_options, output_schema

if TYPE_CHECKING:
    from tablestore.store import Store

__all__ = ["AskedJoin", "begin_join", "examine_view", "open_join"]


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
        query = query_of(None)
        options = output_options(query, definitions[0], asked.options)
        schema, key = output_schema(query, *definitions), output_key(query, definitions[0])
        with suppress(AlreadyExists):  # another process was faster
            store.create_table(asked.into, schema, primary_key=key, options=options)
        table = store.managed_table(asked.into)
    found = table.definition.options[VIEW_QUERY]
    if found is None or (known := parse_join(found)) != query_of(known):
        raise AlreadyExists(
            f"{asked.into} is {'another table' if found is None else f'the result of {found}'}: give the view another "
            "name, or drop the table",
            code="table-exists",
        )
    return MaintainedJoin(table, left, right)


def open_join(store: Store, name: str) -> MaintainedJoin:
    """Implements `tablestore.Store.maintained_join`."""
    table = store.managed_table(name)
    text = table.definition.options[VIEW_QUERY]
    if text is None:
        raise InvalidRequest(f"{name} is a table that is written to, and no maintained view", code="no-view")
    query = parse_join(text)
    return MaintainedJoin(table, store.managed_table(query.left), store.managed_table(query.right))


def examine_view(store: Store, table: Table) -> Report:
    """Checks the table of a view, and its rows if the tables of the query are there."""
    try:
        view = open_join(store, table.identifier)
    except (NotFound, Unsupported) as error:
        return table.examine().with_more([unchecked(error.message)])
    return view.examine()


def _existing(store: Store, name: str) -> Table | None:
    try:
        return store.managed_table(name)
    except NotFound as error:
        if error.code != "table-not-found":
            raise
        return None
