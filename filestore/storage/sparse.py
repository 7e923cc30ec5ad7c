"""Files of another machine as sparse files in memory: only the ranges that a reader needs are fetched.

polars and Arrow read Parquet files from local paths best. A sparse file has the size of the whole one and takes the
memory of the ranges that were fetched. So a reader decodes with one code path what is here and what is elsewhere, and
all requests go through one client with its retries. What was decoded may refer to the file's memory, so no range of a
file is ever freed or overwritten: each part that is read has a file of its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from filestore.contexts import Closing
from filestore.refused import refused
from filestore.storage.client import Tail
from filestore.storage.interface import ByteRange

__all__ = ["RemoteFile", "SparseFile", "missing"]

_GAP_BYTES = 256 << 10  # two ranges that are this close are fetched by one request: that is faster than a second one

GetRanges = Callable[[Sequence[ByteRange]], Sequence[bytes]]


class RemoteFile(Closing):
    """Implements `filestore.storage.interface.ReadableFile` for an object that never changes.

    Args:
        tail: The last bytes of the object.
        get_ranges: Fetches ranges of it.
    """

    whole = False

    def __init__(self, tail: Tail, get_ranges: GetRanges) -> None:
        self._tail = tail
        self._get_ranges = get_ranges

    @property
    def size(self) -> int:
        """The size of the object."""
        return self._tail.size

    @contextmanager
    def part(self, ranges: Iterable[ByteRange]) -> Iterator[SparseFile]:
        """Fetches the bytes that the tail does not have."""
        start = self.size - len(self._tail.data)
        wanted = missing(ranges, [(start, self.size)], _GAP_BYTES)
        found = zip(wanted, self._get_ranges(wanted), strict=True) if wanted else ()
        sparse = SparseFile(self.size, [(start, self._tail.data), *((at, data) for (at, _), data in found)])
        try:
            yield sparse
        finally:
            sparse.close()

    def close(self) -> None:
        """Does nothing: each part is closed for itself."""


class SparseFile:
    """A file in memory that has some bytes of an object.

    Args:
        size: The size of the object.
        pieces: Bytes, and where they begin.

    Raises:
        Unavailable: this process has too many open files, or no memory.
    """

    def __init__(self, size: int, pieces: Iterable[tuple[int, bytes]]) -> None:
        try:
            self._descriptor = _nameless_file()
        except OSError as error:
            raise refused("cannot make a file in memory", error) from error
        self.path = f"/dev/fd/{self._descriptor}"
        try:
            os.ftruncate(self._descriptor, size)
            for start, data in pieces:
                self._write(start, data)
            self.file: pa.NativeFile = pa.memory_map(self.path) if size else pa.BufferReader(b"")
        except OSError as error:
            os.close(self._descriptor)
            raise refused("cannot keep what was read in memory", error) from error

    def _write(self, start: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, start)
            rest, start = rest[written:], start + written

    def close(self) -> None:
        """Closes the file. The memory is free as soon as no Arrow buffer refers to it."""
        self.file.close()
        os.close(self._descriptor)


def missing(wanted: Iterable[ByteRange], held: Sequence[ByteRange], gap: int) -> list[ByteRange]:
    """Returns the ranges to fetch, ascending and apart from each other. Pure.

    Args:
        wanted: Ranges in any order, perhaps overlapping.
        held: Ranges that are here already; a wanted range inside of one of them is not fetched again.
        gap: Ranges with at most so many bytes between them become one.
    """
    lacking = sorted(
        (start, end) for start, end in wanted if start < end and not any(a <= start and end <= b for a, b in held)
    )
    joined: list[ByteRange] = []
    for start, end in lacking:
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tablestore", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # not Linux: a file on the disk that has no name
        return os.dup(file.fileno())
