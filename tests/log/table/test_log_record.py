"""Rows to messages and back, for every type, exactly."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.errors import Corrupt, InvalidRequest
from filestore.model.schema import Column, Schema
from log.json_rows import decode_rows, encode_rows
from log.slices import slices
from log.table.config import LogConfig
from log.table.log_record import ControlMessage, DebeziumJson, RowMessages
from log.table.rows import conform, row_schema
from tests.log.schemas import same, tables

no_deadline = settings(deadline=None)  # the machine may be busy with other tests

TABLE = "11111111-2222-3333-4444-555555555555"
TXN = f"{TABLE}/99999999-8888-7777-6666-555555555555/0.0"


def config(schema: pa.Schema, key: tuple[str, ...] = ()) -> LogConfig:
    columns = Schema(tuple(Column(f.name, f.type, f.nullable) for f in schema if f.name != "_kind"))
    return LogConfig("kafka", 'sh"op', "orders", TABLE, columns, key, 1, "")


def decoded(format_: DebeziumJson, values: list[bytes], schema: pa.Schema) -> list[Any]:
    return [
        m.rows.to_pylist() if isinstance(m, RowMessages) else dict(m.payload)
        for m in format_.decode(values, TXN, schema)
    ]


@no_deadline
@given(tables(kinds=False))
def test_rows_survive_json(rows: pa.Table) -> None:
    texts = encode_rows(rows)
    assert [set(json.loads(t)) for t in texts] == [set(rows.schema.names)] * rows.num_rows
    result = decode_rows(texts, rows.schema)
    result.validate(full=True)
    assert same(result, rows)


def test_rows_with_floats_that_json_lacks_stay_between_others() -> None:
    values = [1.5, float("inf"), None, float("-inf"), -0.0]
    rows = pa.table({"n": pa.array(range(5), pa.int64()), "x": pa.array(values, pa.float64())})
    assert decode_rows(encode_rows(rows), rows.schema).to_pylist() == rows.to_pylist()


@no_deadline
@given(tables(), st.data())
def test_changes_survive_messages_among_strangers(rows: pa.Table, data: st.DataObject) -> None:
    key = tuple(data.draw(st.lists(st.sampled_from(rows.schema.names[:-1]), unique=True)))
    format_ = DebeziumJson(config(rows.schema, key))
    schema = row_schema(config(rows.schema).schema, rows.schema.names)
    messages = format_.encode(rows, TXN, 5, 1_700_000_000_000)
    values, places = [], []
    for value in messages.values:
        values += data.draw(st.lists(st.binary(max_size=5), max_size=2))
        places.append(len(values))
        values.append(value)
    found = [m for m in format_.decode(values, TXN, schema) if isinstance(m, RowMessages)]
    assert [m.last for m in found] == places[-1:]
    assert same(pa.Table.from_batches([m.rows for m in found], schema), rows.cast(schema))
    assert (messages.keys is None) == (not key)
    for number, value in enumerate(messages.values):
        document = json.loads(value)
        assert document["source"]["seq"] == 5 + number
        assert document["source"]["kind"] == rows["_kind"][number].as_py()
        assert [n for n in ("before", "after") if document[n]] == ["after" if document["op"] in "cu" else "before"]
    if messages.keys is not None:
        assert [list(json.loads(k)) for k in messages.keys] == [list(key)] * rows.num_rows


@no_deadline
@given(tables(kinds=False), st.data())
def test_any_columns_can_be_read_alone_and_new_ones_are_null(rows: pa.Table, data: st.DataObject) -> None:
    names = data.draw(st.permutations(rows.schema.names))[: data.draw(st.integers(1, len(rows.schema)))]
    fields = [rows.schema.field(n) for n in names]
    wanted = pa.schema([*fields, pa.field("added later", pa.list_(pa.date32()))])
    result = decode_rows(encode_rows(rows), wanted)
    assert same(result.select(names), rows.select(names))
    assert result["added later"].null_count == rows.num_rows


# A worked example, which PROTOCOL.md shows.
EXAMPLE = pa.table(
    {
        "id": pa.array([1], pa.int64()),
        "big": pa.array([9_007_199_254_740_993], pa.int64()),
        "ratio": pa.array([0.1], pa.float64()),
        "price": pa.array([Decimal("12.50")], pa.decimal128(10, 2)),
        "name": pa.array(['a "ü"\n']),
        "data": pa.array([b"\x00\xff"]),
        "day": pa.array([dt.date(2026, 11, 21)]),
        "at": pa.array([dt.datetime(2026, 11, 21, 15, 30, 0, 5)], pa.timestamp("us", "UTC")),
        "local": pa.array([dt.datetime(2026, 11, 21, 15, 30)], pa.timestamp("us")),
        "tags": pa.array([["x", None]], pa.list_(pa.string())),
        "sizes": pa.array([[("s", 1)]], pa.map_(pa.string(), pa.int32())),
        "place": pa.array([{"lat": 1.5}], pa.struct([("lat", pa.float64())])),
        "_kind": ["+I"],
    }
)
EXAMPLE_ROW = (
    '{"id":1,"big":9007199254740993,"ratio":0.1,"price":"12.50","name":"a \\"ü\\"\\n","data":"AP8=",'
    '"day":"2026-11-21","at":"2026-11-21T15:30:00.000005Z","local":"2026-11-21T15:30:00.000000",'
    '"tags":["x",null],"sizes":[{"key":"s","value":1}],"place":{"lat":1.5}}'
)


def test_the_worked_example_of_the_protocol() -> None:
    messages = DebeziumJson(config(EXAMPLE.schema, ("id",))).encode(EXAMPLE, TXN, 0, 1_795_275_000_000)
    assert messages.keys is not None
    assert messages.keys.to_list() == [b'{"id":1}']
    assert messages.values[0].decode() == (
        f'{{"source":{{"txn":"{TXN}","kind":"+I","seq":0,"commit":"99999999-8888-7777-6666-555555555555",'
        '"db":"sh\\"op","table":"orders"},"op":"c","ts_ms":1795275000000,"before":null,'
        f'"after":{EXAMPLE_ROW}}}'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_are_strings_and_the_rest_of_the_row_too(value: float) -> None:
    rows = pa.table({"x": [1.5, 1.5], "y": [value, 2.5]})
    name = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    assert encode_rows(rows).to_list() == [f'{{"x":"1.5","y":"{name}"}}', '{"x":1.5,"y":2.5}']


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**40], pa.int64()).cast(pa.date64()).cast(pa.date32(), safe=False),
        pa.array([2**60], pa.int64()).cast(pa.timestamp("us")),
        pa.array([-(2**60)], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([[2**60]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us"))),
    ],
)
def test_times_beyond_the_calendar_are_refused(column: pa.Array) -> None:
    if pa.types.is_date(column.type):
        column = pa.array([10_000_000], pa.int32()).cast(pa.date32())
    with pytest.raises(InvalidRequest, match="'when'") as caught:
        encode_rows(pa.table({"when": column}))
    assert caught.value.code == "log-value-range"


def test_a_control_record_is_no_change() -> None:
    format_ = DebeziumJson(config(EXAMPLE.schema))
    schema = row_schema(config(EXAMPLE.schema).schema, ())
    payload = {"control": "overwrite", "where": 'p = "ü"'}
    control = format_.encode_control(payload, TXN, 7, 3)
    document = json.loads(control)
    assert (document["op"], document["ts_ms"], document["message"]) == ("m", 3, payload)
    assert document["source"]["kind"] == "control"
    row = format_.encode(EXAMPLE, TXN, 0, 1).values[0]
    assert decoded(format_, [control, row, control, control], schema) == [
        payload,
        EXAMPLE.to_pylist(),
        payload,
        payload,
    ]
    assert [m.last for m in format_.decode([row, b"", control], TXN, schema)] == [0, 2]


def test_a_tombstone_is_a_deletion_of_which_only_the_key_is_known() -> None:
    format_ = DebeziumJson(config(EXAMPLE.schema, ("id",)))
    schema = row_schema(config(EXAMPLE.schema).schema, ("id",), ["id", "name"])
    value = format_.tombstone(b'{"id":4}', TXN)
    assert decoded(format_, [value], schema) == [[{"id": 4, "name": None, "_kind": "-D"}]]


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: value[:-1],
        lambda value: value.replace(b'"before":', b'"befor":'),
        lambda value: value.replace(b'"+I"', b'"+X"'),
        lambda value: value.replace(b'"id":1', b'"id":"one"'),
        lambda value: value.replace(b'"name":"a', b'"name":"\xff'),
        lambda value: value.replace(b'"kind":"+I"', b'"kind":"control"'),
    ],
)
def test_a_damaged_record_is_corrupt(damage: Any) -> None:
    format_ = DebeziumJson(config(EXAMPLE.schema))
    value = damage(format_.encode(EXAMPLE, TXN, 0, 1).values[0])
    with pytest.raises(Corrupt) as caught:
        decoded(format_, [value], row_schema(config(EXAMPLE.schema).schema, ()))
    assert caught.value.code == "log-record"


def test_another_transactions_records_are_passed_over() -> None:
    format_ = DebeziumJson(config(EXAMPLE.schema))
    schema = row_schema(config(EXAMPLE.schema).schema, ())
    ours = format_.encode(EXAMPLE, TXN, 0, 1).values
    longer = format_.encode(EXAMPLE, f"{TXN}0", 0, 1).values
    assert decoded(format_, [*longer, *ours, b""], schema) == [EXAMPLE.to_pylist()]
    assert not list(format_.decode(longer, TXN, schema))
    assert not list(format_.decode([], TXN, schema))
    assert isinstance(next(format_.decode([format_.encode_control({}, TXN, 0, 0)], TXN, schema)), ControlMessage)


# ----------------------------------------------------------------------------------------------- rows.py


def test_rows_are_cast_and_put_in_order() -> None:
    target = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_kind", pa.string())])
    given_rows = pa.table(
        {
            "_kind": pa.array(["+I"]).dictionary_encode(),
            "name": pa.array(["a"], pa.large_string()),
            "extra": [1],
            "id": pa.array([1], pa.int8()),
        }
    )
    assert conform(given_rows, target).to_pylist() == [{"id": 1, "name": "a", "_kind": "+I"}]
    assert conform(given_rows, target).schema == target


@pytest.mark.parametrize("kind", [None, "", "+i"])
def test_an_unknown_kind_is_refused(kind: str | None) -> None:
    target = pa.schema([("_kind", pa.string())])
    with pytest.raises(InvalidRequest, match="_kind"):
        conform(pa.table({"_kind": pa.array(["+I", kind])}), target)


@no_deadline
@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 2000))
def test_slices_are_bounded_and_lose_nothing(count: int, rows: int, size: int) -> None:
    table = pa.table({"x": pa.array(range(count), pa.int64())})
    pieces = slices(table, rows, size)
    assert [x for p in pieces for x in p["x"].to_pylist()] == list(range(count))
    assert all(1 <= p.num_rows <= rows for p in pieces)
    assert all(p.num_rows == 1 or p.num_rows * 8 <= size for p in pieces)
