"""The checksums of all bytes of a Parquet file, in a block before its footer (FORMAT.md section 7.1).

Parquet's own are of the content of pages only, and readers may ignore them, as polars does. The block covers everything
else, too: headers of pages, Bloom filters, the page index, and the footer, by whose bounds readers skip rows. The bytes
before the block are pieces, such as a column chunk. For each there is the CRC-32 of all bytes of the file up to its
end: so a writer computes it as it goes, and pieces that follow each other are checked at once.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from filestore.crc import crc32, is_alike
from filestore.errors import Corrupt
from filestore.parquet.ranges import FOOTER_END, Chunks
from filestore.storage.interface import ByteRange

__all__ = ["Checksums", "SummedFile", "read_checksums"]

Read = Callable[[int, int], bytes | memoryview]
"""Returns the bytes from the first position to before the second."""

_PIECE = np.dtype([("end", "<u8"), ("sum", "<u4")])
_TRAILER = struct.Struct("<II8s")  # the number of pieces, the checksum of block and footer, a magic number
_MAGIC = b"\x93TSsums\n"
_PARQUET = b"PAR1"
_FOOTER_OF_PIECE = 4  # a column chunk takes at least so many times more bytes of the footer than its piece of the block
_CUT_BYTES = 128 << 10  # a piece ends with the page that makes it so large, so that few pages can be read
_INDEX_CUT_BYTES = 8 << 10  # as much of the page index
_KEPT_BYTES = 64 << 10  # before they are written
_AT_ONCE = 256 << 10
"""IMPORTANT: less than what a local file maps into memory (`filestore.storage.local.LocalFile`)."""


class Source(Protocol):
    """A file of which bytes can be read, as `filestore.storage.interface.ReadableFile` says."""

    @property
    def size(self) -> int:
        """The size of the whole file in bytes."""

    def read(self, start: int, end: int) -> bytes:
        """Returns bytes of the file."""

    def fetch(self, ranges: Iterable[ByteRange]) -> None:
        """Fetches bytes that are read next."""


@dataclass(frozen=True, slots=True, eq=False)
class Checksums:
    """The checksums that a file has of its bytes.

    Attributes:
        path: The file's whole path.
        size: Its size.
        starts: Where each piece begins, and at the end where the block begins.
        sums: For each of these places the CRC-32 of the bytes before it.
        tail: The checksum of the block and the footer.
    """

    path: str
    size: int
    starts: tuple[int, ...]
    sums: tuple[int, ...]
    tail: int

    def pieces(self, ranges: Iterable[ByteRange]) -> list[ByteRange]:
        """Returns these ranges, each widened to whole pieces."""
        starts = self.starts
        return [(starts[bisect_right(starts, start) - 1], starts[bisect_left(starts, end)]) for start, end in ranges]

    def check(self, read: Read, pieces: Iterable[ByteRange]) -> None:
        """Checks pieces of the file.

        Args:
            read: Returns bytes of the file, or of a part of it that has these pieces.
            pieces: Some of those that `pieces` returns.

        Raises:
            Corrupt: ``checksum``.
        """
        for start, end in _joined(pieces):
            found = self.sums[bisect_left(self.starts, start)]
            for at in range(start, end, _AT_ONCE):
                found = crc32(read(at, min(at + _AT_ONCE, end)), found)
            if found != self.sums[bisect_left(self.starts, end)]:
                raise _damaged(self.path, start, end)

    def check_tail(self, read: Read) -> None:
        """Checks the footer again, for a reader that decodes it itself: it may have been damaged since it was read.

        Raises:
            Corrupt: ``checksum``.
        """
        start = self.starts[-1]
        if _sum_of_tail(read(start, self.size), len(self.starts) - 1) != self.tail:
            raise _damaged(self.path, start, self.size)

    def damaged(self, read: Read) -> Iterator[ByteRange]:
        """Yields the pieces that are damaged."""
        for piece in itertools.pairwise(self.starts):
            try:
                self.check(read, [piece])
            except Corrupt:
                yield piece


def _joined(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Returns ranges in ascending order; those that follow each other as one."""
    joined: list[ByteRange] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def read_checksums(source: Source, path: str) -> Checksums | None:
    """Reads a file's checksums, and checks its footer by them; None if it has none, as files of before.

    Raises:
        Corrupt: ``checksum``: the footer, or the block itself, is damaged.
    """
    end = source.size - FOOTER_END
    if end < _TRAILER.size:
        return None
    last = source.read(end, source.size)
    if last[4:] != _PARQUET:
        return None
    length = int.from_bytes(last[:4], "little")
    at = end - length - _TRAILER.size
    if at < len(_PARQUET):
        return None
    first = max(0, at - length // _FOOTER_OF_PIECE)
    source.fetch([(first, source.size)])  # a long one is not in the file's end
    rest = source.read(first, source.size)
    count, tail, magic = _TRAILER.unpack_from(rest, at - first)
    if magic != _MAGIC and not is_alike(magic, _MAGIC):
        return None
    start = at - count * _PIECE.itemsize
    block = (rest[start - first :] if start >= first else source.read(start, source.size)) if start > 0 else b""
    if not block or magic != _MAGIC or _sum_of_tail(block, count) != tail:
        raise _damaged(path, max(start, 0), source.size)
    pieces = np.frombuffer(block, _PIECE, count)
    return Checksums(path, source.size, (0, *pieces["end"].tolist()), (0, *pieces["sum"].tolist()), tail)


def _sum_of_tail(tail: bytes | memoryview, pieces: int) -> int:
    """Computes the checksum of everything from the block on, but for the checksum itself."""
    data = memoryview(tail)
    at = pieces * _PIECE.itemsize + 4
    return crc32(data[at + 4 :], crc32(data[:at]))


def _damaged(path: str, start: int, end: int) -> Corrupt:
    return Corrupt(
        f"{path} is damaged: its bytes {start} to {end - 1} are not those that were written. Restore it from a "
        "backup, or roll the table back to a version before it; `tablestore doctor` lists all that is damaged",
        code="checksum",
    )


class SummedFile:
    """A file that Parquet's writer writes: it computes the checksums, and puts them before the footer.

    Args:
        file: Where the bytes go.
    """

    closed = False  # Arrow asks for it; the owner of the file closes it

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._size = 0
        self._sum = 0
        self._sums: dict[int, int] = {}
        self._cuts = [0]
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._ends = False

    def write(self, data: bytes) -> int:
        """Takes bytes, and keeps small ones: Parquet's writer has some twenty for a small file."""
        self._size += len(data)
        self._sum = crc32(data, self._sum)
        self._sums[self._size] = self._sum
        if self._size - self._cuts[-1] >= (_INDEX_CUT_BYTES if self._ends else _CUT_BYTES):
            self._cuts.append(self._size)
        self._kept.append(data)
        self._kept_bytes += len(data)
        if self._kept_bytes >= _KEPT_BYTES and not self._ends:
            self._file.write(self._taken())
        return len(data)

    def _taken(self) -> bytes:
        taken, self._kept, self._kept_bytes = b"".join(self._kept), [], 0
        return taken

    def tell(self) -> int:
        """Returns the number of bytes so far."""
        return self._size

    def flush(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    def hold(self) -> None:
        """Keeps what follows, with which a file ends: Bloom filters, the page index and the footer."""
        self._ends = True

    def finish(self) -> None:
        """Writes what was kept, with the checksums before the footer."""
        end = self._taken()
        footer = pq.read_metadata(pa.BufferReader(end))
        at = len(end) - FOOTER_END - footer.serialized_size
        block = self._block(footer, self._size - len(end) + at, end[at:])
        self._file.write(b"".join((end[:at], block, end[at:])))

    def _block(self, footer: pq.FileMetaData, start: int, rest: bytes) -> bytes:
        ends = {len(_PARQUET), *Chunks(footer).ends(), *(cut for cut in self._cuts[1:] if cut < start), start}
        pieces = np.array([(end, self._sums[end]) for end in sorted(ends & self._sums.keys())], _PIECE)
        head, magic = pieces.tobytes() + struct.pack("<I", len(pieces)), _MAGIC
        return head + struct.pack("<I", crc32(magic + rest, crc32(head))) + magic
