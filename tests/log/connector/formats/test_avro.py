"""``avro`` and ``avro-confluent``: against a reading of the specification value by value, and broken at every byte."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest, Unavailable
from log.connector.formats.avro.format import AvroConfluentFormat, AvroFormat
from log.connector.formats.avro.schema import avro_schema, check_avro_type, in_milliseconds
from tests.log.connector.formats.rows import Memory, holdable, opened, plain

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


# ------------------------------------------------------------------------------- the specification, value by value


def whole(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes(out) + bytes([zigzag])


def datum(schema: Any, value: Any, sized: bool = False) -> bytes:
    """A datum; arrays and maps with the sizes of their blocks and an element a block, if asked for."""
    if isinstance(schema, list):
        branch = next(i for i, one in enumerate(schema) if (one == "null") == (value is None))
        return whole(branch) + datum(schema[branch], value, sized)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return b"".join(datum(f["type"], value.get(f["name"]), sized) for f in schema["fields"])
    if kind in ("array", "map"):
        elements = [
            datum("string", e[0]) + datum(schema["values"], e[1], sized)
            if kind == "map"
            else datum(schema["items"], e, sized)
            for e in value
        ]
        if sized:
            return b"".join(whole(-1) + whole(len(e)) + e for e in elements) + b"\0"
        return (whole(len(elements)) + b"".join(elements) if elements else b"") + b"\0"
    if kind == "enum":
        return whole(schema["symbols"].index(value))
    if kind == "fixed":
        return bytes(value)
    return scalar(kind, schema, value)


def scalar(kind: str, schema: Any, value: Any) -> bytes:
    if kind in ("int", "long"):
        return whole(value)
    if kind in ("string", "bytes"):
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
            unscaled = int(value.scaleb(schema["scale"], Context(prec=50)))
            value = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
        data = value.encode() if isinstance(value, str) else value
        return whole(len(data)) + bytes(data)
    packed = {"float": "<f", "double": "<d", "boolean": "?"}
    return b"" if kind == "null" else struct.pack(packed[kind], value)


def stored(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with dates and timestamps as the numbers that Avro has."""
    fields = [pa.field(f.name, _number_type(f.type)) for f in table.schema]
    arrays = [_numbers(c.combine_chunks(), f.type) for c, f in zip(table.columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)).to_pylist()


def _number_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _numbers(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def flat_times(kind: pa.DataType, top: bool = True) -> str | None:
    """Types whose dates and timestamps stand in columns of their own, for `stored`'s sake."""
    inner = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else []
    inner += [kind.value_type] if pa.types.is_list(kind) else []
    inner += [f.type for f in kind] if pa.types.is_struct(kind) else []
    if not top and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return "a time inside"
    return check_avro_type(kind) or next((r for t in inner if (r := flat_times(t, False))), None)


# --------------------------------------------------------------------------------------------------------- tests


@given(holdable(check_avro_type, nullable=False), st.sampled_from(["avro", "avro-confluent"]))
def test_rows_survive(rows: pa.Table, name: str) -> None:
    format_ = opened(name, rows.schema)
    found = format_.decode(format_.encode(rows))
    found.rows.validate(full=True)
    assert found.malformed == ()
    assert plain(found.rows) == plain(rows)


@given(holdable(flat_times, nullable=False))
def test_datums_are_the_specification_s(rows: pa.Table) -> None:
    schema = json.loads(avro_schema(rows.schema))
    expected = [datum(schema, row) for row in stored(rows)]
    assert opened("avro", rows.schema).encode(rows) == expected
    blocks = [datum(schema, row, sized=True) for row in stored(rows)]
    assert plain(opened("avro", rows.schema).decode([*blocks]).rows) == plain(rows)


@given(holdable(flat_times, nullable=False))
def test_fastavro_reads_what_we_write_and_writes_what_we_read(rows: pa.Table) -> None:
    schema = fastavro.parse_schema(json.loads(avro_schema(rows.schema)))
    ours, theirs = opened("avro", rows.schema).encode(rows), []
    read = [fastavro.schemaless_reader(io.BytesIO(message), schema, None) for message in ours]
    for row in read:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, row)
        theirs.append(written.getvalue())
    assert theirs == ours
    assert plain(pa.Table.from_pylist(read, schema=rows.schema)) == plain(rows)


