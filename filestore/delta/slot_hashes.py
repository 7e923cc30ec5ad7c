"""A number for each slot, by which its files are found among many. It is the same in each process, for ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.model.files import Slot
from filestore.rows.slices import slices

__all__ = ["Hashes", "buckets_in", "hashes_of", "hashes_of_bucket", "slot_hashes"]

Hashes = npt.NDArray[np.uint64]

_HASH_BITS = np.uint64(40)  # and 24 for the bucket, of which there are at most 4096
_OTHER_BITS = np.uint64(24)
_NULL = np.uint64(0x5851F42D4C957F2D)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
    (np.uint64(31), np.uint64(1)),
)


def slot_hashes(partitions: Sequence[pa.Array], buckets: npt.NDArray[np.int64]) -> Hashes:
    """Returns the hashes of slots. Those of a bucket follow each other; different slots may have the same one.

    Args:
        partitions: The texts of each partition column.
        buckets: The buckets.
    """
    hashes = np.zeros(len(buckets), np.uint64)
    for texts in partitions:
        hashes = _mixed(hashes + _STEP + _text_hashes(texts))
    return (hashes >> _OTHER_BITS) | (buckets.astype(np.uint64) << _HASH_BITS)


def hashes_of(slots: Sequence[Slot]) -> Hashes:
    """Returns the hashes of slots."""
    columns = zip(*([value for _, value in slot.partition] for slot in slots), strict=True)
    texts = [pa.array(column, pa.large_string()) for column in columns]
    return slot_hashes(texts, np.array([slot.bucket for slot in slots], np.int64))


def hashes_of_bucket(bucket: int) -> tuple[np.uint64, np.uint64]:
    """Returns the least and the largest hash that slots of a bucket may have."""
    least = np.uint64(bucket) << _HASH_BITS
    return least, least | ((np.uint64(1) << _HASH_BITS) - np.uint64(1))


def buckets_in(hashes: Hashes) -> Iterable[int]:
    """Returns the buckets of slots with some hashes."""
    found: list[int] = np.unique(hashes >> _HASH_BITS).tolist()
    return found


def _text_hashes(texts: pa.Array) -> Hashes:
    """Returns for each text the sum of its bytes, each multiplied with a number of its place."""
    if not len(texts):
        return np.zeros(0, np.uint64)
    content, starts, lengths = slices(texts)
    read = content[starts[0] : starts[-1] + lengths[-1]]
    ends = np.append(0, np.cumsum(lengths))
    places = np.arange(len(read)) - np.repeat(ends[:-1], lengths)
    weights = _mixed(np.arange(1, int(lengths.max()) + 1, dtype=np.uint64) * _STEP)
    sums = np.append(np.uint64(0), np.cumsum((read.astype(np.uint64) + np.uint64(1)) * weights[places]))
    hashes: Hashes = _mixed(sums[ends[1:]] - sums[ends[:-1]])
    if texts.null_count:
        hashes[texts.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _mixed(numbers: Hashes) -> Hashes:
    """Spreads numbers over all bits, as SplitMix64 does."""
    for shift, factor in _MIX:
        numbers = (numbers ^ (numbers >> shift)) * factor
    return numbers
