"""Aggregate functions for the values of one column, as polars expressions in a group-by (FORMAT.md section 9.3).

Each gets the values of one key in order, with `ADDS` (False: the value is retracted) and `STORED` (the value is the
table's). Functions that no expression can compute are in `filestore.merge.elements` and `filestore.merge.product`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from filestore.lazily import pl
from filestore.merge.history import ADDS, STORED

__all__ = ["EXPRESSIONS", "rough_sum", "wrapped"]

Expression: TypeAlias = "Callable[[pl.Expr, pl.DataType, str], pl.Expr]"
"""Makes an expression from the column, its type and the delimiter."""

_WIDEST = 38


def _some(value: pl.Expr, result: pl.Expr) -> pl.Expr:
    """The result, or null for a key without any value."""
    return pl.when(value.count() > 0).then(result)


def _sum(value: pl.Expr, kind: pl.DataType, _: str) -> pl.Expr:
    wide = value.cast(_wide(kind))
    if kind.is_decimal():
        return _some(value, _signed(wide).sum())
    put, taken = pl.when(pl.col(ADDS)).then(wide).sum(), pl.when(~pl.col(ADDS)).then(wide).sum()
    return _some(value, put - taken)


def _signed(value: pl.Expr) -> pl.Expr:
    return pl.when(pl.col(ADDS)).then(value).otherwise(-value)


_ROUGH = "_rough_"
_INT128_WRAPS = 1.5e38
"""A bound between 10^38, the end of a decimal's range, and 2^127: a rounded sum is surely on one side of both."""


def rough_sum(column: str) -> pl.Expr:
    """The sum of a decimal column as a float, by which `wrapped` finds out whether the exact sum overflowed."""
    return _signed(pl.col(column).cast(pl.Float64)).sum().alias(_ROUGH + column)


def wrapped(found: pl.DataFrame, column: str) -> pl.Series:
    """Marks the sums of decimals that exceeded 128 bits, which polars does not report in a group-by."""
    kind = found.schema[column]
    assert isinstance(kind, pl.Decimal)
    return (found[_ROUGH + column].abs() * 10.0**kind.scale) >= _INT128_WRAPS


def _wide(kind: pl.DataType) -> pl.DataType | type[pl.DataType]:
    if isinstance(kind, pl.Decimal):
        return pl.Decimal(_WIDEST, kind.scale)
    return pl.Int128 if kind.is_integer() else kind


def _count(value: pl.Expr, kind: pl.DataType, _: str) -> pl.Expr:
    change = pl.when(value.is_null()).then(0).when(pl.col(ADDS)).then(1).otherwise(-1)
    return pl.when(pl.col(STORED)).then(value.cast(pl.Int64).fill_null(0)).otherwise(change).sum()


def _least(value: pl.Expr, kind: pl.DataType, _: str) -> pl.Expr:
    """The smallest value. NaN is above every number, as in Spark and Delta."""
    if not kind.is_float():
        return value.min()
    return value.fill_nan(None).min().fill_null(value.max())


def _greatest(value: pl.Expr, kind: pl.DataType, _: str) -> pl.Expr:
    return value.nan_max() if kind.is_float() else value.max()


EXPRESSIONS: Mapping[str, Expression] = {
    "sum": _sum,
    "count": _count,
    "min": _least,
    "max": _greatest,
    "first_value": lambda value, kind, _: value.first(),
    "first_non_null_value": lambda value, kind, _: value.drop_nulls().first(),
    "last_value": lambda value, kind, _: pl.when(pl.col(ADDS)).then(value).last(),
    "last_non_null_value": lambda value, kind, _: value.drop_nulls().last(),
    "listagg": lambda value, kind, delimiter: _some(value, value.drop_nulls().str.join(delimiter)),
    "bool_and": lambda value, kind, _: _some(value, value.all()),
    "bool_or": lambda value, kind, _: _some(value, value.any()),
}
