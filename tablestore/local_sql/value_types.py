"""The types of values that this process and Spark compute alike, as Arrow types. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tablestore.local_sql.refusal import NotLocalError

__all__ = [
    "as_decimal",
    "comparable_type",
    "decimal_type",
    "duckdb_type",
    "is_decimal",
    "is_exact",
    "is_integer",
    "is_number",
    "is_text",
    "same_type",
    "sum_type",
]

_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_FLOATS = [pa.float32(), pa.float64()]
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
"""The digits of the DECIMAL that Spark makes of an integer beside one."""
_MOST_DIGITS = 38
_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP",  # its microseconds in UTC
}


def duckdb_type(kind: pa.DataType) -> str | None:
    """Returns the name of a type in DuckDB; None for nested types and others, whose values are not computed here."""
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _NAMES.get(kind)


def is_integer(kind: pa.DataType) -> bool:
    """Returns whether it is TINYINT, SMALLINT, INT or BIGINT."""
    return kind in _INTEGERS


def is_decimal(kind: pa.DataType) -> bool:
    """Returns whether it is DECIMAL."""
    return bool(pa.types.is_decimal128(kind))


def is_number(kind: pa.DataType) -> bool:
    """Returns whether it is a number."""
    return is_integer(kind) or kind in _FLOATS or is_decimal(kind)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether it is STRING."""
    return bool(kind == pa.string())


def is_exact(kind: pa.DataType) -> bool:
    """Returns whether equal values are the same: all types but floating-point numbers, which have 0.0 and -0.0."""
    return duckdb_type(kind) is not None and kind not in _FLOATS


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Returns a DECIMAL; refuses one of more digits than there can be, for which Spark has rules of its own."""
    if not 0 < precision <= _MOST_DIGITS or not 0 <= scale <= precision:
        raise NotLocalError(f"it has a DECIMAL with more than {_MOST_DIGITS} digits")
    return pa.decimal128(precision, scale)


def same_type(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Returns the type of values of which each may be the result: of CASE, COALESCE, UNION ALL. NULL has any type."""
    found: pa.DataType | None = None
    for kind in kinds:
        if pa.types.is_null(kind):
            continue
        found = kind if found is None else _wider(found, kind)
    if found is None:
        raise NotLocalError("it has NULL alone, which has no type")
    return found


def comparable_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Returns the type as which Spark compares two values."""
    if is_decimal(one) != is_decimal(other) and (is_integer(one) or is_integer(other)):
        one, other = (as_decimal(kind) for kind in (one, other))
    return same_type([one, other])


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a sum of values."""
    if is_integer(kind):
        return pa.int64()
    if is_decimal(kind):
        return decimal_type(min(kind.precision + 10, _MOST_DIGITS), kind.scale)
    if kind in _FLOATS:
        return pa.float64()
    raise NotLocalError(f"it has the sum of values of type {kind}")


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    for kinds in (_INTEGERS, _FLOATS):
        if one in kinds and other in kinds:
            return max(one, other, key=kinds.index)
    if is_decimal(one) and is_decimal(other):
        scale = max(one.scale, other.scale)
        return decimal_type(max(one.precision - one.scale, other.precision - other.scale) + scale, scale)
    if pa.float64() in (one, other) and (is_integer(one) or is_integer(other)):
        return pa.float64()
    raise NotLocalError(f"it has values of the types {one} and {other} where they have to be of one type")


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """Returns the DECIMAL as which Spark computes and compares an integer with one; a DECIMAL is one itself."""
    return kind if is_decimal(kind) else decimal_type(_DIGITS[kind], 0)
