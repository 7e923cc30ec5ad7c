"""The product of a column's values, factor by factor, since a divided whole number is cut (FORMAT.md section 9.3)."""

from __future__ import annotations

import polars as pl

from filestore.errors import InvalidRequest
from filestore.merge.history import ADDS, GROUP, History

__all__ = ["product"]

_VALUE, _RANK, _RESULT = "_value", "_rank", "_result"


def product(history: History, column: str) -> pl.Series:
    """The product; what is taken back divides. Null for a key without a value.

    One step for each value of the key that has the most: all keys in one step, then those with two values, and so on.

    Raises:
        InvalidRequest: ``out-of-range``: a product that the column cannot hold, or a 0 that is taken back.
    """
    kind = history.frame.schema[column]
    rows = history.frame.select(GROUP, ADDS, pl.col(column).alias(_VALUE)).drop_nulls(_VALUE)
    rows = rows.filter(pl.col(ADDS).cast(pl.Int64).cum_sum().over(GROUP) > 0)  # nothing yet to take anything from
    scale = kind.scale if isinstance(kind, pl.Decimal) else 0
    if not kind.is_float():
        rows = rows.with_columns(_unscaled(pl.col(_VALUE), scale))
        if rows.filter(~pl.col(ADDS) & (pl.col(_VALUE) == 0)).height:
            raise InvalidRequest(f"a 0 cannot be taken back from the product in column {column!r}", code="out-of-range")
    rows = rows.with_columns(pl.int_range(pl.len()).over(GROUP).alias(_RANK))
    done: list[pl.DataFrame] = []
    held = pl.DataFrame(schema={GROUP: pl.Int64, _RESULT: rows.schema[_VALUE]})
    for step in rows.partition_by(_RANK, maintain_order=True):
        if not done and held.is_empty():
            held = step.select(GROUP, pl.col(_VALUE).alias(_RESULT))
        else:
            done.append(held.join(step, on=GROUP, how="anti"))
            held = held.join(step, on=GROUP, how="inner", maintain_order="left")
            held = held.select(GROUP, _next(kind, scale).alias(_RESULT))
        _check_range(held[_RESULT], kind, column)
    found = pl.concat([*done, held]).sort(GROUP)
    if not kind.is_float():
        found = found.with_columns(_scaled(pl.col(_RESULT), kind))
    return history.every_key(found.select(GROUP, pl.col(_RESULT).alias(column)))[column]


def _unscaled(value: pl.Expr, scale: int) -> pl.Expr:
    return (value.cast(pl.Decimal(38, scale)) * 10**scale).cast(pl.Int128) if scale else value.cast(pl.Int128)


def _scaled(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if not isinstance(kind, pl.Decimal):
        return value.cast(kind)
    unit: int = 10**kind.scale
    return (value.cast(pl.Decimal(38, kind.scale)) / unit).cast(kind)


def _next(kind: pl.DataType, scale: int) -> pl.Expr:
    held, value = pl.col(_RESULT), pl.col(_VALUE)
    if kind.is_float():
        return pl.when(pl.col(ADDS)).then(held * value).otherwise(held / value)
    unit = 10**scale
    up = _quotient(held * value, pl.lit(unit, pl.Int128), halves_up=True)
    down = _quotient(held * unit, value, halves_up=isinstance(kind, pl.Decimal))
    return pl.when(pl.col(ADDS)).then(up).otherwise(down)


def _quotient(dividend: pl.Expr, divisor: pl.Expr, *, halves_up: bool) -> pl.Expr:
    """Cut towards zero, or to the nearest: SQL's division of whole numbers and of decimals."""
    size = divisor.abs()
    amount: pl.Expr = (dividend.abs() + (size // 2 if halves_up else 0)) // size
    signed: pl.Expr = amount * dividend.sign() * divisor.sign()
    return signed


def _check_range(values: pl.Series, kind: pl.DataType, column: str) -> None:
    if kind.is_float():
        return
    if isinstance(kind, pl.Decimal):
        highest = 10**kind.precision - 1
        lowest = -highest
    else:
        lowest, highest = pl.select(low=kind.min(), high=kind.max()).row(0)  # type: ignore[attr-defined]
    if not values.is_between(lowest, highest).all():
        raise InvalidRequest(f"the product in column {column!r} is more than {kind} holds", code="out-of-range")
