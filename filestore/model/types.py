"""The closed set of column types, and how Delta and SQL spell them (FORMAT.md section 3).

The canonical form is an Arrow type; those of Delta's JSON and of Spark SQL are translations of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from filestore.errors import Unsupported
from filestore.model.names import quoted

__all__ = [
    "canonical",
    "contains_type",
    "field_count",
    "from_delta",
    "is_key_type",
    "is_moment",
    "is_wider",
    "mapping_metadata",
    "to_delta",
    "to_sql",
]

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
MAX_PRECISION = 38

# the type in Arrow, in Delta, and in SQL
_PRIMITIVES: tuple[tuple[pa.DataType, str, str], ...] = (
    (pa.bool_(), "boolean", "BOOLEAN"),
    (pa.int8(), "byte", "TINYINT"),
    (pa.int16(), "short", "SMALLINT"),
    (pa.int32(), "integer", "INT"),
    (pa.int64(), "long", "BIGINT"),
    (pa.float32(), "float", "FLOAT"),
    (pa.float64(), "double", "DOUBLE"),
    (pa.string(), "string", "STRING"),
    (pa.binary(), "binary", "BINARY"),
    (pa.date32(), "date", "DATE"),
    (TIMESTAMP, "timestamp", "TIMESTAMP"),
    (TIMESTAMP_NTZ, "timestamp_ntz", "TIMESTAMP_NTZ"),
)
_TO_DELTA = {arrow: delta for arrow, delta, _ in _PRIMITIVES}
_FROM_DELTA = {delta: arrow for arrow, delta, _ in _PRIMITIVES}
_TO_SQL = {arrow: sql for arrow, _, sql in _PRIMITIVES}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")

_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.null(): pa.string(),
}
"""The narrowest type that holds all values of one that Delta lacks."""

# what to use instead of an unsupported type, by Arrow's name of that, where no other type holds just its values
_REMEDIES = {
    "time32[s]": "INT (seconds of the day)",
    "time32[ms]": "INT (milliseconds of the day)",
    "time64[us]": "BIGINT (microseconds of the day)",
    "time64[ns]": "BIGINT (nanoseconds of the day)",
    "null": "the type that its values will have",
}


def canonical(arrow: pa.DataType, *, widened: bool = False) -> pa.DataType:
    """Returns the canonical Arrow type that holds every value of ``arrow``.

    Args:
        arrow: The type.
        widened: Whether it may be a wider one, such as SMALLINT for an unsigned number of 8 bits.

    Raises:
        Unsupported: no Delta type holds it; the message says what to cast to.
    """
    if arrow in _TO_DELTA:
        return arrow
    if widened and arrow in _WIDER:
        return _WIDER[arrow]
    if pa.types.is_large_string(arrow) or arrow == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(arrow) or pa.types.is_fixed_size_binary(arrow) or arrow == pa.binary_view():
        return pa.binary()
    if pa.types.is_date64(arrow):
        return pa.date32()
    if pa.types.is_timestamp(arrow):
        return TIMESTAMP_NTZ if arrow.tz is None else TIMESTAMP
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return canonical(arrow.value_type, widened=widened)
    if isinstance(arrow, pa.BaseExtensionType):
        return pa.bool_() if arrow == pa.bool8() else canonical(arrow.storage_type, widened=widened)
    if pa.types.is_decimal(arrow):
        return _canonical_decimal(arrow)
    return _canonical_nested(arrow, widened=widened)


def _canonical_decimal(arrow: pa.DataType) -> pa.DataType:
    if arrow.precision > MAX_PRECISION or not 0 <= arrow.scale <= arrow.precision:
        raise Unsupported(
            f"decimal({arrow.precision},{arrow.scale}) does not fit: the precision is at most "
            f"{MAX_PRECISION} and the scale between 0 and the precision",
            code="unsupported-type",
        )
    return pa.decimal128(arrow.precision, arrow.scale)


def _canonical_nested(arrow: pa.DataType, *, widened: bool) -> pa.DataType:
    def inner(name: str, field: pa.Field) -> pa.Field:
        return pa.field(name, canonical(field.type, widened=widened), field.nullable)

    if any(of_kind(arrow) for of_kind in _LISTS):
        return pa.list_(inner("element", arrow.value_field))
    if pa.types.is_map(arrow):
        return pa.map_(canonical(arrow.key_type, widened=widened), inner("value", arrow.item_field))
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return pa.struct([inner(field.name, field) for field in arrow])
    remedy = _REMEDIES.get(str(arrow)) or (
        to_sql(_WIDER[arrow]) if arrow in _WIDER else "a supported one (see FORMAT.md, section 3)"
    )
    raise Unsupported(f"type {arrow} has no Delta counterpart: cast it to {remedy}", code="unsupported-type")


def is_moment(arrow: pa.DataType) -> bool:
    """Returns whether a column has days or times."""
    return bool(pa.types.is_date(arrow) or pa.types.is_timestamp(arrow))


def is_key_type(arrow: pa.DataType) -> bool:
    """Returns whether a primary-key or bucket-key column may have this type: equality and order must be exact."""
    return not (pa.types.is_nested(arrow) or pa.types.is_floating(arrow))


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def is_wider(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Returns whether a column's type may become the other one, which keeps each value and the order of values.

    These are changes of Delta's type widening: among integers, FLOAT to DOUBLE, and DECIMAL to one with no fewer digits
    on either side of the point.
    """
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS.index(wide) > _INTEGERS.index(narrow)
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        places = wide.scale - narrow.scale
        return bool(wide != narrow and wide.precision - narrow.precision >= places >= 0)
    return bool(pa.types.is_float32(narrow) and pa.types.is_float64(wide))


