"""Takes polars expressions apart: the operands of AND and OR, comparisons, and which of them are exact. Pure.

polars has no public API for an expression's operator: it is found by building the expression anew and comparing both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import reduce
from typing import TypeAlias

from filestore.lazily import pl

__all__ = ["Join", "compares_exactly", "constant", "operands", "operator"]

Join: TypeAlias = "Callable[[pl.Expr, pl.Expr], pl.Expr]"

_OPERATORS: dict[str, Join] = {
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    "=": lambda left, right: left == right,
}
# polars' SQL uses these for comparisons with decimal literals and lists: they have no public API, but print their name.
_SQL_OPERATORS = {
    "sql_gt": ">",
    "sql_gt_eq": ">=",
    "sql_lt": "<",
    "sql_lt_eq": "<=",
    "sql_eq": "=",
    "sql_is_in": "in",
}


def operands(condition: pl.Expr, join: Join) -> list[pl.Expr]:
    """Returns the operands of `join` in order; the condition alone if it is not joined. There may be thousands."""
    found, open_parts = [], [condition]
    while open_parts:
        first, *rest = _chain(open_parts.pop(), join)
        found.append(first)
        open_parts += reversed(rest)
    return found


def operator(condition: pl.Expr, left: pl.Expr, right: pl.Expr) -> str | None:
    """Returns the operator of a comparison of the two; None if it is something else."""
    for name, build in _OPERATORS.items():
        if condition.meta.eq(build(left, right)):
            return name
    if condition.meta.eq(left.is_in(right)):
        return "in"
    shown = str(condition).removeprefix(f"{left}.")
    return _SQL_OPERATORS.get(shown.partition("(")[0])


def constant(expression: pl.Expr) -> bool:
    """Returns whether it reads no column."""
    return not expression.meta.root_names()


def compares_exactly(literal: pl.DataType, column: pl.DataType) -> bool:
    """Returns whether polars compares the two types without rounding, which it does for floats and coarser times."""
    if column.is_integer() or column.is_decimal():
        return literal.is_integer() or (literal.is_decimal() and column.is_decimal())
    return literal == column


def _chain(condition: pl.Expr, join: Join) -> list[pl.Expr]:
    """Splits ``((a | b) | c) | d``, which is how SQL is parsed, into its operands; the first is not joined itself.

    To compare a whole chain costs its length, so its depth is found by bisection and not step by step.
    """
    nodes, rights = [condition], list[pl.Expr]()

    def joined(depth: int) -> bool:
        return condition.meta.eq(reduce(join, reversed(rights[:depth]), nodes[depth]))

    while len(inputs := nodes[-1].meta.pop()) == 2:  # the last operand is first
        rights.append(inputs[0])
        nodes.append(inputs[1])
        if len(rights) == 1 and not joined(1):
            return [condition]
    depth = bisect_left(range(1, len(nodes)), True, key=lambda depth: not joined(depth))
    return [nodes[depth], *reversed(rights[:depth])]
