"""SQL of a condition in the words of polars: ``isnan(x)``, and texts beside columns of dates and times.

Imports sqlglot, and is itself imported where a condition is a text: a program that has none does not wait for it.
"""

from __future__ import annotations

import re

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from filestore.model.schema import Schema
from filestore.reading.condition_text import ConditionDialect

__all__ = ["with_isnan", "with_typed_literals"]

_ISNAN = re.compile(r"\bis_?nan\s*\(", re.IGNORECASE)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In)


def with_isnan(text: str) -> str:
    """The text with ``isnan(x)`` in words of polars' SQL, which lacks it: there a NaN is equal to itself."""
    if _ISNAN.search(text) is None:
        return text

    def spelled(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.IsNan):
            return node
        return exp.paren(exp.EQ(this=exp.paren(node.this), expression=exp.cast(exp.Literal.string("NaN"), "DOUBLE")))

    try:
        return sqlglot.parse_one(text, read=ConditionDialect).transform(spelled).sql(ConditionDialect)
    except (SqlglotError, RecursionError):
        return text


def with_typed_literals(text: str, schema: Schema) -> str:
    """The text with ``'2026-01-31'`` beside a date or time column read as that type: SQL does so, polars refuses."""
    try:
        tree = sqlglot.parse_one(text, read=ConditionDialect)
    except SqlglotError:
        return text
    for column in list(tree.find_all(exp.Column)):
        kind = _temporal(schema.column(column.name).type) if column.name in schema else None
        if kind is None or not isinstance(column.parent, _COMPARISONS):
            continue
        for literal in list(column.parent.iter_expressions()):
            if plain := _untyped(literal, kind):
                literal.replace(exp.cast(plain.copy(), kind, dialect=ConditionDialect))
    try:
        return tree.sql(ConditionDialect)
    except RecursionError:
        return text


def _temporal(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ"
    return "DATE" if pa.types.is_date32(kind) else None


def _untyped(literal: object, kind: str) -> exp.Literal | None:
    """The string literal that is to be read as `kind`; a TIMESTAMP without a zone is one in UTC."""
    if isinstance(literal, exp.Cast) and kind == "TIMESTAMPTZ" and literal.to.sql(ConditionDialect) == "TIMESTAMP":
        literal = literal.this
    return literal if isinstance(literal, exp.Literal) and literal.is_string else None
