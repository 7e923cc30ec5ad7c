"""Objects that are maps are read together, and as they would be one by one."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.connector.formats.json import documents
from log.connector.formats.json.documents import parse_documents
from log.connector.formats.json.maps import maps_as_entries
from log.connector.formats.json.values import Place, column_value, load

COUNTS = pa.map_(pa.string(), pa.int64())
SCHEMA = pa.schema(
    [
        ("m", COUNTS),
        ("deep", pa.map_(pa.string(), COUNTS)),
        ("s", pa.struct([("m", pa.map_(pa.string(), pa.string())), ("plain", pa.struct([("m", pa.int64())]))])),
        ("many", pa.list_(pa.struct([("m", COUNTS), ("n", pa.int64())]))),
        ("id", pa.int64()),
    ]
)
KEYS = st.sampled_from(["m", "key", "value", "", 'a"b', "a\\", "{,:}[]", "é", "\n", "deep"])
NUMBERS = st.none() | st.integers(-9, 9)
COUNTED = st.none() | st.dictionaries(KEYS, NUMBERS, max_size=3)
STRUCTS = {
    "m": st.none() | st.dictionaries(KEYS, st.none() | KEYS, max_size=3),
    "plain": st.none() | st.fixed_dictionaries({"m": NUMBERS}),
}
ELEMENTS = {"m": COUNTED, "n": NUMBERS}
MEMBERS = {
    "m": COUNTED,
    "deep": st.none() | st.dictionaries(KEYS, COUNTED, max_size=2),
    "s": st.none() | st.fixed_dictionaries({}, optional=STRUCTS),
    "many": st.none()
    | st.lists(st.none() | st.fixed_dictionaries({}, optional={"m": COUNTED, "n": NUMBERS}), max_size=2),
    "id": NUMBERS,
    "other": st.just({"m": {"m": [{"a": 1}, "}"]}}) | KEYS,
}
STYLES = st.sampled_from([{"separators": (",", ":")}, {}, {"separators": (" ,\t", " : ")}, {"ensure_ascii": False}])
MESSAGES = st.builds(
    lambda document, style: json.dumps(document, **style).encode(), st.fixed_dictionaries({}, optional=MEMBERS), STYLES
)


def alone(messages: list[bytes]) -> tuple[list[dict[str, Any]], list[int]]:
    """The documents as they are read one by one, and which are none."""
    rows, bad = [], []
    for place, message in enumerate(messages):
        try:
            document = load(message)
            if not isinstance(document, dict):
                raise ValueError("no object")
            rows.append({f.name: column_value(document.get(f.name), f.type, Place(f.name)) for f in SCHEMA})
        except ValueError:
            bad.append(place)
    return rows, bad


@given(st.lists(MESSAGES, min_size=1, max_size=8))
def test_maps_are_read_together_as_they_are_one_by_one(messages: list[bytes]) -> None:
    with mock.patch.object(documents._Found, "read", side_effect=AssertionError("one by one")):
        found = parse_documents(messages, SCHEMA)
    assert found.members.equals(pa.Table.from_pylist(alone(messages)[0], schema=SCHEMA))
    found.members.validate(full=True)


@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data())
def test_damage_costs_the_message_that_has_it(messages: list[bytes], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(messages) - 1))
    at = data.draw(st.integers(0, len(messages[place])))
    gone = data.draw(st.integers(0, 2))
    put = data.draw(
        st.sampled_from([b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"1", b" ", b'"m":', b"{}", b"null"])
    )
    messages[place] = messages[place][:at] + put + messages[place][at + gone :]
    found = parse_documents(messages, SCHEMA)
    rows, bad = alone(messages)
    assert sorted(found.malformed) == bad
    assert found.members.equals(pa.Table.from_pylist(rows, schema=SCHEMA))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b'{"m":{}}', b'{"m":[]}'),
        (b'{"m": { } }', b'{"m": [ ] }'),
        (b'{"m":{"a":1,"b":2}}', b'{"m":[{"key":"a","value":1},{"key":"b","value":2}]}'),
        (b'{"x":{"m":{"a":1}}}', b'{"x":{"m":{"a":1}}}'),
        (b'{"deep":{"m":{"a":1}}}', b'{"deep":[{"key":"m","value":[{"key":"a","value":1}]}]}'),
    ],
)
def test_only_maps_are_rewritten(message: bytes, expected: bytes) -> None:
    assert maps_as_entries(np.frombuffer(message, np.uint8), SCHEMA).to_pybytes() == expected


@pytest.mark.parametrize(
    "message",
    [
        b'{"m":[{"key":"a","value":1}]}',
        b'{"m":{"a":1:2}}',
        b'{"m":{"a"}}',
        b'{"m":{null}}',
        b'{"m":{"a":1,}}',
        b'{"m":{1:2}}',
        b'{"m":{"a" "b":2}}',
        b'{"m":{"a":1]}',
        b'{"m":{"a":1}',
        b'{"m":{"a:1}}',
    ],
)
def test_what_is_no_map_is_refused(message: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid):
        maps_as_entries(np.frombuffer(message, np.uint8), SCHEMA)


def test_a_key_that_comes_twice_is_the_last_one() -> None:
    found = parse_documents([b'{"m":{"a":1,"\\u0061":2}}', b'{"m":{"a":3}}'], SCHEMA)
    assert found.members["m"].to_pylist() == [[("a", 2)], [("a", 3)]]
