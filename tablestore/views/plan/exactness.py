"""Says whether a query has the same values each time that it runs, to the last bit. Pure.

A row that is made of one joined row has. Aggregates have if the order of their rows does not count: a sum of DOUBLE
depends on it in its last digits, and the least of 0.0 and -0.0 is the one that comes first.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from filestore.model.definition import TableDefinition
from tablestore.views.sql.view_query import ViewQuery

__all__ = ["is_exact"]

_COUNTS = (exp.Count, exp.CountIf, exp.Rank, exp.DenseRank)
_OF_VALUES = (exp.Sum, exp.Min, exp.Max)
_WITHOUT_FLOATS = (
    exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul,
    exp.Abs, exp.Case, exp.If, exp.Coalesce, exp.Predicate, exp.Connector, exp.Not, exp.Star, exp.Distinct,
    *_COUNTS, *_OF_VALUES,
)  # fmt: skip
"""Nodes whose values are FLOAT or DOUBLE only if one of their parts is."""


def is_exact(query: ViewQuery, definitions: Mapping[str, TableDefinition]) -> bool:
    """Returns whether it is known that the query has the same values each time.

    Args:
        query: The query.
        definitions: Those of its tables, by name.
    """
    tree = query.tree
    aggregates = list(tree.find_all(exp.AggFunc))
    if not aggregates:
        return not tree.find(exp.Anonymous)  # which may aggregate
    floats = {name.lower() for table in query.tables for name in _float_columns(definitions[table])}
    named = floats if query.names is None else floats & query.names
    if named or tree.find(exp.Anonymous) is not None:
        return False
    made = _float_aliases(tree)
    return all(
        isinstance(one, _COUNTS) or (type(one) in _OF_VALUES and _is_without_floats(one, made)) for one in aggregates
    )


def _float_aliases(tree: exp.Expr) -> set[str]:
    """Returns the names that a query gives to values which may be FLOAT or DOUBLE, in lower case."""
    aliases, found, before = list(tree.find_all(exp.Alias)), set[str](), None
    while found != before:  # one may be made of another
        before, found = found, {one.alias.lower() for one in aliases if not _is_without_floats(one.this, found)}
    return found


def _is_without_floats(expression: exp.Expr, made: Container[str]) -> bool:
    return all(_has_no_floats(node, made) for node in expression.walk())


def _has_no_floats(node: exp.Expr, made: Container[str]) -> bool:
    if isinstance(node, exp.Column):
        return node.name.lower() not in made
    if isinstance(node, exp.Literal):
        return node.is_string or "e" not in node.name.lower()
    return isinstance(node, _WITHOUT_FLOATS)


def _float_columns(table: TableDefinition) -> Iterator[str]:
    for column in table.schema.to_arrow():
        if _has_floats(column.type):
            yield column.name


def _has_floats(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind)) or any(_has_floats(kind.field(n).type) for n in range(kind.num_fields))
