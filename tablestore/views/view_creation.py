"""The table of a view: its columns, key and options follow from the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.schema import Column, Schema
from tablestore.table import Table
from tablestore.views.engines.either import Engines
from tablestore.views.engines.query_work import QueryWork
from tablestore.views.joins.join_method import explained_join
from tablestore.views.joins.join_query import JoinQuery
from tablestore.views.joins.join_table import output_key, output_options, output_schema
from tablestore.views.plan.view_plan import Incremental, Mode, Whole, plan_view, with_key
from tablestore.views.query_method import explained_query
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import VIEW_QUERY, ViewQuery
from tablestore.views.sql.view_settings import settings_of

__all__ = ["MaterializedView", "ViewTable", "join_table", "query_table"]


@dataclass(frozen=True, slots=True)
class MaterializedView:
    """The parts of ``CREATE MATERIALIZED VIEW``.

    Attributes:
        name: ``database.table``.
        query: The text of its query.
        place: Completes the names of tables in it.
        options: Options of its table.
        comment: Free text.
        primary_key: The columns of its key; empty: the key that follows from the query, if any.
    """

    name: str
    query: str
    place: Place
    options: Mapping[str, str]
    comment: str | None = None
    primary_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewTable:
    """The table of a view that can be created.

    Attributes:
        schema: Its columns.
        primary_key: Its key; empty if it has none.
        options: Its options.
        explained: How the view is refreshed, a line each.
    """

    schema: Schema
    primary_key: tuple[str, ...]
    options: Mapping[str, str]
    explained: tuple[str, ...]


def join_table(
    name: str, query: JoinQuery, definitions: Mapping[str, TableDefinition], options: Mapping[str, str]
) -> ViewTable:
    """Returns the table for a join by a primary key, or for look-ups of events.

    Args:
        name: The view.
        query: The join.
        definitions: Those of its tables, by name.
        options: The options that are asked for.

    Raises:
        InvalidRequest: ``bad-join``: an option that the view determines.
    """
    left, right = definitions[query.left], definitions[query.right]
    own = output_options(query, left, options)
    return ViewTable(output_schema(query, left, right), output_key(query, left), own, explained_join(name, query))


def query_table(
    query: ViewQuery,
    asked: MaterializedView,
    tables: Mapping[str, Table],
    engines: Engines,
) -> ViewTable:
    """Returns the table for a query.

    Args:
        query: The query.
        asked: The statement; its options have the settings of the query.
        tables: The query's tables, by name.
        engines: What computes its rows, and says its columns.

    Raises:
        InvalidRequest: ``view-query``: the query is refused; ``view-key``: another key follows from it;
            ``view-option``: an option that the view determines.
        Unsupported: ``view-not-incremental``; ``needs-spark``.
    """
    mode = Mode(asked.options.get("view.incremental", Mode.AUTO))
    settings = settings_of(asked.options)
    states = {name: tables[name].filestore.state() for name in query.tables}
    plan = plan_view(query, {name: state.definition for name, state in states.items()}, settings, asked.primary_key)
    work = QueryWork(query, plan, settings, {name: state.version for name, state in states.items()}, tables=tables)
    schema = engines.created_schema(work)
    plan = with_key(plan, schema, asked.primary_key, mode)
    key = _spelled(asked.primary_key, schema) or (plan.key if isinstance(plan, Incremental) else ())
    plan = replace(plan, key=key) if isinstance(plan, Whole) else plan
    columns = (Column(column.name, column.type, column.name not in key) for column in schema)
    own = {VIEW_QUERY: query.text, "view.engine": "spark"}
    if taken := [name for name in own if asked.options.get(name, own[name]) != own[name]]:
        raise InvalidRequest(f"option {taken[0]!r} of a view follows from its query: leave it out", code="view-option")
    most = 0 if asked.options.get("view.local-memory", "").strip() == "0" else 1
    why_spark = engines.why_spark(replace(work, plan=plan), most)
    explained = explained_query(asked.name, plan, why_spark)
    return ViewTable(Schema(tuple(columns)), key, {**asked.options, **own}, explained)


def _spelled(key: Sequence[str], schema: Schema) -> tuple[str, ...]:
    """Returns names as the columns have them: a statement may write them in another case."""
    known = {name.lower(): name for name in schema.names}
    return tuple(known.get(name.lower(), name) for name in key)
