"""Reads Bloom filters of Parquet column chunks, which say which values a chunk may contain (FORMAT.md section 7).

pyarrow writes them but does not read them. The format is apache/parquet-format's BloomFilter.md: split blocks of 256
bits, with xxHash64 (seed 0) of a value's plain encoding. Other engines read and write the same format.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from filestore.rows.slices import slices

__all__ = ["BloomFilter", "can_have_filter", "value_hashes", "xxh64"]

Hashes = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_HEADER_END = bytes.fromhex("1c1c0000" * 3 + "00")
"""Thrift for: split blocks, xxHash, uncompressed. The format defines no others."""

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)


class BloomFilter:
    """The Bloom filter of one column chunk.

    Args:
        blocks: The filter's bits, eight words for each block.
    """

    def __init__(self, blocks: npt.NDArray[np.uint32]) -> None:
        self._blocks = blocks

    @classmethod
    def parse(cls, data: pa.Buffer | bytes) -> BloomFilter | None:
        """Parses a header and the bits after it; returns None for an unknown kind of filter, or other bytes."""
        head = bytes(memoryview(data)[: 6 + len(_HEADER_END)])
        size, at = _varint(head, 1)
        if head[:1] != b"\x15" or head[at : at + len(_HEADER_END)] != _HEADER_END:
            return None
        size, at = size >> 1, at + len(_HEADER_END)
        if size <= 0 or size % 32 or len(memoryview(data)) < at + size:
            return None
        return cls(np.frombuffer(data, np.uint32, size // 4, at).reshape(-1, 8))

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Marks the hashes whose value the chunk may contain. It leaves out no value that the chunk does contain."""
        block = ((hashes >> np.uint64(32)) * np.uint64(len(self._blocks))) >> np.uint64(32)
        with np.errstate(over="ignore"):
            bits = (hashes.astype(np.uint32)[:, None] * _SALT) >> np.uint32(27)
        set_bits = self._blocks[block.astype(np.int64)] >> bits & np.uint32(1)
        found: npt.NDArray[np.bool_] = np.equal(np.count_nonzero(set_bits, axis=1), len(_SALT))
        return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    return value, at


def can_have_filter(kind: pa.DataType) -> bool:
    """Returns whether a column of the type can have a filter: a boolean cannot."""
    return not (pa.types.is_boolean(kind) or pa.types.is_nested(kind))


def value_hashes(values: pa.Array, column: pq.ColumnSchema) -> Hashes | None:
    """Hashes values, none of them null, as the filter of that Parquet column does.

    Returns None if the column stores another type than that of the values: then its filter cannot be used for them.
    """
    kind = values.type
    if column.physical_type != _physical(kind) or (pa.types.is_decimal(kind) and column.scale != kind.scale):
        return None
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return xxh64(*slices(values))
    if pa.types.is_decimal(kind):
        return _hash_fixed(_big_endian(values, column.length))
    if pa.types.is_timestamp(kind) or kind == pa.int64():
        return _hash_fixed(np.asarray(values.view(pa.int64())).view(np.uint8).reshape(-1, 8))
    whole = values.view(pa.int32()) if pa.types.is_date32(kind) else values.cast(pa.int32())
    return _hash_fixed(np.asarray(whole).view(np.uint8).reshape(-1, 4))


def _physical(kind: pa.DataType) -> str:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "BYTE_ARRAY"
    if pa.types.is_decimal(kind):
        return "FIXED_LEN_BYTE_ARRAY"
    return "INT64" if pa.types.is_timestamp(kind) or kind == pa.int64() else "INT32"


def _big_endian(values: pa.Array, width: int) -> Bytes:
    raw = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, 16)
    return np.ascontiguousarray(raw[values.offset : values.offset + len(values), :width][:, ::-1])


def _hash_fixed(rows: Bytes) -> Hashes:
    count, width = rows.shape
    starts = np.arange(count, dtype=np.int64) * width
    return xxh64(np.ascontiguousarray(rows).reshape(-1), starts, np.full(count, width, np.int64))


def xxh64(content: Bytes, starts: Numbers, lengths: Numbers) -> Hashes:
    """Computes xxHash64 with seed 0 of slices of bytes: for all slices together, one word at a time."""
    with np.errstate(over="ignore"):
        hashes = lengths.astype(np.uint64) + _P5
        long = np.flatnonzero(lengths >= 32)
        if len(long):
            hashes[long] = _stripes(content, starts[long], lengths[long]) + lengths[long].astype(np.uint64)
        at, left = starts + lengths // 32 * 32, lengths % 32
        for _ in range(3):
            rows = np.flatnonzero(left >= 8)
            mixed = hashes[rows] ^ _round(np.zeros(len(rows), np.uint64), _words(content, at[rows], 8))
            hashes[rows] = _rotl(mixed, 27) * _P1 + _P4
            at[rows], left[rows] = at[rows] + 8, left[rows] - 8
        rows = np.flatnonzero(left >= 4)
        hashes[rows] = _rotl(hashes[rows] ^ _words(content, at[rows], 4) * _P1, 23) * _P2 + _P3
        at[rows], left[rows] = at[rows] + 4, left[rows] - 4
        for tail in range(3):
            rows = np.flatnonzero(left > tail)
            hashes[rows] = _rotl(hashes[rows] ^ content[at[rows] + tail].astype(np.uint64) * _P5, 11) * _P1
        hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
        hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
        return hashes ^ (hashes >> np.uint64(32))


def _stripes(content: Bytes, starts: Numbers, lengths: Numbers) -> Hashes:
    """Hashes the complete stripes of 32 bytes of long slices, before their length is added."""
    lanes = np.tile(np.array([_P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1], np.uint64), (len(starts), 1))
    stripes = lengths // 32
    order = np.argsort(-stripes, kind="stable")  # the longest first, so that the unfinished ones are a prefix
    descending = -stripes[order]
    for stripe in range(int(stripes.max())):
        rows = order[: np.searchsorted(descending, -stripe, side="left")]
        for lane in range(4):
            word = _words(content, starts[rows] + stripe * 32 + lane * 8, 8)
            lanes[rows, lane] = _round(lanes[rows, lane], word)
    hashes = np.zeros(len(starts), np.uint64)
    for lane, turn in enumerate((1, 7, 12, 18)):
        hashes += _rotl(lanes[:, lane], turn)
    for lane in range(4):
        hashes = (hashes ^ _round(np.zeros(len(starts), np.uint64), lanes[:, lane])) * _P1 + _P4
    return hashes


def _round(lane: Hashes, word: Hashes) -> Hashes:
    return _rotl(lane + word * _P2, 31) * _P1


def _rotl(x: Hashes, bits: int) -> Hashes:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _words(content: Bytes, at: Numbers, width: int) -> Hashes:
    """Returns the little-endian words of 4 or 8 bytes that begin at those positions."""
    kind = np.dtype(np.uint64 if width == 8 else np.uint32)
    words: Hashes = content[at[:, None] + np.arange(width)].view(kind)[:, 0].astype(np.uint64)
    return words
