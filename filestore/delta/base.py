"""The base of a version's files: those of an earlier version, as objects or as columns. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from filestore.delta.batch import Judge
from filestore.model.files import Partition, Slot

__all__ = ["FEW_FILES", "Base", "ObjectFiles", "Stored", "by_slot"]


FEW_FILES = 10_000
"""The number of objects, of some kB each, or of actions as Arrow has them, that may be in memory without harm."""


class _InSlot(Protocol):
    """A file that a version names."""

    @property
    def path(self) -> str:
        """The path relative to the table."""

    @property
    def slot(self) -> Slot:
        """The slot of its rows."""


Stored = TypeVar("Stored", bound=_InSlot)


class Base(ABC, Generic[Stored]):
    """Files by slot and path, on which a version stands. It is never changed."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of files."""

    @property
    @abstractmethod
    def lean(self) -> bool:
        """True if the files do not take much memory."""

    @abstractmethod
    def get(self, slot: Slot) -> Mapping[str, Stored]:
        """Returns the files of a slot, by path."""

    @abstractmethod
    def ask(self, slots: Iterable[Slot]) -> None:
        """Says of which slots the files are asked for next: to find them together takes less time than one by one."""

    @abstractmethod
    def items(self) -> Iterable[tuple[Slot, Mapping[str, Stored]]]:
        """Returns all slots that have a file."""

    @abstractmethod
    def paths(self) -> Iterable[Collection[str]]:
        """Returns the paths of all files, some at a time."""

    @abstractmethod
    def candidates(self, may_be: Judge) -> Iterable[Collection[Stored]]:
        """Returns all files, perhaps without those that are not wanted by their actions; some at a time."""

    @abstractmethod
    def crowded(self, least: int) -> Iterable[tuple[Slot, Mapping[str, Stored]]]:
        """Returns the slots that have so many files, or one with deleted rows; perhaps others, too."""

    @abstractmethod
    def partitions(self) -> set[Partition]:
        """Returns the partitions that have a file."""

    @abstractmethod
    def buckets(self) -> set[int]:
        """Returns the buckets that have a file, of any partition."""

    @abstractmethod
    def of_bucket(self, bucket: int) -> Iterable[tuple[Slot, Mapping[str, Stored]]]:
        """Returns the slots of one bucket of all partitions."""

    @abstractmethod
    def merged(self, over: Mapping[Slot, Mapping[str, Stored]]) -> Base[Stored]:
        """Returns the files with others in place of those of some slots."""

    @abstractmethod
    def differing(self, other: Base[Stored]) -> Iterator[Slot]:
        """Yields the slots in which another one has other files, or the same ones in another state."""


class ObjectFiles(Base[Stored]):
    """A base of objects."""

    def __init__(self, slots: Mapping[Slot, Mapping[str, Stored]]) -> None:
        self._slots = slots
        self._count = sum(map(len, slots.values()))

    @property
    def count(self) -> int:
        """The number of files."""
        return self._count

    @property
    def lean(self) -> bool:
        """True if there are few."""
        return self.count <= FEW_FILES

    def get(self, slot: Slot) -> Mapping[str, Stored]:
        """Returns the files of a slot, by path."""
        return self._slots.get(slot, {})

    def ask(self, slots: Iterable[Slot]) -> None:
        """Does nothing: they are all there."""

    def items(self) -> Iterable[tuple[Slot, Mapping[str, Stored]]]:
        """Returns all slots that have a file."""
        return self._slots.items()

    def paths(self) -> Iterable[Collection[str]]:
        """Returns the paths of all files, those of a slot at a time."""
        return self._slots.values()

    def candidates(self, may_be: Judge) -> Iterable[Collection[Stored]]:
        """Returns all files: whoever asks looks at objects itself."""
        return (some.values() for some in self._slots.values())

    def crowded(self, least: int) -> Iterable[tuple[Slot, Mapping[str, Stored]]]:
        """Returns all slots: whoever asks looks at objects itself."""
        return self._slots.items()

    def partitions(self) -> set[Partition]:
        """Returns the partitions that have a file."""
        return {slot.partition for slot in self._slots}

    def buckets(self) -> set[int]:
        """Returns the buckets that have a file, of any partition."""
        return {slot.bucket for slot in self._slots}

    def of_bucket(self, bucket: int) -> Iterable[tuple[Slot, Mapping[str, Stored]]]:
        """Returns the slots of one bucket of all partitions."""
        return ((slot, some) for slot, some in self._slots.items() if slot.bucket == bucket)

    def merged(self, over: Mapping[Slot, Mapping[str, Stored]]) -> Base[Stored]:
        """Returns the files with others in place of those of some slots."""
        return ObjectFiles({slot: some for slot, some in {**self._slots, **over}.items() if some})

    def differing(self, other: Base[Stored]) -> Iterator[Slot]:
        """Yields the slots in which another one has other files; it goes through the other one once."""
        left = set(self._slots)
        for slot, some in other.items():
            left.discard(slot)
            if self._slots.get(slot, {}) != some:
                yield slot
        yield from left


def by_slot(stored: Iterable[Stored]) -> dict[Slot, dict[str, Stored]]:
    """Groups files."""
    slots: dict[Slot, dict[str, Stored]] = {}
    for file in stored:
        slots.setdefault(file.slot, {})[file.path] = file
    return slots
