"""What an ingestion decides by itself, and what it commits: without a broker."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from filestore.model.schema import Column, Schema
from filestore.model.sql import parse_columns
from filestore.model.table_columns import TableColumns
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import Incoming
from log.connector.formats.connect.columns import columns_of
from log.connector.formats.connect.schema import described
from tablestore.ingesting.beginning import check_target
from tablestore.ingesting.learning import key_names, learned, new_columns, teaches
from tablestore.ingesting.source import EvolvingDecoder, raw_topic
from tests.tablestore.ingesting.debezium import ID, TEXT, Messages, decimal, instant

VARIABLE = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []}
POINT = {"type": "struct", "fields": [{"type": "double", "field": "x"}, {**instant("Timestamp"), "field": "at"}]}


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ({"type": "int8"}, "TINYINT"),
        ({"type": "int16"}, "SMALLINT"),
        ({"type": "int32"}, "INT"),
        (ID, "BIGINT"),
        ({"type": "float"}, "FLOAT"),
        ({"type": "double"}, "DOUBLE"),
        ({"type": "boolean"}, "BOOLEAN"),
        (TEXT, "STRING"),
        ({"type": "bytes"}, "BINARY"),
        ({"type": "int32", "name": "io.debezium.time.Date"}, "DATE"),
        (instant("Timestamp"), "TIMESTAMP_NTZ"),
        (instant("NanoTimestamp"), "BIGINT COMMENT 'nanoseconds since 1970'"),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "TIMESTAMP"),
        (instant("MicroTime"), "BIGINT COMMENT 'microseconds of the day'"),
        (decimal(10, 2), "DECIMAL(10,2)"),
        ({**decimal(0, 4), "parameters": {"scale": "4"}}, "DECIMAL(38,4)"),
        (VARIABLE, "STRING"),
        ({"type": "array", "items": instant("MicroTimestamp")}, "ARRAY<TIMESTAMP_NTZ>"),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}, "MAP<STRING, INT>"),
        (POINT, "STRUCT<x DOUBLE, at TIMESTAMP_NTZ>"),
    ],
)
def test_every_member_has_a_column(declared: dict[str, Any], kind: str) -> None:
    schema = {"type": "struct", "fields": [{**declared, "field": "c"}]}
    assert columns_of(described(json.dumps(schema))) == tuple(parse_columns(f"c {kind}"))


def test_which_message_a_table_is_learned_from() -> None:
    """Garbage or a truncation at the topic's beginning was taken for what all messages are."""
    for described_ in (True, False):
        messages = Messages({"id": ID, "name": TEXT}, described=described_)
        for op in ("c", "r", "u", "d"):
            _, value = messages.change(op, {"id": 1, "name": "a"}, {"id": 1, "name": "b"})
            assert teaches(value, strict=True)
            assert teaches(value, strict=False)
        for op in ("t", "m"):
            _, value = messages.change(op, None, {"id": 1, "name": "a"})
            assert not teaches(value, strict=True)
            assert not teaches(value, strict=False)
    _, value = Messages({"id": ID}).change("c", None, {"id": 1})
    unreadable = value.replace(b'"type":"struct"', b'"type":7')
    without_row = (b'{"op":"c"}', b'{"op":"c","after":null}', b'{"schema":null,"payload":{"op":"d","before":7}}')
    for garbage in (
        b"",
        b"\xff",
        b"7",
        b"[]",
        b"{}",
        b'{"op":7}',
        b'{"payload":[]}',
        b'{"op":"x"}',
        *without_row,
        unreadable,
    ):
        assert teaches(garbage, strict=True)
        assert not teaches(garbage, strict=False)


@pytest.mark.parametrize(
    "declared", [decimal(60, 4), {"type": "map", "keys": ID, "values": ID}, {"type": "struct", "fields": []}]
)
def test_a_member_without_a_column_type_is_reported(declared: dict[str, Any]) -> None:
    schema = {"type": "struct", "fields": [{**declared, "field": "c"}]}
    with pytest.raises(InvalidRequest) as caught:
        columns_of(described(json.dumps(schema)))
    assert caught.value.code == "underivable-column"


def test_the_key_says_the_primary_key() -> None:
    messages = Messages({"region": TEXT, "id": ID, "name": TEXT}, ("region", "id"))
    key, value = messages.change("c", None, {"region": "eu", "id": 1, "name": "pen"})
    found = learned("t", key, value, None, ())
    assert (found.primary_key, found.columns.names) == (("region", "id"), ("region", "id", "name"))
    assert [column.nullable for column in found.columns] == [False, False, True]
    assert learned("t", key, value, None, ("id",)).primary_key == ("id",)
    assert key_names(b'{"id":1}') == ("id",)
    assert key_names(b'{"schema":null,"payload":7}') == key_names(b"7") == key_names(None) == ()


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        (b'{"id":1}', b'{"op":"c","after":{"id":1}}', "no-schema"),
        (b'{"id":1}', b'{"schema":{"type":"struct"},"payload":{}}', "no-schema"),
        (b'{"id":1}', b"x", "no-schema"),
        (None, None, "no-primary-key"),
        (b'{"other":1}', None, "key-fields"),
    ],
)
def test_what_does_not_say_enough(key: bytes | None, value: bytes | None, code: str) -> None:
    described_value = Messages({"id": ID}).change("c", None, {"id": 1})[1]
    with pytest.raises(InvalidRequest) as caught:
        learned("t", key, described_value if value is None else value, None, ())
    assert caught.value.code == code


