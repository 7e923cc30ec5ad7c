"""A bounded map that drops the least recently used entries. It is not thread-safe: its owner locks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Lru"]

Value = TypeVar("Value")


@dataclass(slots=True)
class _Entry(Generic[Value]):
    value: Value
    size: int
    used_ms: int


class Lru(Generic[Value]):
    """Values by key, each with a size, in the order of their last use."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry[Value]] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, now_ms: int) -> Value | None:
        """Returns the value and marks it as used now; None if the key is absent."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used_ms = now_ms
        self._entries.move_to_end(key)
        return entry.value

    def items(self) -> Iterator[tuple[Hashable, Value]]:
        """Yields keys and values, the least recently used first; this is no use of them."""
        return ((key, entry.value) for key, entry in self._entries.items())

    def put(self, key: Hashable, value: Value, size: int, now_ms: int) -> None:
        """Stores a value, replacing the key's former one."""
        self.drop(key)
        self._entries[key] = _Entry(value, size, now_ms)
        self.size += size

    def drop(self, key: Hashable) -> None:
        """Removes a key, if it is present."""
        if (entry := self._entries.pop(key, None)) is not None:
            self.size -= entry.size

    def shrink(self, limit: int | None, unused_since_ms: int, count: int | None = None) -> None:
        """Removes entries that were last used before a time, and then the oldest until the limits hold.

        Args:
            limit: The largest sum of sizes; None for no limit.
            unused_since_ms: Entries that were last used earlier are removed.
            count: The largest number of values; None for no limit.
        """
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            fits = (limit is None or self.size <= limit) and (count is None or len(self) <= count)
            if fits and entry.used_ms >= unused_since_ms:
                return
            self.drop(key)
