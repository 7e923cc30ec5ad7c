"""The bytes of a log entry have a checksum, which readers of Delta pass over (FORMAT.md section 2)."""

from __future__ import annotations

import json
import random
import zlib

import pytest

from filestore.delta.entry import decode, decode_first, encode
from tests.flips import flipped

INFO = {"commitInfo": {"timestamp": 1, "tablestore": {"commitId": "c", "notes": ['"crc32":"0123abcd"', "ü\u2028"]}}}
ADD = {"add": {"path": "a.parquet", "stats": '{"numRecords":7,"crc32":"ffffffff"}', "size": 12}}


def test_an_entry_has_the_sum_of_its_bytes_with_zeros_in_its_place() -> None:
    data = encode([INFO, ADD])
    info, add = decode(data)
    found = info["commitInfo"]["tablestore"].pop("crc32")
    assert [info, add] == [INFO, ADD]
    assert int(found, 16) == zlib.crc32(data.replace(found.encode(), b"00000000", 1))
    assert decode_first(data) == decode(data)[:1]
    assert encode(decode(data)) == data, "an entry that is read and written again gets its own sum"


def test_no_flipped_bit_of_an_entry_gives_other_actions() -> None:
    data, dice = encode([INFO, ADD]), random.Random(21)
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        for read in (decode, decode_first):
            with pytest.raises(ValueError, match=r"."):
                read(bytes(changed))
    for _ in range(2000):
        with pytest.raises(ValueError, match=r"."):
            decode(flipped(data, dice, 3))


def test_entries_without_a_sum_are_read() -> None:
    """Those of former versions, of other writers, and those that somebody has changed by hand."""
    lines = [json.dumps(action, separators=(",", ":"), ensure_ascii=False) for action in (INFO, ADD)]
    assert decode("\n".join(lines).encode()) == [INFO, ADD]
    assert decode(encode([ADD])) == [ADD]
    assert decode(encode([{"commitInfo": {"engineInfo": "another"}}])) == [{"commitInfo": {"engineInfo": "another"}}]
