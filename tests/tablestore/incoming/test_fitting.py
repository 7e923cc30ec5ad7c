"""A column keeps its values, in whatever layout and nesting Arrow has them."""

from __future__ import annotations

import re
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from tablestore.incoming.fitting import fit
from tests.filestore.arrays import KEY_TYPES, data_types, key_values, values
from tests.tablestore.incoming.odd_layouts import loose, odd_array, odd_column
from tests.warehouses import warehouse


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any], list[pa.Array]]:
    """A type of a table, values of it, and these in chunks of any layouts."""
    kind = loose(draw(data_types()))
    rows = draw(st.lists(values(kind), max_size=6))
    return kind, rows, odd_column(rows, kind, Random(draw(st.integers(0, 2**32))))


@given(columns())
def test_any_layout_of_values_becomes_the_tables_with_the_same_values(
    column: tuple[pa.DataType, list[Any], list[pa.Array]],
) -> None:
    kind, rows, chunks = column
    found = []
    for chunk in chunks:
        fitted = fit(pa.chunked_array([chunk]), pa.field("v", kind))
        fitted.validate(full=True)
        assert fitted.type == kind
        found += fitted.to_pylist()
    assert repr(found) == repr(pa.array(rows, kind).to_pylist())


@pytest.mark.slow
@settings(max_examples=10)
@given(columns(), st.sampled_from(KEY_TYPES), st.data())
def test_a_table_stores_and_finds_rows_of_any_layout(
    column: tuple[pa.DataType, list[Any], list[pa.Array]], key: pa.DataType, data: st.DataObject
) -> None:
    kind, rows, _ = column
    keys = data.draw(st.lists(key_values(key), min_size=len(rows), max_size=len(rows), unique_by=repr))
    random = Random(data.draw(st.integers(0, 2**32)))
    schema = pa.schema([pa.field("k", key, nullable=False), pa.field("v", kind)])
    wanted = sorted(map(repr, pa.table([pa.array(keys, key), pa.array(rows, kind)], ["k", "v"]).to_pylist()))
    with warehouse() as store:
        table = store.create_table("shop.odd", schema, primary_key=["k"], options={"bucket": "2"})
        table.write(pa.table([odd_array(keys, key, random, key=True), odd_array(rows, kind, random)], ["k", "v"]))
        assert sorted(map(repr, table.scan().to_pylist())) == wanted
        found = table.get(pa.table([odd_array(keys, key, random, key=True)], ["k"]))
        assert sorted(map(repr, found.to_pylist())) == wanted


OTHERS = (
    pa.duration("us"),
    pa.time32("s"),
    pa.time64("ns"),
    pa.month_day_nano_interval(),
    pa.decimal256(50, 3),
    pa.binary(4),
    pa.float16(),
    pa.uint64(),
    pa.null(),
)


@st.composite
def strangers(draw: st.DrawFn) -> tuple[list[pa.Array], pa.DataType]:
    """Chunks of one type, and another type of a table."""
    wanted = loose(draw(data_types()))
    if draw(st.booleans()):
        empty = pa.array([None, None], draw(st.sampled_from(OTHERS)))
        numbers = pa.array([0, 5], pa.int64())
        given_values = (
            [numbers.cast(empty.type)] if pa.types.is_temporal(empty.type) and empty.type.bit_width == 64 else []
        )
        return [empty, *given_values, pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), empty)], wanted
    kind, rows, chunks = draw(columns())
    return [pa.array(rows, kind), *chunks], wanted


@given(strangers())
def test_what_does_not_fit_is_refused_by_name_and_the_rest_is_whole(
    given_chunks: tuple[list[pa.Array], pa.DataType],
) -> None:
    chunks, wanted = given_chunks
    for chunk in chunks:
        try:
            found = fit(pa.chunked_array([chunk]), pa.field("price", wanted))
        except InvalidRequest as error:
            assert "price" in error.message
            continue
        found.validate(full=True)
        assert found.type == wanted
        assert len(found) == len(chunk)


def fitted(values: pa.Array, kind: pa.DataType) -> list[Any]:
    found: list[Any] = fit(pa.chunked_array([values]), pa.field("v", kind)).to_pylist()
    return found


