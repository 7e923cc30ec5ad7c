"""Key and value formats: where each column is stored, and how messages that cannot be read are handled."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import Corrupt, InvalidRequest
from log.connector.formats.fields import FieldsInclude, disagreeing, project_fields
from log.connector.formats.format import Malformed
from log.connector.formats.malformed import Policy, decide
from tests.log.connector.formats.rows import opened

SCHEMA = pa.schema([("k_id", pa.int32()), ("id", pa.string()), ("k_at", pa.int64()), ("note", pa.string())])
ROWS = pa.table({"k_id": pa.array([1], pa.int32()), "id": ["a"], "k_at": [5], "note": ["n"]})


@given(st.lists(st.sampled_from(SCHEMA.names), unique=True), st.sampled_from(FieldsInclude))
def test_halves_give_the_row_again(key: list[str], include: FieldsInclude) -> None:
    projection = project_fields(SCHEMA, key, include)
    halves = projection.split(ROWS)
    assert halves[0].schema.names == key
    assert halves[1].schema.names == [n for n in SCHEMA.names if include is FieldsInclude.ALL or n not in key]
    assert [half.schema for half in halves] == [projection.key_schema, projection.value_schema]
    assert projection.join(*halves).to_pylist() == ROWS.to_pylist()


def test_a_prefix_is_in_the_table_and_not_in_the_message() -> None:
    projection = project_fields(SCHEMA, ["k_at", "k_id"], FieldsInclude.EXCEPT_KEY, "k_")
    keys, values = projection.split(ROWS)
    assert keys.to_pylist() == [{"at": 5, "id": 1}]
    assert values.to_pylist() == [{"id": "a", "note": "n"}]
    assert projection.join(keys, values).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize(
    ("key", "include", "prefix", "words"),
    [
        (["x"], FieldsInclude.ALL, "", "names 'x', which is no column; the columns are k_id, id"),
        (["id"], FieldsInclude.EXCEPT_KEY, "k_", "'id' of key.fields has to begin with key.fields-prefix = 'k_'"),
        (["k_id"], FieldsInclude.EXCEPT_KEY, "k_id", "and go on"),
        (["id", "id"], FieldsInclude.ALL, "", "names a column twice"),
        (["k_id"], FieldsInclude.ALL, "k_", "set value.fields-include = EXCEPT_KEY"),
    ],
)
def test_wrong_keys(key: list[str], include: FieldsInclude, prefix: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        project_fields(SCHEMA, key, include, prefix)
    assert caught.value.code == "key-fields"
    assert words in caught.value.message


def test_keys_and_values_that_disagree() -> None:
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    projection = project_fields(schema, ["id"])
    keys = opened("json", projection.key_schema).decode(
        [b'{"id":1}', b'{"id":2}', b"x", b"{}", b'{"id":5}', b'{"id":6}']
    )
    update = b'{"op":"u","before":{"id":%d},"after":{"id":%d}}'
    values = opened("debezium-json", projection.value_schema).decode(
        [update % (1, 1), update % (2, 3), update % (7, 7), update % (4, 4), None, b'{"op":"c","after":{"id":6}}']
    )
    assert disagreeing(projection, keys, values) == (
        Malformed(1, "column 'id' differs between key and value"),
        Malformed(3, "column 'id' differs between key and value"),
    )


BAD = [Malformed(2, "not JSON"), Malformed(1, "no key"), Malformed(2, "no value")]
PLACES = ("orders", [0, 0, 3], [10, 11, 70])


def test_malformed_messages_fail_with_the_place_of_the_first() -> None:
    with pytest.raises(
        Corrupt, match=r"orders, partition 0, offset 11, .*\(2 messages of this batch cannot\): no key"
    ) as e:
        decide(Policy.FAIL, BAD, *PLACES)
    assert e.value.code == "malformed-record"
    assert decide(Policy.FAIL, [], *PLACES) == ()


def test_malformed_messages_are_skipped() -> None:
    assert decide(Policy.SKIP, BAD, *PLACES) == ()


def test_malformed_messages_become_dead_letters_with_all_reasons() -> None:
    first, second = decide(Policy.DEAD_LETTER, BAD, *PLACES)
    assert (first.index, first.partition, first.offset, first.reason) == (1, 0, 11, "no key")
    assert second.headers("orders") == [
        ("tablestore.topic", b"orders"),
        ("tablestore.partition", b"3"),
        ("tablestore.offset", b"70"),
        ("tablestore.reason", b"not JSON; no value"),
    ]
