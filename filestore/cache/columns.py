"""`LookupCache` keeps columns of data files on the local disk, uncompressed and memory-mapped, for repeated look-ups.

A data file never changes, so a cached column is never stale; an error here costs only time, since the Parquet file
still exists. The threads of a process share one cache. The options ``lookup.cache-…`` set its limits and retention,
which are enforced at each use.
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
from filestore.cache.host_share import CacheClaim, HostShare
from filestore.cache.lru import Lru
from filestore.cache.mapped import Mapped, TooLarge, map_columns
from filestore.model.schema import Schema
from filestore.model.table_options import TableOptions

__all__ = ["CacheLimits", "LookupCache", "Read"]

logger = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")
Read = Callable[[Sequence[str]], tuple[pa.Schema, Iterable[pa.RecordBatch]]]
"""Reads all rows of some columns of a data file, one batch for each row group."""

_TOGETHER = 64  # columns that are written at the same time, each to an open file
_MAPS = 8192  # Linux allows a process 65,530
_READ_COUNTS = 1 << 16
_PATIENCE = 16
_SMALL_SHARE = 4096
_SPARE = 10  # one tenth of the disk stays free for other programs


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The limits of a cache.

    Attributes:
        memory: The bytes of decoded values in memory.
        disk: The bytes of columns on the disk; None: the disk's free space is the only limit.
        retention: Entries that were not used for this time are dropped.
    """

    memory: int
    disk: int | None
    retention: timedelta

    @classmethod
    def of(cls, options: TableOptions) -> CacheLimits:
        """Reads the limits from a table's options."""
        return cls(
            options["lookup.cache-max-memory-size"],
            options["lookup.cache-max-disk-size"],
            options["lookup.cache-file-retention"],
        )