@given(holdable(check_avro_type), st.randoms(use_true_random=False))
def test_damage_is_reported_and_stays_in_its_message(rows: pa.Table, chance: Any) -> None:
    format_ = opened("avro", rows.schema)
    good = [m or b"" for m in format_.encode(rows)]
    values: list[bytes | None] = []
    cut, kept, noisy = [], [], []
    for message in good:
        ends = chance.sample(range(len(message)), min(len(message), 8))
        cut += range(len(values), len(values) + len(ends) + 1)
        values += [message[:end] for end in ends] + [message + b"\0"]
        noise = bytearray(message)
        noise[chance.randrange(len(noise))] = chance.randrange(256)
        noisy.append(len(values))
        kept.append(len(values) + 1)
        values += [bytes(noise), message]
    found = format_.decode(values)
    found.rows.validate(full=True)
    malformed = {m.index for m in found.malformed}
    assert malformed - set(noisy) == set(cut)
    assert malformed.isdisjoint(found.index.tolist())
    whole_ones = found.rows.filter(pa.array([i in kept for i in found.index.tolist()], pa.bool_()))
    assert plain(whole_ones) == plain(rows)


TEXT = pa.string()
INNER = pa.struct([pa.field("x", TEXT, nullable=False)])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.map_(TEXT, pa.int32()), [("damaged", 1)]),
        (pa.map_(TEXT, pa.field("value", TEXT, nullable=False)), [("k", "damaged")]),
        (pa.map_(TEXT, pa.map_(TEXT, TEXT)), [("k", [("damaged", "v")])]),
        (pa.list_(pa.map_(TEXT, TEXT)), [[("k", "v"), ("damaged", "v")]]),
        (pa.list_(pa.field("element", TEXT, nullable=False)), ["a", "damaged"]),
        (INNER, {"x": "damaged"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("nullable", [True, False])
def test_a_text_that_is_none_is_malformed_wherever_it_stands(kind: Any, value: Any, nullable: bool) -> None:
    schema = pa.schema([pa.field("v", kind, nullable)])
    rows = pa.table({"v": pa.array([value], kind)}, schema=schema)
    (message,) = opened("avro", schema).encode(rows)
    found = opened("avro", schema).decode([message, message.replace(b"damaged", b"damag\xff\xff"), message])
    assert [m.index for m in found.malformed] == [1]
    assert "a value is no string" in found.malformed[0].reason
    assert plain(found.rows) == plain(rows) * 2


def test_the_schema_of_columns() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int8(), nullable=False),
            ("price", pa.decimal128(5, 2)),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("place", pa.struct([pa.field("x", pa.float32(), nullable=False)])),
        ]
    )
    record = "org.apache.flink.avro.generated.record"
    assert json.loads(avro_schema(schema)) == {
        "type": "record",
        "name": record,
        "fields": [
            {"name": "id", "type": "int"},
            {
                "name": "price",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}],
                "default": None,
            },
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
            {
                "name": "local",
                "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}],
                "default": None,
            },
            {
                "name": "place",
                "type": [
                    "null",
                    {"type": "record", "name": f"{record}_place", "fields": [{"name": "x", "type": "float"}]},
                ],
                "default": None,
            },
        ],
    }


NOON = dt.datetime(2020, 12, 30, 12, 13, 14, 123000)
TIMES = pa.schema([("at", pa.timestamp("us")), ("all", pa.list_(pa.timestamp("us", tz="UTC")))])