def refused(values: pa.Array, kind: pa.DataType) -> str:
    with pytest.raises(InvalidRequest, match="v") as caught:
        fit(pa.chunked_array([values]), pa.field("v", kind))
    return caught.value.code


@pytest.mark.parametrize("kind", [pa.list_view(pa.int64()), pa.large_list_view(pa.int64())], ids=str)
def test_list_views_keep_their_elements(kind: pa.DataType) -> None:
    rows = [[1, 2], None, [], [3]]
    assert fitted(pa.array(rows, kind), pa.list_(pa.int64())) == rows
    deep = pa.array([{"tags": [rows]}], pa.struct({"tags": pa.list_view(pa.list_(kind))}))
    assert fitted(deep, pa.struct({"tags": pa.list_(pa.list_(pa.list_(pa.int64())))})) == [{"tags": [rows]}]


def test_an_array_whose_offsets_point_nowhere_is_refused() -> None:
    views = pa.LargeListViewArray.from_arrays(pa.array([2], pa.int64()), pa.array([9], pa.int64()), pa.array([1, 2]))
    lists = pa.ListArray.from_arrays(pa.array([0, 9, 1], pa.int32()), pa.array([1]))
    words = pa.DictionaryArray.from_arrays(pa.array([7], pa.int32()), pa.array(["a"]), safe=False)
    assert refused(views, pa.list_(pa.int64())) == "bad-value"
    assert refused(lists, pa.list_(pa.int64())) == "bad-value"
    assert refused(words, pa.string()) == "bad-value"


def test_unions_are_refused_at_any_depth() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    below = pa.StructArray.from_arrays([union], names=["a"], mask=pa.array([False, True]))
    assert refused(union, pa.int64()) == "bad-value"
    assert refused(below, pa.struct({"a": pa.int64()})) == "bad-value"


def test_what_a_cast_would_cut_is_refused_at_any_depth() -> None:
    assert refused(pa.array([[1.25]]), pa.list_(pa.decimal128(9, 1))) == "bad-value"
    assert refused(pa.array([{"a": 7}]), pa.struct({"a": pa.bool_()})) == "bad-value"
    assert refused(pa.array([[1]], pa.list_(pa.timestamp("s"))), pa.list_(pa.date32())) == "bad-value"


def test_numbers_are_neither_moments_nor_infinite_nor_other_decimals() -> None:
    """Seconds since 1970 became a moment in 1970, 1e999 an infinity, and 0.1 had the digits of its float."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()):
        for number in (pa.int32(), pa.int64()):
            assert refused(pa.array([1_700_000_000], number), kind) == "bad-value"
            assert refused(pa.array([None], kind), number) == "bad-value"
    assert refused(pa.array(["1e999"]), pa.float64()) == "bad-value"
    assert refused(pa.array(["3.5e38"]), pa.float32()) == "bad-value"
    assert fitted(pa.array(["-inf", "1e308"]), pa.float64()) == [float("-inf"), 1e308]
    for floats in (pa.float32(), pa.float64()):
        assert fitted(pa.array([0.1], floats), pa.decimal128(38, 18)) == [Decimal("0.1")]
    assert fitted(pa.array([1e30]), pa.decimal128(38, 0)) == [Decimal(10) ** 30]
    assert refused(pa.array([float("nan")]), pa.decimal128(38, 0)) == "bad-value"
    assert refused(pa.array([1.25]), pa.decimal128(9, 1)) == "bad-value"


def test_what_is_below_a_null_is_ignored() -> None:
    wide = pa.array([2**40, 1])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), wide, mask=pa.array([True, False]))
    structs = pa.StructArray.from_arrays([wide], names=["a"], mask=pa.array([True, False]))
    assert fitted(lists, pa.list_(pa.int32())) == [None, [1]]
    assert fitted(structs, pa.struct({"a": pa.int32()})) == [None, {"a": 1}]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int64(), pa.uint64()], ids=str)
def test_integers_fit_decimals_that_hold_them(kind: pa.DataType) -> None:
    assert [str(value) for value in fitted(pa.array([5, 99], kind), pa.decimal128(4, 2))] == ["5.00", "99.00"]
    assert refused(pa.array([100], kind), pa.decimal128(4, 2)) == "bad-value"


def test_the_widest_integers_fit_the_widest_decimals() -> None:
    assert fitted(pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0)) == [2**64 - 1]
    assert fitted(pa.array([-(2**63)], pa.int64()), pa.decimal128(38, 19)) == [-(2**63)]
    assert refused(pa.array([1], pa.int64()), pa.decimal128(38, 38)) == "bad-value"


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_a_decimal_becomes_the_nearest_floating_number(kind: pa.DataType) -> None:
    """Arrow's own cast gives 417.90000000000003 for 417.9, and so for one in ten."""
    dice = Random(20261128)
    for scale in (0, 1, 2, 6, 18):
        texts = ["417.9"[: 3 + 2 * (scale > 0)], *(f"{dice.randrange(-(10**9), 10**9)}e-{scale}" for _ in range(200))]
        found = fitted(pa.array([Decimal(text) for text in texts], pa.decimal128(38, scale)), kind)
        assert found == pa.array([float(text) for text in texts], pa.float64()).cast(kind).to_pylist()
    assert refused(pa.array([Decimal(10**45)], pa.decimal256(50, 0)), pa.float32()) == "bad-value"


