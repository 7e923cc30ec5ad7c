"""Every format: bytes that are cut, changed and mixed stop no reader and touch no other message."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.connector.formats.options import FORMAT_OPTIONS
from tests.log.connector.formats.rows import opened

ROWS = pa.table(
    {
        "id": pa.array([1, -70000, None], pa.int32()),
        "name": ['a,"b"\n', None, "é"],
        "price": pa.array([None, 5, 7], pa.decimal128(12, 0)),
        "tags": pa.array([["x", "y"], [], None], pa.list_(pa.string())),
        "at": pa.array([0, None, -1], pa.timestamp("us")),
    }
)
TOKENS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"\n",
    b"\\",
    b"\xff",
    b"\0",
    b"1e99",
    b'"old"',
    b'"UPDATE"',
]
EDITS = st.tuples(st.floats(0, 1), st.integers(0, 4), st.sampled_from(TOKENS) | st.binary(max_size=3))


def damaged(message: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    for place, gone, new in edits:
        at = int(place * len(message))
        message = message[:at] + new + message[at + gone :]
    return message


def test_a_schema_that_is_no_text_spoils_no_other_message() -> None:
    format_ = opened("debezium-json", ROWS.schema, schema_include="true")
    first, *others = format_.encode(ROWS)
    assert first is not None
    found = format_.decode([first, first.replace(b'"field":"name"', b'"field":"\\ud800"'), *others], ["schema"])
    assert [m.index for m in found.malformed] == [1]
    assert "no Unicode text" in found.malformed[0].reason
    assert found.rows.select(ROWS.column_names).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("name", sorted(FORMAT_OPTIONS))
@given(data=st.data())
def test_damage_stays_in_its_message(name: str, data: Any) -> None:
    rows = ROWS.select(["name"]) if name == "raw" else ROWS
    format_ = opened(name, rows.schema)
    good = format_.encode(rows)
    start = [m or b"" for m in good]
    if name == "canal-json":
        start.append(b'{"data":[{"id":"1","name":null}],"old":[{"name":"x","id":null}],"type":"UPDATE"}')
    if name == "debezium-json":
        start.append(b'{"before":{"id":1},"after":{"id":2},"op":"u","source":{"db":"d"},"ts_ms":1}')
    edits = st.lists(EDITS, min_size=1, max_size=3)
    bad = data.draw(st.lists(st.builds(damaged, st.sampled_from(start), edits), min_size=1, max_size=4))
    values = [*good, *bad, *good]
    found = format_.decode(values)
    found.rows.validate(full=True)
    malformed = [m.index for m in found.malformed]
    assert set(malformed).isdisjoint(found.index.tolist())
    assert malformed == sorted(set(malformed))
    assert all(len(good) <= i < len(good) + len(bad) for i in malformed)
    present = [i for i, m in enumerate(good) if m is not None]
    ends = [
        found.rows.filter(pa.array(found.index < len(good))),
        found.rows.filter(pa.array(found.index >= len(good) + len(bad))),
    ]
    for end in ends:
        assert end.to_pylist() == rows.take(pa.array(present)).to_pylist()
