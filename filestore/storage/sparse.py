"""Files of another machine as sparse files in memory: only the ranges that a reader needs are fetched.

polars and Arrow read Parquet files from local paths best. A sparse file has the size of the whole one and takes the
memory of the ranges that were fetched. So a reader decodes with one code path what is here and what is elsewhere, and
all requests go through one client with its retries. What was decoded may refer to the file's memory, so no range of a
file is ever freed or overwritten: each part that is read has a file of its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from filestore.contexts import Closing
from filestore.refused import refused
from filestore.storage.client import Tail
from filestore.storage.interface import ByteRange
from filestore.storage.kept import Kept

__all__ = ["RemoteFile", "SparseFile", "missing"]

_GAP_BYTES = 256 << 10  # two ranges that are this close are fetched by one request: that is faster than a second one
_LEAST_BYTES = 64 << 10  # of an object that is kept: fewer take as long, and the next ones often are a narrow column

GetRanges = Callable[[Sequence[ByteRange]], Sequence[bytes]]


class RemoteFile(Closing):
    """Implements `filestore.storage.interface.ReadableFile` for an object that never changes.

    Args:
        path: Its path.
        tail: The last bytes of the object.
        get_ranges: Fetches ranges of it.
        kept: Keeps what `fetch` has fetched.
    """

    def __init__(self, path: str, tail: Tail, get_ranges: GetRanges, kept: Kept) -> None:
        self._path = path
        self._tail = tail
        self._get_ranges = get_ranges
        self._kept = kept

    @property
    def size(self) -> int:
        """The size of the object."""
        return self._tail.size

    def read(self, start: int, end: int) -> bytes:
        """Returns bytes that are here, or fetches them."""
        end = min(end, self.size)
        for at, data in self._here().items():
            if at <= start <= end <= at + len(data):
                return data[start - at : end - at]
        return self._get_ranges([(start, end)])[0] if start < end else b""

    def fetch(self, ranges: Iterable[ByteRange]) -> None:
        """Fetches the bytes that are not here."""
        if found := self._missing(ranges, self._here(), _LEAST_BYTES):
            self._kept.add(self._path, self._tail, found)

    @contextmanager
    def part(self, ranges: Iterable[ByteRange]) -> Iterator[SparseFile]:
        """Fetches the bytes that are not here."""
        wanted, here = list(ranges), self._here()
        found = self._missing(wanted, here)
        touched = {at: data for at, data in here.items() if _touched(at, at + len(data), wanted)}
        sparse = SparseFile(self.size, {**touched, **found, self._tail_start: self._tail.data}.items())
        try:
            yield sparse
        finally:
            sparse.close()

    @property
    def _tail_start(self) -> int:
        return self.size - len(self._tail.data)

    def _here(self) -> dict[int, bytes]:
        """Returns the bytes in memory, by where they begin."""
        kept = self._kept.get(self._path)
        return {**(kept.pieces if kept is not None else {}), self._tail_start: self._tail.data}

    def _missing(self, ranges: Iterable[ByteRange], here: Mapping[int, bytes], least: int = 0) -> dict[int, bytes]:
        wanted = [
            (start, max(end, min(start + least, self._tail_start)))
            for start, end in missing(ranges, [(at, at + len(data)) for at, data in here.items()], _GAP_BYTES)
        ]
        found = self._get_ranges(wanted) if wanted else ()
        return {start: data for (start, _), data in zip(wanted, found, strict=True)}

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

    def view(self, start: int, end: int) -> memoryview:
        """Returns bytes; those that were not fetched are zeros."""
        self.file.seek(min(start, self.file.size()))
        return memoryview(self.file.read_buffer(end - start)).cast("B")

    def _write(self, start: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, start)
            rest, start = rest[written:], start + written

    def close(self) -> None:
        """Closes the file. The memory is free as soon as no Arrow buffer refers to it."""
        self.file.close()
        os.close(self._descriptor)


def _touched(start: int, end: int, wanted: Iterable[ByteRange]) -> bool:
    return any(first < end and start < last for first, last in wanted)


def missing(wanted: Iterable[ByteRange], held: Sequence[ByteRange], gap: int) -> list[ByteRange]:
    """Returns the ranges to fetch, ascending and apart from each other. Pure.

    Args:
        wanted: Ranges in any order, perhaps overlapping.
        held: Ranges that are here already; what is inside of them is not fetched again, but in a gap.
        gap: Ranges with at most so many bytes between them become one.
    """
    here = sorted(held)
    lacking = sorted(part for start, end in wanted for part in _without(start, end, here))
    joined: list[ByteRange] = []
    for start, end in lacking:
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _without(start: int, end: int, held: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """Yields the parts of a range that are in none of some ranges, which are in order."""
    for first, last in held:
        if start < first and start < end:
            yield start, min(first, end)
        start = max(start, last)
    if start < end:
        yield start, end


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tablestore", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # not Linux: a file on the disk that has no name
        return os.dup(file.fileno())
