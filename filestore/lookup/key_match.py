"""Finds the positions of keys in sorted rows, by columns instead of row by row. Pure.

A single key column with the order of integers is found by binary search, other keys by a join or, with an index, by
their hash: 64 bits find candidates, which are then compared by the key's columns.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.lazily import pl
from filestore.rows.frames import frame_of
from filestore.rows.keys import Key, key_at

__all__ = [
    "HASH",
    "ROW",
    "bounds_between",
    "hash_index",
    "index_columns",
    "match",
    "match_groups",
    "one_piece",
    "with_hashes",
]

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.signedinteger]

HASH, ROW = "_hash", "_row"
"""The columns of an index: the keys' hashes in ascending order, and their rows. The names are reserved."""


def match(rows: pa.Table, probes: pa.Table, keys: Sequence[str]) -> tuple[Rows, Rows]:
    """The ascending positions in `rows` and in `probes` of equal keys. Both are sorted, and keys are unique in each."""
    if _integral(rows.schema, keys):
        return _match_integers(_integers(rows.column(keys[0])), _integers(probes.column(keys[0])))
    stored_rows, wanted_rows = _numbered(rows, keys, "row"), _numbered(probes, keys, "probe")
    joined = stored_rows.join(
        wanted_rows, on=[str(n) for n in range(len(keys))], how="inner", maintain_order="left"
    ).select(pl.col("row").cast(pl.Int64), pl.col("probe").cast(pl.Int64))
    return joined["row"].to_numpy(), joined["probe"].to_numpy()


def index_columns(schema: pa.Schema, keys: Sequence[str]) -> tuple[str, ...]:
    """The columns of a file that `match_groups` needs: only the key if it is its own index."""
    return tuple(keys) if _integral(schema, keys) else (HASH, ROW, *keys)


