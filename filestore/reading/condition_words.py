"""Rewrites a condition for polars' SQL: ``isnan(x)``, and texts that are compared with dates and times.

It loads sqlglot, so it is imported only for a condition that is a text: other programs do not wait for it.
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
    """Replaces ``isnan(x)``, which polars' SQL lacks, by ``x = NaN``: in polars a NaN equals itself."""
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
    """Casts a text such as ``'2026-01-31'`` to the type of the date or time column beside it; polars requires that."""
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
    """The string literal that is to be cast to `kind`; a TIMESTAMP without a zone is in UTC."""
    if isinstance(literal, exp.Cast) and kind == "TIMESTAMPTZ" and literal.to.sql(ConditionDialect) == "TIMESTAMP":
        literal = literal.this
    return literal if isinstance(literal, exp.Literal) and literal.is_string else None