class LookupCache:
    """Caches a column only where it pays: once look-ups have read as many of its rows as it has.

    So a batch job that looks up once writes nothing, and no process spends more than about twice the best possible
    time. Columns of small files are kept in memory: a file and a mapping would cost more than such a column.

    An unpickled cache is the process's own cache of the table: tasks that run in a process one after the other, such as
    those of a stream's batches in Spark's Python workers, share it. Such processes of a machine divide its limits.

    Attributes:
        limits: The limits of its size and retention.
        folder: The folder for columns; the system's folder for temporary files if None.

    Args:
        table_id: The table's id. A table that is created later at the same place has another id, and other files.
        limits: The limits of its size and retention.
        ambient: The clock.
        folder: The folder for columns.
        share: Divides the limits among this machine's processes; None: they are this process's alone.
    """

    def __init__(
        self,
        table_id: str,
        limits: CacheLimits,
        ambient: Ambient,
        folder: str | None = None,
        share: HostShare | None = None,
    ) -> None:
        self.limits = limits
        self.folder = folder
        self._share = share
        self._table_id = table_id
        self._ambient = ambient
        self._lock = threading.Lock()
        self._disk: Lru[Mapped] = Lru()
        self._memory: Lru[Any] = Lru()
        self._rows_read: Lru[int] = Lru()
        self._schemas: list[Schema] = []
        self._under_way: set[Hashable] = set()

    def __reduce__(self) -> tuple[object, ...]:
        """Leaves the folder out: each process has its own."""
        return (_of_process, (self._table_id, self.limits, self._ambient))

    @property
    def disk_bytes(self) -> int:
        """The bytes of the columns on the disk."""
        return self._disk.size

    @property
    def memory_bytes(self) -> int:
        """The bytes of the values in memory."""
        return self._memory.size

    def generation(self, schema: Schema) -> int:
        """Returns a number for the schema: cached columns of a file are valid for readers of that schema."""
        with self._lock:
            known = next((n for n, s in enumerate(self._schemas) if s is schema or s == schema), None)
            if known is None:
                self._schemas.append(schema)
            return len(self._schemas) - 1 if known is None else known

    def columns(self, file: Hashable, names: Sequence[str], rows: int, read: Read) -> Mapping[str, pa.ChunkedArray]:
        """Returns columns of a data file, one chunk for each row group; an empty mapping unless all are cached.

        Columns that were read often enough are cached now.

        Args:
            file: Identifies the file, whose columns never change.
            names: The columns.
            rows: The number of rows of the file.
            read: Reads the columns that are to be cached.
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
        """Counts rows of columns that were read from the file since they are not cached."""
        now = self._ambient.now_ms()
        with self._lock:
            for name in names:
                self._rows_read.put((file, name), rows + (self._rows_read.get((file, name), now) or 0), 1, now)
            self._rows_read.shrink(_READ_COUNTS, now - self._retention_ms)

    def decoded(self, key: Hashable, state: Hashable, make: Callable[[], tuple[Decoded, int]]) -> Decoded:
        """Returns a small value in memory, such as a file's deleted rows; `make` computes it if it is not cached.

        Args:
            key: Identifies the value; only its latest state is cached.
            state: The state on which the value depends.
            make: Computes the value and its size in bytes.
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
        """Drops entries whose retention is over; returns whether any are left."""
        with self._lock:
            self._shrink(now_ms)
            self._rows_read.shrink(_READ_COUNTS, now_ms - self._retention_ms)
            return bool(len(self._disk) or len(self._memory) or len(self._rows_read) or self._under_way)

    def close(self) -> None:
        """Gives up this process's part of the limits."""
        if self._share is not None:
            self._share.close()

    def adopt(self, limits: CacheLimits, ambient: Ambient) -> None:
        """Takes the limits and the clock of another process's cache of the table that was unpickled here."""
        self.limits = limits
        self._ambient = ambient

    @property
    def _retention_ms(self) -> int:
        return self.limits.retention // timedelta(milliseconds=1)

    def _shrink(self, now_ms: int) -> None:
        unused_since = now_ms - self._retention_ms
        own = self._part(self._memory.size, self._disk.size)
        self._disk.shrink(own.disk, unused_since, _MAPS)
        self._memory.shrink(own.memory, unused_since)

    def _part(self, memory: int, disk: int) -> CacheClaim:
        """Returns this process's part of the host's limits, if it holds or needs so many bytes."""
        whole = CacheClaim(self.limits.memory, self.limits.disk)
        return whole if self._share is None else self._share.limits(whole, memory, disk)

    def _held(self, file: Hashable, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        now = self._ambient.now_ms()
        with self._lock:
            self._shrink(now)
            mapped = {name: self._disk.get((file, name), now) for name in names}
            columns = {name: column.column for name, column in mapped.items() if column is not None}
            small = {name: self._memory.get((file, name), now) for name in names if name not in columns}
        return columns | {name: column for name, column in small.items() if column is not None}

    def _claim(self, file: Hashable, names: Sequence[str], rows: int) -> bool:
        """Returns whether this thread shall cache these columns now. Other threads read the Parquet file meanwhile."""
        keys = {(file, name) for name in names}
        now = self._ambient.now_ms()
        with self._lock:
            if keys & self._under_way or any((self._rows_read.get(key, now) or 0) < rows for key in keys):
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
            self.charge(file, names, -_PATIENCE * max(1, self._most_rows_read(file, names)))
            return {}
        with self._lock:
            for name in names:
                self._rows_read.drop((file, name))
            self._shrink(self._ambient.now_ms())
        return kept

    def _keep_together(
        self, file: Hashable, rows: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> dict[str, pa.ChunkedArray]:
        """Caches small columns in memory, the others in files. It takes the memory of one row group."""
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
        """The bytes that columns may take now: a full disk would stop other programs, such as Spark's shuffles."""
        disk = shutil.disk_usage(self.folder or tempfile.gettempdir())
        free = max(0, disk.free - disk.total // _SPARE)
        with self._lock:
            own = self._part(self._memory.size, self.limits.disk or 0).disk
        return free if own is None else min(free, own)

    def _most_rows_read(self, file: Hashable, names: Sequence[str]) -> int:
        now = self._ambient.now_ms()
        with self._lock:
            return max(self._rows_read.get((file, name), now) or 0 for name in names)


_own: dict[str, LookupCache] = {}
_own_lock = threading.Lock()


def _of_process(table_id: str, limits: CacheLimits, ambient: Ambient) -> LookupCache:
    """Returns this process's cache of a table, and drops those of other tables whose entries' retention is over."""
    now = ambient.now_ms()
    with _own_lock:
        for other in [id_ for id_, cache in _own.items() if id_ != table_id and not cache.sweep(now)]:
            _own.pop(other).close()
        if (cache := _own.get(table_id)) is None:
            cache = _own[table_id] = LookupCache(table_id, limits, ambient, share=HostShare(table_id))
    cache.adopt(limits, ambient)
    return cache
