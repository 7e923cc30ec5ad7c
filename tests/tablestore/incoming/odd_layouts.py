"""The same values in every layout of Arrow: encodings, views, slices, arbitrary values below nulls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa

__all__ = ["loose", "odd_array", "odd_column"]


def loose(kind: pa.DataType) -> pa.DataType:
    """The type with everything in it nullable."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", loose(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", loose(kind.item_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, loose(field.type)) for field in kind])
    return kind


def odd_column(values: list[Any], kind: pa.DataType, random: Random) -> list[pa.Array]:
    """The values in chunks, each in a layout of the same type or of its own."""
    cuts = sorted(random.randint(0, len(values)) for _ in range(random.randint(0, 2)))
    edges = itertools.pairwise([0, *cuts, len(values)])
    return [odd_array(values[start:end], kind, random) for start, end in edges]


def odd_array(values: list[Any], kind: pa.DataType, random: Random, *, key: bool = False) -> pa.Array:
    """The values in a layout that is drawn at each level."""
    way = random.choice([_plain, _plain, _sliced, _dictionary, _runs])
    if not key and random.random() < 0.05 and all(value is None for value in values):
        return pa.nulls(len(values))
    return way(values, kind, random)


def _plain(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    if pa.types.is_list(kind):
        return random.choice([_list, _large_list, _list_view, _large_list_view, _fixed])(values, kind, random)
    if pa.types.is_map(kind):
        return _map(values, kind, random)
    if pa.types.is_struct(kind):
        return _struct(values, kind, random)
    return _leaf(values, kind, random)


def _sliced(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    before, after = (random.choices([*values, None], k=random.randint(0, 3)) for _ in range(2))
    if None not in values:
        before, after = ([value for value in part if value is not None] for part in (before, after))
    return _plain([*before, *values, *after], kind, random).slice(len(before), len(values))


def _dictionary(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    places = random.sample(range(len(values)), len(values))
    distinct = [*(values[place] for place in places), *values[:1]]
    index: list[int | None] = [places.index(row) for row in range(len(values))]
    index = [None if values[row] is None and random.random() < 0.5 else at for row, at in enumerate(index)]
    numbers = pa.array(index, random.choice([pa.int8(), pa.uint16(), pa.int64()]))
    return pa.DictionaryArray.from_arrays(numbers, _plain(distinct, kind, random))


def _runs(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    ends = [at + 1 for at in range(len(values)) if at + 1 == len(values) or repr(values[at]) != repr(values[at + 1])]
    runs = _plain([values[end - 1] for end in ends], kind, random)
    encoded = pa.RunEndEncodedArray.from_arrays(pa.array(ends, random.choice([pa.int16(), pa.int64()])), runs)
    return encoded


def _elements(values: list[Any], random: Random) -> tuple[list[int], list[Any], pa.Array]:
    """How many elements each row has below it, all of them, and which rows are null: rubbish is below some of those."""
    rubbish = [element for value in values if value for element in value]
    below = [random.choices(rubbish, k=random.randint(0, 2) if rubbish else 0) if v is None else v for v in values]
    return (
        [len(row) for row in below],
        [e for row in below for e in row],
        pa.array([v is None for v in values], pa.bool_()),
    )


def _list(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    counts, elements, nulls = _elements(values, random)
    offsets = pa.array([0, *itertools.accumulate(counts)], pa.int32())
    return pa.ListArray.from_arrays(offsets, odd_array(elements, kind.value_type, random), mask=nulls)


def _large_list(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    counts, elements, nulls = _elements(values, random)
    offsets = pa.array([0, *itertools.accumulate(counts)], pa.int64())
    return pa.LargeListArray.from_arrays(offsets, odd_array(elements, kind.value_type, random), mask=nulls)


def _viewed(values: list[Any], kind: pa.DataType, random: Random) -> tuple[list[int], list[int], pa.Array, pa.Array]:
    """Rows in another order than their elements, with a gap, and with rows that share theirs."""
    starts, elements = [0] * len(values), [element for value in values[:1] for element in value or ()]
    for row in random.sample(range(len(values)), len(values)):
        starts[row] = len(elements) if row or random.random() < 0.5 else 0
        elements.extend(values[row] or () if starts[row] == len(elements) else ())
    counts = [len(value or ()) for value in values]
    return (
        starts,
        counts,
        odd_array(elements, kind.value_type, random),
        pa.array([v is None for v in values], pa.bool_()),
    )


def _list_view(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    starts, counts, elements, nulls = _viewed(values, kind, random)
    return pa.ListViewArray.from_arrays(
        pa.array(starts, pa.int32()), pa.array(counts, pa.int32()), elements, mask=nulls
    )


def _large_list_view(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    starts, counts, elements, nulls = _viewed(values, kind, random)
    return pa.LargeListViewArray.from_arrays(
        pa.array(starts, pa.int64()), pa.array(counts, pa.int64()), elements, mask=nulls
    )


def _fixed(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    sizes = {len(value) for value in values if value is not None}
    if len(sizes) != 1 or sizes == {0}:
        return _large_list_view(values, kind, random)
    (size,) = sizes
    rubbish = next(value for value in values if value is not None)
    elements = [element for value in values for element in (rubbish if value is None else value)]
    nulls = pa.array([value is None for value in values], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(odd_array(elements, kind.value_type, random), size, mask=nulls)


def _map(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    counts, entries, nulls = _elements(values, random)
    offsets = pa.array([0, *itertools.accumulate(counts)], pa.int32())
    keys = odd_array([key for key, _ in entries], kind.key_type, random, key=True)
    return pa.MapArray.from_arrays(
        offsets, keys, odd_array([value for _, value in entries], kind.item_type, random), mask=nulls
    )


def _struct(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    fields = random.sample(list(kind), kind.num_fields)
    children = []
    for field in fields:
        rubbish = [value[field.name] for value in values if value is not None] or [None]
        below = [random.choice(rubbish) if value is None else value[field.name] for value in values]
        children.append(odd_array(below, field.type, random))
    nulls = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, names=[field.name for field in fields], mask=nulls)


def _leaf(values: list[Any], kind: pa.DataType, random: Random) -> pa.Array:
    plain = pa.array(values, kind)
    for make in random.sample(_MAKERS, len(_MAKERS)):
        try:
            found = make(plain)
        except pa.ArrowException:
            continue
        if found is not None:
            return found
    return plain


def _cast_to(wanted: pa.DataType, *, of: Callable[[pa.DataType], bool]) -> Callable[[pa.Array], pa.Array | None]:
    def make(plain: pa.Array) -> pa.Array | None:
        if not of(plain.type):
            return None
        other = plain.cast(wanted)
        return other if repr(other.cast(plain.type).to_pylist()) == repr(plain.to_pylist()) else None

    return make


def _fixed_binary(plain: pa.Array) -> pa.Array | None:
    if not pa.types.is_binary(plain.type):
        return None
    sizes = {len(value) for value in plain.to_pylist() if value is not None}
    return plain.cast(pa.binary(sizes.pop())) if len(sizes) == 1 and sizes != {0} else None


def _uuid(plain: pa.Array) -> pa.Array | None:
    fixed = _fixed_binary(plain)
    return None if fixed is None or fixed.type.byte_width != 16 else pa.ExtensionArray.from_storage(pa.uuid(), fixed)


def _json(plain: pa.Array) -> pa.Array | None:
    return pa.ExtensionArray.from_storage(pa.json_(), plain) if pa.types.is_string(plain.type) else None


def _bool8(plain: pa.Array) -> pa.Array | None:
    if not pa.types.is_boolean(plain.type):
        return None
    numbers = [None if value is None else 3 * value for value in plain.to_pylist()]
    return pa.ExtensionArray.from_storage(pa.bool8(), pa.array(numbers, pa.int8()))


_INTEGERS = [pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_DECIMALS = [pa.decimal32(9, 2), pa.decimal64(18, 4), pa.decimal128(30, 3), pa.decimal256(70, 12)]
_MAKERS: list[Callable[[pa.Array], pa.Array | None]] = [
    _fixed_binary,
    _uuid,
    _json,
    _bool8,
    *(_cast_to(kind, of=pa.types.is_integer) for kind in _INTEGERS),
    *(_cast_to(kind, of=pa.types.is_decimal) for kind in (*_DECIMALS, pa.int64())),
    *(_cast_to(kind, of=pa.types.is_string) for kind in (pa.large_string(), pa.string_view())),
    *(_cast_to(kind, of=pa.types.is_binary) for kind in (pa.large_binary(), pa.binary_view())),
    *(_cast_to(kind, of=pa.types.is_floating) for kind in (pa.float16(), pa.float64())),
    _cast_to(pa.date64(), of=pa.types.is_date),
    *(
        _cast_to(
            pa.timestamp(unit, zone),
            of=lambda kind, zone=zone: pa.types.is_timestamp(kind) and bool(kind.tz) == bool(zone),
        )
        for unit in ("s", "ms", "ns")
        for zone in (None, "Asia/Tokyo")
    ),
]