def test_timestamps_as_flink_writes_them_by_default() -> None:
    flink = {"at": 1609330394123, "all": [1609330394123]}
    schema = record(
        ("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
        ("all", ["null", {"type": "array", "items": ["null", {"type": "long", "logicalType": "timestamp-millis"}]}]),
    )
    rows = pa.Table.from_pylist([{"at": NOON, "all": [NOON.replace(tzinfo=dt.UTC)]}], schema=TIMES)
    legacy = AvroFormat(TIMES, millis=True)
    assert legacy.encode(rows) == [datum(schema, flink)]
    assert plain(legacy.decode([datum(schema, flink)]).rows) == plain(rows)
    registered = Memory()
    framed = AvroConfluentFormat(TIMES, registered, "s", millis=True)
    assert plain(framed.decode(framed.encode(rows)).rows) == plain(rows)
    assert [f["type"] for f in json.loads(registered.schemas[0])["fields"]] == [f["type"] for f in schema["fields"]]


@given(holdable(check_avro_type, nullable=False))
def test_rows_in_milliseconds_survive(rows: pa.Table) -> None:
    rows = _without_micros(rows)
    format_ = AvroFormat(rows.schema, millis=True)
    assert plain(format_.decode(format_.encode(rows)).rows) == plain(rows)


def _without_micros(rows: pa.Table) -> pa.Table:
    coarse = in_milliseconds(rows.schema)
    columns = [
        c.cast(f.type, safe=False).cast(k.type) for c, f, k in zip(rows.columns, coarse, rows.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def test_a_timestamp_that_milliseconds_cannot_hold_is_refused() -> None:
    rows = pa.Table.from_pylist([{"at": NOON + dt.timedelta(microseconds=1), "all": None}], schema=TIMES)
    with pytest.raises(InvalidRequest, match="column 'at' has a timestamp that milliseconds cannot hold") as caught:
        AvroFormat(TIMES, millis=True).encode(rows)
    assert caught.value.code == "format-value"


def confluent(schema: Any, *values: Any, columns: pa.Schema = SCHEMA, written: Any = None) -> Any:
    """What a reader of the columns makes of values that another writer wrote in its schema.

    `written` is the schema again with types in place of their names, which the reading above does not know.
    """
    registry = Memory()
    number = registry.register("t-value", json.dumps(schema))
    messages = [b"\0" + number.to_bytes(4, "big") + datum(written or schema, v) for v in values]
    found = AvroConfluentFormat(columns, registry, "t-value").decode([*messages])
    return found.malformed[0].reason if found.malformed else found.rows.to_pylist()


def record(*fields: tuple[str, Any]) -> Any:
    return {"type": "record", "name": "r", "namespace": "n", "fields": [{"name": n, "type": t} for n, t in fields]}


@pytest.mark.parametrize(
    ("written", "value", "column", "expected"),
    [
        ("int", 5, pa.int64(), 5),
        ("int", 5, pa.float64(), 5.0),
        ("long", 5, pa.int32(), 5),
        ("float", 0.5, pa.float64(), 0.5),
        ("bytes", b"ab", pa.string(), "ab"),
        ("string", "ab", pa.binary(), b"ab"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
        ({"type": "fixed", "name": "f", "size": 2}, b"ab", pa.binary(), b"ab"),
        ({"type": "string", "logicalType": "uuid"}, "u", pa.string(), "u"),
        ({"type": "int", "logicalType": "time-millis"}, 7, pa.int32(), 7),
        ({"type": "int", "logicalType": "date"}, 1, pa.date32(), dt.date(1970, 1, 2)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1500,
            pa.timestamp("us"),
            dt.datetime(1970, 1, 1, 0, 0, 1, 500000),
        ),
        (["null", "int", "string"], None, pa.int32(), None),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            Decimal("-1.5"),
            pa.decimal128(6, 2),
            Decimal("-1.50"),
        ),
    ],
)
def test_columns_are_resolved_from_other_types(written: Any, value: Any, column: Any, expected: Any) -> None:
    columns = pa.schema([("v", column)])
    schema = record(("before", {"type": "map", "values": "long"}), ("v", written), ("behind", ["null", "string"]))
    rows = [{"before": [("k", 1), ("l", 2)], "v": value, "behind": "x"}, {"before": [], "v": value, "behind": None}]
    assert confluent(schema, *rows, columns=columns) == [{"v": expected}] * 2


def test_names_are_resolved() -> None:
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}
    written = record(("from", point), ("to", ["null", point]), ("via", {"type": "array", "items": point}))
    schema = record(("from", point), ("to", ["null", "n.point"]), ("via", {"type": "array", "items": "point"}))
    xs = pa.struct([("x", pa.int32())])
    columns = pa.schema([("via", pa.list_(xs)), ("to", xs), ("new", pa.string())])
    here, there = {"x": 1, "y": 2}, {"x": 3, "y": 4}
    rows = [{"from": here, "to": None, "via": [here, there]}, {"from": here, "to": there, "via": []}]
    assert confluent(schema, *rows, columns=columns, written=written) == [
        {"via": [{"x": 1}, {"x": 3}], "to": None, "new": None},
        {"via": [], "to": {"x": 3}, "new": None},
    ]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record(("id", "string")), "column 'id' is int64, and the writer's Avro schema has string"),
        (record(("id", {"type": "array", "items": "int"})), "column 'id' is int64"),
        (record(("id", record(("x", "int")))), "column 'id' is int64, and the writer's Avro schema has record"),
        ({"type": "record", "name": "l", "fields": [{"name": "next", "type": ["null", "l"]}]}, "holds itself"),
        ({"type": "nonsense"}, "an Avro schema cannot be read"),
        ("long", "the writer's Avro schema is long, and rows are records"),
    ],
)
def test_schemas_that_columns_cannot_be_read_from_make_their_messages_malformed(schema: Any, reason: str) -> None:
    registry = Memory()
    number = registry.register("s", json.dumps(schema))
    format_ = AvroConfluentFormat(SCHEMA, registry, "s")
    good = format_.encode(pa.table({"id": [1, 2], "name": ["a", None]}))
    found = format_.decode([good[0], b"\0" + number.to_bytes(4, "big") + b"\2\2", good[1]])
    assert found.rows["id"].to_pylist() == [1, 2]
    assert [m.index for m in found.malformed] == [1]
    assert reason in found.malformed[0].reason


