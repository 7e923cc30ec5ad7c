"""Numbers that are written out, with their types. Pure."""

from __future__ import annotations

import re

import pyarrow as pa

from tablestore.local_sql.refusal import NotLocalError
from tablestore.local_sql.typed import Typed
from tablestore.local_sql.value_types import decimal_type, duckdb_type, is_integer, is_number

__all__ = ["has_room", "number"]

_WHOLE = re.compile(r"[0-9]{1,19}")
_DECIMAL = re.compile(r"([0-9]{0,18})\.([0-9]{1,18})")
_DOUBLE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?[eE]-?[0-9]{1,2}")


def number(text: str) -> Typed:
    """Returns a number with the type that Spark gives it: INT, BIGINT, DECIMAL, or DOUBLE with an exponent."""
    digits = text.removeprefix("-")
    if _WHOLE.fullmatch(digits):
        kind = next((kind for bits, kind in ((31, pa.int32()), (63, pa.int64())) if _fits(int(text), bits)), None)
        if kind is not None:
            return Typed(f"CAST('{text}' AS {duckdb_type(kind)})", kind)
    if (found := _DECIMAL.fullmatch(digits)) is not None:
        whole, fraction = found.groups()
        kind = decimal_type(max(len((whole + fraction).lstrip("0")), len(fraction)), len(fraction))
        return Typed(f"CAST('{text}' AS {duckdb_type(kind)})", kind)
    if _DOUBLE.fullmatch(digits):
        return Typed(f"CAST('{text}' AS DOUBLE)", pa.float64())
    raise NotLocalError(f"it has the number {text}")


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits) <= value < 1 << bits


def has_room(literal: Typed, kind: pa.DataType) -> bool:
    """Returns whether a type has room for a number that is written out."""
    if kind == pa.float64():
        return is_number(literal.kind)
    return is_integer(literal.kind) and _fits(int(literal.text.split("'")[1]), int(kind.bit_width) - 1)
