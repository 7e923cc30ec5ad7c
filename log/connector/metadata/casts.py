"""Casts between the types of metadata keys and of columns (METADATA.md section 3). Pure and vectorised.

What the page does not list has no cast. Null is null. A value that does not fit is an error, never another value; of a
written time only what is below the millisecond is cut off, since messages have no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.model.types import TIMESTAMP, TIMESTAMP_NTZ, to_sql

__all__ = ["Cast", "cast_between", "castable_types"]

Convert: TypeAlias = Callable[[pa.Array], pa.Array]

_LAST_MILLISECOND = 253_402_300_799_999  # of the year 9999
_WITH_OFFSET = r":\d\d.*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True, slots=True)
class Cast:
    """The casts from the type of a key to that of a column and back. Picklable.

    Attributes:
        read: Values of the key as values of the column. `pa.ArrowInvalid` if one does not fit.
        write: Values of the column as values of the key. `pa.ArrowInvalid` if one does not fit.
    """

    read: Convert
    write: Convert


def cast_between(key: pa.DataType, column: pa.DataType) -> Cast | None:
    """Returns the cast between two canonical types; None if there is none."""
    if key == TIMESTAMP:
        return _TIMES.get(column)
    if key == column:
        return Cast(_same, _same)
    if pa.types.is_map(key) and pa.types.is_map(column):
        if key.key_type != column.key_type or not column.item_field.nullable:
            return None
        return _inside(key, column, cast_between(key.item_type, column.item_type))
    if pa.types.is_list(key) and pa.types.is_list(column):
        if not column.value_field.nullable:
            return None
        return _inside(key, column, cast_between(key.value_type, column.value_type))
    if _is_number_cast(key, column) or {key, column} == {pa.string(), pa.binary()}:
        return Cast(partial(_cast, kind=column), partial(_cast, kind=key))
    return None


def castable_types(key: pa.DataType) -> str:
    """Lists the types of columns to which a key's values can be cast, as in ``BIGINT, INT or STRING``, for messages."""
    *others, last = _castable(key)
    return f"{', '.join(others)} or {last}" if others else last


def _castable(key: pa.DataType) -> list[str]:
    if key in _INTEGERS:
        return [to_sql(key), *(to_sql(k) for k in _INTEGERS if k != key), "DECIMAL", "FLOAT", "DOUBLE", "STRING"]
    if key in (pa.string(), pa.binary()):
        return [to_sql(key), "BINARY" if key == pa.string() else "STRING"]
    if pa.types.is_map(key):
        return [f"MAP<{to_sql(key.key_type)}, {item}>" for item in _castable(key.item_type)]
    if pa.types.is_list(key):
        return [f"ARRAY<{item}>" for item in _castable(key.value_type)]
    if key == TIMESTAMP:
        return [
            "TIMESTAMP",
            "TIMESTAMP_NTZ",
            "DATE",
            "BIGINT (milliseconds since 1970)",
            "STRING",
        ]
    return [to_sql(key)]


# ------------------------------------------------------------------------------------------------ numbers, text


def _is_number_cast(key: pa.DataType, column: pa.DataType) -> bool:
    numeric = pa.types.is_integer(column) or pa.types.is_floating(column) or pa.types.is_decimal(column)
    return bool(key in _INTEGERS and (numeric or column == pa.string()))


def _same(values: pa.Array) -> pa.Array:
    return values


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind) and pa.types.is_integer(values.type):
        # Arrow refuses narrower decimals by the type of the integers, whatever they are.
        values = values.cast(pa.decimal128(38, 0))
    return values.cast(kind)


# --------------------------------------------------------------------------------------------------------- times


def _from_milliseconds(values: pa.Array) -> pa.Array:
    bounds = pc.min_max(values).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] <= _LAST_MILLISECOND:
        raise pa.ArrowInvalid("it is before 1970 or after the year 9999")
    return pc.multiply(values, 1000).cast(TIMESTAMP)


def _to_milliseconds(values: pa.Array) -> pa.Array:
    microseconds = values.cast(pa.int64())
    towards_zero = pc.divide(microseconds, 1000)
    late = pc.less(microseconds, pc.multiply(towards_zero, 1000))
    return pc.subtract(towards_zero, late.cast(pa.int64()))


def _written_time(values: pa.Array) -> pa.Array:
    return _from_milliseconds(_to_milliseconds(values))


def _day_to_time(values: pa.Array) -> pa.Array:
    days = values.cast(pa.int32()).cast(pa.int64())
    bounds = pc.min_max(days).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] <= _LAST_MILLISECOND // 86_400_000:
        raise pa.ArrowInvalid("it is before 1970 or after the year 9999")
    return pc.multiply(days, 86_400_000_000).cast(TIMESTAMP)


def _time_to_text(values: pa.Array) -> pa.Array:
    # By way of a time without zone: Arrow's strftime and its cast of zoned times take 40 times as long.
    text = _to_milliseconds(values).cast(pa.timestamp("ms")).cast(pa.string())
    return pc.binary_join_element_wise(pc.binary_replace_slice(text, 10, 11, "T"), "Z", "")


def _text_to_time(values: pa.Array) -> pa.Array:
    has_offset = pc.match_substring_regex(values, _WITH_OFFSET)
    none = pa.scalar(None, pa.string())
    zoned = pc.if_else(has_offset, values, none).cast(TIMESTAMP)
    local = pc.if_else(has_offset, none, values).cast(TIMESTAMP_NTZ).cast(TIMESTAMP)
    return _written_time(pc.coalesce(zoned, local))


_TIMES: dict[pa.DataType, Cast] = {
    TIMESTAMP: Cast(_same, _written_time),
    TIMESTAMP_NTZ: Cast(partial(_cast, kind=TIMESTAMP_NTZ), _written_time),
    pa.date32(): Cast(partial(_cast, kind=pa.date32()), _day_to_time),
    pa.int64(): Cast(_to_milliseconds, _from_milliseconds),
    pa.string(): Cast(_time_to_text, _text_to_time),
}


# -------------------------------------------------------------------------------------------------------- nested


def _inside(key: pa.DataType, column: pa.DataType, inner: Cast | None) -> Cast | None:
    if inner is None:
        return None
    return Cast(
        partial(_each, convert=inner.read, kind=column),
        partial(_each, convert=inner.write, kind=key),
    )


def _each(values: pa.Array, convert: Convert, kind: pa.DataType) -> pa.Array:
    """Converts each element of a list, or each value of a map."""
    # Copied: bytes before a slice, or under a null, are no values and need not fit.
    values = values.take(pa.array(np.arange(len(values))))
    if pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        child = pa.StructArray.from_arrays([values.keys, convert(values.items)], fields=list(entries))
    else:
        child = convert(values.values)
    return pa.Array.from_buffers(
        kind, len(values), values.buffers()[:2], values.null_count, values.offset, children=[child]
    )
