"""Random column types and values: every type a table can have, with the values that break encoders."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from filestore.model.rowkind import RowKind

__all__ = ["cells", "same", "scalars", "tables", "types"]

FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
AWKWARD = ["", "NaN", "Infinity", '"NaN"', "null", "{}", '"before":', 'a"b\\c/\b\f\n\r\t\0\x1f\x7f', "\u2028\ufeff😀"]
SCALARS = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.timestamp("us"),
]


def decimals() -> st.SearchStrategy[pa.DataType]:
    return st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda scale: pa.decimal128(precision, scale))
    )


def scalars() -> st.SearchStrategy[pa.DataType]:
    return st.sampled_from(SCALARS) | decimals()


def types() -> st.SearchStrategy[pa.DataType]:
    """Any column type, nested up to a few levels."""
    return st.recursive(scalars(), _nested, max_leaves=5)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    lists = st.builds(lambda t, null: pa.list_(pa.field("element", t, null)), inner, st.booleans())
    maps = st.builds(lambda k, v, null: pa.map_(k, pa.field("value", v, null)), scalars(), inner, st.booleans())
    names = st.sampled_from(["a", "b", "key", "value", "é", 'quo"te', "with space"])
    fields = st.lists(st.tuples(names, inner, st.booleans()), min_size=1, max_size=3, unique_by=lambda f: f[0])
    return lists | maps | fields.map(lambda given: pa.struct([pa.field(*f) for f in given]))


def cells(kind: pa.DataType, nullable: bool = True) -> st.SearchStrategy[Any]:
    """Python values of a type."""
    values = _nested_cells(kind) if pa.types.is_nested(kind) else _scalar_cells(kind)
    return st.none() | values if nullable else values


def _nested_cells(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        return st.lists(cells(kind.value_type, kind.value_field.nullable), max_size=3)
    if pa.types.is_map(kind):
        items = cells(kind.item_type, kind.item_field.nullable)
        return st.lists(st.tuples(cells(kind.key_type, False), items), max_size=3, unique_by=lambda item: repr(item[0]))
    return st.fixed_dictionaries({f.name: cells(f.type, f.nullable) for f in kind})


def _scalar_cells(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_integer(kind):
        high = 2 ** (kind.bit_width - 1)
        return st.integers(-high, high - 1) | st.sampled_from([-high, high - 1])
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if pa.types.is_string(kind):
        return st.text(max_size=10) | st.sampled_from(AWKWARD)
    if pa.types.is_binary(kind):
        return st.binary(max_size=10)
    if pa.types.is_date(kind):
        return st.dates()
    if pa.types.is_timestamp(kind):
        return st.datetimes() | st.sampled_from([FIRST, LAST])
    largest = 10**kind.precision - 1
    return st.integers(-largest, largest).map(lambda unscaled: Decimal(f"{unscaled}E-{kind.scale}"))


@st.composite
def tables(draw: st.DrawFn, kinds: bool = True) -> pa.Table:
    """A small table of random columns; with ``_kind`` if asked for."""
    names = draw(
        st.lists(st.sampled_from(["id", "k2", "Name", "ü", "x.y", '"q"', "after"]), min_size=1, max_size=4, unique=True)
    )
    fields = [pa.field(n, draw(types()), draw(st.booleans())) for n in names]
    count = draw(st.integers(0, 5))
    columns = [
        pa.array(draw(st.lists(cells(f.type, f.nullable), min_size=count, max_size=count)), f.type) for f in fields
    ]
    if kinds:
        fields.append(pa.field("_kind", pa.string(), nullable=False))
        drawn = draw(st.lists(st.sampled_from([str(k) for k in RowKind]), min_size=count, max_size=count))
        columns.append(pa.array(drawn, pa.string()))
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    begin = draw(st.integers(0, count))
    return table.slice(begin) if draw(st.booleans()) else table


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal in schema and in every value; NaN equals NaN and -0.0 differs from 0.0."""
    return left.schema == right.schema and repr(left.to_pylist()) == repr(right.to_pylist())
