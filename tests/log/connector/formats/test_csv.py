"""``csv``: against the csv module, with every option, and broken in every place."""

from __future__ import annotations

import csv
import datetime as dt
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from log.connector.formats.csv import check_csv_type
from tests.log.connector.formats.rows import holdable, opened, plain

TEXTS = st.none() | st.text(alphabet='a,;"\\|\n\r# é\t', max_size=6)


def texts(rows: list[tuple[str | None, ...]], width: int = 2) -> pa.Table:
    return pa.table({f"c{i}": pa.array([r[i] for r in rows], pa.string()) for i in range(width)})


@given(holdable(check_csv_type, nullable=False, nested=False))
def test_rows_survive(rows: pa.Table) -> None:
    format_ = opened("csv", rows.schema)
    found = format_.decode(format_.encode(rows))
    found.rows.validate(full=True)
    assert found.malformed == ()
    assert plain(found.rows) == plain(rows)


@given(
    st.lists(st.tuples(TEXTS, TEXTS), max_size=5),
    st.sampled_from([",", "|", "\\t", ";"]),
    st.sampled_from(['"', "'"]),
    st.sampled_from([None, "\\"]),
    st.sampled_from([None, "NULL", "a"]),
    st.booleans(),
)
def test_texts_survive_every_dialect(
    rows: list[tuple[str | None, str | None]],
    delimiter: str,
    quote: str,
    escape: str | None,
    null: str | None,
    hash_: bool,
) -> None:
    options = {"field_delimiter": delimiter, "quote_character": quote, "allow_comments": str(hash_)}
    options |= {"escape_character": escape} if escape else {}
    options |= {"null_literal": null} if null else {}
    table = texts(rows)
    format_ = opened("csv", table.schema, **options)
    messages = format_.encode(table)
    found = format_.decode(messages)
    assert found.malformed == ()
    assert found.rows.to_pylist() == table.to_pylist()
    if escape is None:
        mark = "\t" if delimiter == "\\t" else delimiter
        for message, row in zip(messages, rows, strict=True):
            line = io.StringIO((message or b"").decode(), newline="")
            assert list(csv.reader(line, delimiter=mark, quotechar=quote)) == [
                [c if c is not None else null or "" for c in row]
            ]


def test_a_lines_end_is_dropped_where_it_is_no_text() -> None:
    lines = [b"1,a\n", b"2,a\r\n", b"3,\\\n", b"4,\n", b'5,"a\n"', b"6,a\n\n", b"7,a\nb"]
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    found = opened("csv", schema, escape_character="\\").decode(lines)
    assert [tuple(row.values()) for row in found.rows.to_pylist()] == [
        (1, "a"),
        (2, "a"),
        (3, "\n"),
        (4, None),
        (5, "a\n"),
    ]
    assert [one.index for one in found.malformed] == [5, 6]


@given(
    st.lists(st.tuples(TEXTS, TEXTS), max_size=5),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["", "\n", "\r\n"]),
)
def test_what_the_csv_module_writes_is_read(rows: list[tuple[str | None, str | None]], quoting: Any, end: str) -> None:
    messages = []
    for row in rows:
        line = io.StringIO(newline="")
        csv.writer(line, quoting=quoting, lineterminator=end).writerow([c or "" for c in row])
        messages.append(line.getvalue().encode())
    found = opened("csv", texts([]).schema).decode([*messages])
    assert found.malformed == ()
    assert found.rows.to_pylist() == [{"c0": a or "", "c1": b or ""} for a, b in rows]


def test_values_are_spelled_as_flink_spells_them() -> None:
    row = {
        "id": 1,
        "price": Decimal("12.50"),
        "at": dt.datetime(2020, 12, 30, 12, 13, 14, 123000, dt.UTC),
        "data": b"\x00\xff",
        "tags": ["x", "y"],
        "pair": {"a": 1, "b": "z"},
        "none": None,
        "empty": "",
    }
    schema = pa.schema(
        [
            ("id", pa.int8()),
            ("price", pa.decimal128(5, 2)),
            ("at", pa.timestamp("us", tz="UTC")),
            ("data", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("pair", pa.struct([("a", pa.int8()), ("b", pa.string())])),
            ("none", pa.string()),
            ("empty", pa.string()),
        ]
    )
    rows = pa.Table.from_pylist([row], schema=schema)
    (message,) = opened("csv", schema).encode(rows)
    assert message == b'1,12.50,2020-12-30 12:13:14.123000Z,AP8=,x;y,1;z,,""'
    assert opened("csv", schema).decode([message]).rows.to_pylist() == [row]
    other = opened("csv", schema, array_element_delimiter="|", null_literal="n/a")
    assert other.encode(rows) == [b"1,12.50,2020-12-30 12:13:14.123000Z,AP8=,x|y,1|z,n/a,"]
    assert other.decode(other.encode(rows)).rows.to_pylist() == [row]


@given(
    st.lists(st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3), max_size=5),
    st.lists(st.none() | st.tuples(st.none() | st.booleans(), st.none() | st.integers(0, 9)), min_size=5, max_size=5),
)
def test_arrays_and_structs_survive(lists: list[Any], structs: list[Any]) -> None:
    pair = pa.struct([("a", pa.bool_()), ("b", pa.int8())])
    rows = pa.table(
        {
            "l": pa.array(lists, pa.list_(pa.int8())),
            "s": pa.array([None if s is None else {"a": s[0], "b": s[1]} for s in structs[: len(lists)]], pair),
        }
    )
    format_ = opened("csv", rows.schema, null_literal="-")
    found = format_.decode(format_.encode(rows))
    assert found.malformed == ()
    assert found.rows.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.list_(pa.string()), ["a;b"]), (pa.list_(pa.string()), [""]), (pa.list_(pa.int8()), [None])],
)
def test_elements_that_read_as_others_are_refused(kind: pa.DataType, value: Any) -> None:
    rows = pa.table({"v": pa.array([value], kind)})
    with pytest.raises(InvalidRequest, match="column 'v'") as caught:
        opened("csv", rows.schema).encode(rows)
    assert caught.value.code == "format-value"


