"""Keeps the last bytes of objects that never change: Parquet footers, vectors and small files are read once."""

from __future__ import annotations

import threading
from collections import OrderedDict

from filestore.storage.client import Tail

__all__ = ["Tails"]

_BYTES = 64 << 20
_OVERHEAD = 512  # bytes that an entry takes beside its data, about


class Tails:
    """The last bytes of objects by path, at most 64 MB. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        self._bytes = 0

    def get(self, path: str) -> Tail | None:
        """Returns what is kept of an object, and marks it as used now."""
        with self._lock:
            tail = self._tails.get(path)
            if tail is not None:
                self._tails.move_to_end(path)
            return tail

    def put(self, path: str, tail: Tail) -> None:
        """Keeps the last bytes of an object; those that were not used for the longest time go."""
        with self._lock:
            self._drop(path)
            self._tails[path] = tail
            self._bytes += _size(tail)
            while self._bytes > _BYTES:
                self._drop(next(iter(self._tails)))

    def drop(self, path: str) -> None:
        """Forgets an object that is deleted."""
        with self._lock:
            self._drop(path)

    def _drop(self, path: str) -> None:
        tail = self._tails.pop(path, None)
        if tail is not None:
            self._bytes -= _size(tail)


def _size(tail: Tail) -> int:
    return len(tail.data) + _OVERHEAD
