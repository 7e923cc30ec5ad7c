"""``json``: against the json module, as other writers write it, and broken in every place."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.types import to_sql
from log.connector.formats.json.documents import parse_documents
from log.connector.formats.json.format import check_json_type
from log.connector.formats.json.values import Place, column_value, load
from tests.log.connector.formats.rows import holdable, opened, plain

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("price", pa.decimal128(5, 2)),
        ("name", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("data", pa.binary()),
        ("ratio", pa.float64()),
        ("ok", pa.bool_()),
    ]
)


@given(holdable(check_json_type, nullable=False), st.sampled_from(["SQL", "ISO-8601"]), st.booleans())
def test_rows_survive(rows: pa.Table, timestamps: str, ignore: bool) -> None:
    options = {"timestamp_format__standard": timestamps, "encode__ignore_null_fields": str(ignore)}
    format_ = opened("json", rows.schema, **options)
    messages = format_.encode(rows)
    decoded = format_.decode(messages)
    decoded.rows.validate(full=True)
    assert decoded.malformed == ()
    assert plain(decoded.rows) == plain(rows)
    assert decoded.kinds.to_pylist() == ["+I"] * rows.num_rows
    for message, row in zip(messages, rows.to_pylist(), strict=True):
        document = json.loads(message or b"")
        assert list(document) == [name for name, value in row.items() if not ignore or value is not None]


@given(holdable(check_json_type))
def test_what_arrow_parses_is_what_the_rules_for_single_values_say(rows: pa.Table) -> None:
    messages = [m or b"" for m in opened("json", rows.schema).encode(rows)]
    together = parse_documents(messages, rows.schema).members
    alone = [{f.name: column_value(load(m).get(f.name), f.type, Place(f.name)) for f in rows.schema} for m in messages]
    assert plain(together) == plain(pa.Table.from_pylist(alone, schema=together.schema))


def test_values_are_spelled_as_flink_spells_them() -> None:
    row = {
        "id": 1,
        "price": Decimal("12.50"),
        "name": 'ü"\n',
        "at": dt.datetime(2020, 12, 30, 12, 13, 14, 123000, dt.UTC),
        "local": dt.datetime(2020, 12, 30, 12, 13, 14, 123000),
        "day": dt.date(2020, 12, 30),
        "data": b"\x00\xff",
        "ratio": float("-inf"),
        "ok": None,
    }
    rows = pa.Table.from_pylist([row], schema=SCHEMA)
    expected = (
        '{"id":1,"price":12.50,"name":"ü\\"\\n","at":"2020-12-30 12:13:14.123000Z",'
        '"local":"2020-12-30 12:13:14.123000","day":"2020-12-30","data":"AP8=","ratio":"-Infinity","ok":null}'
    )
    assert opened("json", SCHEMA).encode(rows) == [expected.encode()]
    iso = opened("json", SCHEMA, timestamp_format__standard="ISO-8601", encode__ignore_null_fields="true").encode(rows)
    assert iso == [expected.replace("30 12:", "30T12:").replace(',"ok":null', "").encode()]


def test_maps_are_objects_and_decimals_numbers_at_any_depth() -> None:
    kind = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.decimal128(4, 1))), ("n", pa.decimal128(4, 1))]))
    rows = pa.table({"v": pa.array([[{"m": [("k", Decimal("1.5")), ("l", None)], "n": Decimal(2)}, None], None], kind)})
    first, second = opened("json", rows.schema).encode(rows)
    assert first == b'{"v":[{"m":{"k":1.5,"l":null},"n":2.0},null]}'
    assert second == b'{"v":null}'
    (short, _) = opened("json", rows.schema, encode__ignore_null_fields="true").encode(rows)
    assert short == b'{"v":[{"m":{"k":1.5,"l":null},"n":2.0},null]}'


@pytest.mark.parametrize(
    ("member", "value", "expected"),
    [
        ("id", '"7"', 7),
        ("id", "7.0", 7),
        ("price", '"1.5"', Decimal("1.50")),
        ("price", "1.5500", Decimal("1.55")),
        ("price", "1e2", Decimal("100.00")),
        ("name", "1.50", "1.50"),
        ("name", "true", "true"),
        ("name", '{"a": [1, 2.50], "b": "c"}', '{"a":[1,2.50],"b":"c"}'),
        ("name", "1e5", "1e5"),
        ("name", "-0", "-0"),
        ("name", "12345678901234567890", "12345678901234567890"),
        ("name", "1e99999999999999999999", "1e99999999999999999999"),
        ("name", "7" * 5000, "7" * 5000),
        ("ratio", "-0", -0.0),
        ("ratio", '"-Infinity"', -math.inf),
        ("at", '"2020-01-02T03:04:05+02:00"', dt.datetime(2020, 1, 2, 1, 4, 5, tzinfo=dt.UTC)),
        ("at", '"2020-01-02 03:04:05.123456000Z"', dt.datetime(2020, 1, 2, 3, 4, 5, 123456, tzinfo=dt.UTC)),
        ("local", '"2020-01-02T03:04:05"', dt.datetime(2020, 1, 2, 3, 4, 5)),
        ("day", "18263", dt.date(2020, 1, 2)),
        ("ratio", '"1.5"', 1.5),
        ("ratio", "3", 3.0),
        ("ok", '"TRUE"', True),
        ("ok", "0", False),
    ],
)
def test_other_spellings_are_read(member: str, value: str, expected: Any) -> None:
    message = f'{{"id":1,"{member}":{value}}}' if member != "id" else f'{{"id":{value}}}'
    # Alone, and among many that Arrow parses.
    for messages in ([message.encode()], [*[b'{"id":1}'] * 200, message.encode(), *[b'{"id":1}'] * 200]):
        decoded = opened("json", SCHEMA).decode(messages)
        assert decoded.malformed == ()
        assert decoded.rows[member][len(messages) // 2].as_py() == expected


BROKEN = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b'{"id":1', "not JSON"),
    (b'{"id":1}}', "not JSON: Extra data"),
    (b'{"id":1}{"id":2}', "not JSON: Extra data"),
    (b'{"id":1,"name":"a\nb"}', "not JSON: Invalid control character"),
    (b"\xff", "not UTF-8: invalid start byte at byte 0"),
    (b"7", "not a JSON object but 7"),
    (b"[7]", "not a JSON object but 7"),
    (b'{"id":1.5}', "id: 1.5 is no INT"),
    (b'{"id":3000000000}', "id: 3000000000 is no INT"),
    (b'{"id":true}', "id: true is no INT"),
    (b'{"id":"x"}', 'id: "x" is no INT'),
    (b'{"id":null}', "column 'id' is NOT NULL and has no value"),
    (b"{}", "column 'id' is NOT NULL and has no value"),
    (b'{"id":1,"price":1000}', "price: 1000 is no DECIMAL(5,2)"),
    (b'{"id":1,"price":"NaN"}', 'price: "NaN" is no DECIMAL(5,2)'),
    (b'{"id":1,"name":"\\ud800"}', "name: a string that is no Unicode text"),
    (b'{"id":1,"at":"yesterday"}', 'at: "yesterday" is no TIMESTAMP'),
    (b'{"id":1,"at":5}', "at: 5 is no TIMESTAMP: what a number counts is not known"),
    (b'{"id":1,"day":"2020-13-01"}', 'day: "2020-13-01" is no DATE'),
    (b'{"id":1,"data":"%%%%"}', 'data: "%%%%" is no BINARY'),
    (b'{"id":1,"ratio":1e999}', "is no DOUBLE"),
    (b'{"id":1,"ok":"perhaps"}', 'ok: "perhaps" is no BOOLEAN'),
    (b"[" * 100_000, "nested too deeply"),
]


@pytest.mark.parametrize("name", ["json", "csv", "canal-json"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "1e999999999"),
        (pa.int64(), "9" * 5000),
        (pa.int64(), "1e99999999999999999999"),
        (pa.date32(), "1e999999999"),
        (pa.float64(), "1e400"),
        (pa.float64(), "9" * 5000),
        (pa.float32(), "3.5e38"),
        (pa.decimal128(5, 2), "1e999999999"),
        (pa.decimal128(5, 2), "1e99999999999999999999"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_numbers_out_of_range_are_malformed_at_once(name: str, kind: pa.DataType, value: str) -> None:
    templates = {"csv": "%s", "json": '{"v":%s}', "canal-json": '{"data":[{"v":%s}],"type":"INSERT"}'}
    plain_one = "2020-01-02" if pa.types.is_date(kind) else "7"
    good = plain_one if name == "csv" else f'"{plain_one}"'
    messages = [(templates[name] % text).encode() for text in (*[good] * 70, value, *[good] * 70)]
    found = opened(name, pa.schema([("v", kind)])).decode(messages)
    assert [m.index for m in found.malformed] == [70]
    assert len(set(found.rows["v"].to_pylist())) == 1


def test_documents_that_are_nested_too_deeply_are_malformed() -> None:
    deep = [b'{"name":' + b"[" * depth + b"]" * depth + b"}" for depth in (100, 950, 5000)]
    found = opened("json", SCHEMA).decode([b'{"id":1}', *[b'{"id":3,' + d[1:] for d in deep], b'{"id":2}'])
    assert {0, 1, 4} <= set(found.index.tolist())
    assert 3 in [m.index for m in found.malformed]


def test_each_depth_is_read_or_named_too_deep() -> None:
    """Python's limit is exceeded while the document is parsed or, some levels earlier, while the text is made."""
    depths = range(800, 1000)
    found = opened("json", SCHEMA).decode([b'{"id":3,"name":' + b"[" * d + b"]" * d + b"}" for d in depths])
    assert {m.reason for m in found.malformed} == {"not JSON: nested too deeply"}
    assert sorted([*found.index.tolist(), *(m.index for m in found.malformed)]) == list(range(len(depths)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float64(), "true"),
        (pa.float64(), "[1]"),
        (pa.float64(), '"abc"'),
        (pa.float64(), "1e999"),
        (pa.float32(), "1e39"),
        (pa.binary(), "1"),
        (pa.date32(), "true"),
        (pa.map_(pa.string(), pa.int32()), "[1]"),
    ],
)
def test_a_value_of_another_type_is_named(kind: pa.DataType, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'c: {value} is no {to_sql(kind)}')}"):
        column_value(load(value.encode()), kind, Place("c"))


