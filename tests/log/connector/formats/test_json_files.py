"""Files of JSON are read by the reader of topics, in one pass and as they would be document by document."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.connector.formats.json import documents, files
from log.connector.formats.json.files import named_members, read_file, rows_of
from log.connector.formats.json.tokens import quotes_in
from log.connector.formats.json.values import Rules, load
from log.json_rows import encode_rows
from tests.log.schemas import same, tables

EXACT = Rules(unknown=False, entries=True, days=False, zones=False)
UTC = pa.timestamp("us", "UTC")


def one(kind: pa.DataType, text: str) -> Any:
    return read_file(f'{{"v":{text}}}'.encode(), pa.schema([("v", kind)]), EXACT)["v"][0].as_py()


@given(tables(kinds=False), st.sampled_from(["\n", "\r\n", "\n\n \n"]), st.booleans())
def test_rows_as_they_are_printed_are_read_in_one_pass(rows: pa.Table, end: str, array: bool) -> None:
    texts = encode_rows(rows).to_list()
    file = "[" + ("," + end).join(texts) + "]" if array else end.join([*texts, ""])
    with mock.patch.object(documents._Found, "read", side_effect=AssertionError("one by one")):
        if texts or array:
            found = read_file(file.encode(), rows.schema, EXACT)
            found.validate(full=True)
            assert same(pa.Table.from_arrays(found.columns, schema=rows.schema), rows)


TEXTS = st.text(st.sampled_from('a"\\[]{},: \n'), max_size=4)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(["s", "n"]), ANY, max_size=2)


BLOCKS = st.sampled_from([1, 2, 3, 10, files._BLOCK])
"""Sizes of the blocks in which a file is read: elements and strings begin in one and end in another."""


@given(st.lists(OBJECTS, max_size=5), st.sampled_from([None, 1]), st.sampled_from([(",", ":"), (" , ", " : ")]), BLOCKS)
def test_arrays_are_cut_into_their_elements(
    rows: list[Any], indent: int | None, separators: tuple[str, str], block: int
) -> None:
    file = json.dumps(rows, indent=indent, separators=separators)
    schema = pa.schema([("s", pa.string()), ("n", pa.string())])
    with mock.patch.object(files, "_BLOCK", block):
        found = read_file(file.encode(), schema, EXACT).to_pylist()
    assert found == read_file("\n".join(["{}", *map(json.dumps, rows)]).encode(), schema, EXACT).to_pylist()[1:]


def test_the_rows_of_an_array_come_while_it_is_read() -> None:
    file = io.BytesIO(json.dumps([{"v": value} for value in range(1000)]).encode())
    with mock.patch.object(files, "_BLOCK", 100):
        parts = rows_of(lambda: file, pa.schema([("v", pa.int64())]), EXACT)
        assert next(parts)["v"].to_pylist()[:3] == [0, 1, 2]
        assert file.tell() == 200
        assert [value for part in parts for value in part["v"].to_pylist()][-1] == 999


@given(st.lists(OBJECTS, min_size=1, max_size=3), BLOCKS, st.data())
def test_damage_is_found(rows: list[Any], block: int, data: st.DataObject) -> None:
    """What is no JSON for Python is none here, and otherwise it has the same rows."""
    file = json.dumps(rows)
    at = data.draw(st.integers(0, len(file) - 1))
    file = (
        file[:at]
        + data.draw(st.sampled_from(["", ",", '"', "[", "]", "}", "{", " ", "\\", "1", "\n"]))
        + file[at + 1 :]
    )
    schema = pa.schema([("s", pa.string()), ("n", pa.string())])
    try:
        wanted = load(file.strip().encode())
        good = isinstance(wanted, list) and all(isinstance(row, dict) and row.keys() <= {"s", "n"} for row in wanted)
    except ValueError:
        good = False
    if not good:
        with (
            mock.patch.object(files, "_BLOCK", block),
            pytest.raises(ValueError, match=r"^(element|line|the array|it is empty)"),
        ):
            read_file(file.encode(), schema, EXACT)
    else:
        lines = [json.dumps(row) for row in json.loads(file)]
        with mock.patch.object(files, "_BLOCK", block):
            assert read_file(file.encode(), schema, EXACT).num_rows == len(lines)


@given(st.lists(st.sampled_from(list(b'"\\a')), max_size=12).map(bytes))
def test_quotes_behind_an_odd_number_of_backslashes_are_parts_of_strings(data: bytes) -> None:
    slow, run = [], 0
    for place, byte in enumerate(data):
        if byte == ord('"') and run % 2 == 0:
            slow.append(place)
        run = run + 1 if byte == ord("\\") else 0
    assert quotes_in(np.frombuffer(data, np.uint8)).tolist() == slow


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.decimal128(38, 18), "0.1", Decimal("0.1")),
        (pa.decimal128(38, 0), "99999999999999999999999999999999999999", Decimal(10**38 - 1)),
        (pa.decimal128(20, 0), str(2**64 - 1), Decimal(2**64 - 1)),
        (pa.int64(), "9007199254740993", 9007199254740993),
        (pa.string(), "1.10", "1.10"),
        (pa.float64(), '"-Infinity"', float("-inf")),
        (UTC, '"2020-01-02T03:04:05+02:00"', dt.datetime(2020, 1, 2, 1, 4, 5, tzinfo=dt.UTC)),
        (pa.map_(pa.string(), pa.int8()), '{"a":1}', [("a", 1)]),
        (pa.map_(pa.int8(), pa.int8()), '[{"key":1,"value":2}]', [(1, 2)]),
    ],
)
def test_values_are_exact(kind: pa.DataType, text: str, value: Any) -> None:
    assert one(kind, text) == value


def test_the_last_of_two_equal_members_counts() -> None:
    assert one(pa.int64(), '1,"v":2') == 2


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (pa.int64(), "9223372036854775808", "v: 9223372036854775808 is no BIGINT"),
        (pa.decimal128(5, 2), "12.345", r"v: 12.345 is no DECIMAL\(5,2\): it would be rounded"),
        (pa.float32(), "1e39", "v: 1e39 is no FLOAT"),
        (pa.float64(), '"1e999"', 'v: "1e999" is no DOUBLE'),
        (UTC, "1700000000", "v: 1700000000 is no TIMESTAMP: what a number counts is not known"),
        (pa.timestamp("us"), '"1712010112345"', 'v: "1712010112345" is no TIMESTAMP_NTZ'),
        (pa.date32(), "2020", "v: 2020 is no DATE: what a number counts is not known"),
        (UTC, '"2020-01-02 03:04:05"', "is no TIMESTAMP: write it as 2026-01-31 12:00:00Z, with its time zone"),
        (pa.timestamp("us"), '"2020-01-02 03:04:05Z"', "is no TIMESTAMP_NTZ: write it as 2026-01-31 12:00:00, without"),
        (pa.int8(), '1,"w":2', "there is no column 'w'; the columns are v"),
        (pa.struct([("a", pa.int8())]), '{"a":1,"b":2}', "v: there is no field 'b'; the fields are a"),
        (pa.map_(pa.int8(), pa.int8()), '{"1":2}', r'v: {"1":2} is no MAP<TINYINT, TINYINT>'),
        (pa.map_(pa.int8(), pa.int8()), '[{"value":2}]', "a key is null"),
        (pa.binary(), '"no base64"', "is no BINARY"),
    ],
)
def test_what_does_not_fit_is_refused(kind: pa.DataType, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^line 1: .*{reason}"):
        one(kind, text)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b" \n", "it is empty"),
        (b'\n\n{"v":1}\n{"v":2,\n', "line 4: not JSON: Expecting property name"),
        (b'{"v":1}\n\n7', "line 3: not a JSON object but 7"),
        (b"[1, 2]", "the array: not a JSON object but 1"),
        (b'[{"v":1},\n{"v":"x"}]', 'element 2: v: "x" is no BIGINT'),
        (b'[{"v":1}', "the array: not JSON"),
        (b'[{"v":1}] {}', "the array: not JSON: Extra data at character 10"),
        (b'{"v":\xff}', "line 1: not UTF-8"),
    ],
)
def test_an_error_says_where(file: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        read_file(file, pa.schema([("v", pa.int64())]), EXACT)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b'[{"v":1},{"v":2},{"v":"x"}]', 'element 3: v: "x" is no BIGINT'),
        (b'[{"v":1},{"v":2},]', "the array from element 3 on: not JSON: there is no element beside a comma"),
        (b'[{"v":1},{"v":2}, 7, {"v":3}]', "the array from element 2 on: not a JSON object but 7"),
        (b'[{"v":1},{"v":2}] {}', "the array from element 2 on: not JSON: Extra data"),
        (b'[,{"v":1}]', "the array: not JSON"),
        (b'[{"v":1},,{"v":2}]', "the array: not JSON: Expecting value at character 9"),
        (b'[{"v":1} ,\n  ,{"v":2}]', "the array from element 2 on: not JSON: there is no element beside a comma"),
        (b'[{"v":1},{"v":2}', "the array from element 2 on: not JSON"),
    ],
)
def test_an_error_in_a_later_part_of_an_array_says_where(file: bytes, reason: str) -> None:
    with mock.patch.object(files, "_BLOCK", 5), pytest.raises(ValueError, match=f"^{reason}"):
        read_file(file, pa.schema([("v", pa.int64())]), EXACT)


def test_a_byte_order_mark_is_none_of_the_text() -> None:
    assert read_file(b'\xef\xbb\xbf{"v":1}', pa.schema([("v", pa.int64())]), EXACT)["v"].to_pylist() == [1]


NAMES = st.text(st.sampled_from('k"\\/,: \nü😀'), max_size=2).map(lambda text: f"k{text}")
"""No name looks like what is between two strings."""
NESTED = st.recursive(NAMES | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner))


def names_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(names_in, value.values()))
    return set().union(*map(names_in, value)) if isinstance(value, list) else set()


@given(
    st.lists(st.dictionaries(NAMES, NESTED, min_size=1, max_size=3), min_size=1, max_size=4),
    st.sets(NAMES, max_size=4),
    st.sampled_from([(",", ":"), (" , ", " : ")]),
    st.booleans(),
    st.integers(1, 40),
)
def test_names_of_members_are_found_however_they_are_spelled_and_texts_of_values_are_none(
    rows: list[Any], names: set[str], separators: tuple[str, str], ascii_only: bool, block: int
) -> None:
    file = "\n".join(json.dumps(row, separators=separators, ensure_ascii=ascii_only) for row in rows)
    file = file.replace("/", "\\/")
    with mock.patch.object(files, "_BLOCK", block):
        assert named_members(lambda: io.BytesIO(file.encode()), names) == names & names_in(rows)
