"""Writes and reads files of deletion vectors (FORMAT.md section 5; Delta protocol, "Deletion Vector Format").

A file has one version byte, then for each vector: 4 bytes big-endian length, a magic number and the 64-bit roaring
bitmap, 4 bytes big-endian CRC-32. One writing task puts all its vectors into one file.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from filestore.errors import Corrupt, Unsupported
from filestore.layout import join, vector_path
from filestore.model.files import DataFile, DeletionVector
from filestore.storage.interface import Storage

__all__ = [
    "VectorFileBuilder",
    "bitmap",
    "bitmap_of",
    "grown",
    "positions",
    "stored_paths",
    "vector_file",
]

Positions = npt.NDArray[np.uint64] | npt.NDArray[np.int64]

_FORMAT_VERSION = b"\x01"
_MAGIC = struct.pack("<i", 1681511377)
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUE = {character: value for value, character in enumerate(_Z85)}
_UUID_CHARACTERS = 20


class VectorFileBuilder:
    """Collects the vectors of one file. `content` is what to write to ``vector_path(vector_id)``."""

    def __init__(self, vector_id: str) -> None:
        self._id = uuid.UUID(vector_id)
        self._parts = bytearray(_FORMAT_VERSION)
        self.path = vector_path(vector_id)

    def add(self, dead: BitMap64) -> DeletionVector:
        """Appends the vector of those row positions; it compresses the bitmap in place."""
        dead.run_optimize()
        data = _MAGIC + dead.serialize()
        offset = len(self._parts)
        self._parts += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        return DeletionVector("u", _z85_encode(self._id.bytes), offset, len(data), len(dead))

    @property
    def empty(self) -> bool:
        """Returns whether no vector was added, so that no file is needed."""
        return len(self._parts) == len(_FORMAT_VERSION)

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return bytes(self._parts)


def stored_paths(files: Iterable[DataFile]) -> set[str]:
    """Returns the relative paths of data files and of their vectors."""
    listed = list(files)
    return {file.path for file in listed} | {vector_file(file.vector) for file in listed if file.vector}


def vector_file(vector: DeletionVector) -> str:
    """Returns the relative path of the file that holds a vector of storage type ``u``."""
    if vector.storage_type != "u" or len(vector.location) != _UUID_CHARACTERS:
        raise Unsupported(
            f"deletion vector of storage type {vector.storage_type!r} at {vector.location!r}: Tablestore writes and "
            "reads only type 'u' without a prefix",
            code="foreign-vector",
        )
    return vector_path(str(uuid.UUID(bytes=_z85_decode(vector.location))))


def bitmap_of(rows: Positions) -> BitMap64:
    """Returns row positions, in any order, as a bitmap."""
    return BitMap64(array("Q", rows.tobytes()))  # the one constructor that does not loop over rows in Python


def grown(storage: Storage, location: str, vector: DeletionVector | None, rows: Positions) -> BitMap64:
    """Returns the positions of a vector, if there is one, and those of other rows. For errors see `bitmap`."""
    added = bitmap_of(rows)
    return added if vector is None else bitmap(storage, location, vector) | added


def positions(
    storage: Storage, location: str, vector: DeletionVector | None, *, version: bool = False
) -> npt.NDArray[np.uint64]:
    """Reads the dead rows' positions, ascending; there are none without a vector. For the rest see `bitmap`."""
    if vector is None:
        return np.empty(0, dtype=np.uint64)
    return np.array(bitmap(storage, location, vector, version=version).to_array(), dtype=np.uint64)


def bitmap(storage: Storage, location: str, vector: DeletionVector, *, version: bool = False) -> BitMap64:
    """Reads the dead rows' positions, as compressed as they are stored.

    Args:
        storage: The table's storage.
        location: Where the table is.
        vector: The vector.
        version: Whether the version of its file is looked at, too, which other readers refuse if it is another one.
            With the first vector of a file it always is.

    Raises:
        Corrupt: the version is another one, or the length, checksum, magic number or cardinality differs from what the
            commit says.
    """
    path = join(location, vector_file(vector))
    start = vector.offset or 0
    begins = 0 if version or start == len(_FORMAT_VERSION) else start
    with storage.open_read(path) as source:
        found = source.read(begins, start + vector.size + 8)
    if begins < start and (other := found[: len(_FORMAT_VERSION)]) != _FORMAT_VERSION:
        raise Corrupt(
            f"{path} is no file of deletion vectors of version 1: it begins with {other!r}", code="bad-vector"
        )
    record = found[start - begins :]
    if len(record) != vector.size + 8:
        raise Corrupt(f"deletion vector at {vector.offset} of {path} is cut short", code="bad-vector")
    data = record[4:-4]
    (length,), (checksum,) = struct.unpack(">i", record[:4]), struct.unpack(">I", record[-4:])
    if length != vector.size or checksum != zlib.crc32(data) or data[:4] != _MAGIC:
        raise Corrupt(
            f"deletion vector at {vector.offset} of {path} has a wrong length, checksum or magic number",
            code="bad-vector",
        )
    dead = BitMap64.deserialize(data[4:])
    if len(dead) != vector.cardinality:
        raise Corrupt(
            f"deletion vector at {vector.offset} of {path} holds {len(dead)} rows, the commit says "
            f"{vector.cardinality}",
            code="bad-vector",
        )
    return dead


def _z85_encode(data: bytes) -> str:
    """Encodes in ZeroMQ's base 85 (RFC 32/Z85), which Delta uses for UUIDs. Python has it only from 3.13 on."""
    text: list[str] = []
    for (word,) in struct.iter_unpack(">I", data):
        digits = []
        for _ in range(5):
            word, digit = divmod(word, 85)
            digits.append(_Z85[digit])
        text.extend(reversed(digits))
    return "".join(text)


def _z85_decode(text: str) -> bytes:
    words = []
    for start in range(0, len(text), 5):
        word = 0
        for character in text[start : start + 5]:
            word = word * 85 + _Z85_VALUE[character]
        words.append(struct.pack(">I", word))
    return b"".join(words)
