"""`LookupCache`: columns of data files on the local disk, uncompressed and memory-mapped, for repeated look-ups.

A data file never changes, so what is held of it is never wrong; what fails here costs time only, since the Parquet file
is still there. One cache serves the threads of one process. Bounds and retention are those of the options
``lookup.cache-…``; they are looked after whenever the cache is used.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.cache.lru import Lru
from filestore.cache.mapped import Mapped, TooLarge, map_columns
from filestore.model.schema import Schema
from filestore.model.table_options import TableOptions

__all__ = ["CacheLimits", "LookupCache", "Read"]

logger = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")
Read = Callable[[Sequence[str]], tuple[pa.Schema, Iterable[pa.RecordBatch]]]
"""Reads columns of a data file: all their rows, a batch a row group."""

_TOGETHER = 64  # columns that are written side by side, each with an open file
_RENTS = 1 << 20
_PATIENCE = 16


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """What a cache may take.

    Attributes:
        memory: Bytes of what is held decoded.
        disk: Bytes of columns on the disk; None for no bound but the disk's.
        retention: What was not used for so long is dropped.
    """

    memory: int
    disk: int | None
    retention: timedelta

    @classmethod
    def of(cls, options: TableOptions) -> CacheLimits:
        """The limits that a table's options set."""
        return cls(
            options["lookup.cache-max-memory-size"],
            options["lookup.cache-max-disk-size"],
            options["lookup.cache-file-retention"],
        )


class LookupCache:
    """Filled only where it pays: a column is written once as many of its rows were read for look-ups as it has.

    So a batch job that looks up once writes nothing, and nobody ever pays more than about twice the least.

    Args:
        limits: What it may take.
        ambient: The clock.
        folder: Where the columns lie; the system's folder for temporary files if None.
    """

    def __init__(self, limits: CacheLimits, ambient: Ambient, folder: str | None = None) -> None:
        self.limits = limits
        self._ambient = ambient
        self._folder = folder
        self._lock = threading.Lock()
        self._disk: Lru[Mapped] = Lru()
        self._memory: Lru[Any] = Lru()
        self._rents: Lru[int] = Lru()
        self._schemas: list[Schema] = []
        self._under_way: set[Hashable] = set()

    def __reduce__(self) -> tuple[object, ...]:
        """Another process gets an empty one."""
        return (LookupCache, (self.limits, self._ambient, self._folder))

    @property
    def disk_bytes(self) -> int:
        """What the columns take on the disk."""
        return self._disk.size

    @property
    def memory_bytes(self) -> int:
        """What is held decoded."""
        return self._memory.size

    def generation(self, schema: Schema) -> int:
        """A number for the schema: what is held of a file is what it has for readers of that schema."""
        with self._lock:
            known = next((n for n, s in enumerate(self._schemas) if s is schema or s == schema), None)
            if known is None:
                self._schemas.append(schema)
            return len(self._schemas) - 1 if known is None else known

    def columns(self, file: Hashable, names: Sequence[str], rows: int, read: Read) -> Mapping[str, pa.ChunkedArray]:
        """Columns of a data file, a chunk a row group; nothing at all if one of them is not held.

        What was read often enough is written now.

        Args:
            file: Which file; its columns are the same for ever.
            names: Which columns.
            rows: How many rows the file has.
            read: How to read columns that are to be written.
        """
        held = self._held(file, names)
        missing = [name for name in names if name not in held]
        if missing and self._claim(file, missing, rows):
            try:
                held |= self._write(file, missing, read)
            finally:
                with self._lock:
                    self._under_way -= {(file, name) for name in missing}
        return held if len(held) == len(set(names)) else {}

    def charge(self, file: Hashable, names: Iterable[str], rows: int) -> None:
        """So many rows of columns were read from the file, since they are not held."""
        now = self._ambient.now_ms()
        with self._lock:
            for name in names:
                self._rents.put((file, name), rows + (self._rents.get((file, name), now) or 0), 1, now)
            self._rents.shrink(_RENTS, now - self._retention_ms)

    def decoded(self, key: Hashable, make: Callable[[], tuple[Decoded, int]]) -> Decoded:
        """A small thing in memory, such as a file's footer; `make` gives it and its bytes if it is not held."""
        now = self._ambient.now_ms()
        with self._lock:
            value: Decoded | None = self._memory.get(key, now)
        if value is not None:
            return value
        value, size = make()
        with self._lock:
            self._memory.put(key, value, size, now)
            self._memory.shrink(self.limits.memory, now - self._retention_ms)
        return value

    @property
    def _retention_ms(self) -> int:
        return self.limits.retention // timedelta(milliseconds=1)

    def _held(self, file: Hashable, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        now = self._ambient.now_ms()
        with self._lock:
            self._disk.shrink(self.limits.disk, now - self._retention_ms)
            found = {name: self._disk.get((file, name), now) for name in names}
        return {name: mapped.column for name, mapped in found.items() if mapped is not None}

    def _claim(self, file: Hashable, names: Sequence[str], rows: int) -> bool:
        """Whether these columns are to be written, and by this thread. Another one reads Parquet meanwhile."""
        keys = {(file, name) for name in names}
        now = self._ambient.now_ms()
        with self._lock:
            if keys & self._under_way or any((self._rents.get(key, now) or 0) < rows for key in keys):
                return False
            self._under_way |= keys
        return True

    def _write(self, file: Hashable, names: Sequence[str], read: Read) -> dict[str, pa.ChunkedArray]:
        written: dict[str, Mapped] = {}
        try:
            for start in range(0, len(names), _TOGETHER):
                schema, batches = read(names[start : start + _TOGETHER])
                written |= map_columns(batches, schema, self._folder, self.limits.disk)
        except (OSError, pa.ArrowException, TooLarge) as error:
            logger.warning("look-ups in %s go on without a copy on the local disk: %s", file, error)
            self.charge(file, names, -_PATIENCE * max(1, self._rent(file, names)))
            return {}
        now = self._ambient.now_ms()
        with self._lock:
            for name, mapped in written.items():
                self._rents.drop((file, name))
                self._disk.put((file, name), mapped, mapped.size, now)
            self._disk.shrink(self.limits.disk, now - self._retention_ms)
        return {name: mapped.column for name, mapped in written.items()}

    def _rent(self, file: Hashable, names: Sequence[str]) -> int:
        now = self._ambient.now_ms()
        with self._lock:
            return max(self._rents.get((file, name), now) or 0 for name in names)
