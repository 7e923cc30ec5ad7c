"""The table of a join by a primary key: its columns, key and options, from the tables that it reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from filestore.model.definition import TableDefinition
from filestore.model.names import listed
from filestore.model.schema import Column, Schema
from tablestore.views.plan.join_query import JoinQuery, Side
from tablestore.views.sql.view_query import VIEW_QUERY

__all__ = ["LOOKUP", "GivenTable", "output_buckets", "output_key", "output_schema", "own_options"]

LOOKUP = "lookup"
"""The option ``view.engine`` of a view to which new events are added, each looked up in another table."""


@dataclass(frozen=True, slots=True)
class GivenTable:
    """The table of a view, as far as it is known before its query is planned: it exists, or a statement says so.

    Attributes:
        key: Its primary key; empty if nothing is said.
        columns: The names of its columns; empty if nothing is said.
        buckets: The number of its buckets; None if nothing is said.
        bucket_key: The columns by which rows are in one; None if nothing is said.
    """

    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    buckets: int | None = None
    bucket_key: tuple[str, ...] | None = None

    @classmethod
    def of(cls, table: TableDefinition) -> GivenTable:
        """Returns a table that exists."""
        return cls(table.primary_key, tuple(table.schema.names), table.buckets, table.bucket_key)

    def fits(self, query: JoinQuery, left: TableDefinition) -> bool:
        """Returns whether a join can be kept in it bucket by bucket: a row is in the bucket of its left row."""
        key, (buckets, bucket_key) = output_key(query, left), output_buckets(query, left)
        return (
            self.key in ((), key)
            and self.columns in ((), tuple(column.name for column in query.columns))
            and self.buckets in (None, buckets)
            and self.bucket_key in (None, bucket_key)
        )


def output_schema(query: JoinQuery, left: TableDefinition, right: TableDefinition) -> Schema:
    """Returns the columns of the result. All but the key may be null: NOT NULL of an input can be taken back later."""
    key = output_key(query, left)
    tables = {Side.LEFT: left, Side.RIGHT: right}
    found = ((column.name, tables[column.side].schema.column(column.source)) for column in query.columns)
    return Schema(tuple(Column(name, source.type, name not in key, source.comment) for name, source in found))


def output_key(query: JoinQuery, left: TableDefinition) -> tuple[str, ...]:
    """Returns the primary key of the result: that of the left table, under the names of the result; () for events."""
    names = _names(query)
    return tuple(names[name] for name in left.primary_key)


def own_options(query: JoinQuery, left: TableDefinition) -> dict[str, str]:
    """Returns the options that the view's table has to have: rows are in the bucket in which their left row is.

    Events have no key, and a table of their results has any buckets.
    """
    if query.time is not None:
        return {VIEW_QUERY: query.sql(), "view.engine": LOOKUP}
    buckets, key = output_buckets(query, left)
    return {VIEW_QUERY: query.sql(), "bucket": str(buckets), "bucket-key": listed(key)}


def output_buckets(query: JoinQuery, left: TableDefinition) -> tuple[int, tuple[str, ...]]:
    """Returns the number of buckets of the result, and its bucket key: rows are in the bucket of their left row."""
    names = _names(query)
    return left.buckets, tuple(names[name] for name in left.bucket_key)


def _names(query: JoinQuery) -> dict[str, str]:
    """Returns the first name that each column of the left table has in the result."""
    return {column.source: column.name for column in reversed(query.of_side(Side.LEFT))}
