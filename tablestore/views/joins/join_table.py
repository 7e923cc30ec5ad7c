"""The table of a view: its columns, key and options, from the tables that its query reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from filestore.errors import InvalidRequest, NotFound
from filestore.model.definition import TableDefinition
from filestore.model.names import listed
from filestore.model.schema import Column, Schema
from filestore.model.types import is_wider, to_sql
from tablestore.views.joins.join_query import JoinQuery, Side
from tablestore.views.sql.view_query import VIEW_QUERY

__all__ = ["LOOKUP", "check_output", "output_key", "output_options", "output_schema"]

LOOKUP = "lookup"
"""The option ``view.engine`` of a view to which new events are added, each looked up in another table."""


def output_schema(query: JoinQuery, left: TableDefinition, right: TableDefinition) -> Schema:
    """Returns the columns of the result. All but the key may be null: NOT NULL of an input can be taken back later."""
    key = output_key(query, left)
    tables = {Side.LEFT: (query.left, left), Side.RIGHT: (query.right, right)}
    found = ((column.name, _read(column.source, *tables[column.side])) for column in query.columns)
    return Schema(tuple(Column(name, source.type, name not in key, source.comment) for name, source in found))


def output_key(query: JoinQuery, left: TableDefinition) -> tuple[str, ...]:
    """Returns the primary key of the result: that of the left table, under the names of the result; () for events."""
    names = _names(query)
    return tuple(names[name] for name in left.primary_key)


def output_options(query: JoinQuery, left: TableDefinition, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of the view's table: rows are in the bucket in which their left row is, but for events.

    Raises:
        InvalidRequest: ``bad-join``: an option that the view determines.
    """
    own = {VIEW_QUERY: query.sql()}
    if query.time is None:
        names = _names(query)
        own |= {"bucket": str(left.buckets), "bucket-key": listed(names[name] for name in left.bucket_key)}
    else:
        own["view.engine"] = LOOKUP
    if taken := [name for name in own if name in given and given[name] != own[name]]:
        raise InvalidRequest(
            f"option {taken[0]!r} of a view follows from its query and is {own[taken[0]]!r}: leave it out",
            code="bad-join",
        )
    return own | dict(given)


def check_output(query: JoinQuery, output: TableDefinition, left: TableDefinition, right: TableDefinition) -> None:
    """Checks that the view's table still fits the tables of its query, which may have changed since.

    Raises:
        NotFound: ``unknown-column``: a table has lost a column that the query reads.
        InvalidRequest: ``view-outdated``: a column has another type, or the buckets or the key are others. The columns
            that have to be equal may have become wider.
    """
    wanted = output_schema(query, left, right)
    bare = [Column(column.name, column.type) for column in output.schema]
    if bare != [replace(column, nullable=True, comment=None) for column in wanted]:
        raise _outdated("a column that it reads has another type now")
    if output_key(query, left) != output.primary_key or tuple(right for _, right in query.on) != right.primary_key:
        raise _outdated("a table that it reads has another primary key now")
    for name, other in query.on:
        now, wanted = _read(name, query.left, left).type, right.schema.column(other).type
        if not (now == wanted or is_wider(now, wanted) or is_wider(wanted, now)):
            raise _outdated(
                f"{query.left}.{name} is {to_sql(now)} and {query.right}.{other} is {to_sql(wanted)} now, and a join "
                "needs equal types"
            )
    if query.time is not None:
        return
    names = _names(query)
    bucket_key = tuple(names[name] for name in left.bucket_key)
    if (left.buckets, bucket_key) != (output.buckets, output.bucket_key):
        raise _outdated("its left table has other buckets now")


def _read(name: str, table: str, definition: TableDefinition) -> Column:
    """Returns a column that the query reads; `NotFound` (``unknown-column``) if its table has lost it."""
    if name not in definition.schema:
        raise NotFound(
            f"{table} has no column {name!r} any more, which the view reads: give the table that column again, or "
            "create the view again",
            code="unknown-column",
        )
    return definition.schema.column(name)


def _names(query: JoinQuery) -> dict[str, str]:
    """Returns the first name that each column of the left table has in the result."""
    return {column.source: column.name for column in reversed(query.of_side(Side.LEFT))}


def _outdated(what: str) -> InvalidRequest:
    return InvalidRequest(f"it does not fit its query any more: {what}; create it again", code="view-outdated")
