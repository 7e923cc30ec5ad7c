"""The first rows of partitions, which are known by the columns of PARTITION BY: ``WHERE place = 1``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from tablestore.views.plan.nodes import Block, Input, Item
from tablestore.views.plan.scope import Scope
from tablestore.views.sql.clauses import conditions_of_where

__all__ = ["numbered_by", "with_first_rows"]

_FIRST: Mapping[type[exp.Expr], str] = {exp.EQ: "1", exp.LTE: "1", exp.LT: "2"}
"""Comparisons with a number that rows fulfil whose own number is 1."""


def numbered_by(expression: exp.Expr, items: Sequence[Item], scope: Scope) -> tuple[str, ...]:
    """Returns the columns of the result by which ``row_number()`` has partitions; none if it is another expression."""
    if not isinstance(expression, exp.Window) or not isinstance(expression.this, exp.RowNumber):
        return ()
    names = [scope.whole(part) for part in expression.args.get("partition_by") or []]
    found = [next((item.name for item in items if name is not None and item.origin == name), "") for name in names]
    return tuple(found) if all(found) else ()


def with_first_rows(tree: exp.Select, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """Notes of which inputs WHERE leaves the first row of each partition, as ``place = 1`` of a ``row_number()``."""
    scope, found = Scope(inputs), list(inputs)
    for condition in conditions_of_where(tree):
        if not isinstance(condition, exp.EQ | exp.LTE | exp.LT) or condition.right.sql() != _FIRST[type(condition)]:
            continue
        name = scope.whole(condition.left)
        if name is None or not isinstance(node := inputs[name.source].node, Block):
            continue
        numbers = next(item.numbers for item in node.items if item.name == name.column)
        if inputs[name.source].member:
            found[name.source] = replace(found[name.source], first_by=numbers)
    return tuple(found)