def test_texts_that_an_error_advises_fit() -> None:
    """Found by a stranger: a time without its zone was refused with the advice to write it as it was."""
    for zone, text in (("UTC", "2026-01-31 12:00:00Z"), (None, "2026-01-31 12:00:00")):
        kind = pa.timestamp("us", zone)
        assert str(fitted(pa.array([text]), kind)[0]).startswith("2026-01-31 12:00:00")


def test_a_value_that_does_not_fit_is_named_with_its_row_and_the_types_of_sql() -> None:
    """Found by a stranger: "column 'n' is large_string and does not fit int8: Failed to parse string", and no row."""
    texts = pa.chunked_array([["1", "2"], [], ["3", "x" * 200, "5"]])
    cases = {
        pa.int8(): (texts, "column 'c' is TINYINT, and 'xx", "in row 3 (the first is 0) does not fit: correct it"),
        pa.date32(): (texts, "column 'c' is DATE, and '1' in row 0", "write it as 2026-01-31"),
        pa.timestamp("us", "UTC"): (
            pa.chunked_array([["2026-01-31 12:00:00"]]),
            "column 'c' is TIMESTAMP, and '2026",
            "write it as 2026-01-31 12:00:00Z, with",
        ),
        pa.timestamp("us"): (
            pa.chunked_array([["2026-01-31 12:00:00Z"]]),
            "column 'c' is TIMESTAMP_NTZ, and '2026",
            "write it as 2026-01-31 12:00:00, without",
        ),
        pa.int16(): (
            pa.chunked_array([[1], [2, 70_000]]),
            "column 'c' is SMALLINT, and 70000 in row 2 ",
            "does not fit",
        ),
        pa.list_(pa.field("element", pa.int8())): (
            pa.chunked_array([[[1], None, [2, 300]]]),
            "column 'c' is ARRAY<TINYINT>, and [2, 300] in row 2 ",
            "does not fit",
        ),
        pa.decimal128(4, 2): (pa.chunked_array([[1.25, 1.125]]), "DECIMAL(4,2), and 1.125 in row 1 ", "does not fit"),
        pa.map_(pa.string(), pa.int8()): (
            texts,
            "column 'c' is MAP<STRING, TINYINT>, and the rows have STRING",
            "a map",
        ),
        pa.date64(): (pa.chunked_array([[True]]), "and the rows have BOOLEAN", "cast it"),
    }
    for wanted, (column, *expected) in cases.items():
        with pytest.raises(InvalidRequest) as caught:
            fit(column, pa.field("c", pa.date32() if wanted == pa.date64() else wanted))
        assert caught.value.code == "bad-value"
        assert all(words in caught.value.message for words in expected), caught.value.message
        assert not re.search(r"int8|int16|large_string|date32|decimal128|Failed to parse", caught.value.message)
