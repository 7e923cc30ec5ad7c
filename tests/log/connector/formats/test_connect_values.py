"""Debezium's messages with schemas: what members stand for, beside a slow reader in plain Python."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from log.connector.formats.connect.decimals import decimal_column, unscaled
from log.connector.formats.connect.schema import described
from tests.log.connector.formats.rows import opened
from tests.log.connector.formats.test_damage import EDITS, damaged

EXACT = Context(prec=400)
NTZ, LTZ = pa.timestamp("us"), pa.timestamp("us", "UTC")
DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"


def base64_of(number: int) -> str:
    """As Java's `BigInteger.toByteArray`, and Connect's JSON."""
    bits = (number if number >= 0 else ~number).bit_length()
    return base64.b64encode(number.to_bytes(bits // 8 + 1, "big", signed=True)).decode()


def schema_of(kind: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, **({"name": name, "version": 1} if name else {}), **more}


def message(members: dict[str, tuple[dict[str, Any], Any]], op: str = "c", indent: int | None = None) -> bytes:
    row = {
        "type": "struct",
        "fields": [{**declared, "field": name} for name, (declared, _) in members.items()],
        "optional": True,
        "name": "shop.items.Value",
    }
    envelope = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}], "optional": False}
    values = {name: value for name, (_, value) in members.items()}
    images = {"before": values, "after": None} if op == "d" else {"before": None, "after": values}
    return json.dumps({"schema": envelope, "payload": {**images, "op": op}}, indent=indent).encode()


def decoded(columns: dict[str, pa.DataType], messages: list[bytes | None]) -> Any:
    return opened("debezium-json", pa.schema(list(columns.items())), schema_include="true").decode(messages)


def one(kind: pa.DataType, declared: dict[str, Any], values: list[Any]) -> list[Any]:
    """A column of messages' values; a text where the message is malformed."""
    found = decoded({"c": kind}, [message({"c": (declared, value)}) for value in values])
    rows = dict(zip(found.index.tolist(), found.rows["c"].to_pylist(), strict=True))
    rows |= {bad.index: bad.reason for bad in found.malformed}
    assert sorted(rows) == list(range(len(values)))
    return [rows[i] for i in range(len(values))]


# ------------------------------------------------------------------------------------------------------- decimals

NUMBERS = st.integers(-(10**40), 10**40) | st.integers(-300, 300) | st.integers(-(10**74), 10**74)
KINDS = st.sampled_from(
    [
        pa.decimal128(10, 2),
        pa.decimal128(38, 0),
        pa.decimal128(38, 38),
        pa.string(),
        pa.float64(),
        pa.int64(),
        pa.int8(),
    ]
)


def slow_decimal(number: int, scale: int, kind: pa.DataType) -> Any:
    """What a decimal is in a column; None if it is nothing there."""
    value = Decimal(number).scaleb(-scale, EXACT)
    if pa.types.is_string(kind):
        return format(value if number or scale > 0 else Decimal(0), "f")
    if pa.types.is_floating(kind):
        return float(value)
    if abs(scale) > 38 and number:
        return None
    if pa.types.is_integer(kind):
        fits = value == value.to_integral_value() and abs(value + Decimal("0.5")) < 2 ** (kind.bit_width - 1)
        return int(value) if fits else None
    fits = value == value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_DOWN, EXACT)
    return value if fits and abs(value) < Decimal(10) ** (kind.precision - kind.scale) else None


@given(numbers=st.lists(NUMBERS, max_size=20), scale=st.integers(-40, 40), kind=KINDS)
@example(numbers=[-129, -128, -127, 127, 128], scale=0, kind=pa.int8())
@example(numbers=[-(2**63) - 1, -(2**63), 2**63 - 1, 2**63], scale=0, kind=pa.int64())
@example(numbers=[-30, -25, -10, -5, -4, 0, 4, 5, 10, 25, 30], scale=3, kind=pa.decimal128(10, 2))  # never rounded
def test_any_decimal_in_any_column(numbers: list[int], scale: int, kind: pa.DataType) -> None:
    column, bad = decimal_column(unscaled(pa.array(map(base64_of, numbers), pa.string())), scale, kind)
    column.validate(full=True)
    wanted = [slow_decimal(number, scale, kind) for number in numbers]
    assert column.type == kind
    assert column.to_pylist() == wanted
    assert bad.tolist() == [value is None for value in wanted]


def test_what_is_no_decimal() -> None:
    texts = [None, "", "!", "AA", base64.b64encode(bytes(31)).decode(), base64.b64encode(bytes(32)).decode()]
    assert unscaled(pa.array(texts)).to_pylist() == [None, None, None, None, Decimal(0), None]