def test_messages_of_many_schemas_stay_in_order() -> None:
    registry = Memory()
    old = AvroConfluentFormat(pa.schema([SCHEMA.field(0)]), registry, "t-value")
    new = AvroConfluentFormat(SCHEMA, registry, "t-value")
    first = old.encode(pa.table({"id": [1, 3]}))
    second = new.encode(pa.table({"id": [2, 4], "name": ["b", "d"]}))
    found = new.decode([first[0], second[0], None, b"{}", first[1], second[1]])
    assert found.rows.to_pylist() == [
        {"id": 1, "name": None},
        {"id": 2, "name": "b"},
        {"id": 3, "name": None},
        {"id": 4, "name": "d"},
    ]
    assert found.index.tolist() == [0, 1, 4, 5]
    assert found.tombstones.tolist() == [2]
    assert "not written with a Confluent schema registry" in found.malformed[0].reason
    assert registry.subjects == ["t-value"] * 2


def test_a_registry_that_does_not_answer_makes_no_message_malformed() -> None:
    class Down(Memory):
        def schema(self, number: int) -> tuple[str, ...]:
            raise Unavailable("down")

    with pytest.raises(Unavailable):
        AvroConfluentFormat(SCHEMA, Down(), "s").decode([b"\0\0\0\0\1\2"])


