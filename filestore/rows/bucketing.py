"""The bucket function (FORMAT.md section 4): Spark's ``pmod(hash(columns), buckets)``, vectorised in numpy.

Spark's ``hash`` is Murmur3_x86_32 with seed 42, chained over the columns; it skips nulls. Spark computes it natively in
a plan and we compute it here, so that every writer puts a row into the same bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import Unsupported
from filestore.rows.slices import slices

__all__ = ["bucket_of", "spark_hash"]

Hashes = npt.NDArray[np.uint32]

SEED = 42
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_MAX_LONG_DECIMAL = 18


def bucket_of(table: pa.Table | pa.RecordBatch, columns: Sequence[str], buckets: int) -> npt.NDArray[np.int32]:
    """Returns the bucket of each row, from 0 to ``buckets - 1``."""
    if buckets == 1:
        return np.zeros(table.num_rows, dtype=np.int32)
    return np.mod(spark_hash([table.column(c) for c in columns], table.num_rows), np.int32(buckets))


def spark_hash(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> npt.NDArray[np.int32]:
    """Computes Spark SQL's ``hash(columns…)`` of each row."""
    hashes = np.full(rows, SEED, dtype=np.uint32)
    with np.errstate(over="ignore"):
        for column in columns:
            array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            updated = _hasher(array.type)(array, hashes)
            valid = np.asarray(array.is_valid()) if array.null_count else None
            hashes = updated if valid is None else np.where(valid, updated, hashes)
    return hashes.view(np.int32)


def _hasher(arrow: pa.DataType) -> Callable[[pa.Array, Hashes], Hashes]:
    if pa.types.is_boolean(arrow) or pa.types.is_date32(arrow) or pa.types.is_signed_integer(arrow):
        return _hash_long if arrow == pa.int64() else _hash_int
    if pa.types.is_timestamp(arrow):
        return _hash_long
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        return _hash_bytes
    if pa.types.is_decimal(arrow):
        return _hash_decimal
    raise Unsupported(f"a column of type {arrow} cannot choose a bucket", code="bucket-key")


def _rotl(x: Hashes, bits: int) -> Hashes:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _mix(h: Hashes, k: Hashes) -> Hashes:
    h = _rotl(h ^ (_rotl(k * _C1, 15) * _C2), 13)
    return h * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(h: Hashes, length: int | Hashes) -> Hashes:
    h = h ^ np.uint32(length) if isinstance(length, int) else h ^ length
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _hash_int(array: pa.Array, seeds: Hashes) -> Hashes:
    values = pc.fill_null(array.cast(pa.int32()), 0)
    return _finish(_mix(seeds, np.asarray(values).view(np.uint32)), 4)


def _hash_long(array: pa.Array, seeds: Hashes) -> Hashes:
    return _hash_words(np.asarray(pc.fill_null(array.cast(pa.int64()), 0)), seeds)


def _hash_words(values: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    words = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)  # little endian: low word first
    return _finish(_mix(_mix(seeds, words[:, 0]), words[:, 1]), 8)


def _hash_bytes(array: pa.Array, seeds: Hashes) -> Hashes:
    content, starts, lengths = slices(array)
    if array.null_count:
        lengths[~np.asarray(array.is_valid())] = 0
    return _hash_slices(content, starts, lengths, seeds)


def _hash_slices(
    content: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    seeds: Hashes,
) -> Hashes:
    """Computes Murmur3 of byte slices, one word of all rows at a time; Spark mixes each tail byte as a signed int."""
    hashes = seeds.copy()
    order = np.argsort(-lengths, kind="stable")  # the longest first, so that the unfinished rows are a prefix
    descending = lengths[order]
    for word in range(int(lengths.max(initial=0)) // 4):
        rows = order[: np.searchsorted(-descending, -(word + 1) * 4, side="right")]
        at = starts[rows] + word * 4
        k = content[at[:, None] + np.arange(4)].view(np.uint32)[:, 0]
        hashes[rows] = _mix(hashes[rows], k)
    aligned = lengths - lengths % 4
    for tail in range(3):
        rows = np.flatnonzero(lengths % 4 > tail)
        k = content[starts[rows] + aligned[rows] + tail].view(np.int8).astype(np.int32).view(np.uint32)
        hashes[rows] = _mix(hashes[rows], k)
    return _finish(hashes, lengths.astype(np.uint32))


def _hash_decimal(array: pa.Array, seeds: Hashes) -> Hashes:
    """Hashes up to 18 digits as a long, longer ones as the bytes of Java's ``BigInteger.toByteArray``."""
    array = pc.fill_null(array, pa.scalar(0, array.type))
    raw = np.frombuffer(array.buffers()[1], dtype=np.uint8).reshape(-1, 16)
    raw = raw[array.offset : array.offset + len(array)]
    if array.type.precision <= _MAX_LONG_DECIMAL:
        return _hash_words(np.ascontiguousarray(raw[:, :8]).view(np.int64)[:, 0], seeds)
    big_endian = np.ascontiguousarray(raw[:, ::-1])
    return _hash_slices(big_endian.reshape(-1), *_minimal_slices(big_endian), seeds)


def _minimal_slices(
    big_endian: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The start and length of the shortest two's complement form of each 16-byte integer."""
    sign = np.where(big_endian[:, 0] & 0x80, 0xFF, 0).astype(np.uint8)
    differs = big_endian != sign[:, None]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 16)
    clipped = np.minimum(first, 15)
    top_bit = (big_endian[np.arange(len(big_endian)), clipped] ^ sign) & 0x80
    skip = np.where(first == 16, 15, np.where(top_bit, first - 1, first)).astype(np.int64)
    return np.arange(len(big_endian), dtype=np.int64) * 16 + skip, 16 - skip