@pytest.mark.parametrize("kind", [pa.string(), pa.float64()])
@pytest.mark.parametrize("scale", [2**31 - 1, -(2**31)])
def test_a_scale_that_no_number_has_costs_its_message_alone(scale: int, kind: pa.DataType) -> None:
    declared = schema_of("struct", VARIABLE)
    damaged_one, good = one(kind, declared, [{"scale": s, "value": base64_of(7)} for s in (scale, 0)])
    assert VARIABLE in damaged_one
    assert float(good) == 7.0


def test_decimals_of_messages() -> None:
    declared = schema_of("bytes", DECIMAL, parameters={"scale": "2", "connect.decimal.precision": "10"})
    values = [base64_of(n) for n in (12345, -1, 10**10)] + [None, "!"]
    assert one(pa.decimal128(10, 2), declared, values) == [
        Decimal("123.45"),
        Decimal("-0.01"),
        f"after.c: {base64_of(10**10)} as {DECIMAL} is no decimal128(10, 2)",
        None,
        f"after.c: ! as {DECIMAL} is no decimal128(10, 2)",
    ]
    assert one(pa.string(), declared, values[:2]) == ["123.45", "-0.01"]
    assert one(pa.binary(), declared, [base64_of(258)]) == [b"\x01\x02"]
    assert "is no bool" in one(pa.bool_(), declared, [base64_of(1)])[0]
    variable = schema_of("struct", VARIABLE, fields=[])
    members = [{"scale": s, "value": base64_of(n)} for s, n in ((0, 7), (3, -1500), (-2, 3), (0, 9))]
    assert one(pa.string(), variable, [*members, None]) == ["7", "-1.500", "300", "9", None]
    assert one(pa.float64(), variable, members) == [7.0, -1.5, 300.0, 9.0]
    assert "is no decimal128(3, 0)" in one(pa.decimal128(3, 0), variable, [{"scale": 1}])[0]
    kept = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
    assert one(kept, variable, [members[1]]) == [{"scale": 3, "value": (-1500).to_bytes(2, "big", signed=True)}]


# ---------------------------------------------------------------------------------------------------------- times

UNITS = {
    "io.debezium.time.Timestamp": 1_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
EPOCH = dt.datetime(1970, 1, 1)


def slow_moment(number: int, per_second: int) -> dt.datetime | None:
    try:
        micros, finer = divmod(number * 1_000_000, per_second)
        return None if finer else EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return None


@given(
    name=st.sampled_from(sorted(UNITS)),
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**14), 10**14), max_size=20),
    kind=st.sampled_from([NTZ, LTZ, pa.date32()]),
)
@example(name="io.debezium.time.NanoTimestamp", numbers=[-1001, -1000, -999, -1, 0, 1, 999], kind=NTZ)  # before 1970
def test_any_instant_in_any_column(name: str, numbers: list[int], kind: pa.DataType) -> None:
    for number, value in zip(numbers, one(kind, schema_of("int64", name), numbers), strict=True):
        moment = slow_moment(number, UNITS[name])
        if pa.types.is_date(kind) and moment is not None:
            wanted: Any = moment.date() if moment.time() == dt.time() else None
        else:
            wanted = moment if moment is None or kind.tz is None else moment.replace(tzinfo=dt.UTC)
        assert value == (wanted if wanted is not None else f"after.c: {number} as {name} is no {kind}")


@pytest.mark.parametrize("name", ["io.debezium.time.Date", "org.apache.kafka.connect.data.Date"])
def test_days(name: str) -> None:
    declared = schema_of("int32", name)
    days = [0, -719_162, 2_932_896, None]
    assert one(pa.date32(), declared, days) == [dt.date(1970, 1, 1), dt.date.min, dt.date.max, None]
    assert one(pa.int32(), declared, days) == days
    assert all("is no date32" in str(value) for value in one(pa.date32(), declared, [-719_163, 2_932_897]))


def test_what_needs_no_schema_is_read_as_ever() -> None:
    zoned = schema_of("string", "io.debezium.time.ZonedTimestamp")
    noon = dt.datetime(2024, 1, 1, 10, 0, 0, 123456, dt.UTC)
    assert one(LTZ, zoned, ["2024-01-01T12:00:00.123456+02:00", "2024-01-01T10:00:00.123456000Z"]) == [noon, noon]
    assert one(pa.int64(), schema_of("int64", "io.debezium.time.MicroTime"), [43_200_000_000]) == [43_200_000_000]
    assert one(pa.int64(), schema_of("int64", "io.debezium.time.MicroTimestamp"), [7]) == [7]


