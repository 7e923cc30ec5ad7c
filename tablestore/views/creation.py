"""Creates the tables of maintained joins, opens views, drops and examines them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from filestore.checks.report import Finding
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, TableStoreError, Unavailable, Unsupported
from filestore.model.definition import TableDefinition
from tablestore.table import Table
from tablestore.table_names import split
from tablestore.views.event_join import EventJoin, explained_events
from tablestore.views.examination import unchecked
from tablestore.views.join_query import JoinKind, JoinQuery, parse_join
from tablestore.views.join_sides import ordered
from tablestore.views.maintained import MaintainedJoin, explained_join
from tablestore.views.maintained_query import MaintainedQuery, explained_query
from tablestore.views.output_table import VIEW_QUERY, output_key, output_options, output_schema
from tablestore.views.query_engines import QueryEngine, QueryEngines
from tablestore.views.refresh_order import refresh_order
from tablestore.views.statement import Place, join_of_statement, looks_up_events
from tablestore.views.view_creation import MaterializedView, QueryTable, query_table
from tablestore.views.view_plan import check_key
from tablestore.views.view_query import parse_view, view_of_statement

if TYPE_CHECKING:
    from tablestore.store import Store

__all__ = [
    "AskedJoin",
    "PlannedView",
    "all_views",
    "begin_join",
    "check_no_cycle",
    "compare_view",
    "created_here",
    "drop_view",
    "inputs_of",
    "open_join",
    "open_view",
    "planned_view",
]


logger = logging.getLogger(__name__)


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


def begin_join(store: Store, asked: AskedJoin) -> MaintainedJoin:
    """Implements `tablestore.Store.maintain_join`."""
    first, second = (store.table(name) for name in (asked.left, asked.right))
    definitions = {table.identifier: table.definition for table in (first, second)}
    sides = ordered(first.identifier, second.identifier, definitions)  # as the catalog spells them
    kind = JoinKind.of(asked.kind)
    sides.check(kind, asked.at)

    def query_of(known: JoinQuery | None) -> JoinQuery:
        return sides.query(asked.on, kind, asked.select, known, asked.at)

    table = _existing(store, asked.into)
    if table is None:
        with suppress(AlreadyExists):  # another process was faster
            _create(store, asked.into, query_of(None), asked.options, sides.left, sides.right)
        table = store.table(asked.into)
    found = table.definition.options[VIEW_QUERY]
    if found is None or (known := parse_join(found)) != query_of(known):
        raise AlreadyExists(
            f"{asked.into} is {'another table' if found is None else f'the result of {found}'}: give the view another "
            "name, or drop the table",
            code="table-exists",
        )
    return _join(store, table, parse_join(found))


def drop_view(store: Store, name: str, *, if_exists: bool = False) -> None:
    """Drops a view, and lets the versions of its inputs expire that it has read.

    Where a table that it reads does not answer, or nothing may be written there, these expire later: the hold ends by
    itself after ``consumer.expiration-time``.

    Raises:
        InvalidRequest: ``no-view``: a table that is written to.
        NotFound: ``table-not-found``: there is none.
    """
    table = _existing(store, name) if if_exists else store.table(name)
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


@dataclass(frozen=True, slots=True)
class PlannedView:
    """A view that can be created.

    Attributes:
        store: The store.
        asked: The statement.
        tables: The tables that its query reads, by name.
        join: The query, if it is a join of columns of two tables by a primary key.
        made: The table of the view, if it is another query.
        spark: Spark, if this process has it.
    """

    store: Store
    asked: MaterializedView
    tables: Mapping[str, Table]
    join: JoinQuery | None
    made: QueryTable | None
    spark: QueryEngine | None

    def create(self) -> MaintainedJoin | MaintainedQuery:
        """Creates the view's table, which nobody has refreshed yet; `AlreadyExists` (``table-exists``)."""
        check_no_cycle(self.store, self.asked.name, list(self.tables))
        name, comment = self.asked.name, self.asked.comment
        if self.join is not None:
            left, right = self.tables[self.join.left], self.tables[self.join.right]
            _create(self.store, name, self.join, self.asked.options, left.definition, right.definition, comment)
            return _join(self.store, self.store.table(name), self.join)
        assert self.made is not None
        key, options = self.made.primary_key, self.made.options
        self.store.create_table(name, self.made.schema, primary_key=key, options=options, comment=comment)
        return MaintainedQuery(self.store.table(name), list(self.tables.values()), self.spark)

    def explain(self) -> tuple[str, ...]:
        """Returns how the view would be refreshed, a line each."""
        if self.join is not None:
            explained = explained_join if self.join.time is None else explained_events
            return explained(self.asked.name, self.join)
        assert self.made is not None
        return explained_query(self.asked.name, self.made.plan, self.made.why_spark)


