"""Bloom filters: the hash is xxHash64, the bits are those that pyarrow writes, and no value that is there is denied."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.files.bloom import BloomFilter, can_have_filter, value_hashes, xxh64
from tests.filestore.arrays import KEY_TYPES, key_values

WITH_FILTER = [kind for kind in KEY_TYPES if can_have_filter(kind)]

# xxHash's own test program: sanity check vectors of XXH64 with seed 0
VECTORS = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    b"abcdefghijklmnopqrstuvwxyz": 0xCFE1F278FA89835C,
    b"xxhash": 0x32DD38952C4BC720,
    b"Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
}


def hashes_of(values: list[bytes]) -> list[int]:
    lengths = np.array([len(v) for v in values], np.int64)
    content = np.frombuffer(b"".join(values) or b"", np.uint8)
    return xxh64(content, np.cumsum(lengths) - lengths, lengths).tolist()


def test_known_hashes() -> None:
    assert hashes_of(list(VECTORS)) == list(VECTORS.values())


def xxh64_of_one(data: bytes) -> int:
    """xxHash64, as its specification says it, byte by byte."""
    p1, p2, p3, p4, p5 = (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
    mask = (1 << 64) - 1

    def rotl(x: int, n: int) -> int:
        return ((x << n) | (x >> (64 - n))) & mask

    def rounded(lane: int, word: int) -> int:
        return rotl((lane + word * p2) & mask, 31) * p1 & mask

    rest = data
    if len(data) < 32:
        h = p5
    else:
        lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        while len(rest) >= 32:
            lanes = [rounded(lane, int.from_bytes(rest[i * 8 : i * 8 + 8], "little")) for i, lane in enumerate(lanes)]
            rest = rest[32:]
        h = sum(rotl(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for lane in lanes:
            h = ((h ^ rounded(0, lane)) * p1 + p4) & mask
    h = (h + len(data)) & mask
    while len(rest) >= 8:
        h = (rotl(h ^ rounded(0, int.from_bytes(rest[:8], "little")), 27) * p1 + p4) & mask
        rest = rest[8:]
    if len(rest) >= 4:
        h = (rotl(h ^ (int.from_bytes(rest[:4], "little") * p1 & mask), 23) * p2 + p3) & mask
        rest = rest[4:]
    for byte in rest:
        h = rotl(h ^ (byte * p5 & mask), 11) * p1 & mask
    h = (h ^ (h >> 33)) * p2 & mask
    h = (h ^ (h >> 29)) * p3 & mask
    return h ^ (h >> 32)


@given(st.lists(st.binary(max_size=140) | st.integers(0, 200).map(bytes), min_size=1, max_size=20))
def test_hashes_against_a_loop(values: list[bytes]) -> None:
    assert hashes_of(values) == [xxh64_of_one(value) for value in values]


def written(values: pa.Array, ndv: int, fpp: float) -> tuple[BloomFilter, bytes, Any]:
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": values}), sink, bloom_filter_options={"k": {"ndv": ndv, "fpp": fpp}})
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    chunk = file.metadata.row_group(0).column(0)
    data = sink.getvalue()[chunk.bloom_filter_offset :][: chunk.bloom_filter_length]
    found = BloomFilter.parse(data)
    assert found is not None
    return found, data, file.schema.column(0)


@pytest.mark.parametrize("kind", WITH_FILTER, ids=str)
def test_the_bits_are_those_that_pyarrow_sets(kind: pa.DataType) -> None:
    """Not one too few: no value is denied. Not one too many: the hash is the right one."""

    @given(
        st.lists(key_values(kind) | key_values(kind, few=True), min_size=1, max_size=30), st.sampled_from([1, 40, 900])
    )
    def same(values: list[Any], ndv: int) -> None:
        array = pa.array([None, *values, None], kind).slice(1, len(values))  # with an offset, as slices have
        bloom, data, column = written(array, ndv, 0.01)
        hashes = value_hashes(array, column)
        assert hashes is not None
        assert bloom.may_hold(hashes).all()
        blocks = np.zeros_like(bloom._blocks)
        for one in hashes.tolist():
            block = ((one >> 32) * len(blocks)) >> 32
            for word, salt in enumerate(SALT):
                blocks[block, word] |= np.uint32(1 << (((one & 0xFFFFFFFF) * salt & 0xFFFFFFFF) >> 27))
        assert blocks.tobytes() == data[-blocks.nbytes :]

    same()


SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


def test_few_values_that_are_not_there_are_thought_to_be() -> None:
    bloom, _, column = written(pa.array(range(100_000), pa.int64()), 100_000, 0.01)
    hashes = value_hashes(pa.array(range(100_000, 300_000), pa.int64()), column)
    assert hashes is not None
    others = bloom.may_hold(hashes)
    assert 0 < others.mean() < 0.02


@pytest.mark.parametrize("data", [b"", b"\x15", b"\x15\x80", bytes(100), b"\xff" * 100, b"\x15\x40" + bytes(80)])
def test_what_is_no_filter_is_none(data: bytes) -> None:
    assert BloomFilter.parse(data) is None


@given(st.integers(0, 46))
def test_a_filter_that_is_cut_short_is_none(length: int) -> None:
    _, data, _ = written(pa.array([1], pa.int64()), 1, 0.01)
    assert BloomFilter.parse(data[:length]) is None or length == len(data)


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        (pa.int32(), pa.int64()),
        (pa.int64(), pa.int32()),
        (pa.decimal128(9, 2), pa.decimal128(11, 4)),
        (pa.int64(), pa.string()),
    ],
    ids=str,
)
def test_a_filter_of_another_type_says_nothing(stored: pa.DataType, asked: pa.DataType) -> None:
    _, _, column = written(pa.array([1], pa.int64()).cast(pa.decimal128(38, 2)).cast(stored), 1, 0.01)
    assert value_hashes(pa.array([None], asked).slice(1), column) is None