def test_broken_messages_spoil_no_others() -> None:
    good = [f'{{"id":{i},"name":"n{i}"}}'.encode() for i in range(500)]
    messages: list[bytes | None] = []
    for i, one in enumerate(good):
        if i % 20 == 7 and i // 20 < len(BROKEN):
            messages.append(BROKEN[i // 20][0])
        messages.append(None if i % 50 == 49 else one)
    decoded = opened("json", SCHEMA).decode(messages)
    assert [messages[m.index] for m in decoded.malformed] == [broken for broken, _ in BROKEN]
    for found, (_, reason) in zip(decoded.malformed, BROKEN, strict=True):
        assert reason in found.reason
    assert decoded.rows["id"].to_pylist() == [i for i in range(500) if i % 50 != 49]
    assert [messages[i] for i in decoded.index] == [good[i] for i in range(500) if i % 50 != 49]
    assert decoded.tombstones.tolist() == [i for i, m in enumerate(messages) if m is None]


def test_batches_that_the_parser_never_takes_are_read_all_the_same() -> None:
    loose = [f'{{"id":"{i}"}}'.encode() for i in range(1000)]
    found = opened("json", SCHEMA).decode([*loose[:500], b"{", *loose[500:]])
    assert found.rows["id"].to_pylist() == list(range(1000))
    assert [m.index for m in found.malformed] == [500]


def test_pieces_of_documents_that_fit_together_are_not_joined() -> None:
    pieces = [b'{"id":', b'1}{"id":2}', b'{"id":1,"name":"}', b'{","ok":true}', b'{"id":3}']
    decoded = opened("json", SCHEMA).decode(pieces)
    assert [m.index for m in decoded.malformed] == [0, 1, 2, 3]
    assert decoded.rows["id"].to_pylist() == [3]


def test_an_array_gives_a_row_for_each_element() -> None:
    decoded = opened("json", SCHEMA).decode([b'{"id":1}', b'[{"id":2},{"id":3}]', b"[]", b'{"id":4}'])
    assert decoded.rows["id"].to_pylist() == [1, 2, 3, 4]
    assert decoded.index.tolist() == [0, 1, 1, 3]


def test_one_bad_element_makes_its_whole_message_malformed() -> None:
    decoded = opened("json", SCHEMA).decode([b'[{"id":2},{"id":"x"}]', b'[{"id":2},{}]'])
    assert decoded.rows.num_rows == 0
    assert [m.index for m in decoded.malformed] == [0, 1]


def test_a_missing_member_is_null_or_malformed() -> None:
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    messages = [b'{"id":1,"name":null}', b'{"id":2}', b'[{"id":3,"name":"x"},{"name":"y"}]']
    assert opened("json", schema).decode(messages).rows.num_rows == 4
    strict = opened("json", schema, fail_on_missing_field="true").decode(messages)
    assert strict.rows.to_pylist() == [{"id": 1, "name": None}]
    assert [m.reason for m in strict.malformed] == ["member 'name' is missing", "member 'id' is missing"]


@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_rows_that_take_away_are_refused(kind: str) -> None:
    rows = pa.table({"id": pa.array([1], pa.int32()), "_kind": [kind]})
    with pytest.raises(InvalidRequest, match=f"no word for {kind}") as caught:
        opened("json", rows.schema.remove(1)).encode(rows)
    assert caught.value.code == "format-kind"


def test_updates_are_written_as_their_rows() -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "_kind": ["+U", "+I"]})
    assert opened("json", rows.schema.remove(1)).encode(rows) == [b'{"id":1}', b'{"id":2}']


