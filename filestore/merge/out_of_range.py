"""Finds results that their columns cannot hold, and makes the error for them (FORMAT.md section 9.3). Pure."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.lazily import pl
from filestore.model.types import to_sql

__all__ = ["named_key", "out_of_range", "within"]

_WIDEST_DECIMAL = {"product": 18, "sum": 38}
_CURES = {
    "sum": "write rows with which the key's sum fits again",
    "count": "write rows that retract values of the key (-D)",
    "product": "leave such a row out, or overwrite its partition if it is written already",
}


def within(values: pl.Series, kind: pl.DataType) -> pl.Series:
    """Marks the values that a column of that type can hold; null where the value is null.

    Args:
        values: Whole numbers, or decimals with the column's scale; for a column of decimals also unscaled ones.
        kind: The column's type: a whole number or a decimal.
    """
    if isinstance(kind, pl.Decimal):
        highest = 10**kind.precision - 1
        return values.to_physical().is_between(pl.lit(-highest, pl.Int128), pl.lit(highest, pl.Int128))
    lowest, highest = pl.select(low=kind.min(), high=kind.max()).row(0)  # type: ignore[attr-defined]
    return values.is_between(lowest, highest)


def out_of_range(function: str, column: str, kind: pl.DataType, key: Mapping[str, object]) -> InvalidRequest:
    """Makes the error for a key whose result does not fit: ``out-of-range``."""
    arrow = pl.Series(dtype=kind).to_arrow().type
    wider = _wider(function, arrow)
    widen = "" if wider is None else f"make the column wider (ALTER COLUMN {column} TYPE {to_sql(wider)}), or "
    return InvalidRequest(
        f"the {function} in column {column!r} of the key {named_key(key)} is more than {to_sql(arrow)} can hold: "
        f"{widen}{_CURES[function]}",
        code="out-of-range",
    )


def _wider(function: str, kind: pa.DataType) -> pa.DataType | None:
    """The widest type that the column may get; None if it has that type already."""
    if pa.types.is_decimal(kind):
        more = _WIDEST_DECIMAL[function] - kind.precision
        return pa.decimal128(kind.precision + more, kind.scale) if more > 0 else None
    return None if kind == pa.int64() else pa.int64()


def named_key(key: Mapping[str, object]) -> str:
    """Formats a key for an error."""
    return ", ".join(f"{name} = {value!r}" for name, value in key.items())