BROKEN = [
    (b"", "ends in the middle"),
    (b"\2", "ends in the middle"),
    (b"\2\2\xff", "ends in the middle"),
    (b"\2\2\4a", "name: longer than the message"),
    (b"\2\2\1", "name: longer than the message"),
    (b"\2\4", "name: a union has no such branch"),
    (b"\2\1", "name: a union has no such branch"),
    (b"\2\0\0", "bytes are left behind"),
    (b"\xff" * 10 + b"\0\0", "a number has more than 10 bytes"),
    (b"\2\2\2\xff", "name: a value is no string"),
]


def test_broken_messages_spoil_no_others() -> None:
    values: list[bytes | None] = []
    for broken, _ in BROKEN:
        values += [*[b"\2\2\2a"] * 3, None, b"\4\0", broken]
    found = opened("avro", SCHEMA).decode(values)
    assert [values[m.index] for m in found.malformed] == [broken for broken, _ in BROKEN]
    for bad, (_, reason) in zip(found.malformed, BROKEN, strict=True):
        assert reason in bad.reason
    assert found.rows.to_pylist() == [*[{"id": 1, "name": "a"}] * 3, {"id": 2, "name": None}] * len(BROKEN)


def test_lists_that_claim_more_elements_than_bytes_end_at_once() -> None:
    schema = pa.schema([pa.field("l", pa.list_(pa.field("element", pa.int32(), False)), nullable=False)])
    found = opened("avro", schema).decode([whole(1 << 60), b"\4\2\4\0", whole(-(1 << 62)) + b"\2", b"\6\2\4"])
    assert found.rows.to_pylist() == [{"l": [1, 2]}]
    assert [m.index for m in found.malformed] == [0, 2, 3]


def test_the_highest_bit_of_a_decimal_is_its_sign() -> None:
    """And no other bit, however many bytes the writer used."""
    schema = pa.schema([pa.field("d", pa.decimal128(5, 1), nullable=False)])
    numbers = {b"\x3f": "6.3", b"\x40": "6.4", b"\x7f": "12.7", b"\x80": "-12.8", b"\xbf": "-6.5", b"\xc0": "-6.4"}
    wider = {b"\x00\x80": "12.8", b"\x40\x00": "1638.4", b"\xbf\xff": "-1638.5", b"\xff\x7f": "-12.9"}
    found = opened("avro", schema).decode([whole(len(data)) + data for data in numbers | wider])
    assert found.rows["d"].to_pylist() == [Decimal(text) for text in (numbers | wider).values()]


def test_decimals_with_too_many_digits_are_malformed() -> None:
    schema = pa.schema([pa.field("d", pa.decimal128(3, 1), nullable=False)])
    found = opened("avro", schema).decode([b"\4\3\xe7", b"\4\3\xe8", b"\0", b"\2\xff", whole(17) + b"\0" * 17])
    assert found.rows["d"].to_pylist() == [Decimal("99.9"), Decimal("-0.1")]
    assert [m.index for m in found.malformed] == [1, 2, 4]


def test_an_integer_or_a_symbol_out_of_range_makes_its_message_malformed() -> None:
    """Both are written as 64 bits."""
    enum = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
    assert confluent(record(("a", "int")), {"a": 1 << 31}, columns=pa.schema([("a", pa.int64())])) == (
        "a: out of the range of int"
    )
    for symbol in (2, -1):
        written = confluent(
            record(("a", enum)), {"a": symbol}, columns=pa.schema([("a", pa.string())]), written=record(("a", "int"))
        )
        assert written == "a: out of the range of enum"


def test_a_type_may_be_wrapped_in_another_object() -> None:
    columns, plain_ = pa.schema([("a", pa.int64())]), record(("a", "long"))
    assert confluent(record(("a", {"type": {"type": "long"}})), {"a": 5}, columns=columns, written=plain_) == [{"a": 5}]


def test_times_in_maps_are_in_milliseconds_too() -> None:
    schema = pa.schema([("m", pa.map_(pa.string(), pa.timestamp("us")))])
    assert in_milliseconds(schema).field("m").type == pa.map_(pa.string(), pa.timestamp("ms"))
