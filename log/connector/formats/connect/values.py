"""Converts members of JSON messages that encode times and decimals to columns. Vectorised.

| what the schema says | in the message | becomes |
|---|---|---|
| `io.debezium.time.Date`, Connect's `Date` | days since 1970 | DATE |
| `io.debezium.time.Timestamp`, Connect's `Timestamp` | milliseconds | TIMESTAMP, TIMESTAMP_NTZ; a DATE at midnight |
| `io.debezium.time.MicroTimestamp`, `NanoTimestamp` | microseconds, whole ones in nanoseconds | the same |
| Connect's `Decimal` | base64, scale in the schema | DECIMAL, STRING, floating, an integer |
| `io.debezium.data.VariableScaleDecimal` | base64 and scale | the same |

For a column of another type the member is read as if there were no schema, but base64 is never taken for a number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.model.types import is_moment
from log.connector.formats.connect.decimals import decimal_column, unscaled
from log.connector.formats.connect.schema import Described

__all__ = ["DECIMAL", "VARIABLE_DECIMAL", "Meaning", "converted", "meaning_of"]

Mask = npt.NDArray[np.bool_]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_PER_SECOND = {
    "io.debezium.time.Timestamp": 1_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 0001 and 9999
_DAY_SECONDS = 86_400
_MICROS = 1_000_000
_VARIABLE_TYPE = pa.struct([("scale", pa.int32()), ("value", pa.string())])


@dataclass(frozen=True, slots=True)
class Meaning:
    """The conversion of a member to a value of a column.

    Attributes:
        kind: The column's type.
        read_as: The type as which the member is read.
        declared: What the schema says of it; None where that changes nothing, at any depth.
    """

    kind: pa.DataType
    read_as: pa.DataType
    declared: Described | None


def meaning_of(kind: pa.DataType, declared: Described | None) -> Meaning:
    """Decides how a member is converted for a column of that type. Pure.

    Args:
        kind: The column's type.
        declared: What the message's schema says of the member; None if it does not have it.
    """
    read_as = kind if declared is None else _read_as(kind, declared)
    return Meaning(kind, read_as, None if declared is None or not _turns(kind, declared) else declared)


def converted(members: pa.Array, meaning: Meaning) -> tuple[pa.Array, Mask | None]:
    """Members in the column's type; and which of them have no value of it, which are null then. None: all have.

    Args:
        members: Of the type `Meaning.read_as`.
        meaning: What they mean.
    """
    if meaning.declared is None:
        return members, None
    found, bad = _converted(members, meaning.kind, meaning.declared)
    return found, bad if bad.any() else None


def _turns(kind: pa.DataType, declared: Described) -> bool:
    """Returns whether anything of a value has to be converted."""
    if pa.types.is_struct(kind) and declared.logical != VARIABLE_DECIMAL:
        return any((inner := declared.field(f.name)) is not None and _turns(f.type, inner) for f in kind)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return declared.items is not None and _turns(_element(kind), declared.items)
    return _leaf(kind, declared)


def _leaf(kind: pa.DataType, declared: Described) -> bool:
    if declared.logical in _DAYS:
        return bool(pa.types.is_date(kind))
    if declared.logical in _PER_SECOND:
        return is_moment(kind)
    if declared.logical == DECIMAL:
        return not pa.types.is_binary(kind)
    return declared.logical == VARIABLE_DECIMAL and not pa.types.is_nested(kind)


def _read_as(kind: pa.DataType, declared: Described) -> pa.DataType:
    if not _turns(kind, declared):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(meaning_of(f.type, declared.field(f.name)).read_as) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(meaning_of(kind.value_type, declared.items).read_as)
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, meaning_of(kind.item_type, declared.items).read_as)
    if declared.logical == VARIABLE_DECIMAL:
        return _VARIABLE_TYPE
    return pa.string() if declared.logical == DECIMAL else pa.int64()


def _converted(members: pa.Array, kind: pa.DataType, declared: Described) -> tuple[pa.Array, Mask]:
    if pa.types.is_struct(kind):
        return _struct(members, kind, declared)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _elements(members, kind, declared)
    if declared.logical in _DAYS:
        return _days(members, kind)
    if declared.logical in _PER_SECOND:
        return _moments(members, kind, _PER_SECOND[declared.logical])
    if not (pa.types.is_string(kind) or pa.types.is_decimal(kind) or _is_number(kind)):
        return pa.nulls(len(members), kind), _valid(members)
    if declared.logical == VARIABLE_DECIMAL:
        return _variable(members, kind)
    return _decimals(members, declared.scale or 0, kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


# ------------------------------------------------------------------------------------------------------- times


def _days(members: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    days = members.fill_null(0).to_numpy(zero_copy_only=False)
    bad = (days < _FIRST_DAY) | (days > _LAST_DAY)
    return _with_nulls(np.where(bad, 0, days).astype(np.int32), members, bad).cast(kind), bad


def _moments(members: pa.Array, kind: pa.DataType, per_second: int) -> tuple[pa.Array, Mask]:
    """Converts instants; those between two microseconds do not fit."""
    numbers = members.fill_null(0).to_numpy(zero_copy_only=False)
    first, end = _FIRST_DAY * _DAY_SECONDS * per_second, (_LAST_DAY + 1) * _DAY_SECONDS * per_second
    bad = (numbers < max(first, -(2**63))) | (numbers > min(end - 1, 2**63 - 1))
    finer = max(1, per_second // _MICROS)
    bad = bad | (numbers % finer != 0)
    numbers = np.where(bad, 0, numbers)
    micros = numbers * (_MICROS // per_second) if per_second <= _MICROS else numbers // finer
    if pa.types.is_timestamp(kind):
        return _with_nulls(micros, members, bad).cast(kind), bad
    days = micros // (_DAY_SECONDS * _MICROS)
    bad = bad | (micros != days * _DAY_SECONDS * _MICROS)
    return _with_nulls(days.astype(np.int32), members, bad).cast(kind), bad


def _with_nulls(values: npt.NDArray[np.integer], members: pa.Array, bad: Mask) -> pa.Array:
    return pa.array(values, mask=bad | ~_valid(members))


def _valid(members: pa.Array) -> Mask:
    found: Mask = members.is_valid().to_numpy(zero_copy_only=False)
    return found


# ---------------------------------------------------------------------------------------------------- decimals


def _decimals(members: pa.Array, scale: int, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    numbers = unscaled(members)
    found, bad = decimal_column(numbers, scale, kind)
    return found, bad | (_valid(members) & ~_valid(numbers))


def _variable(members: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Decodes decimals whose scale is in each value, one scale after the other, since a column has few of them."""
    scales, values = members.flatten()
    bad = _valid(members) & ~(_valid(scales) & _valid(values))
    parts, places = [pa.nulls(int(scales.null_count), kind)], [np.flatnonzero(~_valid(scales))]
    for scale in pc.unique(scales.drop_null()).to_pylist():
        rows = np.flatnonzero(pc.fill_null(pc.equal(scales, scale), False).to_numpy(zero_copy_only=False))
        part, wrong = _decimals(values.take(pa.array(rows)), scale, kind)
        parts.append(part)
        places.append(rows)
        bad[rows] |= wrong
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(order)), bad


