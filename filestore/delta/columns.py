"""The files of a checkpoint as columns, in the order of their slots. A slot becomes objects once asked for.

So a table is opened in the time that its checkpoint takes to read, and a look-up or a write makes objects of the slots
that it touches, however many files there are. Whoever goes through all files has some of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.add_files import files_of, rows_of, unlike
from filestore.delta.adds import Positions, checked_slots, partitions_in, slot_columns
from filestore.delta.base import FEW_FILES, Base, by_slot
from filestore.delta.batch import Batch, Judge, Memo
from filestore.delta.by_slot import BySlot
from filestore.delta.pages import PAGES, Page, Pages
from filestore.delta.slot_hashes import Hashes, buckets_in, hashes_of, hashes_of_bucket, slot_hashes
from filestore.layout import decode_path
from filestore.model.files import DataFile, Partition, Slot

__all__ = ["ColumnFiles"]

KEPT_FILES = 20_000
"""The most files that stay objects, of some kB each, once they were asked for."""

_TEXT = pa.string()
_CONTENT = {"pages": PAGES, "hashes": pa.uint64(), "starts": pa.int64(), "partition_by": _TEXT}
_MESSAGE = pa.schema({name: pa.large_list(value) for name, value in _CONTENT.items()})
"""The schema of `ColumnFiles.to_message`."""

_TOGETHER = 4096
_MANY = 8
_FEW_TO_JUDGE = 1000
"""The number of files up to which it takes less time to look at each as an object."""

_MEMO_BYTES = 128 << 20
"""The most bytes that are kept of what was derived from actions: 24 a file for a column of numbers, more for texts."""


class ColumnFiles(Base[DataFile]):
    """Files by slot and path, as `filestore.delta.by_slot.BySlot` takes them. It is never changed.

    Args:
        adds: The ``add`` actions of a checkpoint, of type `filestore.delta.adds.ADD`.
        partition_by: The table's partition columns.
        sorted_by_key: Whether each file has its least and its largest key.

    Raises:
        ValueError: an action is not as FORMAT.md says.
    """

    def __init__(self, adds: pa.StructArray, partition_by: Sequence[str], *, sorted_by_key: bool) -> None:
        ordered, hashes = _in_order(adds, *checked_slots(adds, partition_by, sorted_by_key=sorted_by_key))
        self._set(Pages([Page.of(ordered)]), *_groups(hashes), partition_by)

    def _set(self, pages: Pages, hashes: Hashes, starts: Positions, partition_by: Sequence[str]) -> None:
        """Takes files; the hashes of their slots, ascending; where the files of each begin, and where the last end."""
        self._pages = pages
        self._hashes = hashes
        self._starts = starts
        self._partition_by = tuple(partition_by)
        self._asked: dict[Slot, Mapping[str, DataFile]] = {}
        self._asked_count = 0
        self._objects: dict[Slot, Mapping[str, DataFile]] | None = None
        self._memos: dict[int, Memo] = {}
        self._packed: ColumnFiles | None = None

    @classmethod
    def _on(cls, pages: Pages, hashes: Hashes, starts: Positions, partition_by: Sequence[str]) -> ColumnFiles:
        new = cls.__new__(cls)
        new._set(pages, hashes, starts, partition_by)
        return new

    @classmethod
    def of(cls, files: BySlot[DataFile], partition_by: Sequence[str]) -> ColumnFiles:
        """Returns the files of a version; those that are columns already stay as they are."""
        base, over = files.parts()
        if isinstance(base, ColumnFiles):
            return base.merged(over) if over else base
        new = cls(rows_of(files), partition_by, sorted_by_key=False)
        if len(files) <= KEPT_FILES:  # whoever made them asks for them again
            new._objects = dict(files.items())
        return new

    @property
    def count(self) -> int:
        """The number of files."""
        return len(self._pages)

    @property
    def lean(self) -> bool:
        """True if the files are packed, or few."""
        return self.count <= FEW_FILES or self._pages.packed

    def packed(self, go_on: Callable[[], bool] = lambda: True) -> ColumnFiles | None:
        """Returns the same files in a fifth of the memory; None if `go_on` returned False before it was done."""
        if self.lean:
            return self
        if self._packed is None:
            pages = list[Page]()
            for page in self._pages.packing():
                if not go_on():
                    return None
                pages.append(page)
            self._packed = ColumnFiles._on(Pages(pages), self._hashes, self._starts, self._partition_by)
        return self._packed  # whoever shares these files shares the packed ones

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnFiles.of_message, (self.to_message(),)

    def to_message(self) -> pa.RecordBatch:
        """Returns the files as one row, packed, for another process or for a file that it maps."""
        if self.count <= FEW_FILES:  # all in one page, which is packed and unpacked at once
            pages = Pages([Page.of(self._pages.between(0, self.count)).packed()])
        else:
            self._pages = pages = self._pages.pack()
        columns = (
            pages.to_columns(),
            pa.array(self._hashes),
            pa.array(self._starts),
            pa.array(self._partition_by, _TEXT),
        )
        lists = (pa.LargeListArray.from_arrays([0, len(column)], column) for column in columns)
        return pa.RecordBatch.from_arrays(list(lists), schema=_MESSAGE)

    @classmethod
    def of_message(cls, message: pa.RecordBatch) -> ColumnFiles:
        """Returns the files that `to_message` gave. Those of many stay where they are, perhaps in a mapped file."""
        columns = dict(zip(message.schema.names, (column.flatten() for column in message.columns), strict=True))
        pages = Pages.of_columns(columns["pages"])
        if len(pages) <= FEW_FILES:
            pages = Pages([Page.of(pages.between(0, len(pages)))])
        hashes, starts = columns["hashes"].to_numpy(), columns["starts"].to_numpy()
        return cls._on(pages, hashes, starts, columns["partition_by"].to_pylist())

    # ----------------------------------------------------------------------------------------------------- some slots

    def get(self, slot: Slot) -> Mapping[str, DataFile]:
        """Returns the files of a slot, by path."""
        return self._found([slot]).get(slot, {})

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
        if self.count <= KEPT_FILES and _MANY * (len(asked) + len(wanted)) >= len(self._hashes):
            return self._all()
        files = self._files(_positions(*self._ranges(wanted)))
        count = len(wanted) + sum(map(len, files.values()))  # slots without files take memory, too
        if self._asked_count + count > KEPT_FILES:
            self._asked = asked = {slot: asked[slot] for slot in named if slot in asked}
            self._asked_count = len(asked) + sum(map(len, asked.values()))
        self._asked_count += count
        asked.update((slot, files.get(slot, {})) for slot in wanted)
        return asked

    def _all(self) -> Mapping[Slot, Mapping[str, DataFile]]:
        """Makes objects of all files, and keeps them: all at once they are made in a quarter of the time."""
        objects: dict[Slot, Mapping[str, DataFile]] = {**self._files(np.arange(self.count))}
        self._objects = objects
        self._asked = {}
        return objects

    def _files(self, at: Positions) -> dict[Slot, dict[str, DataFile]]:
        return by_slot(files_of(self._pages.take(at), self._partition_by))

    def _ranges(self, slots: Sequence[Slot]) -> tuple[Positions, Positions]:
        """Returns the first file of each slot, and the one behind its last. Other slots may have the same hash."""
        wanted = hashes_of(slots)
        at = np.searchsorted(self._hashes, wanted)
        inside = np.minimum(at, len(self._hashes) - 1)
        there = self._hashes[inside] == wanted if len(self._hashes) else np.zeros(len(slots), bool)
        starts = self._starts[at]
        return starts, np.where(there, self._starts[inside + 1], starts)

    # ------------------------------------------------------------------------------------------------------ all slots

    def _hash_of_each(self) -> Hashes:
        return np.repeat(self._hashes, np.diff(self._starts))

    def _cuts(self) -> list[int]:
        """Returns positions from 0 to `count`, between which are whole slots, of `_TOGETHER` files or a few more."""
        at = np.searchsorted(self._starts, np.arange(_TOGETHER, self.count, _TOGETHER))
        inner = np.unique(self._starts[at])
        return [0, *inner[inner < self.count].tolist(), self.count]

    def batches(self, rows: int) -> Iterator[pa.StructArray]:
        """Yields all ``add`` actions, of type `filestore.delta.adds.ADD`, so many at a time."""
        for start in range(0, self.count, rows):
            yield self._pages.between(start, min(start + rows, self.count))

    def items(self) -> Iterator[tuple[Slot, Mapping[str, DataFile]]]:
        """Yields all slots and their files; of many only some at a time are objects."""
        if self._objects is None and self.count <= KEPT_FILES:
            self._all()
        if self._objects is not None:
            yield from self._objects.items()
            return
        for start, end in pairwise(self._cuts()):
            yield from by_slot(files_of(self._pages.between(start, end), self._partition_by)).items()

    def paths(self) -> Iterator[list[str]]:
        """Yields the paths of all files, some thousand at a time."""
        for adds in self.batches(_TOGETHER):
            yield [decode_path(path) for path in pc.struct_field(adds, "path").to_pylist()]

    def candidates(self, may_be: Judge) -> Iterator[Sequence[DataFile]]:
        """Yields all files but those that are not wanted by their actions. Few files are all left to the caller."""
        if self.count <= _FEW_TO_JUDGE:
            yield from (list(some.values()) for _, some in self.items())
            return
        for start in range(0, self.count, _TOGETHER):
            end, memo = min(start + _TOGETHER, self.count), self._memos.setdefault(start, Memo())
            batch = Batch(end - start, partial(self._pages.between, start, end), self._partition_by, memo)
            mask = may_be(batch)
            if sum(kept.size for kept in list(self._memos.values())) > _MEMO_BYTES:
                self._memos = {}  # other threads may still use the former ones
            if mask.all():
                yield files_of(batch.adds, self._partition_by)
            elif mask.any():
                yield files_of(self._pages.take(start + np.flatnonzero(mask)), self._partition_by)

    def crowded(self, least: int) -> Iterator[tuple[Slot, Mapping[str, DataFile]]]:
        """Yields the slots that have so many files, or one with deleted rows, and others with the hash of one."""
        for start, end in pairwise(self._cuts()):
            first, behind = np.searchsorted(self._starts, (start, end)).tolist()
            counts = np.diff(self._starts[first : behind + 1])
            vectors = pc.struct_field(self._pages.between(start, end), "deletionVector").is_valid()
            before = np.append(0, np.cumsum(vectors.to_numpy(zero_copy_only=False)))
            worn = np.diff(before[self._starts[first : behind + 1] - start]) > 0
            some = np.flatnonzero((counts >= least) | worn) + first
            yield from self._files(_positions(self._starts[some], self._starts[some + 1])).items()

    def partitions(self) -> set[Partition]:
        """Returns the partitions that have a file."""
        return {partition for adds in self.batches(_TOGETHER) for partition in partitions_in(adds, self._partition_by)}

    def buckets(self) -> set[int]:
        """Returns the buckets that have a file, of any partition."""
        return set(buckets_in(self._hashes))

    def of_bucket(self, bucket: int) -> Iterator[tuple[Slot, Mapping[str, DataFile]]]:
        """Yields the slots of a bucket of all partitions, and their files."""
        least, largest = hashes_of_bucket(bucket)
        first, behind = np.searchsorted(self._hashes, least), np.searchsorted(self._hashes, largest, side="right")
        adds = self._pages.between(int(self._starts[first]), int(self._starts[behind]))
        yield from by_slot(files_of(adds, self._partition_by)).items()

    def differing(self, other: Base[DataFile]) -> Iterator[Slot]:
        """Yields the slots in which another version has other files, or the same ones in another state."""
        if not isinstance(other, ColumnFiles):
            yield from other.differing(self)
            return
        mine = self._cuts()
        there = np.searchsorted(other._hashes, self._hashes[np.searchsorted(self._starts, mine[1:-1])])
        others = [0, *other._starts[there].tolist(), other.count]
        for (a, b), (c, d) in zip(pairwise(mine), pairwise(others), strict=True):
            if b - a != d - c or not self._pages.shares(a, b, other._pages, c):
                sides = unlike(self._pages.between(a, b), other._pages.between(c, d), self._partition_by)
                yield from dict.fromkeys(file.slot for side in sides for file in side)

    def merged(self, over: Mapping[Slot, Mapping[str, DataFile]]) -> ColumnFiles:
        """Returns the files with others in place of those of some slots. Pages without these slots are shared."""
        slots = list(over)
        starts, ends = self._ranges(slots)
        stay = np.ones(self.count, bool)
        stay[_positions(starts, ends)] = False
        come = [file for some in over.values() for file in some.values()]
        come += self._of_other_slots(over, starts, ends)
        adds = rows_of(come)
        adds, hashes = _in_order(adds, *slot_columns(adds, self._partition_by))
        pages, all_hashes = self._pages.changed(self._hash_of_each(), stay, adds, hashes, plain=FEW_FILES)
        new = ColumnFiles._on(pages, *_groups(all_hashes), self._partition_by)
        if self._objects is not None and new.count <= KEPT_FILES:  # whoever asked for all will do so again
            new._objects = {slot: some for slot, some in {**self._objects, **over}.items() if some}
        return new

    def _of_other_slots(self, slots: Collection[Slot], starts: Positions, ends: Positions) -> Iterator[DataFile]:
        """Yields the files in the ranges of slots that are those of others, which have the same hash."""
        former = self._found(slots)
        odd = [
            number
            for number, (slot, rows) in enumerate(zip(slots, (ends - starts).tolist(), strict=True))
            if rows != len(former.get(slot, ()))
        ]
        if odd:
            others = self._files(_positions(starts[odd], ends[odd])).items()
            yield from (file for other, some in others if other not in slots for file in some.values())


def _groups(hashes: Hashes) -> tuple[Hashes, Positions]:
    """Returns each of some ascending hashes once; where it begins, and where the last ends."""
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    return hashes[first], np.append(first, len(hashes))


def _in_order(
    adds: pa.StructArray, partitions: Sequence[pa.Array], buckets: npt.NDArray[np.int64]
) -> tuple[pa.StructArray, Hashes]:
    """Returns actions in the order of their slots' hashes, and these. Our own checkpoints have it already."""
    hashes = slot_hashes(partitions, buckets)
    if bool(np.all(hashes[1:] >= hashes[:-1])):
        return adds, hashes
    order = np.argsort(hashes, kind="stable")
    return adds.take(pa.array(order)), hashes[order]


def _positions(starts: Positions, ends: Positions) -> Positions:
    """Returns all positions in some ranges, each once and ascending."""
    some = starts < ends
    starts, at = np.unique(starts[some], return_index=True)
    lengths = ends[some][at] - starts
    before = np.cumsum(lengths) - lengths
    rows: Positions = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return rows