def test_values_within_others() -> None:
    declared = schema_of("int64", "io.debezium.time.MicroTimestamp")
    listed = schema_of("array", items=declared)
    assert one(pa.list_(NTZ), listed, [[0, None], None, [], [2**62]]) == [
        [EPOCH, None],
        None,
        [],
        f"after.c: [{2**62}] as array is no list<item: timestamp[us]>",
    ]
    held = schema_of("struct", fields=[{**declared, "field": "at"}, {"type": "string", "field": "x"}])
    kind = pa.struct([("x", pa.string()), ("at", LTZ)])
    assert one(kind, held, [{"at": 0, "x": "y"}, None]) == [{"x": "y", "at": EPOCH.replace(tzinfo=dt.UTC)}, None]
    mapped = schema_of("map", keys={"type": "string"}, values=declared)
    assert one(pa.map_(pa.string(), NTZ), mapped, [{"a": 0}, None]) == [[("a", EPOCH)], None]


# ------------------------------------------------------------------------------------------------------- messages


def test_schemas_that_change_within_a_batch() -> None:
    """A column that goes from milliseconds to microseconds, and one that comes: each message by its own schema."""
    millis, micros = (schema_of("int64", f"io.debezium.time.{name}Timestamp") for name in ("", "Micro"))
    key = schema_of("int64")
    messages = [
        message({"id": (key, 1), "at": (millis, 1000)}),
        message({"id": (key, 2), "at": (micros, 1_000_000), "new": (schema_of("string"), "x")}),
        None,
        message({"id": (key, 3), "at": (millis, 1000)}, "d"),
        message({"id": (key, 4), "at": (micros, None)}, indent=1),
        json.dumps({"payload": json.loads(message({"id": (key, 5)}))["payload"], "schema": None}).encode(),
        b'{"schema": null, "payload": null}',
        b'{"schema":{"type":"struct"},"payload":null}',
        b'{"op":"c"}',
        b'{"schema":{"fields":[]},"payload":{"op":"c","after":{"id":1}}}',
        b'{"schema":null,"payload":{"op":"c","after":{"id":6}}} x',
        b'{"schema":null,"payload":{"op":"c","after":{"id":7}',
        b"\xff",
        b"[]",
    ]
    found = decoded({"id": pa.int64(), "at": NTZ, "new": pa.string()}, messages)
    second = EPOCH + dt.timedelta(seconds=1)
    assert list(zip(found.index.tolist(), found.kinds.to_pylist(), *found.rows.to_pydict().values(), strict=True)) == [
        (0, "+I", 1, second, None),
        (1, "+I", 2, second, "x"),
        (3, "-D", 3, second, None),
        (4, "+I", 4, None, None),
        (5, "+I", 5, None, None),
    ]
    assert found.tombstones.tolist() == [2, 6]
    reasons = {bad.index: bad.reason for bad in found.malformed}
    assert sorted(reasons) == [7, 8, 9, 10, 11, 12, 13]
    assert "no payload" in reasons[7]
    assert "schema-include is false" in reasons[8]
    assert "no schema of Kafka Connect" in reasons[9]
    assert "not UTF-8" in reasons[12]


@pytest.mark.slow
def test_many_heads_are_read_all_the_same() -> None:
    key = schema_of("int64")
    messages: list[bytes | None] = [message({"id": (key, i), f"c{i}": (key, i)}) for i in range(100)]
    assert decoded({"id": pa.int64()}, messages).rows["id"].to_pylist() == list(range(100))


KEY, AT = schema_of("int64"), schema_of("int64", "io.debezium.time.Timestamp")
PRICE = schema_of("bytes", DECIMAL, parameters={"scale": "2"})
SOUND = [
    message({"id": (KEY, 1), "at": (AT, 1000), "price": (PRICE, base64_of(150))}),
    message({"id": (KEY, 2), "price": (PRICE, base64_of(-1))}, "d"),
    b'{"schema":null,"payload":{"op":"c","after":{"id":3,"price":null}}}',
    b'{"schema":null,"payload":null}',
]
SPOILT = st.builds(damaged, st.sampled_from(SOUND), st.lists(EDITS, max_size=3))


