"""Formats by name, their options and types; the page that is drawn from them."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from log.connector.formats.format import Role
from log.connector.formats.opening import open_format
from log.connector.formats.options import FORMAT_OPTIONS, parse_options, select_options

ID = pa.schema([("id", pa.int32())])
TEXT = pa.schema([("v", pa.string())])
INT_KEYS = pa.schema([("m", pa.list_(pa.map_(pa.int32(), pa.string())))])


@pytest.mark.parametrize("name", sorted(FORMAT_OPTIONS))
def test_every_format_opens_and_can_be_pickled(name: str) -> None:
    options = {"url": "http://127.0.0.1:1"} if name == "avro-confluent" else {}
    format_ = open_format(name, ID, options, Role.VALUE, topic="t")
    assert pickle.loads(pickle.dumps(format_)) == format_
    assert format_.schema == ID
    assert format_.changelog == (name in ("debezium-json", "canal-json"))
    assert bool(format_.metadata) == format_.changelog
    found = format_.decode([None, None])
    assert found.tombstones.tolist() == [0, 1]
    assert found.rows.schema == ID
    assert format_.encode(ID.empty_table()) == []
    assert format_.decode([]).rows.num_rows == 0


@pytest.mark.parametrize(
    ("name", "schema", "options", "code", "words"),
    [
        ("xml", ID, {}, "unknown-format", "there are json, debezium-json"),
        ("json", ID, {"nope": "1"}, "unknown-option", "json has json.fail-on-missing-field"),
        ("avro", ID, {"nope": "1"}, "unknown-option", "avro has avro.timestamp_mapping.legacy"),
        ("json", ID, {"ignore-parse-errors": "true"}, "unknown-option", "fail, skip or dead-letter"),
        ("json", ID, {"timestamp-format.standard": "RFC"}, "invalid-option", "'SQL' or 'ISO-8601'"),
        ("json", INT_KEYS, {}, "format-type", "column 'm' cannot be json: it has a MAP whose keys are not STRING"),
        ("canal-json", ID, {"table.include": "("}, "invalid-option", "should be a regular expression"),
        ("csv", ID, {"field-delimiter": "ab"}, "invalid-option", "one ASCII character"),
        ("csv", ID, {"field-delimiter": '"'}, "invalid-option", "must differ"),
        ("csv", ID, {"disable-quote-character": "true", "quote-character": "'"}, "invalid-option", "no meaning"),
        ("csv", INT_KEYS, {}, "format-type", "nested twice"),
        ("csv", pa.schema([]), {}, "format-type", "a column at least"),
        ("avro", INT_KEYS, {}, "format-type", "a MAP whose keys are not STRING"),
        ("avro", pa.schema([("a b", pa.int8())]), {}, "format-type", "the name 'a b'"),
        ("avro-confluent", ID, {}, "invalid-option", "needs the option avro-confluent.url"),
        ("raw", pa.schema([("a", pa.int8()), ("b", pa.int8())]), {}, "format-type", "raw holds one column"),
        ("raw", pa.schema([("a", pa.date32())]), {}, "format-type", "has no raw bytes"),
        ("raw", TEXT, {"charset": "klingon"}, "invalid-option", "the name of a charset"),
    ],
)
def test_what_is_wrong_is_reported_at_once(
    name: str, schema: pa.Schema, options: dict[str, str], code: str, words: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        open_format(name, schema, options, Role.VALUE, topic="t")
    assert caught.value.code == code
    assert words in caught.value.message


@pytest.mark.parametrize("name", ["debezium-json", "canal-json"])
def test_changes_are_no_keys(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot encode keys") as caught:
        open_format(name, ID, {}, Role.KEY)
    assert caught.value.code == "format-role"


def test_a_registry_needs_a_subject() -> None:
    with pytest.raises(InvalidRequest, match=r"avro-confluent\.subject"):
        open_format("avro-confluent", ID, {"url": "http://127.0.0.1:1"}, Role.VALUE)


def test_options_of_a_role_go_before_those_of_both() -> None:
    options = {"csv.field-delimiter": ";", "value.csv.field-delimiter": "|", "key.csv.null-literal": "-", "topic": "t"}
    assert select_options(options, "csv", Role.VALUE) == {"field-delimiter": "|"}
    assert select_options(options, "csv", Role.KEY) == {"field-delimiter": ";", "null-literal": "-"}
    assert parse_options("csv", {"field-delimiter": "\\t"})["field-delimiter"] == "\t"


def test_no_option_of_one_format_is_taken_for_another_s() -> None:
    options = {"avro-confluent.url": "u", "json.fail-on-missing-field": "true"}
    assert select_options(options, "avro", Role.VALUE) == {}
    assert select_options(options, "debezium-json", Role.VALUE) == {}
