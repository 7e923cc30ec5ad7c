"""Random columns of every type that a table can have."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from filestore.model.types import TIMESTAMP, TIMESTAMP_NTZ
from filestore.rows.frames import arrow_table, frame_of

__all__ = ["KEY_TYPES", "data_types", "key_values", "stored", "values"]

KEY_TYPES: tuple[pa.DataType, ...] = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.decimal128(9, 2),
    pa.decimal128(18, 0),
    pa.decimal128(38, 10),
    pa.string(),
    pa.binary(),
    pa.date32(),
    TIMESTAMP,
    TIMESTAMP_NTZ,
)
_EPOCH = datetime.datetime(1970, 1, 1)
_MOMENTS = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime.max)
_NEAR = st.integers(-3, 3)


def key_values(kind: pa.DataType, *, few: bool = False) -> st.SearchStrategy[Any]:
    """Values of a type that keys can have; `few`: from a handful, so that they meet."""
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_signed_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        return _NEAR if few else st.integers(-limit, limit - 1)
    if pa.types.is_decimal(kind):
        digits = 10**kind.precision - 1
        numbers = _NEAR if few else st.integers(-digits, digits)
        return numbers.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -kind.scale)))
    if pa.types.is_string(kind):
        return st.sampled_from(["", "a", "ab", "é", "\U0001f600"]) if few else st.text(st.characters(codec="utf-8"))
    if pa.types.is_binary(kind):
        return st.binary(max_size=1 if few else 20)
    if pa.types.is_date32(kind):
        near = _NEAR.map(lambda n: datetime.date(1970, 1, 1) + datetime.timedelta(days=n))
        return near if few else st.dates()
    near_moments = _NEAR.map(lambda n: _EPOCH + datetime.timedelta(microseconds=n))
    naive = near_moments if few else _MOMENTS
    return naive.map(lambda moment: moment.replace(tzinfo=datetime.UTC)) if kind.tz else naive


def values(kind: pa.DataType, *, nullable: bool = True) -> st.SearchStrategy[Any]:
    """Values of any type; nulls are among them, inside of them only where the type permits these."""
    found = _values(kind)
    return st.none() | found if nullable else found


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if pa.types.is_list(kind):
        return st.lists(_of(kind.value_field), max_size=3)
    if pa.types.is_map(kind):
        entries = st.dictionaries(key_values(kind.key_type), _of(kind.item_field), max_size=3)
        return entries.map(lambda items: list(items.items()))
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: _of(field) for field in kind})
    return key_values(kind)


def _of(field: pa.Field) -> st.SearchStrategy[Any]:
    return values(field.type, nullable=field.nullable)


def stored(column: list[Any], kind: pa.DataType) -> pa.Array:
    """Makes an array as polars has it: below a null all fields are null, also those that are NOT NULL.

    Where Arrow makes an array from Python values, such fields are zero.
    """
    rows = pa.table([pa.array(column, kind)], names=["v"])
    return arrow_table(frame_of(rows), rows.schema).column("v").combine_chunks()


def data_types() -> st.SearchStrategy[pa.DataType]:
    """Canonical types, nested ones among them."""
    decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
    plain = st.sampled_from([*KEY_TYPES, pa.float32(), pa.float64()]) | decimals
    return st.recursive(plain, _nested, max_leaves=4)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    names = st.lists(st.sampled_from(["a", "b", "c d", "é"]), min_size=1, max_size=3, unique=True)
    fields = names.flatmap(
        lambda chosen: st.tuples(*(st.builds(pa.field, st.just(n), inner, st.booleans()) for n in chosen))
    )
    keys = st.sampled_from([t for t in KEY_TYPES if not pa.types.is_boolean(t)])
    return (
        st.builds(lambda t, n: pa.list_(pa.field("element", t, n)), inner, st.booleans())
        | st.builds(lambda k, v, n: pa.map_(k, pa.field("value", v, n)), keys, inner, st.booleans())
        | fields.map(lambda chosen: pa.struct(list(chosen)))
    )
