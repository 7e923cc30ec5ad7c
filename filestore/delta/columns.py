"""The files of a checkpoint as columns, sorted by slot. A slot becomes objects once asked for (FORMAT.md section 2).

So a table is opened in the time that its checkpoint takes to read, however many files it has, and a look-up or a write
makes objects of the slots that it touches. Whoever goes through all files makes objects of all, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from filestore.decoding import well_formed
from filestore.delta.actions import (
    BUCKET_TAG,
    EDITION_TAG,
    LEVEL_TAG,
    MAX_KEY_TAG,
    MIN_KEY_TAG,
    add_action,
    data_file,
)
from filestore.delta.by_slot import BySlot, FileTotals
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
_FEW_FILES = 100_000
"""The most files that all become objects, of some 5 kB each: all at once they do so in an eighth of the time."""

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")

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
        partitions, tags = _checked(adds, partition_by, sorted_by_key=sorted_by_key)
        values = [partitions.of(name) for name in partition_by]
        buckets = tags.of(BUCKET_TAG).cast(pa.int64()).to_numpy(zero_copy_only=False)
        hashes = _hashes(values, buckets)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
        self._partition_by = tuple(partition_by)
        self._adds: pa.StructArray = adds.take(pa.array(order))
        self._hashes: Hashes = hashes[first]
        self._starts: Positions = np.append(first, len(hashes))
        self._asked: dict[Slot, Mapping[str, DataFile]] = {}
        self._objects: dict[Slot, Mapping[str, DataFile]] | None = None

    @classmethod
    def of(cls, files: BySlot[DataFile], partition_by: Sequence[str]) -> ColumnFiles:
        """Returns the files of a version; those that are columns already stay as they are."""
        base, over = files.parts()
        if isinstance(base, ColumnFiles):
            return base.merged(over) if over else base
        new = cls(_rows_of(files), partition_by, sorted_by_key=False)
        new._objects = {slot: {file.path: file for file in files.of(slot)} for slot in files.slots}
        return new

    @property
    def adds(self) -> pa.StructArray:
        """The ``add`` actions, of type `ADD`."""
        return self._adds

    def __reduce__(self) -> tuple[Any, ...]:
        batch = pa.RecordBatch.from_struct_array(self._adds)  # compressed: it goes to each of Spark's workers
        with pa.ipc.new_stream(sink := pa.BufferOutputStream(), batch.schema, options=_COMPRESSED) as stream:
            stream.write_batch(batch)
        return _remade, (sink.getvalue().to_pybytes(), self._partition_by)

    def __getitem__(self, slot: Slot) -> Mapping[str, DataFile]:
        if not (found := self._found([slot]).get(slot)):
            raise KeyError(slot)
        return found

    def ask(self, slots: Iterable[Slot]) -> None:
        """Makes objects of the files of some slots, and keeps them for a while."""
        self._found(slots)

    def _found(self, slots: Iterable[Slot]) -> Mapping[Slot, Mapping[str, DataFile]]:
        """Returns a mapping that has some slots, and others. Other threads may begin another one meanwhile."""
        if self._objects is not None:
            return self._objects
        asked, named = self._asked, list(dict.fromkeys(slots))
        wanted = [slot for slot in named if slot not in asked]
        if not wanted:
            return asked
        if _MANY * (len(asked) + len(wanted)) >= len(self._hashes):
            if len(self._adds) <= _FEW_FILES:
                return self.objects()
            asked, wanted = {}, named  # so that they never take the memory of all
            self._asked = asked
        files = self._files(_positions(*self._ranges(wanted)))
        asked.update((slot, files.get(slot, {})) for slot in wanted)
        return asked

    def _ranges(self, slots: Sequence[Slot]) -> tuple[Positions, Positions]:
        """Returns the first row of each slot, and the one behind its last. Other slots may have the same hash."""
        columns = zip(*([value for _, value in slot.partition] for slot in slots), strict=True)
        values = [pa.array(column, pa.string()) for column in columns]
        wanted = _hashes(values, np.array([slot.bucket for slot in slots], np.int64))
        at = np.searchsorted(self._hashes, wanted)
        there = np.append(self._hashes, np.uint64(0))[at] == wanted
        there &= at < len(self._hashes)
        starts = self._starts[at]
        return starts, np.where(there, self._starts[np.minimum(at + 1, len(self._hashes))], starts)

    def _files(self, at: Positions) -> dict[Slot, dict[str, DataFile]]:
        slots: dict[Slot, dict[str, DataFile]] = {}
        for file in _objects(self._adds.take(pa.array(at)), self._partition_by):
            slots.setdefault(file.slot, {})[file.path] = file
        return slots

    def objects(self) -> Mapping[Slot, Mapping[str, DataFile]]:
        """Returns all files as objects, and keeps them.

        Raises:
            Corrupt: ``bad-delta-checkpoint``: an action is not as FORMAT.md says.
        """
        objects = self._objects
        if objects is None:
            self._objects = objects = dict(self._files(np.arange(len(self._adds))))
            self._asked = {}
        return objects

    def merged(self, over: Mapping[Slot, Mapping[str, DataFile]]) -> ColumnFiles:
        """Returns the files with others in place of those of some slots. Rows of all other slots are copied."""
        slots = list(over)
        starts, ends = self._ranges(slots)
        stay = np.ones(len(self._adds), bool)
        stay[_positions(starts, ends)] = False
        come = [file for some in over.values() for file in some.values()]
        former = self._found(slots)
        for slot, rows in zip(slots, (ends - starts).tolist(), strict=True):
            if rows != len(former.get(slot, ())):  # another slot has the same hash
                [start], [end] = self._ranges([slot])
                others = self._files(np.arange(start, end)).items()
                come += [file for other, some in others if other not in over for file in some.values()]
        adds = pa.concat_arrays(
            [self._adds.filter(pa.array(stay)), _rows_of({file.path: file for file in come}.values())]
        )
        new = ColumnFiles(adds, self._partition_by, sorted_by_key=False)
        if self._objects is not None:  # whoever asked for all will do so again
            new._objects = {slot: some for slot, some in {**self._objects, **over}.items() if some}
        return new

    def same(self, other: ColumnFiles) -> bool:
        """Returns whether two versions have the same files in the same state. Few of them become objects."""
        if len(self._adds) != len(other._adds):
            return False
        mine, others = (
            rows.take(pc.array_sort_indices(pc.struct_field(rows, "path"))) for rows in (self._adds, other._adds)
        )
        alike = pa.array(np.ones(len(mine), bool))
        for one, two in zip(_columns(mine, self._partition_by), _columns(others, self._partition_by), strict=True):
            both_null = pc.and_(pc.is_null(one), pc.is_null(two))
            alike = pc.and_(alike, pc.or_(both_null, pc.fill_null(pc.equal(one, two), False)))
        odd = [_objects(rows.filter(pc.invert(alike)), self._partition_by) for rows in (mine, others)]
        return odd[0] == odd[1]

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


def _objects(adds: pa.StructArray, partition_by: Sequence[str]) -> list[DataFile]:
    with well_formed("a file of a checkpoint", code="bad-delta-checkpoint"):
        return [data_file(row, partition_by) for row in adds.to_pylist()]


def _rows_of(files: Iterable[DataFile]) -> pa.StructArray:
    return pa.array([add_action(file, data_change=False)["add"] for file in files], ADD)


def _columns(adds: pa.StructArray, partition_by: Sequence[str]) -> Iterator[pa.Array]:
    """Yields all that makes a file, each as a column."""
    yield from (pc.struct_field(adds, name) for name in ("path", "size", "modificationTime", "stats"))
    partitions, tags = (_Texts(pc.struct_field(adds, name)) for name in ("partitionValues", "tags"))
    yield from map(partitions.of, partition_by)
    yield from map(tags.of, (BUCKET_TAG, LEVEL_TAG, EDITION_TAG, MIN_KEY_TAG, MAX_KEY_TAG))
    vectors = pc.struct_field(adds, "deletionVector")
    yield from (pc.struct_field(vectors, field.name) for field in vectors.type)


def _positions(starts: Positions, ends: Positions) -> Positions:
    """Returns all rows of some ranges, each once."""
    some = starts < ends
    starts, at = np.unique(starts[some], return_index=True)
    lengths = ends[some][at] - starts
    before = np.cumsum(lengths) - lengths
    rows: Positions = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return rows


def _checked(adds: pa.StructArray, partition_by: Sequence[str], *, sorted_by_key: bool) -> tuple[_Texts, _Texts]:
    """Checks that each action has all that makes it a file, so that an error is found when the checkpoint is read.

    Returns:
        The partition values, and the tags.
    """
    for name in ("path", "partitionValues", "size", "modificationTime", "stats", "tags"):
        if pc.struct_field(adds, name).null_count:
            raise ValueError(f"a file of the checkpoint has no {name}")
    partitions, tags = (_Texts(pc.struct_field(adds, name)) for name in ("partitionValues", "tags"))
    for name in partition_by:
        if not partitions.everywhere(name):  # a null is there
            raise ValueError(f"a file of the checkpoint has no value of {name}")
    for name in (BUCKET_TAG, LEVEL_TAG, *((MIN_KEY_TAG, MAX_KEY_TAG) if sorted_by_key else ())):
        if tags.of(name).null_count:
            raise ValueError(f"a file of the checkpoint has no tag {name}")
    tags.of(LEVEL_TAG).cast(pa.int64())
    return partitions, tags


class _Texts:
    """Maps of texts, one for each file; nearly always all have the same names in the same order."""

    def __init__(self, maps: pa.MapArray) -> None:
        self._maps = maps
        self._columns = _same_names(maps)

    def of(self, name: str) -> pa.Array:
        """Returns the texts of a name, null where it is missing."""
        if self._columns is None:
            return pc.map_lookup(self._maps, pa.scalar(name, _TEXT), "first")
        found = self._columns.get(name)
        return pa.nulls(len(self._maps), _TEXT) if found is None else found

    def everywhere(self, name: str) -> bool:
        """Returns whether each map has the name."""
        if self._columns is not None:
            return name in self._columns or not len(self._maps)
        return not pc.map_lookup(self._maps, pa.scalar(name, _TEXT), "all").null_count


def _same_names(maps: pa.MapArray) -> dict[str, pa.Array] | None:
    """Returns the texts by name if all maps have the same names in the same order, which takes a tenth of looking."""
    starts = maps.offsets.to_numpy()
    if len(maps) == 0 or np.any((lengths := np.diff(starts)) != lengths[0]):
        return None
    columns: dict[str, pa.Array] = {}
    for place in range(int(lengths[0])):
        at = pa.array(starts[:-1] + place)
        names = maps.keys.take(at)
        if not pc.all(pc.equal(names, names[0])).as_py():
            return None
        columns.setdefault(names[0].as_py(), maps.items.take(at))
    return columns


def _rows(adds: pa.StructArray) -> int:
    """Adds up the rows of files; our statistics begin with their number."""
    stats = pc.struct_field(adds, "stats")
    found = pc.struct_field(pc.extract_regex(stats, r'^\{"numRecords":(?P<n>[0-9]+)'), "n")
    others = stats.filter(pc.is_null(found)).to_pylist()
    return sum((int(json.loads(text)["numRecords"]) for text in others), pc.sum(found.cast(pa.int64())).as_py() or 0)


def _remade(adds: bytes, partition_by: Sequence[str]) -> ColumnFiles:
    with pa.ipc.open_stream(adds) as stream:
        rows = stream.read_next_batch().to_struct_array()
    return ColumnFiles(rows, partition_by, sorted_by_key=False)  # it sorts: another machine's hashes may differ


def _hashes(values: Sequence[pa.Array], buckets: npt.NDArray[np.int64]) -> Hashes:
    """Returns a hash for each slot; it is that of this process's polars only."""
    hashes = buckets.astype(np.uint64) * _MIX
    for value in values:
        hashes = (hashes ^ pl.Series(value, dtype=pl.String).hash(_SEED).to_numpy()) * _MIX
    return hashes
