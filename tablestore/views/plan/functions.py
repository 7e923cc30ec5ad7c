"""Functions of Spark by which a row of a result is not that of one row, or depends on the order of rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tablestore.local_sql.calls import inside
from tablestore.views.plan.nodes import Name
from tablestore.views.plan.scope import NotPlainError, Scope
from tablestore.views.sql.view_query import WINDOW, shown

__all__ = [
    "WINDOW_PARTS",
    "check_functions",
    "check_signs",
    "check_units",
    "check_windows",
    "is_part_of_window",
    "is_repeatable",
    "is_time",
    "is_window",
    "truncates_time",
]

ORDERED = {
    "first", "first_value", "last", "last_value", "any_value", "collect_list", "collect_set", "array_agg", "listagg",
    "string_agg", "max_by", "min_by", "mode", "percentile_approx", "approx_percentile", "histogram_numeric",
    "group_concat", "approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine", "hll_sketch_agg",
    "hll_union_agg", "kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float", "theta_sketch_agg",
    "theta_union_agg", "tuple_sketch_agg_double", "tuple_sketch_agg_integer",
}  # fmt: skip
"""Aggregates whose result may depend on the order of rows."""
_ORDERED_CLASSES = (
    exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.AnyValue, exp.ArrayAgg, exp.ArrayUniqueAgg,
    exp.GroupConcat, exp.ArgMax, exp.ArgMin, exp.Mode, exp.ApproxQuantile,
)  # fmt: skip
ROWS_OF_ROWS = {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack",
                "json_tuple", "session_window"}  # fmt: skip
"""Functions that make several rows of one, or one of several."""
_OF_ALL_PEERS = (
    exp.Sum, exp.Count, exp.Min, exp.Max, exp.Avg, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist,
)  # fmt: skip
"""Functions with OVER whose value is the same for rows that are equal in ORDER BY."""


WINDOW_PARTS = ("start", "end")
"""The fields of a window. Rows without a time are in none, so they are never null."""


def is_window(expression: exp.Expr) -> bool:
    """Returns whether it is Spark's function ``window``."""
    return isinstance(expression, exp.Anonymous) and expression.name == WINDOW


def is_part_of_window(expression: exp.Expr) -> bool:
    """Returns whether it is the start or the end of a window."""
    return isinstance(expression, exp.Dot) and is_window(expression.this) and expression.name.lower() in WINDOW_PARTS


_UNITS: Mapping[type[exp.Expr], str] = {
    exp.TimestampTrunc: "year yyyy yy quarter month mm mon week day dd hour minute second millisecond microsecond",
    exp.DateTrunc: "year yyyy yy quarter month mm mon week",
}


def truncates_time(expression: exp.Expr, scope: Scope) -> bool:
    """Returns whether it is ``date_trunc`` or ``trunc`` of a column with times, so that only nulls become null."""
    units = _UNITS.get(type(expression))
    if units is None or not is_time(expression.this, scope):
        return False
    unit = expression.args["unit"].name
    return unit.lower() in units.split() and scope.root(exp.column(unit)) is None  # a unit may be a column


def is_time(expression: exp.Expr, scope: Scope) -> bool:
    """Returns whether it is a column with dates or timestamps."""
    kind = scope.type_of(expression)
    return kind is not None and (pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def check_functions(tree: exp.Expr) -> None:
    """Raises `NotPlainError` if a query has functions for which there is no rule."""
    for node in tree.find_all(exp.Func):
        name = _name_of(node)
        if isinstance(node, exp.UDTF) or name in ROWS_OF_ROWS:
            raise NotPlainError(f"it has {name}(), by which a row is not that of one row of its table")
        if _is_ordered(node):
            raise NotPlainError(f"it has {name}(), whose result may depend on the order of rows")


def check_units(tokens: Sequence[Token]) -> None:
    """Raises `NotPlainError` for a unit that sqlglot reads in another way than Spark.

    It makes a unit of the name of a column, and of some letters, of which Spark knows none.
    """
    for number, (token, following) in enumerate(pairwise(tokens)):
        if token.text.lower() not in ("date_trunc", "trunc") or following.token_type != TokenType.L_PAREN:
            continue
        for one in inside(tokens[number + 2 :]):
            is_text = one.token_type == TokenType.STRING
            if is_text and len(one.text) == 1:
                raise NotPlainError(f"it has {token.text}() with the unit '{one.text}', which Spark does not know")
            if not is_text and any(one.text.lower() in units.split() for units in _UNITS.values()):
                raise NotPlainError(f"it has {token.text}() with {one.text}, which is a column and no unit")


_BEFORE_A_VALUE = {
    TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.NULLSAFE_EQ,
    TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DIV, TokenType.L_PAREN,
    TokenType.COMMA, TokenType.SELECT, TokenType.DISTINCT, TokenType.WHERE, TokenType.ON, TokenType.AND, TokenType.OR,
    TokenType.NOT, TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.CASE, TokenType.BETWEEN, TokenType.IN,
    TokenType.GROUP_BY, TokenType.HAVING, TokenType.PARTITION_BY,
}  # fmt: skip


def check_signs(tokens: Sequence[Token]) -> None:
    """Raises `NotPlainError` for a plus before a value: it makes a number of a text, and sqlglot leaves it out."""
    for before, token in pairwise(tokens):
        if token.token_type is TokenType.PLUS and before.token_type in _BEFORE_A_VALUE:
            raise NotPlainError("it has + before a value, by which a text becomes a number")


def check_windows(windows: Sequence[exp.Expr], scope: Scope, key: Sequence[Name] | None) -> None:
    """Raises `NotPlainError` if the value of a function with OVER does not follow from the rows of its partition.

    Args:
        windows: The functions with OVER.
        scope: The inputs of the SELECT.
        key: The columns by which joined rows are known; None if there are none.
    """
    for window in windows:
        if isinstance(window.this, _OF_ALL_PEERS) and not window.args.get("spec"):
            continue
        order = window.args.get("order")
        by = [*(order.expressions if order is not None else ()), *(window.args.get("partition_by") or [])]
        names = [scope.whole(part.this if isinstance(part, exp.Ordered) else part) for part in by]
        if key is None or any(name not in names for name in key):
            raise NotPlainError(
                f"{shown(window.this)} may depend on the order of rows: ORDER BY lacks the key by which they are known"
            )


def is_repeatable(tree: exp.Expr) -> bool:
    """Returns whether the query has the same rows each time that it runs, as far as that can be seen."""
    return not any(isinstance(node, exp.Limit | exp.Window) or _is_ordered(node) for node in tree.walk())


def _name_of(function: exp.Func) -> str:
    return function.name.lower() if isinstance(function, exp.Anonymous) else type(function).sql_name().lower()


def _is_ordered(node: exp.Expr) -> bool:
    """Returns whether it is an aggregate whose result may depend on the order of rows."""
    return isinstance(node, _ORDERED_CLASSES) or (isinstance(node, exp.Func) and _name_of(node) in ORDERED)
