"""The files of a version by slot: data files, pending runs and tombstones (FORMAT.md section 2). Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from filestore.delta.base import FEW_FILES, Base, ObjectFiles, Stored, by_slot
from filestore.delta.batch import Judge, in_partitions
from filestore.model.files import DataFile, Partition, Slot, Tombstones
from filestore.model.partition_set import PartitionSet

__all__ = ["BySlot", "LookupFiles"]

_LATELY = 256
_TOGETHER = 1000


class BySlot(Generic[Stored]):
    """Files by slot and path. It is never changed: `changed` returns another one, which shares all slots that stay.

    The files of one slot are found in the same time however many others there are.

    Args:
        stored: The files.
        order: Puts those of a slot in order; if None their order is not defined.
    """

    def __init__(self, stored: Iterable[Stored] = (), order: Callable[[Stored], Any] | None = None) -> None:
        self._order = order
        self._base: Base[Stored] = ObjectFiles({slot: self._sorted(some) for slot, some in by_slot(stored).items()})
        self._over: Mapping[Slot, Mapping[str, Stored]] = {}  # slots in place of those of the base; empty ones are gone
        self._count = self._base.count

    @classmethod
    def on(cls, base: Base[Stored], order: Callable[[Stored], Any] | None = None) -> BySlot[Stored]:
        """Returns files that are by slot and path already, those of a slot in that order."""
        new = cls((), order)
        new._base, new._count = base, base.count
        return new

    def _sorted(self, some: Mapping[str, Stored]) -> Mapping[str, Stored]:
        if self._order is None or len(some) < 2:
            return some
        return {file.path: file for file in sorted(some.values(), key=self._order)}

    def _of(self, slot: Slot) -> Mapping[str, Stored]:
        found = self._over.get(slot)
        return self._base.get(slot) if found is None else found

    def _ask(self, slots: Iterable[Slot]) -> None:
        self._base.ask([slot for slot in slots if slot not in self._over])

    def items(self) -> Iterator[tuple[Slot, Mapping[str, Stored]]]:
        """Yields all slots that have a file, and their files by path. Of many files only some at a time are objects."""
        yield from ((slot, some) for slot, some in self._base.items() if slot not in self._over)
        yield from ((slot, some) for slot, some in self._over.items() if some)

    def crowded(self, least: int) -> Iterator[tuple[Slot, Collection[Stored]]]:
        """Yields the slots that have so many files, or one with deleted rows, with their files; perhaps others, too."""
        yield from ((slot, some.values()) for slot, some in self._base.crowded(least) if slot not in self._over)
        yield from ((slot, some.values()) for slot, some in self._over.items() if some)

    def candidates(self, may_be: Judge) -> Iterator[Collection[Stored]]:
        """Yields all files, perhaps without those that are not wanted by their actions; some at a time.

        Args:
            may_be: Marks the actions of files that may be wanted. Files that are objects already are not asked.
        """
        for some in self._base.candidates(may_be):
            yield [file for file in some if file.slot not in self._over] if self._over else some
        for left in self._over.values():
            yield left.values()

    def paths(self) -> Iterator[Collection[str]]:
        """Yields the paths of all files, some at a time. Only those of slots that changed lately become objects."""
        self._base.ask(self._over)
        gone = {path for slot in self._over for path in self._base.get(slot)}
        for some in self._base.paths():
            yield [path for path in some if path not in gone] if gone else some
        yield from self._over.values()

    def changed(self, removed: Iterable[tuple[str, Slot]], added: Iterable[Stored]) -> BySlot[Stored]:
        """Returns the files without those of some paths and slots, and with others: first the former, then the latter.

        It takes the time of the slots that change, and of a copy of references to those that changed lately.
        """
        gone, come = list(removed), list(added)
        if not gone and not come:
            return self
        self._ask([*(slot for _, slot in gone), *(file.slot for file in come)])
        touched = {slot: dict(self._of(slot)) for slot in (*(slot for _, slot in gone), *(file.slot for file in come))}
        before = sum(map(len, touched.values()))
        for path, slot in gone:
            touched[slot].pop(path, None)
        for file in come:
            touched[file.slot][file.path] = file
        new: BySlot[Stored] = BySlot((), self._order)
        new._base, new._over = self._base, {**self._over, **{s: self._sorted(some) for s, some in touched.items()}}
        new._count = self._count + sum(map(len, touched.values())) - before
        if len(new._over) > max(_LATELY, new._count // 8):  # so all copies together take the time of a few
            new._base, new._over = self._base.merged(new._over), {}
        return new

    def parts(self) -> tuple[Base[Stored], Mapping[Slot, Mapping[str, Stored]]]:
        """Returns the base on which this version stands, and the slots that have other files, or none any more."""
        return self._base, self._over

    def rebased(self, base: Base[Stored], earlier: BySlot[Stored]) -> BySlot[Stored]:
        """Returns the same files on another base, which has those of an earlier version.

        It takes the time of the slots that have changed since. If the earlier version is not known to be one of this
        table's history in this process, nothing is changed.
        """
        if self._base is not earlier._base:
            return self
        new = BySlot.on(base, self._order)
        new._over = {slot: self._of(slot) for slot in self.differing(earlier)}
        new._count = self._count
        return new

    @property
    def lean(self) -> bool:
        """True if the files take little memory, and few slots have changed since what they stand on."""
        return len(self._over) <= FEW_FILES and self._base.lean

    def of(self, slot: Slot) -> tuple[Stored, ...]:
        """Returns the files of a slot."""
        return tuple(self._of(slot).values())

    def get(self, path: str, slot: Slot) -> Stored | None:
        """Returns the file of a path, which is in that slot; None if there is none."""
        return self._of(slot).get(path)

    def some(self, named: Mapping[str, Slot]) -> list[Stored]:
        """Returns those of some paths, each in its slot, that are here."""
        self._ask(named.values())
        return [file for path, slot in named.items() if (file := self.get(path, slot)) is not None]

    def current(self, file: Stored) -> Stored | None:
        """Returns the file as it is here, perhaps with other dead rows; None if it is not."""
        return self.get(file.path, file.slot)

    @property
    def slots(self) -> Iterator[Slot]:
        """The slots that have a file."""
        return (slot for slot, _ in self.items())

    @property
    def partitions(self) -> set[Partition]:
        """The partitions that have a file."""
        found = self._base.partitions()
        if not self._over:
            return found
        come = {slot.partition for slot, some in self._over.items() if some}
        left = {slot.partition for slot, some in self._over.items() if not some} - come
        found = (found | come) - left
        for file in self.within(PartitionSet.of(left)) if left else ():
            found.add(file.slot.partition)
            if left <= found:
                break
        return found

    @property
    def buckets(self) -> set[int]:
        """The buckets that have a file now, or had one in an earlier version."""
        return self._base.buckets() | {slot.bucket for slot in self._over}

    def differing(self, other: BySlot[Stored]) -> Iterator[Slot]:
        """Yields the slots in which another version has other files, or the same ones in another state."""
        changed = {*self._over, *other._over}
        yield from (slot for slot in changed if self._of(slot) != other._of(slot))
        if self._base is other._base:
            return
        slots = (slot for slot in self._base.differing(other._base) if slot not in changed)
        while some := list(itertools.islice(slots, _TOGETHER)):  # whoever asks for their files has them at once
            self._ask(some)
            other._ask(some)
            yield from some

    def within(self, partitions: PartitionSet) -> Iterator[Stored]:
        """Yields the files of some partitions."""
        for some in self.candidates(lambda batch: in_partitions(batch, partitions)):
            yield from (file for file in some if file.slot.partition in partitions)

    def of_bucket(self, bucket: int) -> BySlot[Stored]:
        """Returns the files of one bucket of all partitions."""
        over = {slot: some for slot, some in self._over.items() if slot.bucket == bucket}
        return BySlot.on(ObjectFiles(dict(self._base.of_bucket(bucket))).merged(over), self._order)

    def __iter__(self) -> Iterator[Stored]:
        return itertools.chain.from_iterable(some.values() for _, some in self.items())

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BySlot) and self._count == other._count and not any(self.differing(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"BySlot({self._count} files)"


@dataclass(frozen=True, slots=True)
class LookupFiles:
    """The files in which a write looks its keys up: live ones, and tombstones that are still remembered.

    Attributes:
        files: The live files.
        deleted: The tombstones.
        since_ms: Tombstones that are older are forgotten.
    """

    files: BySlot[DataFile] = field(default_factory=BySlot)
    deleted: BySlot[Tombstones] = field(default_factory=BySlot)
    since_ms: int = 0

    def of(self, slot: Slot) -> tuple[DataFile, ...]:
        """Returns those of a slot."""
        return (*self.files.of(slot), *(run for run in self.deleted.of(slot) if run.modified_ms >= self.since_ms))

    def of_bucket(self, bucket: int) -> LookupFiles:
        """Returns those of one bucket of all partitions."""
        return LookupFiles(self.files.of_bucket(bucket), self.deleted.of_bucket(bucket), self.since_ms)

    def __bool__(self) -> bool:
        return bool(self.files) or any(run.modified_ms >= self.since_ms for run in self.deleted)
