"""Prunes files and row groups that cannot contain a wanted row, by bounds alone. Pure.

It recognises `column op literal`, IN, BETWEEN, IS [NOT] NULL, and anything over partition columns, joined by AND and
OR; other conditions prune nothing. Where bounds are unknown, nothing is pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PolarsError

from filestore.files.bounds import Bounds

__all__ = ["equalities", "may_hold", "on_columns"]

Mask = npt.NDArray[np.bool_]

_MAX_LISTED = 64
_FLIPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}
_OPERATORS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
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


def may_hold(condition: pl.Expr, bounds: Bounds) -> Mask:
    """Marks the files or row groups that may contain a row for which the condition is true."""
    for join, combine in ((pl.Expr.__and__, np.logical_and), (pl.Expr.__or__, np.logical_or)):
        if len(parts := _parts(condition, join)) > 1:
            return combine.reduce([may_hold(part, bounds) for part in parts])  # type: ignore[no-any-return]
    everything = np.ones(len(bounds.rows), dtype=np.bool_)
    columns = set(condition.meta.root_names())
    if not columns or not columns <= set(bounds.low.columns):
        return everything
    try:
        if columns <= bounds.exact:
            return _truth(condition, bounds.low, unknown=False)
        known = _recognised(condition)
        return everything if known is None else known.may_hold(bounds)
    except PolarsError:
        return everything  # a comparison that works for the rows' types can fail for a literal alone


def equalities(condition: pl.Expr) -> Iterator[tuple[str, pl.Series]]:
    """Yields columns that must have one of some values wherever the condition is true, with these values."""
    for part in _parts(condition, pl.Expr.__and__):
        inputs = part.meta.pop()
        if len(inputs) != 2:
            continue
        right, left = inputs
        if not left.meta.is_column():
            left, right = right, left
        if not (left.meta.is_column() and _constant(right)):
            continue
        if _operator(part, left, right) in ("=", "in") or _operator(part, right, left) == "=":
            yield left.meta.output_name(), _listed(right)


def on_columns(condition: pl.Expr, columns: Collection[str]) -> pl.Expr | None:
    """Derives a condition on some columns that is true wherever the given one is; None if that is not possible.

    It consists of comparisons with literals, so it can be evaluated for every row.
    """
    kept = [part for part in _parts(condition, pl.Expr.__and__) if _compares(part, columns)]
    return reduce(pl.Expr.__and__, kept) if kept else None


def _compares(condition: pl.Expr, columns: Collection[str]) -> bool:
    for join in (pl.Expr.__and__, pl.Expr.__or__):
        if len(parts := _parts(condition, join)) > 1:
            return all(_compares(part, columns) for part in parts)
    named = set(condition.meta.root_names())
    return bool(named) and named <= set(columns) and _recognised(condition) is not None


def _parts(condition: pl.Expr, join: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> list[pl.Expr]:
    """The operands of `join`, in order; only the condition if it is not joined. A loop: there may be thousands."""
    found, open_parts = [], [condition]
    while open_parts:
        part = open_parts.pop()
        inputs = part.meta.pop()  # the last operand is first
        if len(inputs) == 2 and part.meta.eq(join(inputs[1], inputs[0])):
            open_parts += inputs
        else:
            found.append(part)
    return found


def _truth(condition: pl.Expr, values: pl.DataFrame, *, unknown: bool) -> Mask:
    return values.select(condition.fill_null(unknown).alias("truth")).to_series().to_numpy()


class _Known(Protocol):
    """A condition on one column that bounds can decide for some files."""

    def may_hold(self, bounds: Bounds) -> Mask: ...


@dataclass(frozen=True, slots=True, eq=False)
class _IsNull:
    column: str
    null: bool

    def may_hold(self, bounds: Bounds) -> Mask:
        nulls = bounds.nulls.get_column(self.column)
        return (nulls > 0 if self.null else nulls < bounds.rows).fill_null(True).to_numpy()


@dataclass(frozen=True, slots=True, eq=False)
class _OneSided:
    """A condition that is true from some value upwards, or downwards: evaluating it for that bound decides."""

    column: str
    condition: pl.Expr
    upwards: bool

    def may_hold(self, bounds: Bounds) -> Mask:
        side = bounds.high if self.upwards else bounds.low
        return _IsNull(self.column, null=False).may_hold(bounds) & _truth(self.condition, side, unknown=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Within:
    """A condition that is true only inside of some spans, ends included.

    A comparison may round, as REAL = 0.1 does, so it is evaluated for the bounds themselves, too. That is enough:
    rounding keeps the order, so a value strictly between the bounds can be wanted only for a span between them.
    """

    column: str
    condition: pl.Expr
    spans: tuple[tuple[pl.Expr, pl.Expr], ...]

    def may_hold(self, bounds: Bounds) -> Mask:
        column = pl.col(self.column)
        inside = _truth(self.condition, bounds.low, unknown=True)
        inside |= _truth(self.condition, bounds.high, unknown=True)
        for first, last in self.spans:
            reaches = _truth(column <= last, bounds.low, unknown=True)
            inside |= reaches & _truth(column >= first, bounds.high, unknown=True)
        return inside & _IsNull(self.column, null=False).may_hold(bounds)


def _recognised(condition: pl.Expr) -> _Known | None:
    match condition.meta.pop():
        case [column] if column.meta.is_column():
            return _recognised_null(condition, column)
        case [right, left] if left.meta.is_column() and _constant(right):
            return _recognised_comparison(condition, _operator(condition, left, right), left, right)
        case [right, left] if right.meta.is_column() and _constant(left):
            operator = _operator(condition, left, right)
            return _recognised_comparison(condition, _FLIPPED.get(operator or ""), right, left)
        case [last, first, column] if column.meta.is_column() and _constant(first) and _constant(last):
            closings = (column.is_between(first, last, closed=c) for c in ("both", "left", "right", "none"))
            if any(condition.meta.eq(closing) for closing in closings):
                return _Within(column.meta.output_name(), condition, ((first, last),))
    return None


def _constant(expression: pl.Expr) -> bool:
    return not expression.meta.root_names()


def _recognised_null(condition: pl.Expr, column: pl.Expr) -> _Known | None:
    name = column.meta.output_name()
    if condition.meta.eq(column.is_null()):
        return _IsNull(name, null=True)
    return _IsNull(name, null=False) if condition.meta.eq(column.is_not_null()) else None


def _operator(condition: pl.Expr, left: pl.Expr, right: pl.Expr) -> str | None:
    for name, build in _OPERATORS.items():
        if condition.meta.eq(build(left, right)):
            return name
    if condition.meta.eq(left.is_in(right)):
        return "in"
    shown = str(condition).removeprefix(f"{left}.")
    return _SQL_OPERATORS.get(shown.partition("(")[0])


def _recognised_comparison(
    condition: pl.Expr, operator: str | None, column: pl.Expr, literal: pl.Expr
) -> _Known | None:
    name = column.meta.output_name()
    match operator:
        case ">" | ">=":
            return _OneSided(name, condition, upwards=True)
        case "<" | "<=":
            return _OneSided(name, condition, upwards=False)
        case "=":
            return _Within(name, condition, ((literal, literal),))
        case "in":
            return _Within(name, condition, tuple(_spans(literal)))
    return None


def _listed(literal: pl.Expr) -> pl.Series:
    """The values of a literal or of a list of literals."""
    values = pl.select(literal).to_series()
    return values.explode() if isinstance(values.dtype, pl.List) else values


def _spans(literal: pl.Expr) -> Iterable[tuple[pl.Expr, pl.Expr]]:
    """A span for each value of a list, or one span for all of them if there are many."""
    values = _listed(literal).drop_nulls().unique().sort()
    singles = [pl.lit(values.slice(i, 1)).first() for i in range(min(len(values), _MAX_LISTED))]
    if len(values) <= _MAX_LISTED:
        return [(value, value) for value in singles]
    return [(singles[0], pl.lit(values.slice(len(values) - 1)).first())]