def field_count(arrow: pa.DataType) -> int:
    """Counts the STRUCT fields in a type, at any depth."""
    if pa.types.is_map(arrow):
        return field_count(arrow.key_type) + field_count(arrow.item_type)
    if pa.types.is_list(arrow):
        return field_count(arrow.value_type)
    return sum(1 + field_count(f.type) for f in arrow) if pa.types.is_struct(arrow) else 0


def contains_type(arrow: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Returns whether a type is a wanted one, or contains one at any depth."""
    return bool(wanted(arrow)) or any(contains_type(arrow.field(i).type, wanted) for i in range(arrow.num_fields))


def to_delta(arrow: pa.DataType, ids: Iterator[int] | None = None) -> str | dict[str, Any]:
    """Converts a canonical type to Delta's spelling.

    Args:
        arrow: The type.
        ids: With column mapping: ids for the STRUCT fields in it; these are stored under their own names.
    """
    if arrow in _TO_DELTA:
        return _TO_DELTA[arrow]
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return {
            "type": "array",
            "elementType": to_delta(arrow.value_type, ids),
            "containsNull": arrow.value_field.nullable,
        }
    if pa.types.is_map(arrow):
        return {
            "type": "map",
            "keyType": to_delta(arrow.key_type, ids),
            "valueType": to_delta(arrow.item_type, ids),
            "valueContainsNull": arrow.item_field.nullable,
        }
    return {"type": "struct", "fields": [_field_to_delta(f, ids) for f in arrow]}


def _field_to_delta(field: pa.Field, ids: Iterator[int] | None) -> dict[str, Any]:
    metadata = {} if ids is None else mapping_metadata(next(ids), field.name)
    return {"name": field.name, "type": to_delta(field.type, ids), "nullable": field.nullable, "metadata": metadata}


def mapping_metadata(column_id: int, stored_name: str) -> dict[str, Any]:
    """Encodes the metadata of a field for Delta's column mapping (Delta protocol, "Column Mapping")."""
    return {"delta.columnMapping.id": column_id, "delta.columnMapping.physicalName": stored_name}


def from_delta(delta: str | dict[str, Any]) -> pa.DataType:
    """Converts Delta's spelling to a canonical type; raises `Unsupported` for types of later Delta versions."""
    if isinstance(delta, str):
        if delta in _FROM_DELTA:
            return _FROM_DELTA[delta]
        if match := _DECIMAL.fullmatch(delta):
            return pa.decimal128(int(match[1]), int(match[2]))
        raise Unsupported(f"Delta type {delta!r} is not supported", code="unsupported-type")
    if delta["type"] == "array":
        return pa.list_(pa.field("element", from_delta(delta["elementType"]), delta["containsNull"]))
    if delta["type"] == "map":
        value = pa.field("value", from_delta(delta["valueType"]), delta["valueContainsNull"])
        return pa.map_(from_delta(delta["keyType"]), value)
    return pa.struct([pa.field(f["name"], from_delta(f["type"]), f["nullable"]) for f in delta["fields"]])


def to_sql(arrow: pa.DataType) -> str:
    """Converts a canonical type to Spark SQL's spelling."""
    if arrow in _TO_SQL:
        return _TO_SQL[arrow]
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return f"ARRAY<{to_sql(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"MAP<{to_sql(arrow.key_type)}, {to_sql(arrow.item_type)}>"
    return f"STRUCT<{', '.join(_field_to_sql(f) for f in arrow)}>"


def _field_to_sql(field: pa.Field) -> str:
    return f"{quoted(field.name)}: {to_sql(field.type)}{'' if field.nullable else ' NOT NULL'}"