@given(bad=st.lists(SPOILT, max_size=4), order=st.permutations(range(len(SOUND) + 4)))
def test_a_batch_gives_what_its_messages_give(bad: list[bytes], order: list[int]) -> None:
    """Whatever is in it: heads that are alike, others, and damage anywhere, in the schemas, too."""
    every = [*SOUND, *bad]
    messages = [every[i] for i in order if i < len(every)]
    columns = {"id": pa.int64(), "at": NTZ, "price": pa.decimal128(10, 2)}
    whole, alone = decoded(columns, messages), [decoded(columns, [one]) for one in messages]
    whole.rows.validate(full=True)
    given_rows = zip(whole.index.tolist(), whole.kinds.to_pylist(), whole.rows.to_pylist(), strict=True)
    wanted = [
        (i, kind, row)
        for i, found in enumerate(alone)
        for kind, row in zip(found.kinds.to_pylist(), found.rows.to_pylist(), strict=True)
    ]
    assert list(given_rows) == wanted
    assert whole.tombstones.tolist() == [i for i, found in enumerate(alone) if len(found.tombstones)]
    assert [bad.index for bad in whole.malformed] == [i for i, found in enumerate(alone) if found.malformed]
    assert [bad.reason for bad in whole.malformed] == [bad.reason for found in alone for bad in found.malformed]


# --------------------------------------------------------------------------------------- dates, scales, schemas


def test_a_moment_is_a_date_only_at_midnight() -> None:
    declared = schema_of("int64", "org.apache.kafka.connect.data.Timestamp")
    day = 86_400_000
    assert one(pa.date32(), declared, [3 * day, None, -day, 5]) == [
        dt.date(1970, 1, 4),
        None,
        dt.date(1969, 12, 31),
        "after.c: 5 as org.apache.kafka.connect.data.Timestamp is no date32[day]",
    ]


@pytest.mark.parametrize("scale", ["300", "-300"])
def test_of_decimals_with_a_scale_beyond_all_digits_only_zero_is_read(scale: str) -> None:
    declared = schema_of("bytes", DECIMAL, parameters={"scale": scale})
    zero, bad, missing = one(pa.decimal128(10, 2), declared, [base64_of(0), base64_of(7), None])
    assert (zero, missing) == (Decimal(0), None)
    assert bad == f"after.c: Bw== as {DECIMAL} is no decimal128(10, 2)"


def test_a_scale_that_is_no_number_counts_as_none() -> None:
    declared = schema_of("bytes", DECIMAL, parameters={"scale": "many"})
    assert one(pa.decimal128(10, 2), declared, [base64_of(7)]) == [Decimal(7)]


def test_a_field_without_a_name_is_named() -> None:
    document = json.loads(message({"c": (schema_of("int64"), 1)}))
    del document["schema"]["fields"][1]["fields"][0]["field"]
    (bad,) = decoded({"c": pa.int64()}, [json.dumps(document).encode()]).malformed
    assert bad.reason == "member 'schema': schema has a field without a name"


@pytest.mark.parametrize(
    ("depth", "reason"), [(101, "a schema that is nested too deeply"), (100_000, "not JSON: nested")]
)
def test_a_schema_that_is_nested_too_deeply_is_named(depth: int, reason: str) -> None:
    nested = b'{"type":"array","items":' * depth + b'{"type":"int64"}' + b"}" * depth
    (bad,) = decoded({"c": pa.int64()}, [b'{"schema":' + nested + b',"payload":{"after":{"c":1},"op":"c"}}']).malformed
    assert reason in bad.reason


def test_a_schema_may_be_nested_as_deep_in_each_python() -> None:
    """Python 3.13 allows more than 3.11, so a message that one of them refused was read by the other."""
    deepest = '{"type":"array","items":' * 100 + '{"type":"int64"}' + "}" * 100
    assert described(deepest).type == "array"
    with pytest.raises(ValueError, match="nested too deeply"):
        described(f'{{"type":"array","items":{deepest}}}')


def test_messages_with_spaces_between_their_members_are_read_in_order() -> None:
    messages = [message({"c": (schema_of("int64"), n)}) for n in range(4)]
    messages[1] = b" " + messages[1]
    found = decoded({"c": pa.int64()}, messages)
    assert (found.rows["c"].to_pylist(), found.index.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3])


def test_messages_that_have_no_members_or_no_payload_are_named() -> None:
    messages = [b"{}", b"{1:2}", b' {"payload":null, "schema":null}', b' {"payload":null, "schema":{"type":"int64"}}']
    found = decoded({"c": pa.int64()}, messages)
    assert found.tombstones.tolist() == [2]
    assert {bad.index: bad.reason for bad in found.malformed} == {
        0: "member 'payload' is missing: the message has no schema, so debezium-json.schema-include is false",
        1: "not JSON: a member without a name before character 2",
        3: "a Debezium message has no payload, and no null value",
    }