def test_without_quotes() -> None:
    bare = opened("csv", texts([]).schema, disable_quote_character="true")
    assert bare.encode(texts([('a"b', "c")])) == [b'a"b,c']
    assert bare.decode([b'a"b,"c"']).rows.to_pylist() == [{"c0": 'a"b', "c1": '"c"'}]
    for value in ("a,b", "a\nb", ""):
        with pytest.raises(InvalidRequest, match="cannot hold it without"):
            bare.encode(texts([(value, "x")]))
    escaping = opened("csv", texts([]).schema, disable_quote_character="true", escape_character="\\")
    messages = escaping.encode(texts([("a,b", "c\\d")]))
    assert messages == [b"a\\,b,c\\\\d"]
    assert escaping.decode(messages).rows.to_pylist() == [{"c0": "a,b", "c1": "c\\d"}]


def test_comments() -> None:
    messages: list[bytes | None] = [b"#no, row", b"1,2", b"# a, b", b'"#1",2']
    found = opened("csv", texts([]).schema, allow_comments="true").decode(messages)
    assert found.rows["c0"].to_pylist() == ["1", "#1"]
    assert found.index.tolist() == [1, 3]
    assert opened("csv", texts([]).schema).decode(messages).rows.num_rows == 4


BROKEN = [
    (b"", "not 2 fields"),
    (b"1", "not 2 fields"),
    (b"1,a,b", "not 2 fields"),
    (b"x,a", 'id: "x" is no INT'),
    (b"1.5,a", 'id: "1.5" is no INT'),
    (b",a", "column 'id' is NOT NULL and has no value"),
    (b'1,"a', 'a quote " is not closed'),
    (b'1,a"b,"cd', "not 2 fields"),
    (b'1,"a"b', "not 2 fields"),
    (b"1,a\n2,b", "not 2 fields"),
    (b"\xff,a", "not UTF-8: invalid start byte at byte 0"),
]


def test_broken_messages_spoil_no_others() -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])
    values: list[bytes | None] = []
    for broken, _ in BROKEN:
        values += [b'7,"a\nb"', None, b"8,", *[b"9,x"] * 13, broken]
    found = opened("csv", schema).decode(values)
    assert [values[m.index] for m in found.malformed] == [broken for broken, _ in BROKEN]
    for bad, (_, reason) in zip(found.malformed, BROKEN, strict=True):
        assert reason in bad.reason
    assert found.rows["id"].to_pylist() == [7, 8, *[9] * 13] * len(BROKEN)
    assert found.rows["name"].to_pylist() == ["a\nb", None, *["x"] * 13] * len(BROKEN)


def test_broken_elements() -> None:
    schema = pa.schema([("l", pa.list_(pa.int8())), ("s", pa.struct([("a", pa.int8()), ("b", pa.int8())]))])
    found = opened("csv", schema).decode([b"1;2,3;4", b"1;x,3;4", b"1,3", b"1,3;4;5", b"300,3;4", b",", b"5,6;y"])
    assert found.rows.to_pylist() == [{"l": [1, 2], "s": {"a": 3, "b": 4}}, {"l": None, "s": None}]
    assert [(m.index, m.reason.partition(",")[0]) for m in found.malformed] == [
        (1, 'l: "x" is no TINYINT'),
        (2, "s: 1 elements"),
        (3, "s: 3 elements"),
        (4, 'l: "300" is no TINYINT'),
        (6, 's: "y" is no TINYINT'),
    ]


def test_types_that_csv_lacks() -> None:
    assert check_csv_type(pa.map_(pa.string(), pa.string()))
    assert check_csv_type(pa.list_(pa.list_(pa.int8())))
    assert check_csv_type(pa.list_(pa.int8())) is None


def test_without_quotes_no_text_may_have_an_end_of_line() -> None:
    format_ = opened("csv", texts([]).schema, disable_quote_character="true", escape_character="\\")
    with pytest.raises(InvalidRequest, match="'c0' has a text with an end of line, or one that") as caught:
        format_.encode(texts([("a\nb", "c")]))
    assert caught.value.code == "format-value"
    (bad,) = format_.decode([b"a\nb,c"]).malformed
    assert bad.reason == "an end of line inside a message"
