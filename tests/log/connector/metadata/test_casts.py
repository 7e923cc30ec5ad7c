"""Values of metadata in the types that columns are declared with, and back (log/connector/metadata/casts.py)."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.sql import parse_type
from filestore.model.table_columns import MetadataColumn
from filestore.model.types import TIMESTAMP, TIMESTAMP_NTZ
from log.connector.metadata.binding import Bound, read_values, unreadable, written_values
from log.connector.metadata.casts import cast_between, castable_types
from log.connector.metadata.keys import MetadataKey

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)
HEADERS = pa.map_(pa.string(), pa.binary())


class Misfit(Exception):
    """What the oracle says of a value that has no place in the other type."""


def within(low: int, high: int) -> Callable[[int], int]:
    def check(value: int) -> int:
        if not low <= value <= high:
            raise Misfit
        return value

    return check


def integer(bits: int) -> Callable[[int], int]:
    return within(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimal(value: int) -> Decimal:
    return Decimal(within(-999, 999)(value))


def digits(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.removeprefix("-").isdecimal():
            raise Misfit
        return integer(bits)(int(text))

    return parse


def whole(value: Decimal) -> int:
    if value != int(value):
        raise Misfit
    return int(value)


def utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Misfit from error


def written_time(value: datetime.datetime) -> datetime.datetime:
    moment = value.replace(tzinfo=value.tzinfo or datetime.UTC)
    if moment < EPOCH:
        raise Misfit
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def written_milliseconds(value: int) -> datetime.datetime:
    return EPOCH + within(0, 253_402_300_799_999)(value) * MILLISECOND


def written_text(text: str) -> datetime.datetime:
    try:
        return written_time(datetime.datetime.fromisoformat(text).astimezone(datetime.UTC))
    except (ValueError, OverflowError) as error:
        raise Misfit from error


def midnight(value: datetime.date) -> datetime.datetime:
    return written_time(datetime.datetime.combine(value, datetime.time()))


def as_text(value: datetime.datetime) -> str:
    return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"


def values_of(convert: Callable[[Any], Any]) -> Callable[[list[tuple[str, Any]]], list[tuple[str, Any]]]:
    return lambda entries: [(k, None if v is None else convert(v)) for k, v in entries]


class Case(NamedTuple):
    key: pa.DataType
    column: pa.DataType
    keys: st.SearchStrategy[Any]
    columns: st.SearchStrategy[Any]
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def same(value: Any) -> Any:
    return value


INT, BIGINT = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-1100, 1100)
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
BYTES = TEXT.map(str.encode) | st.just(b"\xff")
# what Kafka has: whole milliseconds, none of them long ago
TIMES = st.integers(-1, 253_402_300_799_999).map(lambda ms: EPOCH + ms * MILLISECOND)
NAIVE = st.datetimes(datetime.datetime(1960, 1, 1), datetime.datetime.max)
ZONES = st.sampled_from(["", "Z", "+01:30", "-08:00"])
MOMENTS = st.builds(
    lambda moment, sep, how, zone: moment.isoformat(sep, how) + zone,
    st.datetimes(datetime.datetime(1970, 1, 3), datetime.datetime(9999, 12, 29)),
    st.sampled_from(["T", " "]),
    st.sampled_from(["milliseconds", "microseconds", "seconds", "minutes"]),
    ZONES,
)
ENTRIES = st.lists(st.tuples(TEXT, st.none() | BYTES), max_size=3)
ENTRIES_OF_TEXT = st.lists(st.tuples(TEXT, st.none() | TEXT), max_size=3)
ENTRIES_OF_INT = st.lists(st.tuples(TEXT, st.none() | INT), max_size=3)

CASES = [
    Case(pa.int32(), pa.int32(), INT, INT, same, same),
    Case(pa.int32(), pa.int64(), INT, BIGINT, same, integer(32)),
    Case(pa.int64(), pa.int32(), INT | BIGINT, INT, integer(32), same),
    Case(pa.int64(), pa.int8(), SMALL, st.integers(-128, 127), integer(8), same),
    Case(pa.int32(), pa.decimal128(5, 2), SMALL, SMALL.map(lambda n: Decimal(n) / 2), decimal, whole),
    Case(pa.int64(), pa.float64(), BIGINT, SMALL.map(float), within(-(2**53), 2**53), same),
    Case(pa.int64(), pa.string(), BIGINT, BIGINT.map(str) | TEXT, str, digits(64)),
    Case(pa.string(), pa.string(), TEXT, TEXT, same, same),
    Case(pa.string(), pa.binary(), TEXT, BYTES, str.encode, utf8),
    Case(TIMESTAMP, TIMESTAMP, TIMES, NAIVE.map(lambda t: t.replace(tzinfo=datetime.UTC)), same, written_time),
    Case(TIMESTAMP, TIMESTAMP_NTZ, TIMES, NAIVE, lambda t: t.replace(tzinfo=None), written_time),
    Case(TIMESTAMP, pa.date32(), TIMES, st.dates(datetime.date(1960, 1, 1)), datetime.datetime.date, midnight),
    Case(TIMESTAMP, pa.int64(), TIMES, BIGINT | INT, lambda t: (t - EPOCH) // MILLISECOND, written_milliseconds),
    Case(TIMESTAMP, pa.string(), TIMES, MOMENTS | st.sampled_from(["", "now", "1965-01-01"]), as_text, written_text),
    Case(HEADERS, HEADERS, ENTRIES, ENTRIES, same, same),
    Case(HEADERS, parse_type("MAP<STRING, STRING>"), ENTRIES, ENTRIES_OF_TEXT, values_of(utf8), values_of(str.encode)),
    Case(parse_type("MAP<STRING, INT>"), parse_type("MAP<STRING, BIGINT>"), ENTRIES_OF_INT, ENTRIES_OF_INT, same, same),
    Case(
        parse_type("ARRAY<STRING>"),
        parse_type("ARRAY<BINARY>"),
        st.lists(TEXT, max_size=3),
        st.lists(BYTES, max_size=3),
        lambda texts: [text.encode() for text in texts],
        lambda texts: [utf8(text) for text in texts],
    ),
]
IDS = [f"{case.key} as {case.column}" for case in CASES]


def bound(case: Case) -> Bound:
    cast = cast_between(case.key, case.column)
    assert cast is not None
    return Bound(MetadataColumn("c", case.column, "k"), MetadataKey("k", case.key, ""), cast)


def chunked(draw: st.DrawFn, values: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    """As it may come: in chunks, each of them a piece of something longer."""
    cut = draw(st.integers(0, len(values)))
    array = pa.array([*values[:1], *values, *values[:1]], kind).slice(min(1, len(values)), len(values))
    return pa.chunked_array([array[:cut], array[cut:]])


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("way", ["read", "write"])
@given(data=st.data())
def test_values_are_what_the_oracle_says(case: Case, way: str, data: st.DataObject) -> None:
    reading = way == "read"
    expected: list[Any] = []
    misfits: list[int] = []
    values = data.draw(st.lists(st.none() | (case.keys if reading else case.columns), max_size=8))
    for row, value in enumerate(values):
        try:
            expected.append(None if value is None else (case.read if reading else case.write)(value))
        except Misfit:
            misfits.append(row)
    given_kind, kind = (case.key, case.column) if reading else (case.column, case.key)
    given_values = chunked(data.draw, values, given_kind)
    convert = read_values if reading else written_values
    if reading:
        assert [row for row, _ in unreadable(given_values, bound(case))] == misfits
    if not misfits:
        result = convert(given_values, bound(case))
        result.validate(full=True)
        assert result.type == kind
        assert result.to_pylist() == expected
        return
    with pytest.raises(InvalidRequest) as caught:
        convert(given_values, bound(case))
    assert caught.value.code == "bad-value"
    assert f" in row {misfits[0]} does not fit (" in caught.value.message


@pytest.mark.parametrize("case", CASES, ids=IDS)
@given(data=st.data())
def test_what_was_read_can_be_written_again(case: Case, data: st.DataObject) -> None:
    values = pa.chunked_array([data.draw(st.lists(st.none() | case.keys, max_size=8))], case.key)
    try:
        read = read_values(values, bound(case))
    except InvalidRequest:
        return
    if case.column == pa.date32() or (case.key == TIMESTAMP and any(t and t < EPOCH for t in values.to_pylist())):
        return
    assert written_values(read, bound(case)).to_pylist() == values.to_pylist()


def test_casts_travel_to_workers() -> None:
    for case in CASES:
        again = pickle.loads(pickle.dumps(bound(case)))
        assert again == bound(case)
        assert read_values(pa.chunked_array([], case.key), again).type == case.column


NO_CAST = [
    ("TIMESTAMP", "INT", "TIMESTAMP, TIMESTAMP_NTZ, DATE, BIGINT (milliseconds since 1970) or STRING"),
    ("TIMESTAMP", "DOUBLE", "TIMESTAMP, TIMESTAMP_NTZ, DATE, BIGINT (milliseconds since 1970) or STRING"),
    ("STRING", "INT", "STRING or BINARY"),
    ("INT", "BOOLEAN", "INT, TINYINT, SMALLINT, BIGINT, DECIMAL, FLOAT, DOUBLE or STRING"),
    ("INT", "BINARY", "INT, TINYINT, SMALLINT, BIGINT, DECIMAL, FLOAT, DOUBLE or STRING"),
    ("MAP<STRING, BINARY>", "STRING", "MAP<STRING, BINARY> or MAP<STRING, STRING>"),
    ("MAP<STRING, BINARY>", "MAP<BINARY, BINARY>", "MAP<STRING, BINARY> or MAP<STRING, STRING>"),
    ("MAP<STRING, BINARY>", "MAP<STRING, INT>", "MAP<STRING, BINARY> or MAP<STRING, STRING>"),
    ("ARRAY<STRING>", "ARRAY<INT>", "ARRAY<STRING> or ARRAY<BINARY>"),
    ("BOOLEAN", "INT", "BOOLEAN"),
]


@pytest.mark.parametrize(("key", "column", "instead"), NO_CAST)
def test_all_else_has_no_cast(key: str, column: str, instead: str) -> None:
    assert cast_between(parse_type(key), parse_type(column)) is None
    assert castable_types(parse_type(key)) == instead


def test_what_is_inside_may_always_be_null() -> None:
    strict = pa.map_(pa.string(), pa.field("value", pa.binary(), nullable=False))
    assert cast_between(HEADERS, strict) is None
    assert cast_between(pa.list_(pa.string()), pa.list_(pa.field("element", pa.string(), nullable=False))) is None


def test_nobodys_values_need_not_fit() -> None:
    """Under a null there may be anything: here a header that is no UTF-8."""
    values = pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], pa.array([b"\xff", b"x"]))
    hidden = pa.Array.from_buffers(HEADERS, 2, [pa.py_buffer(b"\x02"), values.buffers()[1]], children=[values.values])
    case = next(case for case in CASES if case.column == parse_type("MAP<STRING, STRING>"))
    assert read_values(pa.chunked_array([hidden]), bound(case)).to_pylist() == [None, [("b", "x")]]


def test_times_come_in_any_unit() -> None:
    case = next(case for case in CASES if case.column == pa.int64() and case.key == TIMESTAMP)
    milliseconds = pa.chunked_array([pa.array([1, None, -1], pa.timestamp("ms", "UTC"))])
    assert read_values(milliseconds, bound(case)).to_pylist() == [1, None, -1]
    far = pa.chunked_array([pa.array([2**62], pa.timestamp("ms", "UTC"))])
    with pytest.raises(InvalidRequest, match="in row 0 does not fit"):
        read_values(far, bound(case))
