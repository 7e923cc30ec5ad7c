"""Keeps bytes of objects that never change in memory: Parquet footers, vectors, small files and key columns."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from filestore.storage.client import Tail

__all__ = ["Kept", "KeptObject"]

_BYTES = 64 << 20
_OVERHEAD = 512  # bytes that an object takes beside its data, about


@dataclass(frozen=True, slots=True)
class KeptObject:
    """The bytes of one object that are kept.

    Attributes:
        tail: Its last bytes, and its size.
        pieces: Other bytes, by where they begin.
    """

    tail: Tail
    pieces: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def memory(self) -> int:
        """The bytes that it takes, about."""
        return len(self.tail.data) + sum(map(len, self.pieces.values())) + _OVERHEAD


class Kept:
    """Bytes of objects by path, at most 64 MB. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: OrderedDict[str, KeptObject] = OrderedDict()
        self._bytes = 0

    def get(self, path: str) -> KeptObject | None:
        """Returns what is kept of an object, and marks it as used now."""
        with self._lock:
            found = self._objects.get(path)
            if found is not None:
                self._objects.move_to_end(path)
            return found

    def put(self, path: str, tail: Tail) -> None:
        """Keeps the last bytes of an object; objects that were not used for the longest time go."""
        with self._lock:
            self._replace(path, KeptObject(tail))

    def add(self, path: str, tail: Tail, pieces: Mapping[int, bytes]) -> None:
        """Keeps more bytes of an object, beside those that are kept already."""
        with self._lock:
            known = self._objects.get(path, KeptObject(tail))
            self._replace(path, KeptObject(tail, {**known.pieces, **pieces}))

    def drop(self, path: str) -> None:
        """Forgets an object that is deleted."""
        with self._lock:
            self._drop(path)

    def _replace(self, path: str, kept: KeptObject) -> None:
        self._drop(path)
        self._objects[path] = kept
        self._bytes += kept.memory
        while self._bytes > _BYTES:
            self._drop(next(iter(self._objects)))

    def _drop(self, path: str) -> None:
        kept = self._objects.pop(path, None)
        if kept is not None:
            self._bytes -= kept.memory
