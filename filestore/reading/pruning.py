"""Prunes files and row groups that cannot contain a wanted row, by bounds alone. Pure.

It recognises `column op literal`, IN, BETWEEN, IS [NOT] NULL, and anything over partition columns, joined by AND and
OR; other conditions prune nothing. Where bounds are unknown, nothing is pruned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
import numpy.typing as npt

from filestore.files.bounds import Bounds
from filestore.lazily import pl
from filestore.reading.expressions import compares_exactly, constant, operands, operator

__all__ = ["equalities", "may_hold", "on_columns"]

Mask = npt.NDArray[np.bool_]

_MAX_LISTED = 64
_FLIPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}


def may_hold(condition: pl.Expr, bounds: Bounds) -> Mask:
    """Marks the files or row groups that may contain a row for which the condition is true."""
    everything = np.ones(len(bounds.rows), dtype=np.bool_)
    for join, combine, neutral in (
        (pl.Expr.__and__, np.logical_and, everything),
        (pl.Expr.__or__, np.logical_or, ~everything),
    ):
        if len(parts := operands(condition, join)) > 1:
            found = neutral
            for part in parts:
                found = combine(found, may_hold(part, bounds))
                if (found != neutral).all():
                    break  # the others change nothing
            return found
    columns = set(condition.meta.root_names())
    if not columns or not columns <= set(bounds.low.columns):
        return everything
    try:
        if columns <= bounds.exact:
            return _truth(condition, bounds.low, unknown=False)
        known = _recognised(condition)
        return everything if known is None else known.may_hold(bounds)
    except pl.exceptions.PolarsError:
        return everything  # a comparison that works for the rows' types can fail for a literal alone


def equalities(condition: pl.Expr) -> Iterator[tuple[str, pl.Series]]:
    """Yields columns that must have one of some values wherever the condition is true, with these values."""
    for part in operands(condition, pl.Expr.__and__):
        inputs = part.meta.pop()
        if len(inputs) != 2:
            continue
        right, left = inputs
        if not left.meta.is_column():
            left, right = right, left
        if not (left.meta.is_column() and constant(right)):
            continue
        if operator(part, left, right) in ("=", "in") or operator(part, right, left) == "=":
            yield left.meta.output_name(), _listed(right)


def on_columns(condition: pl.Expr, columns: Collection[str]) -> pl.Expr | None:
    """Derives a condition on some columns that is true wherever the given one is; None if that is not possible.

    It consists of comparisons with literals, so it can be evaluated for every row.
    """
    kept = [part for part in operands(condition, pl.Expr.__and__) if _compares(part, columns)]
    return reduce(pl.Expr.__and__, kept) if kept else None


def _compares(condition: pl.Expr, columns: Collection[str]) -> bool:
    for join in (pl.Expr.__and__, pl.Expr.__or__):
        if len(parts := operands(condition, join)) > 1:
            return all(_compares(part, columns) for part in parts)
    named = set(condition.meta.root_names())
    return bool(named) and named <= set(columns) and _recognised(condition) is not None


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


@dataclass(frozen=True, slots=True, eq=False)
class _OneOfMany:
    """A condition that is true for some of many values: each file is compared with the least of them in its bounds."""

    within: _Within
    values: pl.Series

    def may_hold(self, bounds: Bounds) -> Mask:
        low, high = (side.get_column(self.within.column) for side in (bounds.low, bounds.high))
        if not compares_exactly(self.values.dtype, low.dtype) or low.dtype.is_float():
            return self.within.may_hold(bounds)
        values = self.values.cast(low.dtype, strict=False).drop_nulls()  # the column holds no others
        least = values.extend_constant(None, 1).gather(values.search_sorted(low, "left"))
        inside = low.is_null() | (least.is_not_null() & (least <= high).fill_null(True))
        return inside.to_numpy() & _IsNull(self.within.column, null=False).may_hold(bounds)


def _recognised(condition: pl.Expr) -> _Known | None:
    match condition.meta.pop():
        case [column] if column.meta.is_column():
            return _recognised_null(condition, column)
        case [right, left] if left.meta.is_column() and constant(right):
            return _recognised_comparison(condition, operator(condition, left, right), left, right)
        case [right, left] if right.meta.is_column() and constant(left):
            found = operator(condition, left, right)
            return _recognised_comparison(condition, _FLIPPED.get(found or ""), right, left)
        case [last, first, column] if column.meta.is_column() and constant(first) and constant(last):
            closings = (column.is_between(first, last, closed=c) for c in ("both", "left", "right", "none"))
            if any(condition.meta.eq(closing) for closing in closings):
                return _Within(column.meta.output_name(), condition, ((first, last),))
    return None


def _recognised_null(condition: pl.Expr, column: pl.Expr) -> _Known | None:
    name = column.meta.output_name()
    if condition.meta.eq(column.is_null()):
        return _IsNull(name, null=True)
    return _IsNull(name, null=False) if condition.meta.eq(column.is_not_null()) else None


def _recognised_comparison(condition: pl.Expr, found: str | None, column: pl.Expr, literal: pl.Expr) -> _Known | None:
    name = column.meta.output_name()
    match found:
        case ">" | ">=":
            return _OneSided(name, condition, upwards=True)
        case "<" | "<=":
            return _OneSided(name, condition, upwards=False)
        case "=":
            return _Within(name, condition, ((literal, literal),))
        case "in":
            return _recognised_list(name, condition, _listed(literal).drop_nulls().unique().sort())
    return None


def _listed(literal: pl.Expr) -> pl.Series:
    """The values of a literal or of a list of literals."""
    values = pl.select(literal).to_series()
    return values.explode() if isinstance(values.dtype, pl.List) else values


def _recognised_list(name: str, condition: pl.Expr, values: pl.Series) -> _Known:
    """A span for each value of a list; if there are many, one span for all, and the values beside it."""
    singles = [pl.lit(values.slice(i, 1)).first() for i in range(min(len(values), _MAX_LISTED))]
    if len(values) <= _MAX_LISTED:
        return _Within(name, condition, tuple((value, value) for value in singles))
    last = pl.lit(values.slice(len(values) - 1)).first()
    return _OneOfMany(_Within(name, condition, ((singles[0], last),)), values)