def test_wrong_rows_are_refused() -> None:
    format_ = opened("json", pa.schema([("id", pa.int32())]))
    for rows, code in [
        (pa.table({"it": [1]}), "format-rows"),
        (pa.table({"id": ["x"]}), "format-rows"),
        (pa.table({"id": [1], "_kind": ["?"]}), "format-kind"),
    ]:
        with pytest.raises(InvalidRequest) as caught:
            format_.encode(rows)
        assert caught.value.code == code


def test_unknown_metadata_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no metadata 'schema': it has none"):
        opened("json", SCHEMA).decode([], ["schema"])


def test_a_decimal_that_rounds_up_to_too_many_digits_in_28_is_exact_beside_an_infinity() -> None:
    """Python's abs() rounds to 28 digits; rows are read one by one where JSON's numbers are texts."""
    digits = Decimal("9999999999999999999999999999500000000")
    kind = pa.struct([("f", pa.float64()), ("d", pa.decimal128(37, 0))])
    rows = pa.table({"x": pa.array([{"f": float("inf"), "d": digits}, {"f": 1.0, "d": digits.copy_negate()}], kind)})
    format_ = opened("json", rows.schema)
    found = format_.decode(format_.encode(rows))
    assert found.malformed == ()
    assert [row["x"]["d"] for row in found.rows.to_pylist()] == [digits, digits.copy_negate()]
