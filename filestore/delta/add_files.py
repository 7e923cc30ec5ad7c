"""Data files from ``add`` actions, many at once, and back; and what differs in two versions (FORMAT.md section 2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.decoding import well_formed
from filestore.delta.actions import (
    BUCKET_TAG,
    EDITION_TAG,
    FIRST_EDITION,
    LEVEL_TAG,
    MAX_KEY_TAG,
    MIN_KEY_TAG,
    add_action,
    data_file,
)
from filestore.delta.adds import ADD, leading_numbers, partition_texts, slot_columns, tag_texts
from filestore.layout import decode_path
from filestore.lazily import pl
from filestore.model.files import DataFile, DeletionVector, Partition, Slot

__all__ = ["check_statistics", "files_of", "rows_of", "unlike"]

_FEW = 64
"""The number of files from which on it is faster to make them column by column."""

_USUAL = r'^(?P<stats>\{"numRecords":(?P<rows>[0-9]+),[^\\]*),"tightBounds":(?:true|false)\}$'
"""Statistics as `add_action` writes them, so that the text without ``tightBounds`` needs no parsing."""


def rows_of(files: Iterable[DataFile]) -> pa.StructArray:
    """Returns the actions of files, of type `ADD`."""
    return pa.array([add_action(file, data_change=False)["add"] for file in files], ADD)


def files_of(adds: pa.StructArray, partition_by: Sequence[str]) -> list[DataFile]:
    """Returns the files of actions, in their order.

    Raises:
        Corrupt: ``bad-delta-checkpoint``: an action is not as FORMAT.md says.
    """
    if len(adds) < _FEW:
        return _files_one_by_one(adds, partition_by)
    with _well_formed():
        return _files_at_once(adds, partition_by)


def _files_one_by_one(adds: pa.StructArray, partition_by: Sequence[str]) -> list[DataFile]:
    with _well_formed():
        return [data_file(row, partition_by) for row in adds.to_pylist()]


def _well_formed() -> AbstractContextManager[None]:
    return well_formed("a file of a checkpoint", code="bad-delta-checkpoint")


def _files_at_once(adds: pa.StructArray, partition_by: Sequence[str]) -> list[DataFile]:
    usual = pc.extract_regex(pc.struct_field(adds, "stats"), _USUAL)
    tags = tag_texts(adds)
    vectors = pc.struct_field(adds, "deletionVector").to_pylist()
    files = [
        DataFile(decode_path(path), slot, size, rows, modified, stats + "}", level, low, high, vector, edition)
        for path, slot, size, modified, stats, rows, level, low, high, vector, edition in zip(
            pc.struct_field(adds, "path").to_pylist(),
            _slots(adds, partition_by),
            pc.struct_field(adds, "size").to_pylist(),
            pc.struct_field(adds, "modificationTime").to_pylist(),
            pc.fill_null(pc.struct_field(usual, "stats"), "").to_pylist(),
            pc.fill_null(pc.struct_field(usual, "rows").cast(pa.int64()), 0).to_pylist(),
            tags.of(LEVEL_TAG).cast(pa.int64()).to_pylist(),
            tags.of(MIN_KEY_TAG).to_pylist(),
            tags.of(MAX_KEY_TAG).to_pylist(),
            map(DeletionVector.from_action, vectors),
            pc.fill_null(tags.of(EDITION_TAG).cast(pa.int64()), FIRST_EDITION).to_pylist(),
            strict=True,
        )
    ]
    unusual = np.flatnonzero(pc.is_null(usual).to_numpy(zero_copy_only=False))
    for at, row in zip(unusual.tolist(), adds.take(pa.array(unusual)).to_pylist(), strict=True):
        files[at] = data_file(row, partition_by)
    return files


def _slots(adds: pa.StructArray, partition_by: Sequence[str]) -> Iterator[Slot]:
    """Yields the slot of each file; files of one slot share it."""
    values, buckets = slot_columns(adds, partition_by)
    known: dict[tuple[Any, ...], Slot] = {}
    for key in zip(*(value.to_pylist() for value in values), buckets.tolist(), strict=True):
        if (slot := known.get(key)) is None:
            partition: Partition = tuple(zip(partition_by, key[:-1], strict=True))
            known[key] = slot = Slot(partition, key[-1])
        yield slot


def check_statistics(adds: pa.StructArray, partition_by: Sequence[str]) -> None:
    """Checks that the statistics of files can be decoded; for actions without checksums.

    Raises:
        Corrupt: ``bad-delta-checkpoint``: those of a file cannot.
    """
    stats = pc.struct_field(adds, "stats")
    try:
        whole = len(pl.Series(stats, dtype=pl.String).str.json_decode(pl.Struct({"numRecords": pl.Int64()})))
    except pl.exceptions.PolarsError:
        whole = 0
    _, usual = leading_numbers(stats)
    _files_one_by_one(adds.filter(pa.array(~usual)) if whole == len(adds) else adds, partition_by)


def unlike(
    some: pa.StructArray, others: pa.StructArray, partition_by: Sequence[str]
) -> tuple[list[DataFile], list[DataFile]]:
    """Returns the files of either side that the other one lacks, or has in another state. Only these become objects."""
    paths, there = pc.struct_field(some, "path"), pc.struct_field(others, "path")
    at = pc.index_in(paths, value_set=there)
    alike = pc.is_valid(at)
    left, right = some.filter(alike), others.take(at.filter(alike))
    equal = pa.array(np.ones(len(left), bool))
    for one, two in zip(_columns(left, partition_by), _columns(right, partition_by), strict=True):
        both_null = pc.and_(pc.is_null(one), pc.is_null(two))
        equal = pc.and_(equal, pc.or_(both_null, pc.fill_null(pc.equal(one, two), False)))
    odd = pc.invert(equal)
    pairs = zip(files_of(left.filter(odd), partition_by), files_of(right.filter(odd), partition_by), strict=True)
    changed = [(one, two) for one, two in pairs if one != two]  # their texts may differ, and mean the same
    gone = files_of(some.filter(pc.invert(alike)), partition_by)
    come = files_of(others.filter(pc.invert(pc.is_in(there, value_set=paths))), partition_by)
    return [*gone, *(one for one, _ in changed)], [*come, *(two for _, two in changed)]


def _columns(adds: pa.StructArray, partition_by: Sequence[str]) -> Iterator[pa.Array]:
    """Yields all that makes a file, each as a column."""
    yield from (pc.struct_field(adds, name) for name in ("path", "size", "modificationTime", "stats"))
    partitions, tags = partition_texts(adds), tag_texts(adds)
    yield from map(partitions.of, partition_by)
    yield from map(tags.of, (BUCKET_TAG, LEVEL_TAG, EDITION_TAG, MIN_KEY_TAG, MAX_KEY_TAG))
    vectors = pc.struct_field(adds, "deletionVector")
    yield from (pc.struct_field(vectors, field.name) for field in vectors.type)
