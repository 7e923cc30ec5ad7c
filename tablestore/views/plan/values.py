"""The values of joined rows that a column may have to equal: other columns, and expressions of a known type. Pure.

A row is searched by such a value, and known by it, only if values are equal where their bits are. So its type has to be
known, which sqlglot does not say: it is found here for columns, integers computed from integers, and some functions of
texts. Of all other expressions only Spark knows the type.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from filestore.model.types import is_wider
from tablestore.views.plan.functions import is_part_of_window
from tablestore.views.plan.nodes import Name, Term
from tablestore.views.plan.scope import Scope, walked

__all__ = ["type_of", "value_of"]

_OF_INTEGERS = (exp.Add, exp.Sub, exp.Mul, exp.Mod)
_OF_TEXTS = (exp.Lower, exp.Upper, exp.Substring, exp.SplitPart, exp.Concat)
_CASTS = {
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
    exp.DType.DATE: pa.date32(),
}
"""Types of casts. Of texts sqlglot knows no length."""


def value_of(expression: exp.Expr, scope: Scope) -> Name | Term | None:
    """Returns a value of joined rows; None if it is no column, and no expression whose type is known here."""
    while isinstance(expression, exp.Paren):
        expression = expression.this
    if (name := scope.whole(expression)) is not None:
        return name
    columns = [scope.whole(column) for column in walked(expression, exp.Column)]
    kind = type_of(expression, scope)
    known = [name for name in columns if name is not None]
    if kind is None or not known or len(known) < len(columns):
        return None

    def named(node: exp.Expr) -> exp.Expr:
        name = scope.whole(node)
        return (
            node if name is None else exp.maybe_parse(scope.inputs[name.source].text_of(name.column), dialect="spark")
        )

    text = expression.copy().transform(named).sql("spark", comments=False)
    return Term(f"({text})", kind, frozenset(name.source for name in known))


def type_of(expression: exp.Expr, scope: Scope) -> pa.DataType | None:
    """Returns the type that Spark gives an expression; None if it is not known here."""
    while isinstance(expression, exp.Paren):
        expression = expression.this
    if isinstance(expression, exp.Column):
        return scope.type_of(expression)
    if is_part_of_window(expression):
        kind = scope.type_of(expression.this.expressions[0])
        return kind if kind is not None and pa.types.is_timestamp(kind) else None
    if isinstance(expression, exp.Literal):
        return pa.string() if expression.is_string else _integer(expression.name)
    if isinstance(expression, exp.Neg):
        kind = type_of(expression.this, scope)
        return kind if kind is not None and pa.types.is_integer(kind) else None
    if isinstance(expression, _OF_INTEGERS):
        return _wider(type_of(expression.left, scope), type_of(expression.right, scope))
    if isinstance(expression, exp.Cast) and not expression.to.expressions:
        return _CASTS.get(expression.to.this) if type_of(expression.this, scope) is not None else None
    if isinstance(expression, _OF_TEXTS) and not _is_one_text(expression):
        first = expression.expressions if isinstance(expression, exp.Concat) else [expression.this]
        parts = [part for value in expression.args.values() for part in _listed(value)]
        texts = all(type_of(part, scope) == pa.string() for part in first)
        return pa.string() if texts and all(type_of(part, scope) is not None for part in parts) else None
    return None


def _is_one_text(expression: exp.Expr) -> bool:
    """Returns whether it is written as several literals side by side, which sqlglot takes for CONCAT."""
    parts = expression.expressions if isinstance(expression, exp.Concat) else []
    return bool(parts) and all(isinstance(part, exp.Literal) for part in parts)


def _integer(text: str) -> pa.DataType | None:
    if not text.isdecimal() or int(text) >= 1 << 63:
        return None
    return pa.int32() if int(text) < 1 << 31 else pa.int64()


def _wider(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None or not (pa.types.is_integer(one) and pa.types.is_integer(other)):
        return None
    return one if one == other or is_wider(one, other) else other


def _listed(value: object) -> list[exp.Expr]:
    """Returns the expressions in an argument of a node, beside which sqlglot keeps settings."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, exp.Expr)]
