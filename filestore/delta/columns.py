"""The files of a checkpoint as columns, sorted by slot. A slot becomes objects once asked for (FORMAT.md section 2).

So a table is opened in the time that its checkpoint takes to read, however many files it has, and a look-up or a write
makes objects of the slots that it touches. Whoever goes through all files makes objects of all, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from filestore.decoding import well_formed
from filestore.delta.actions import BUCKET_TAG, LEVEL_TAG, MAX_KEY_TAG, MIN_KEY_TAG, data_file
from filestore.delta.by_slot import FileTotals
from filestore.model.files import DataFile, Slot

__all__ = ["ADD", "ColumnFiles"]

_TEXT = pa.large_string()  # texts of a large checkpoint are more than 2 GiB together
_TEXTS = pa.map_(_TEXT, _TEXT)
_VECTOR = {"storageType": _TEXT, "pathOrInlineDv": _TEXT, "offset": pa.int32(), "sizeInBytes": pa.int32()}
ADD = pa.struct(
    {
        "path": _TEXT,
        "partitionValues": _TEXTS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "stats": _TEXT,
        "tags": _TEXTS,
        "deletionVector": pa.struct({**_VECTOR, "cardinality": pa.int64()}),
    }
)
"""The members of an ``add`` action that make a file. Writers of checkpoints choose other types for the same values."""

_SEED = 7
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MANY = 8

Hashes = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]


class ColumnFiles(Mapping[Slot, Mapping[str, DataFile]]):
    """Files by slot and path, as `filestore.delta.by_slot.BySlot` takes them. It is never changed.

    Args:
        adds: The ``add`` actions of a checkpoint, of type `ADD`.
        partition_by: The table's partition columns.
        sorted_by_key: Whether each file has its least and its largest key.

    Raises:
        ValueError: an action is not as FORMAT.md says.
    """

    def __init__(self, adds: pa.StructArray, partition_by: Sequence[str], *, sorted_by_key: bool) -> None:
        _check(adds, partition_by, [BUCKET_TAG, LEVEL_TAG, *((MIN_KEY_TAG, MAX_KEY_TAG) if sorted_by_key else ())])
        values = [_found(adds, "partitionValues", name) for name in partition_by]
        buckets = _found(adds, "tags", BUCKET_TAG).cast(pa.int64()).to_numpy(zero_copy_only=False)
        hashes = _hashes(values, buckets)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
        self._partition_by = tuple(partition_by)
        self._adds: pa.StructArray = adds.take(pa.array(order))
        self._hashes: Hashes = hashes[first]
        self._starts: Positions = np.append(first, len(hashes))
        self._asked: dict[Slot, Mapping[str, DataFile]] = {}
        self._objects: dict[Slot, dict[str, DataFile]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self._adds, self._partition_by)  # another machine's hashes may differ

    def __getitem__(self, slot: Slot) -> Mapping[str, DataFile]:
        asked = self._asked
        if self._objects is not None or _MANY * len(asked) >= len(self._hashes):
            return self.objects()[slot]
        if slot not in asked:
            if not (found := self._sought(slot)):
                raise KeyError(slot)
            asked[slot] = found
        return asked[slot]

    def _sought(self, slot: Slot) -> Mapping[str, DataFile]:
        values = [pa.array([value], pa.string()) for _, value in slot.partition]
        [wanted] = _hashes(values, np.array([slot.bucket]))
        at = int(np.searchsorted(self._hashes, wanted))
        if at == len(self._hashes) or self._hashes[at] != wanted:
            return {}
        files = self._files(int(self._starts[at]), int(self._starts[at + 1]))
        return {path: file for path, file in files.items() if file.slot == slot}  # hashes of two slots may be equal

    def _files(self, start: int, end: int) -> dict[str, DataFile]:
        with well_formed("a file of a checkpoint", code="bad-delta-checkpoint"):
            rows = self._adds.slice(start, end - start).to_pylist()
            return {file.path: file for file in (data_file(row, self._partition_by) for row in rows)}

    def objects(self) -> Mapping[Slot, Mapping[str, DataFile]]:
        """Returns all files, and keeps them: for all of them that takes an eighth of asking for each slot.

        Raises:
            Corrupt: ``bad-delta-checkpoint``: an action is not as FORMAT.md says.
        """
        if self._objects is None:
            slots: dict[Slot, dict[str, DataFile]] = {}
            for path, file in self._files(0, len(self._adds)).items():
                slots.setdefault(file.slot, {})[path] = file
            self._objects, self._asked = slots, {}
        return self._objects

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.objects())

    def __len__(self) -> int:
        return len(self.objects())

    @property
    def count(self) -> int:
        """The number of files."""
        return len(self._adds)

    def totals(self) -> FileTotals:
        """Returns the sums over all files."""
        vectors = pc.struct_field(self._adds, "deletionVector")
        dead = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0
        size = pc.sum(pc.struct_field(self._adds, "size")).as_py() or 0
        return FileTotals(size, _rows(self._adds) - dead, len(vectors) - vectors.null_count)


def _check(adds: pa.StructArray, partition_by: Sequence[str], tags: Sequence[str]) -> None:
    """Checks that each action has all that makes it a file, so that an error is found when the checkpoint is read."""
    for name in ("path", "partitionValues", "size", "modificationTime", "stats", "tags"):
        if pc.struct_field(adds, name).null_count:
            raise ValueError(f"a file of the checkpoint has no {name}")
    for name in partition_by:
        if _found(adds, "partitionValues", name, "all").null_count:  # a null is there
            raise ValueError(f"a file of the checkpoint has no value of {name}")
    for name in tags:
        if _found(adds, "tags", name).null_count:
            raise ValueError(f"a file of the checkpoint has no tag {name}")
    _found(adds, "tags", LEVEL_TAG).cast(pa.int64())


def _found(adds: pa.StructArray, texts: str, name: str, occurrence: str = "first") -> pa.Array:
    return pc.map_lookup(pc.struct_field(adds, texts), pa.scalar(name, _TEXT), occurrence)


def _rows(adds: pa.StructArray) -> int:
    """Adds up the rows of files; our statistics begin with their number."""
    stats = pc.struct_field(adds, "stats")
    found = pc.struct_field(pc.extract_regex(stats, r'^\{"numRecords":(?P<n>[0-9]+)'), "n")
    others = stats.filter(pc.is_null(found)).to_pylist()
    return sum((int(json.loads(text)["numRecords"]) for text in others), pc.sum(found.cast(pa.int64())).as_py() or 0)


def _remade(adds: pa.StructArray, partition_by: Sequence[str]) -> ColumnFiles:
    return ColumnFiles(adds, partition_by, sorted_by_key=False)


def _hashes(values: Sequence[pa.Array], buckets: npt.NDArray[np.int64]) -> Hashes:
    """Returns a hash for each slot; it is that of this process's polars only."""
    hashes = buckets.astype(np.uint64) * _MIX
    for value in values:
        hashes = (hashes ^ pl.Series(value, dtype=pl.String).hash(_SEED).to_numpy()) * _MIX
    return hashes