def planned_view(
    store: Store, asked: MaterializedView, spark: QueryEngine | None, settings: Mapping[str, str]
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
        check_key(output_key(join, definition_of(join.left)), asked.primary_key)
        return PlannedView(store, asked, tables, join, None, spark)
    query = view_of_statement(asked.query, asked.place, definition_of)
    states = {name: tables[name].filestore.state() for name in query.tables}
    definitions = {name: state.definition for name, state in states.items()}
    versions = {name: state.version for name, state in states.items()}
    asked = replace(asked, options={**settings, **asked.options})
    made = query_table(query, asked, definitions, versions, QueryEngines(store.table, spark))
    read = {name: tables[name] for name in query.tables}
    return PlannedView(store, asked, read, None, made, spark)


_SETTINGS = {"view.setting.spark.sql.ansi.enabled": "true", "view.setting.spark.sql.session.timeZone": "UTC"}
"""The settings of Spark by which a query means what this process computes: a Spark that refreshes it has them, too."""


def created_here(  # what a view can have are its arguments
    store: Store,
    name: str,
    query: str,
    primary_key: Sequence[str],
    options: Mapping[str, str],
    comment: str | None,
) -> MaintainedJoin | MaintainedQuery:
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
    view = open_view(store, name)
    if not isinstance(view, MaintainedJoin):
        raise InvalidRequest(
            f"{name} is no join of two tables alone: open it with maintained_view of a SparkStore", code="no-join"
        )
    return view


def open_view(store: Store, name: str) -> MaintainedJoin | MaintainedQuery:
    """Opens a view of any kind.

    Raises:
        InvalidRequest: ``no-view``: the table is none.
        NotFound: ``table-not-found``: there is no such view, or a table that it reads is not there any more.
    """
    table = store.table(name)
    options = table.definition.options
    if options[VIEW_QUERY] is None:
        raise _no_view(name)
    if options["view.engine"] == "spark":
        query = parse_view(options[VIEW_QUERY])
        return MaintainedQuery(table, [_read(store, table, one) for one in query.tables])
    return _join(store, table, parse_join(options[VIEW_QUERY]))


def _join(store: Store, table: Table, query: JoinQuery) -> MaintainedJoin:
    kind = MaintainedJoin if query.time is None else EventJoin
    return kind(table, _read(store, table, query.left), _read(store, table, query.right))


def _read(store: Store, view: Table, name: str) -> Table:
    """Opens a table that a view reads; an error names the view, which whoever refreshes many has not named."""
    try:
        return store.table(name)
    except TableStoreError as error:
        raise error.about(f"the view {view.identifier} reads {name}") from error


def inputs_of(store: Store, name: str) -> tuple[str, ...] | None:
    """Returns the tables that a view reads; None for a table that is no view, and for one that is gone."""
    try:
        table = _existing(store, name)
    except Unsupported:  # a Kafka topic
        return None
    if table is None or (text := table.definition.options[VIEW_QUERY]) is None:
        return None
    if table.definition.options["view.engine"] == "spark":
        return parse_view(text).tables
    join = parse_join(text)
    return tuple(dict.fromkeys((join.left, join.right)))


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


def compare_view(store: Store, name: str, spark: QueryEngine | None = None) -> list[Finding]:
    """Compares the rows of a view with its query, if the tables of the query are there and may be read."""
    try:
        view = open_view(store, name)
    except TableStoreError as error:
        return [unchecked(error.message)]
    if spark is not None and isinstance(view, MaintainedQuery):
        view = view.executed_by(spark)
    return view.compare()


def _no_view(name: str) -> InvalidRequest:
    return InvalidRequest(f"{name} is a table that is written to, and no maintained view", code="no-view")


def _existing(store: Store, name: str) -> Table | None:
    """Opens a table; returns None if there is none, and raises `AlreadyExists` for a view of the catalog."""
    try:
        return store.table(name)
    except NotFound as error:
        if error.code == "is-view":
            raise AlreadyExists(f"there is a view {name} already: take another name", code="table-exists") from error
        if error.code != "table-not-found":
            raise
        return None