def with_hashes(probes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Adds the column `HASH` to the probes, for callers that search many files: each would compute it again."""
    return probes.append_column(HASH, pa.array(_hashes(probes, keys)))


def hash_index(rows: pa.Table, keys: Sequence[str]) -> pa.RecordBatch:
    """Makes the index of a row group: `HASH` in ascending order, and for each its `ROW` in the row group."""
    hashes = _hashes(rows, keys)
    order = np.argsort(hashes)
    return pa.record_batch([pa.array(hashes[order]), pa.array(order.astype(np.int32))], names=[HASH, ROW])


def match_groups(
    groups: Mapping[str, pa.ChunkedArray], probes: pa.Table, keys: Sequence[str]
) -> Iterator[tuple[Rows, Rows]]:
    """The positions in a file and in `probes` of equal keys, by row group.

    Args:
        groups: The file's `index_columns`, with a chunk for each row group.
        probes: Keys in order, each once; preferably from `with_hashes`.
        keys: The key columns.
    """
    if HASH not in groups:
        yield from _match_integer_groups(groups[keys[0]], _integers(probes.column(keys[0])))
        return
    probes = (probes if HASH in probes.column_names else with_hashes(probes, keys)).combine_chunks()
    hashes, first, base = one_piece(probes.column(HASH)).to_numpy(), 0, 0
    last_group = groups[HASH].num_chunks - 1
    for group in range(last_group + 1):
        part = pa.table({name: column.chunk(group) for name, column in groups.items()})
        high = key_at(part, keys, part.num_rows - 1) if group < last_group else None
        _, count = bounds_between(probes.slice(first), keys, None, high)
        if count:
            found, probe = _match_hashes(part, probes.slice(first, count), hashes[first : first + count], keys)
            yield found + base, probe + first
        first, base = first + count, base + part.num_rows


def bounds_between(probes: pa.Table, keys: Sequence[str], low: Key | None, high: Key | None) -> tuple[int, int]:
    """The first probe at or above `low`, and the first above `high`; None means no bound.

    Args:
        probes: Keys, sorted by `keys`.
        keys: The key columns; the bounds may have only the first of them.
        low: A key or its first values.
        high: A key or its first values.
    """
    everything = range(probes.num_rows)
    start, end = 0, len(everything)
    if low is not None:
        first = keys[: len(low)]
        start = bisect.bisect_left(everything, low, key=lambda row: key_at(probes, first, row))
    if high is not None:
        last = keys[: len(high)]
        end = bisect.bisect_right(everything, high, lo=start, key=lambda row: key_at(probes, last, row))
    return start, end


def _match_integer_groups(groups: pa.ChunkedArray, wanted: Integers) -> Iterator[tuple[Rows, Rows]]:
    first, base = 0, 0
    for group in groups.chunks:
        stored = _integers(group)
        last = int(np.searchsorted(wanted, stored[-1], side="right"))
        if first < last:
            found, probe = _match_integers(stored, wanted[first:last])
            yield found + base, probe + first
        first, base = last, base + len(stored)


def _match_integers(stored: Integers, wanted: Integers) -> tuple[Rows, Rows]:
    at = np.searchsorted(stored, wanted)
    hit = np.flatnonzero(stored[np.minimum(at, len(stored) - 1)] == wanted)
    return at[hit].astype(np.int64), hit.astype(np.int64)


def _match_hashes(group: pa.Table, probes: pa.Table, hashes: Hashes, keys: Sequence[str]) -> tuple[Rows, Rows]:
    """Finds candidates by hash, and keeps those whose keys are equal: different keys may have the same hash."""
    stored = group.column(HASH).chunk(0).to_numpy()
    first = np.searchsorted(stored, hashes)
    probe = np.flatnonzero(stored[np.minimum(first, len(stored) - 1)] == hashes)
    first = first[probe]
    count = np.searchsorted(stored, hashes[probe], side="right") - first
    before = np.cumsum(count) - count
    place = np.repeat(first - before, count) + np.arange(count.sum())
    probe = np.repeat(probe, count)
    row = group.column(ROW).chunk(0).to_numpy()[place].astype(np.int64)
    same = np.ones(len(row), dtype=np.bool_)
    for name in keys:
        there, asked = group.column(name).chunk(0), one_piece(probes.column(name))
        equal = pc.equal(there.take(pa.array(row)), asked.take(pa.array(probe)))
        same &= equal.to_numpy(zero_copy_only=False)
    row, probe = row[same], probe[same]
    order = np.argsort(row)
    return row[order], probe[order]


def _hashes(rows: pa.Table, keys: Sequence[str]) -> Hashes:
    """Hashes each row's key: equal keys of equal types have the same hash, but only in this process."""
    numbered = rows.select(list(keys)).rename_columns([str(n) for n in range(len(keys))])
    return frame_of(numbered).hash_rows().to_numpy()


def _integral(schema: pa.Schema, keys: Sequence[str]) -> bool:
    """Returns whether the key is one column with the order of the integers that store its values."""
    kind = schema.field(keys[0]).type
    kinds = (pa.types.is_signed_integer, pa.types.is_date32, pa.types.is_timestamp)
    return len(keys) == 1 and any(is_kind(kind) for is_kind in kinds)


def _integers(column: pa.Array | pa.ChunkedArray) -> Integers:
    """Returns the column's integers, without a copy if it has one chunk."""
    whole = one_piece(column)
    if pa.types.is_date32(whole.type):
        whole = whole.view(pa.int32())
    elif pa.types.is_timestamp(whole.type):
        whole = whole.view(pa.int64())
    integers: Integers = whole.to_numpy()
    return integers


def one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns the column as one array; Arrow's `combine_chunks` copies even a single chunk."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _numbered(table: pa.Table, keys: Sequence[str], index: str) -> pl.DataFrame:
    """Returns the key columns with numbers as names, so that none has the name of the row index."""
    numbered = table.select(list(keys)).rename_columns([str(n) for n in range(len(keys))])
    return frame_of(numbered).with_row_index(index)
