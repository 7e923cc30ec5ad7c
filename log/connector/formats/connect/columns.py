"""Derives a table's columns from the Kafka Connect schema of its rows; their types hold all values. Pure."""

from __future__ import annotations

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.schema import Column
from filestore.model.types import MAX_PRECISION, TIMESTAMP, TIMESTAMP_NTZ
from log.connector.formats.connect.schema import Described
from log.connector.formats.connect.values import DECIMAL, VARIABLE_DECIMAL

__all__ = ["columns_of"]

_TYPES = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL = {
    "io.debezium.time.Date": pa.date32(),
    "org.apache.kafka.connect.data.Date": pa.date32(),
    "io.debezium.time.Timestamp": TIMESTAMP_NTZ,
    "org.apache.kafka.connect.data.Timestamp": TIMESTAMP_NTZ,
    "io.debezium.time.MicroTimestamp": TIMESTAMP_NTZ,
    "io.debezium.time.ZonedTimestamp": TIMESTAMP,
    VARIABLE_DECIMAL: pa.string(),
}
_COUNTS = {
    "io.debezium.time.Time": "milliseconds of the day",
    "org.apache.kafka.connect.data.Time": "milliseconds of the day",
    "io.debezium.time.NanoTimestamp": "nanoseconds since 1970",
    "io.debezium.time.MicroTime": "microseconds of the day",
    "io.debezium.time.NanoTime": "nanoseconds of the day",
    "io.debezium.time.MicroDuration": "microseconds",
    "io.debezium.time.NanoDuration": "nanoseconds",
}
"""The units of numbers that no column type says: they become the columns' comments."""


def columns_of(row: Described) -> tuple[Column, ...]:
    """Returns the columns of a row. All may be null: what a database forbids today it may allow tomorrow.

    Raises:
        InvalidRequest: ``underivable-column``: no type holds a member's values; the message says what to do.
    """
    return tuple(
        Column(name, _type(name, declared), comment=None if declared.logical is None else _COUNTS.get(declared.logical))
        for name, declared in row.fields
    )


def _type(place: str, declared: Described) -> pa.DataType:
    if declared.logical == DECIMAL:
        return _decimal(place, declared)
    if declared.logical in _LOGICAL:
        return _LOGICAL[declared.logical]
    if declared.type in _TYPES:
        return _TYPES[declared.type]
    if declared.type == "struct" and declared.fields:
        return pa.struct([pa.field(name, _type(f"{place}.{name}", inner)) for name, inner in declared.fields])
    if declared.type == "array" and declared.items is not None:
        return pa.list_(_type(f"{place}[]", declared.items))
    if (
        declared.type == "map"
        and declared.items is not None
        and declared.keys is not None
        and declared.keys.type == "string"
    ):
        return pa.map_(pa.string(), _type(f"{place}{{}}", declared.items))
    raise _underivable(place, f"is {declared.type}, for which there is no column type")


def _decimal(place: str, declared: Described) -> pa.DataType:
    precision, scale = declared.precision or MAX_PRECISION, declared.scale or 0
    if not 0 <= scale <= precision <= MAX_PRECISION:
        raise _underivable(
            place, f"is a decimal of {precision} digits, {scale} of them after the point, and there are 38"
        )
    return pa.decimal128(precision, scale)


def _underivable(place: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"the messages' schema has {place!r}, which {why}: give the columns yourself, with STRING there or without it",
        code="underivable-column",
    )
