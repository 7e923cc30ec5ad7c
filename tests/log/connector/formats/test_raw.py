"""``raw``: against struct and the codecs."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from tests.log.connector.formats.rows import opened, plain
from tests.log.schemas import cells

NUMBERS = {
    "b": pa.int8(),
    "h": pa.int16(),
    "i": pa.int32(),
    "q": pa.int64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "?": pa.bool_(),
}


@given(st.sampled_from(sorted(NUMBERS)), st.booleans(), st.data())
def test_numbers(letter: str, big: bool, data: st.DataObject) -> None:
    kind = NUMBERS[letter]
    values = data.draw(st.lists(cells(kind), max_size=5))
    rows = pa.table({"v": pa.array(values, kind)})
    format_ = opened("raw", rows.schema, endianness="big-endian" if big else "little-endian")
    messages = format_.encode(rows)
    expected = [None if v is None else struct.pack((">" if big else "<") + letter, v) for v in values]
    assert messages == expected
    found = format_.decode(messages)
    assert plain(found.rows) == plain(rows.filter(rows["v"].is_valid()))
    assert found.tombstones.tolist() == [i for i, v in enumerate(values) if v is None]


@given(st.sampled_from(["UTF-8", "UTF-16LE", "ISO-8859-1", "GBK"]), st.lists(st.none() | st.text("aé中", max_size=3)))
def test_texts(charset: str, values: list[str | None]) -> None:
    rows = pa.table({"v": pa.array(values, pa.string())})
    format_ = opened("raw", rows.schema, charset=charset)
    try:
        expected = [None if v is None else v.encode(charset) for v in values]
    except UnicodeEncodeError:
        with pytest.raises(InvalidRequest, match="cannot spell") as caught:
            format_.encode(rows)
        assert caught.value.code == "format-value"
        return
    assert format_.encode(rows) == expected
    assert format_.decode(expected).rows["v"].to_pylist() == [v for v in values if v is not None]


def test_bytes_are_as_they_are() -> None:
    rows = pa.table({"v": pa.array([b"\xff", b"", None], pa.binary())})
    format_ = opened("raw", rows.schema)
    assert format_.encode(rows) == [b"\xff", b"", None]
    assert format_.decode([b"\xff", b"", None]).rows["v"].to_pylist() == [b"\xff", b""]


@pytest.mark.parametrize(
    ("kind", "options", "broken", "reason"),
    [
        (pa.int32(), {}, b"abc", "3 bytes, and a int32 has 4"),
        (pa.bool_(), {}, b"", "0 bytes, and a bool has 1"),
        (pa.string(), {}, b"\xff", "not utf-8: invalid start byte at byte 0"),
        (pa.string(), {"charset": "ascii"}, b"a\xff", "not ascii: ordinal not in range(128) at byte 1"),
    ],
)
def test_broken_messages_spoil_no_others(kind: Any, options: dict[str, str], broken: bytes, reason: str) -> None:
    format_ = opened("raw", pa.schema([("v", kind)]), **options)
    good = bytes({pa.int32(): 4, pa.bool_(): 1}.get(kind, 0)) or b"a"
    found = format_.decode([good, None, broken, good])
    assert found.index.tolist() == [0, 3]
    assert [(m.index, m.reason) for m in found.malformed] == [(2, reason)]
