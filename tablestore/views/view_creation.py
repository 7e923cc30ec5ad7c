"""The table of a view: its columns, key and options follow from the query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from filestore.errors import InvalidRequest, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from filestore.model.table_options import TableOptions
from tablestore.table import Table
from tablestore.views.engines.either import Engines
from tablestore.views.engines.query_work import QueryWork
from tablestore.views.events.event_method import explained_lookup
from tablestore.views.plan.join_table import GivenTable, output_schema, own_options
from tablestore.views.plan.scope import NotPlainError
from tablestore.views.plan.two_tables import join_of
from tablestore.views.plan.view_plan import Incremental, Mode, Whole, check_key, plan_view, spelled, with_key
from tablestore.views.query_method import explained_query
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import VIEW_QUERY, ViewQuery
from tablestore.views.sql.view_settings import settings_of

__all__ = ["MaterializedView", "ViewTable", "view_table", "with_own"]


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


def view_table(
    query: ViewQuery,
    asked: MaterializedView,
    settings: Mapping[str, str],
    tables: Mapping[str, Table],
    engines: Engines,
) -> ViewTable:
    """Returns the table for a query.

    Args:
        query: The query.
        asked: The statement.
        settings: Options with the settings of Spark in which the query runs.
        tables: The query's tables, by name.
        engines: What computes its rows, and says its columns.

    Raises:
        InvalidRequest: ``view-query``: the query is refused; ``view-key``: another key follows from it;
            ``view-option``: an option that the view determines; ``bad-join``: rows with a key are looked up.
        Unsupported: ``view-not-incremental``; ``needs-spark``; ``view-query``: events are looked up in another form.
    """
    if query.looks_up:
        return _lookup_table(query, asked, {name: tables[name].definition for name in query.tables})
    parsed = TableOptions.parse(asked.options)
    options = {**settings, **asked.options}
    states = {name: tables[name].filestore.state() for name in query.tables}
    definitions = {name: state.definition for name, state in states.items()}
    given = GivenTable(
        asked.primary_key,
        buckets=parsed["bucket"] if "bucket" in asked.options else None,
        bucket_key=parsed["bucket-key"] if "bucket-key" in asked.options else None,
    )
    plan = plan_view(query, definitions, settings_of(options), asked.primary_key, given)
    until = {name: state.version for name, state in states.items()}
    known = {(name, state.version): state for name, state in states.items()}
    work = QueryWork(query, plan, settings_of(options), until, tables=tables, known=known)
    schema = engines.created_schema(work)
    plan = with_key(plan, schema, asked.primary_key, Mode(parsed["view.incremental"]))
    key = spelled(asked.primary_key, schema.names) or (plan.key if isinstance(plan, Incremental) else ())
    plan = replace(plan, key=key) if isinstance(plan, Whole) else plan
    own = {VIEW_QUERY: query.text, "view.engine": "spark"}
    if isinstance(plan, Incremental) and plan.join is not None:  # whose rows depend on no setting
        own, options = own_options(plan.join, definitions[plan.join.left]), dict(asked.options)
    why_spark = engines.why_spark(replace(work, plan=plan), parsed["view.local-memory"])
    explained = explained_query(asked.name, plan, why_spark)
    columns = tuple(replace(column, nullable=column.name not in key) for column in schema)
    return ViewTable(Schema(columns), key, with_own(own, options), explained)


def _lookup_table(query: ViewQuery, asked: MaterializedView, definitions: Mapping[str, TableDefinition]) -> ViewTable:
    """Returns the table for a query that looks events up."""
    try:
        join = join_of(query, definitions)
    except NotPlainError as error:
        raise Unsupported(
            f"events cannot be looked up by this query: {error}. It takes SELECT of columns FROM a table of events "
            "[LEFT] JOIN another FOR SYSTEM_TIME AS OF current_timestamp(), or a column of the events, ON its primary "
            "key",
            code="view-query",
        ) from error
    events = definitions[join.left]
    if events.primary_key:
        raise InvalidRequest(
            f"FOR SYSTEM_TIME AS OF is for events, and {join.left} has a primary key, so that the result follows each "
            "change of both tables: leave it out",
            code="bad-join",
        )
    check_key((), asked.primary_key)
    schema = output_schema(join, events, definitions[join.right])
    return ViewTable(schema, (), with_own(own_options(join, events), asked.options), explained_lookup(asked.name, join))


def with_own(own: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Adds to options those that follow from the query; `InvalidRequest` (``view-option``) if others are given."""
    if taken := [name for name in own if options.get(name, own[name]) != own[name]]:
        raise InvalidRequest(
            f"option {taken[0]!r} of a view follows from its query and is {own[taken[0]]!r}: leave it out",
            code="view-option",
        )
    return {**options, **own}
