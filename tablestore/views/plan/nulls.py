"""Decides whether an expression of a query may be null, as far as that can be seen. Pure."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tablestore.views.plan.functions import is_part_of_window, is_time, is_window, truncates_time
from tablestore.views.plan.nodes import Block, Name, Scan
from tablestore.views.plan.scope import Scope
from tablestore.views.plan.values import type_of
from tablestore.views.sql.clauses import conditions_of_where

__all__ = ["may_be_null"]

_NULL_FOR_NULL = (exp.Paren, exp.Upper, exp.Lower, exp.Length, exp.Not)
_PARTS_OF_TIMES = (
    exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear, exp.WeekOfYear, exp.Hour,
    exp.Minute, exp.Second, exp.TsOrDsToDate,
)  # fmt: skip
"""Functions of a day or a moment, of which each one has a value."""
_OF_INTEGERS = (exp.Add, exp.Sub, exp.Mul)
"""Functions whose results are errors or other integers where they are too large, and no nulls."""


def may_be_null(expression: exp.Expr, tree: exp.Select, scope: Scope) -> bool:
    """Returns whether an expression over the joined rows of a SELECT may be null."""
    if _is_never_null(expression):
        return False
    if isinstance(expression, exp.Coalesce):
        return all(may_be_null(part, tree, scope) for part in (expression.this, *expression.expressions))
    if isinstance(expression, exp.Case | exp.If):
        branches = expression.args.get("ifs") or [expression]
        last = expression.args.get("default" if isinstance(expression, exp.Case) else "false")
        results = [branch.args["true"] for branch in branches]
        return last is None or any(may_be_null(part, tree, scope) for part in (*results, last))
    if isinstance(expression, _NULL_FOR_NULL) or (
        isinstance(expression, exp.Neg) and _is_number(expression.this, scope)
    ):
        return may_be_null(expression.this, tree, scope)
    if truncates_time(expression, scope):
        return may_be_null(expression.this, tree, scope)
    if isinstance(expression, _PARTS_OF_TIMES) or _is_cast_to_day(expression):
        of = expression.this.this if isinstance(expression.this, exp.TsOrDsToDate) else expression.this
        return not is_time(of, scope) or may_be_null(of, tree, scope)
    if isinstance(expression, _OF_INTEGERS) and _is_integer(expression, scope):
        return any(may_be_null(part, tree, scope) for part in (expression.left, expression.right))
    normal = scope.normal(expression)
    for condition in conditions_of_where(tree):
        if _is_not_null(condition, normal, scope):
            return False
    name = scope.whole(expression)
    return name is None or _column_may_be_null(name, scope)


def _is_never_null(expression: exp.Expr) -> bool:
    if is_window(expression) or is_part_of_window(expression):
        return True
    return isinstance(expression, exp.Literal | exp.Boolean | exp.Is | exp.Count)


def _is_cast_to_day(expression: exp.Expr) -> bool:
    return isinstance(expression, exp.Cast) and expression.to.this == exp.DType.DATE


def _is_number(expression: exp.Expr, scope: Scope) -> bool:
    kind = type_of(expression, scope)
    return kind is not None and (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_integer(expression: exp.Expr, scope: Scope) -> bool:
    kind = type_of(expression, scope)
    return kind is not None and pa.types.is_integer(kind)


def _column_may_be_null(name: Name, scope: Scope) -> bool:
    source = scope.inputs[name.source]
    if not source.member:
        return True
    match source.node:
        case Scan(definition=definition):
            return definition.schema.column(name.column).nullable
        case Block(items=items):
            return next(item.nullable for item in items if item.name == name.column)
    return True


def _is_not_null(condition: exp.Expr, normal: str, scope: Scope) -> bool:
    """Returns whether rows that fulfil a condition have no null in an expression."""
    if isinstance(condition, exp.Not) and isinstance(condition.this, exp.Is):
        is_null = isinstance(condition.this.expression, exp.Null)
        return is_null and scope.normal(condition.this.this) == normal
    if isinstance(condition, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
        return normal in (scope.normal(condition.left), scope.normal(condition.right))
    return False
