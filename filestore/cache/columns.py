"""`LookupCache`: columns of data files on the local disk, uncompressed and memory-mapped, for repeated look-ups.

A data file never changes, so what is held of it is never wrong; what fails here costs time only, since the Parquet file
is still there. One cache serves the threads of one process. Bounds and retention are those of the options
``lookup.cache-…``; they are looked after whenever the cache is used.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import tempfile
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
_MAPS = 8192  # Linux lets a process have 65,530
_RENTS = 1 << 16
_PATIENCE = 16
_SMALL_SHARE = 4096
_SPARE = 10  # the part of the disk that others shall find free


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

    So a batch job that looks up once writes nothing, and nobody ever pays more than about twice the least. Columns of
    small files are held in memory: a file and a mapping of its own would cost more than a column of them.

    Unpickled, it is the process's own one for the table: tasks that come to a process one after the other, such as
    those of a stream's batches in Spark's Python workers, share what it holds.

    Attributes:
        limits: What it may take.
        folder: Where columns are written; the system's folder for temporary files if None.

    Args:
        table_id: The table. One that is made later at its place has another, and files of other names.
        limits: What it may take.
        ambient: The clock.
        folder: Where columns are written.
    """

    def __init__(self, table_id: str, limits: CacheLimits, ambient: Ambient, folder: str | None = None) -> None:
        self.limits = limits
        self.folder = folder
        self._table_id = table_id
        self._ambient = ambient
        self._lock = threading.Lock()
        self._disk: Lru[Mapped] = Lru()
        self._memory: Lru[Any] = Lru()
        self._rents: Lru[int] = Lru()
        self._schemas: list[Schema] = []
        self._under_way: set[Hashable] = set()

    def __reduce__(self) -> tuple[object, ...]:
        """Where columns lie is for each process to say."""
        return (_of_process, (self._table_id, self.limits, self._ambient))

    @property
    def disk_bytes(self) -> int:
        """What the columns take on the disk."""
        return self._disk.size

    @property
    def memory_bytes(self) -> int:
        """What is held in memory."""
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
                held |= self._keep(file, missing, rows, read)
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

    def decoded(self, key: Hashable, state: Hashable, make: Callable[[], tuple[Decoded, int]]) -> Decoded:
        """A small thing in memory, such as a file's dead rows; `make` gives it and its bytes if it is not held.

        Args:
            key: What it is; of each only the latest state is held.
            state: What it depends on.
            make: Works it out.
        """
        now = self._ambient.now_ms()
        with self._lock:
            held: tuple[Hashable, Decoded] | None = self._memory.get(key, now)
        if held is not None and held[0] == state:
            return held[1]
        value, size = make()
        with self._lock:
            self._memory.put(key, (state, value), size, now)
            self._shrink(now)
        return value

    def sweep(self, now_ms: int) -> bool:
        """Drops what was not used for so long that it need not be kept; whether anything is left."""
        with self._lock:
            self._shrink(now_ms)
            self._rents.shrink(_RENTS, now_ms - self._retention_ms)
            return bool(len(self._disk) or len(self._memory) or len(self._rents) or self._under_way)

    def handed_over(self, limits: CacheLimits, ambient: Ambient) -> None:
        """Another process's cache for the table has come here: what it may take, and what time it is there, hold."""
        self.limits = limits
        self._ambient = ambient

    @property
    def _retention_ms(self) -> int:
        return self.limits.retention // timedelta(milliseconds=1)

    def _shrink(self, now_ms: int) -> None:
        unused_since = now_ms - self._retention_ms
        self._disk.shrink(self.limits.disk, unused_since, _MAPS)
        self._memory.shrink(self.limits.memory, unused_since)

    def _held(self, file: Hashable, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        now = self._ambient.now_ms()
        with self._lock:
            self._shrink(now)
            mapped = {name: self._disk.get((file, name), now) for name in names}
            columns = {name: column.column for name, column in mapped.items() if column is not None}
            small = {name: self._memory.get((file, name), now) for name in names if name not in columns}
        return columns | {name: column for name, column in small.items() if column is not None}

    def _claim(self, file: Hashable, names: Sequence[str], rows: int) -> bool:
        """Whether these columns are to be written, and by this thread. Another one reads Parquet meanwhile."""
        keys = {(file, name) for name in names}
        now = self._ambient.now_ms()
        with self._lock:
            if keys & self._under_way or any((self._rents.get(key, now) or 0) < rows for key in keys):
                return False
            self._under_way |= keys
        return True

    def _keep(self, file: Hashable, names: Sequence[str], rows: int, read: Read) -> dict[str, pa.ChunkedArray]:
        kept: dict[str, pa.ChunkedArray] = {}
        try:
            for start in range(0, len(names), _TOGETHER):
                kept |= self._keep_together(file, rows, *read(names[start : start + _TOGETHER]))
        except (OSError, pa.ArrowException, TooLarge) as error:
            logger.warning("look-ups in %s go on without a copy on the local disk: %s", file, error)
            self.charge(file, names, -_PATIENCE * max(1, self._rent(file, names)))
            return {}
        with self._lock:
            for name in names:
                self._rents.drop((file, name))
            self._shrink(self._ambient.now_ms())
        return kept

    def _keep_together(
        self, file: Hashable, rows: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> dict[str, pa.ChunkedArray]:
        """In memory what takes so little that thousands have room there, in files the rest. Memory: a row group."""
        rest = iter(batches)
        first = next(rest)
        small = {} if first.num_rows < rows else {n: first.column(n) for n in schema.names if self._is_small(first, n)}
        large = [name for name in schema.names if name not in small]
        now = self._ambient.now_ms()
        kept = {name: pa.chunked_array([column]) for name, column in small.items()}
        with self._lock:
            for name, column in kept.items():
                self._memory.put((file, name), column, column.nbytes, now)
        if not large:
            return kept
        whole = (batch.select(large) for batch in itertools.chain([first], rest))
        return kept | self._map(file, pa.schema([schema.field(name) for name in large]), whole)

    def _is_small(self, rows: pa.RecordBatch, name: str) -> bool:
        return bool(rows.column(name).nbytes <= self.limits.memory // _SMALL_SHARE)

    def _map(self, file: Hashable, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> dict[str, pa.ChunkedArray]:
        written = map_columns(batches, schema, self.folder, self._room())
        now = self._ambient.now_ms()
        with self._lock:
            for name, mapped in written.items():
                self._disk.put((file, name), mapped, mapped.size, now)
        return {name: mapped.column for name, mapped in written.items()}

    def _room(self) -> int:
        """The bytes that columns may take now: a disk that is full would stop others, such as Spark's shuffles."""
        disk = shutil.disk_usage(self.folder or tempfile.gettempdir())
        free = max(0, disk.free - disk.total // _SPARE)
        return free if self.limits.disk is None else min(free, self.limits.disk)

    def _rent(self, file: Hashable, names: Sequence[str]) -> int:
        now = self._ambient.now_ms()
        with self._lock:
            return max(self._rents.get((file, name), now) or 0 for name in names)


_own: dict[str, LookupCache] = {}
_own_lock = threading.Lock()


def _of_process(table_id: str, limits: CacheLimits, ambient: Ambient) -> LookupCache:
    """This process's own cache for a table. What no task has used for so long that it need not be kept is let go."""
    now = ambient.now_ms()
    with _own_lock:
        for other in [id_ for id_, cache in _own.items() if id_ != table_id and not cache.sweep(now)]:
            del _own[other]
        cache = _own.setdefault(table_id, LookupCache(table_id, limits, ambient))
    cache.handed_over(limits, ambient)
    return cache