# ------------------------------------------------------------------------------------------------------ nested


def _element(kind: pa.DataType) -> pa.DataType:
    return kind.item_type if pa.types.is_map(kind) else kind.value_type


def _struct(members: pa.Array, kind: pa.DataType, declared: Described) -> tuple[pa.Array, Mask]:
    bad, columns = np.zeros(len(members), bool), []
    for field, member in zip(kind, members.flatten(), strict=True):
        column, wrong = converted(member, meaning_of(field.type, declared.field(field.name)))
        columns.append(column)
        bad |= False if wrong is None else wrong
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=members.is_null()), bad


def _elements(members: pa.Array, kind: pa.DataType, declared: Described) -> tuple[pa.Array, Mask]:
    inner = meaning_of(_element(kind), declared.items)
    if members.offset:
        members = members.take(pa.array(np.arange(len(members))))  # a slice has no offsets of its own
    is_map = pa.types.is_map(kind)
    column, wrong = converted(members.items if is_map else members.values, inner)
    bad = np.zeros(len(members), bool)
    offsets = members.offsets
    if wrong is not None:
        counts = np.concatenate([[0], np.cumsum(wrong)])
        at = offsets.to_numpy()
        bad = counts[at[1:]] > counts[at[:-1]]
    missing = members.is_null()
    if is_map:
        keyed = pa.MapArray.from_arrays(offsets, members.keys, column, type=kind)
        return pc.if_else(missing, pa.scalar(None, kind), keyed) if members.null_count else keyed, bad
    return pa.ListArray.from_arrays(offsets, column, type=kind, mask=missing), bad