def test_new_columns_are_those_with_new_names() -> None:
    row = described(json.dumps({"type": "struct", "fields": [{**ID, "field": "id"}, {**TEXT, "field": "note"}]}))
    assert [column.name for column in new_columns(parse_columns("id BIGINT, gone INT"), row)] == ["note"]
    with pytest.raises(InvalidRequest) as caught:
        new_columns(parse_columns("id BIGINT, Note STRING"), row)
    assert caught.value.code == "column-case"


def test_a_truncation_is_not_passed_over() -> None:
    raw = raw_topic("t", "127.0.0.1:1", {"scan.malformed-records": "skip"})
    decoder = EvolvingDecoder(raw, parse_columns("id BIGINT NOT NULL"), ["id"], None)
    for described_too in (True, False):
        key, change = Messages({"id": ID}, described=described_too).change("c", None, {"id": 1})
        _, truncated = Messages({"id": ID}, described=described_too).change("t", None, {"id": 1})
        messages = Incoming([key, None], [change, truncated], [0, 0], [0, 1], {})
        rows, malformed = decoder.decode(messages)
        assert rows["id"].to_pylist() == [1]
        assert [(bad.index, "truncated" in bad.reason) for bad in malformed] == [(1, True)]


@pytest.mark.parametrize("stray", [b"{}", b"x", None], ids=["a stray object", "no JSON", "nothing"])
@pytest.mark.parametrize("described_first", [True, False])
def test_messages_with_and_without_schemas_in_one_batch(stray: bytes | None, described_first: bool) -> None:
    """As where a converter's settings were changed; and one that is neither spoils no other."""
    decoder = EvolvingDecoder(raw_topic("t", "127.0.0.1:1", {}), parse_columns("id BIGINT NOT NULL"), ["id"], None)
    makers = [Messages({"id": ID}, described=d) for d in (described_first, not described_first)]
    values = [stray, *(makers[n // 2].change("c", None, {"id": n})[1] for n in range(4))]
    rows, malformed = decoder.decode(Incoming([None] * 5, values, [0] * 5, range(5), {}))
    assert rows["id"].to_pylist() == [0, 1, 2, 3]
    assert [bad.index for bad in malformed] == ([] if stray is None else [0])


def test_columns_are_added_before_the_change_that_has_them() -> None:
    added: list[str] = []

    def add(columns: tuple[Column, ...]) -> Schema:
        added.extend(column.name for column in columns)
        return Schema((*parse_columns("id BIGINT NOT NULL"), *columns))

    decoder = EvolvingDecoder(raw_topic("t", "127.0.0.1:1", {}), parse_columns("id BIGINT NOT NULL"), ["id"], add)
    first, then = Messages({"id": ID}), Messages({"id": ID, "v": TEXT})
    values = [first.change("c", None, {"id": 1})[1], then.change("c", None, {"id": 2, "v": "x"})[1]]
    for _ in range(2):
        rows, malformed = decoder.decode(Incoming([None] * 2, [*values], [0, 0], [0, 1], {}))
        assert malformed == ()
        assert rows.to_pylist() == [{"id": 1, "v": None, "_kind": "+I"}, {"id": 2, "v": "x", "_kind": "+I"}]
    assert added == ["v"]


@pytest.mark.parametrize(
    ("connector", "topic", "servers", "code"),
    [
        ("upsert-kafka", "orders", "h:1", None),
        ("upsert-kafka", "cdc", "other:1", None),
        ("upsert-kafka", "cdc", "x:9, H:1", "same-topic"),
        ("kafka", "orders", "h:1", "connector-key"),
    ],
)
def test_a_topic_does_not_go_into_itself_nor_where_nothing_is_replaced(
    connector: str, topic: str, servers: str, code: str | None
) -> None:
    upserts = {"key.format": "json", "value.format": "json"}
    formats = upserts if connector == "upsert-kafka" else {"value.format": "debezium-json"}
    declared = {"connector": connector, "topic": topic, "properties.bootstrap.servers": servers, **formats}
    columns = TableColumns((Column("id", pa.int64(), nullable=False), Column("v", pa.string())))
    table, source = KafkaDeclaration.of(columns, ["id"], declared), raw_topic("cdc", "h:1,h:2", {})
    found = None
    try:
        check_target(table, source)
    except InvalidRequest as error:
        found = error.code
    assert found == code
