"""The product of a column's values, factor by factor, since a divided whole number is cut (FORMAT.md section 9.3)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from filestore.errors import InvalidRequest
from filestore.merge.history import ADDS, GROUP, History
from filestore.merge.out_of_range import named_key, out_of_range, within

__all__ = ["check_divisors", "product"]

_VALUE, _RANK, _RESULT = "_value", "_rank", "_result"


def check_divisors(history: History, column: str, keys: Sequence[str]) -> None:
    """Refuses what no product can take back, whatever it is: a 0, but for floats.

    Args:
        history: Rows with the column.
        column: The product's.
        keys: Columns that name the key in the error.

    Raises:
        InvalidRequest: ``retract-refused``.
    """
    if history.frame.schema[column].is_float():
        return
    zeros = history.frame.filter(~pl.col(ADDS) & (pl.col(column) == 0)).select(keys)
    if zeros.height:
        raise InvalidRequest(
            f"the rows take a 0 away (-U or -D) from the product in column {column!r} of the key "
            f"{named_key(zeros.row(0, named=True))}, and nothing can be divided by it: leave the row out, or set "
            f"fields.{column}.ignore-retract = true when a table is made",
            code="retract-refused",
        )


def product(history: History, column: str, keys: pl.DataFrame) -> pl.Series:
    """The product; what is taken back divides, and is not 0 (see `check_divisors`). Null for a key without a value.

    One step for each value of the key that has the most: all keys in one step, then those with two values, and so on.

    Raises:
        InvalidRequest: ``out-of-range``: a product that the column cannot hold. `keys` has a row a key.
    """
    kind = history.frame.schema[column]
    rows = history.frame.select(GROUP, ADDS, pl.col(column).alias(_VALUE)).drop_nulls(_VALUE)
    rows = rows.filter(pl.col(ADDS).cast(pl.Int64).cum_sum().over(GROUP) > 0)  # nothing yet to take anything from
    scale = kind.scale if isinstance(kind, pl.Decimal) else 0
    if not kind.is_float():
        rows = rows.with_columns(_unscaled(pl.col(_VALUE), scale))
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
        if not kind.is_float() and not (fits := within(held[_RESULT], kind)).all():
            wrong = held.filter(~fits)[GROUP][0]
            raise out_of_range("product", column, kind, keys.row(wrong, named=True))
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
