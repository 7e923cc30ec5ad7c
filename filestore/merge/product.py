"""The product of a column's values, factor by factor, since dividing integers truncates (FORMAT.md section 9.3)."""

from __future__ import annotations

from collections.abc import Sequence

from filestore.errors import InvalidRequest
from filestore.lazily import pl
from filestore.merge.history import ADDS, GROUP, History
from filestore.merge.out_of_range import named_key, out_of_range, within

__all__ = ["check_divisors", "product"]

_VALUE, _RANK, _RESULT = "_value", "_rank", "_result"


def check_divisors(history: History, column: str, keys: Sequence[str]) -> None:
    """Refuses to retract a 0 from a product: only a product of floats can do that.

    Args:
        history: Rows with the column.
        column: The column of the product.
        keys: The columns that identify the key in the error.

    Raises:
        InvalidRequest: ``retract-refused``.
    """
    if history.frame.schema[column].is_float():
        return
    zeros = history.frame.filter(~pl.col(ADDS) & (pl.col(column) == 0)).select(keys)
    if zeros.height:
        raise InvalidRequest(
            f"the rows retract a 0 (-U or -D) from the product in column {column!r} of the key "
            f"{named_key(zeros.row(0, named=True))}, which cannot be divided by it: leave the row out, or set "
            f"fields.{column}.ignore-retract = true when a table is created",
            code="retract-refused",
        )


def product(history: History, column: str, keys: pl.DataFrame) -> pl.Series:
    """Computes the product; a retraction divides, and is not 0 (see `check_divisors`). Null for a key without a value.

    The first values of all keys are one step, the second values the next, and so on.

    Raises:
        InvalidRequest: ``out-of-range``: the column cannot hold a product. `keys` has a row for each key.
    """
    kind = history.frame.schema[column]
    rows = history.frame.select(GROUP, ADDS, pl.col(column).alias(_VALUE)).drop_nulls(_VALUE)
    # before its first value a key has nothing to retract from
    rows = rows.filter(pl.col(ADDS).cast(pl.Int64).cum_sum().over(GROUP) > 0)
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
    """Divides, and truncates or rounds to the nearest: as SQL divides integers and decimals."""
    size = divisor.abs()
    amount: pl.Expr = (dividend.abs() + (size // 2 if halves_up else 0)) // size
    signed: pl.Expr = amount * dividend.sign() * divisor.sign()
    return signed
