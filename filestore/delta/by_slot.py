"""The files of a version by slot: data files, pending runs and tombstones (FORMAT.md section 2). Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from filestore.model.files import DataFile, Partition, Slot, Tombstones
from filestore.model.partition_set import PartitionSet

__all__ = ["Base", "BySlot", "FileTotals", "LookupFiles"]


class _InSlot(Protocol):
    """A file that a version names."""

    @property
    def path(self) -> str:
        """The path relative to the table."""

    @property
    def slot(self) -> Slot:
        """The slot of its rows."""


Stored = TypeVar("Stored", bound=_InSlot)

_LATELY = 256


class Base(Protocol[Stored]):
    """Files by slot and path, on which a version stands. It is never changed."""

    def get(self, slot: Slot, default: Mapping[str, Stored], /) -> Mapping[str, Stored]:
        """Returns the files of a slot, by path."""

    def items(self) -> Iterable[tuple[Slot, Mapping[str, Stored]]]:
        """Returns all slots that have a file."""

    def keys(self) -> Collection[Slot]:
        """Returns all slots that have a file."""

    def ask(self, slots: Iterable[Slot]) -> None:
        """Says of which slots the files are asked for next: to find them together takes less time than one by one."""

    def merged(self, over: Mapping[Slot, Mapping[str, Stored]]) -> Base[Stored]:
        """Returns the files with others in place of those of some slots."""


class _Objects(dict[Slot, Mapping[str, Stored]]):
    """A base of objects."""

    def ask(self, slots: Iterable[Slot]) -> None:
        """Does nothing: they are all there."""

    def merged(self, over: Mapping[Slot, Mapping[str, Stored]]) -> Base[Stored]:
        """Returns the files with others in place of those of some slots."""
        return _Objects((slot, some) for slot, some in {**self, **over}.items() if some)


class BySlot(Generic[Stored]):
    """Files by slot and path. It is never changed: `changed` returns another one, which shares all slots that stay.

    The files of one slot are found in the same time however many others there are.

    Args:
        stored: The files.
        order: Puts those of a slot in order; if None their order is not defined.
    """

    def __init__(self, stored: Iterable[Stored] = (), order: Callable[[Stored], Any] | None = None) -> None:
        slots: dict[Slot, dict[str, Stored]] = {}
        for file in stored:
            slots.setdefault(file.slot, {})[file.path] = file
        self._order = order
        self._base: Base[Stored] = _Objects((slot, self._sorted(some)) for slot, some in slots.items())
        self._over: Mapping[Slot, Mapping[str, Stored]] = {}  # slots in place of those of the base; empty ones are gone
        self._count = sum(map(len, slots.values()))

    @classmethod
    def on(cls, base: Base[Stored], count: int, order: Callable[[Stored], Any] | None = None) -> BySlot[Stored]:
        """Returns files that are by slot and path already, those of a slot in that order, and how many they are."""
        new = cls((), order)
        new._base, new._count = base, count
        return new

    def _sorted(self, some: Mapping[str, Stored]) -> Mapping[str, Stored]:
        if self._order is None or len(some) < 2:
            return some
        return {file.path: file for file in sorted(some.values(), key=self._order)}

    def _of(self, slot: Slot) -> Mapping[str, Stored]:
        found = self._over.get(slot)
        return self._base.get(slot, {}) if found is None else found

    def _ask(self, slots: Iterable[Slot]) -> None:
        self._base.ask([slot for slot in slots if slot not in self._over])

    def _items(self) -> Iterator[tuple[Slot, Mapping[str, Stored]]]:
        """Yields all slots that have a file."""
        if not self._over:
            yield from self._base.items()
            return
        yield from ((slot, some) for slot, some in self._base.items() if slot not in self._over)
        yield from ((slot, some) for slot, some in self._over.items() if some)

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
        new = BySlot.on(base, self._count, self._order)
        new._over = {slot: self._of(slot) for slot in self.differing(earlier)}
        return new

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
    def slots(self) -> Collection[Slot]:
        """The slots that have a file."""
        return [slot for slot, _ in self._items()] if self._over else self._base.keys()

    @property
    def partitions(self) -> set[Partition]:
        """The partitions that have a file."""
        return {slot.partition for slot in self.slots}

    def differing(self, other: BySlot[Stored]) -> Iterator[Slot]:
        """Yields the slots in which another version has other files, or the same ones in another state."""
        shared = self._base is other._base  # then only slots that either has changed since can differ
        for slot in {*self._over, *other._over} if shared else {*self.slots, *other.slots}:
            if self._of(slot) != other._of(slot):
                yield slot

    def within(self, partitions: PartitionSet) -> Iterator[Stored]:
        """Yields the files of some partitions."""
        return (file for slot, some in self._items() if slot.partition in partitions for file in some.values())

    def of_bucket(self, bucket: int) -> BySlot[Stored]:
        """Returns the files of one bucket of all partitions."""
        some = _Objects((slot, files) for slot, files in self._items() if slot.bucket == bucket)
        return BySlot.on(some, sum(map(len, some.values())), self._order)

    def __iter__(self) -> Iterator[Stored]:
        return itertools.chain.from_iterable(some.values() for _, some in self._items())

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BySlot) and self._count == other._count and not any(self.differing(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"BySlot({self._count} files)"


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Sums over the live files of a version, which each version has from the one before it.

    Attributes:
        size: The bytes of the files.
        live_rows: The rows that readers see.
        vectors: How many files have deleted rows.
    """

    size: int = 0
    live_rows: int = 0
    vectors: int = 0

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> FileTotals:
        """Returns the sums over some files."""
        listed = list(files)
        return cls(
            sum(file.size for file in listed),
            sum(file.live_rows for file in listed),
            sum(file.vector is not None for file in listed),
        )

    def changed(self, former: Iterable[DataFile], now: Iterable[DataFile]) -> FileTotals:
        """Returns the sums without some files, and with others."""
        less, more = FileTotals.of(former), FileTotals.of(now)
        return FileTotals(
            self.size - less.size + more.size,
            self.live_rows - less.live_rows + more.live_rows,
            self.vectors - less.vectors + more.vectors,
        )


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
