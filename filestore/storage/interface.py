"""The interface of storages: the few operations that tables need (FORMAT.md section 1).

A storage must offer read-after-write consistency, and `write_new`, which is atomic and lets exactly one of several
writers win (`filestore.storage.race_probe` checks it). Other operations, such as listing and deletion, may be slow or
delayed. Tests inject failures by wrapping it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from filestore.contexts import Closing

__all__ = ["ByteRange", "FileInfo", "FilePart", "ReadableFile", "Storage", "TaggedFile"]

ByteRange = tuple[int, int]
"""The first byte, and the one after the last."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A stored file: its whole path, size in bytes, and time of modification in milliseconds."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class TaggedFile:
    """A small file that changes, such as a lease.

    Attributes:
        data: Its bytes.
        tag: What names this content (HTTP's ``ETag``): it changes with the bytes.
        modified_ms: When it was written, in milliseconds since 1970 UTC by the storage's clock.
    """

    data: bytes
    tag: str
    modified_ms: int


class FilePart(Protocol):
    """A part of a file, with its bytes at their positions: for Arrow as `file`, for polars as the local `path`.

    Other bytes may be there, too, or read as zeros.
    """

    @property
    def file(self) -> pa.NativeFile:
        """The part as an Arrow file of the whole file's size."""

    @property
    def path(self) -> str:
        """The part as a local file; it exists as long as the part is open."""

    def view(self, start: int, end: int) -> memoryview:
        """Returns bytes of the part, and fewer behind the file's end, without a copy where that is faster."""


class ReadableFile(Closing, Protocol):
    """A file that never changes, and that is open for reading."""

    @property
    def size(self) -> int:
        """The size of the whole file in bytes."""

    def read(self, start: int, end: int) -> bytes:
        """Returns bytes of the file, and fewer behind its end.

        Raises:
            NotFound: the file was deleted meanwhile.
            Unavailable: the storage does not answer.
        """

    def fetch(self, ranges: Iterable[ByteRange]) -> None:
        """Fetches bytes side by side that parts will need soon, and keeps them for a while; errors as in `read`.

        It does nothing if the file is on this machine. Fetch a few MB at most: it takes their memory.
        """

    def part(self, ranges: Iterable[ByteRange]) -> AbstractContextManager[FilePart]:
        """Opens a part with these bytes, and with at least the last 64 kB of the file. It takes their memory.

        Raises:
            NotFound: the file was deleted meanwhile.
            Unavailable: the storage does not answer.
        """


class Storage(Protocol):
    """The storage of tables. Paths are whole. Errors are `NotFound`, `AlreadyExists` and `Unavailable`.

    Files that change are replaced as a whole. Tagged files are those that several processes replace: a local storage
    has none of them, since there locks of files do what they are for (`filestore.leases`).

    It is picklable; no pickle of it contains a secret. Threads may share it.
    """

    def read(self, path: str) -> bytes:
        """Returns the file's bytes."""

    def read_each(self, paths: Sequence[str]) -> list[bytes | None]:
        """Reads several small files, side by side where that is faster; None for each that does not exist.

        They are read in any order: do not conclude from one of them what another one was at a later time.
        """

    def write_new(self, path: str, data: bytes) -> None:
        """Writes all bytes or nothing, durably; raises `AlreadyExists` if the path exists."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes all bytes or nothing, and replaces an existing file; creates at most the last folder of the path."""

    def read_tagged(self, path: str) -> TaggedFile:
        """Returns a file that may change, with its tag."""

    def replace_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        """Writes a file only if it still has a tag, all bytes or nothing; of several writers one wins.

        Args:
            path: The file.
            data: Its new bytes. Each write must have others than all before: a file that has these bytes already has
                them from an earlier try of the same write, and the call succeeds.
            tag: Its tag; None if it must not exist.

        Returns:
            The new tag.

        Raises:
            Conflict: ``file-changed``: it has another tag, it is gone, or with None it exists.
            Unsupported: ``no-conditional-writes``: the storage cannot do this.
        """

    def list_tagged(self, path: str) -> dict[str, str]:
        """Returns the tags of the files in a folder by their names; none if the folder does not exist.

        Raises:
            Unsupported: ``no-conditional-writes``.
        """

    def open_read(self, path: str) -> ReadableFile:
        """Opens a file that never changes for reading; the reader can seek."""

    def read_ahead(self, paths: Sequence[str]) -> None:
        """Reads the ends of files side by side that `open_read` opens soon. Errors are left to it.

        It does nothing for files on this machine.
        """

    def local_path(self, path: str) -> str | None:
        """Returns the path by which a library can open the whole file itself; None if it is not on this machine."""

    def options(self) -> dict[str, str]:
        """Returns options with which `storage_of` opens the same storage in another process. None is a secret.

        They say what this process has found in its environment and profile, too.
        """

    def delta_options(self, path: str) -> dict[str, str]:
        """Returns ``storage_options`` with which deltalake and polars open the files below a location.

        IMPORTANT: they may contain credentials. They are passed on in this process, and never stored or logged.
        """

    def open_write(self, path: str) -> pa.NativeFile:
        """Creates a file, with its folders. Until `sync` returns only a part of it may exist; nothing refers to it."""

    def sync(self, path: str) -> None:
        """Makes a closed file durable; this happens before a commit names it."""

    def sync_all(self, paths: Sequence[str]) -> None:
        """Makes closed files durable, side by side where that is faster. After an error some of them may be."""

    def exists(self, path: str) -> bool:
        """Returns whether the file exists."""

    def walk(self, path: str) -> Iterator[FileInfo]:
        """Yields all files in a folder, at any depth and in any order; none if the folder does not exist."""

    def list_names(self, path: str, after: str = "") -> list[str]:
        """Returns the names of the files in a folder, in any order; none if the folder does not exist.

        Args:
            path: The folder.
            after: Leaves out all names up to this text.
        """

    def delete(self, path: str) -> None:
        """Deletes a file; it may be gone already."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Deletes files, as `delete` does each. After an error some of them may be left."""

    def delete_tree(self, path: str) -> None:
        """Deletes a folder and everything in it; it may be gone already."""
