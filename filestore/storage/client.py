"""`ObjectClient`: the requests that a store of objects answers. `filestore.storage.objects` makes a storage of them.

A client belongs to one process. Each method sends one request and does not repeat it, except where its docstring says
so: what is repeated, and how often, is decided in `filestore.storage.retries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from filestore.storage.interface import ByteRange, FileInfo, TaggedFile

__all__ = ["PART_BYTES", "TAIL_BYTES", "ObjectClient", "OpensClient", "Tail"]

PART_BYTES = 8 << 20
"""The size of a part of a multipart upload. S3 allows 10,000 parts, so an object has at most 80 GB."""

TAIL_BYTES = 64 << 10
"""The bytes that are read, or kept, of the end of an object: a small file as a whole, or a Parquet file's footer."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of an object.

    Attributes:
        size: The size of the whole object in bytes.
        data: Its last bytes; all of them if it is small.
    """

    size: int
    data: bytes


class ObjectClient(Protocol):
    """The requests to a store of objects. Paths are whole URLs.

    Raises (all methods):
        NotFound: ``file-not-found``; ``no-bucket`` for a write to a bucket that does not exist.
        Unavailable: ``storage-busy`` if the same request may succeed when it is repeated; other codes if it will not.
    """

    def get(self, path: str) -> bytes:
        """Returns an object."""

    def get_tail(self, path: str, most: int) -> Tail:
        """Returns the last bytes of an object, at most so many."""

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Returns ranges of an object, in their order. It sends a request for each, side by side."""

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Writes an object, and replaces one that exists.

        Args:
            path: The object.
            data: All of its bytes.
            create: Writes only if no object exists (HTTP's ``If-None-Match: *``).

        Raises:
            AlreadyExists: `create`, and there is an object; perhaps by an earlier try of the same request.
        """

    def get_tagged(self, path: str) -> TaggedFile:
        """Returns an object with its tag."""

    def put_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        """Writes an object on a condition, and returns its new tag.

        Args:
            path: The object.
            data: All of its bytes.
            tag: The tag that it must have (HTTP's ``If-Match``); None if it must not exist (``If-None-Match: *``).

        Raises:
            Conflict: ``file-changed``: the condition does not hold; perhaps because of an earlier try of the same
                request.
            Unsupported: ``no-conditional-writes``.
        """

    def list_tagged(self, folder: str) -> dict[str, str]:
        """Returns the tags of the objects in a folder by their names, without those in folders below it."""

    def upload(self, path: str, parts: Iterable[bytes]) -> None:
        """Writes an object in parts of `PART_BYTES` (S3's multipart upload) and repeats requests that fail.

        If `parts` raises an error, no object is written, and the error is raised.
        """

    def exists(self, path: str) -> bool:
        """Returns whether there is such an object."""

    def walk(self, folder: str) -> Iterator[FileInfo]:
        """Yields all objects below a folder."""

    def list_names(self, folder: str, after: str) -> list[str]:
        """Returns the names of the objects in a folder that follow a text, without those in folders below it."""

    def delta_options(self, path: str) -> dict[str, str]:
        """Returns what `filestore.storage.interface.Storage.delta_options` returns."""

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes objects; some may be gone already. It sends a request for 1,000 of them where the store can."""


class OpensClient(Protocol):
    """Opens clients: a frozen value without secrets, which can be pickled."""

    @property
    def options(self) -> Mapping[str, str]:
        """The options with which `filestore.storage.locations.storage_of` reaches the same store."""

    def shared(self) -> OpensClient:
        """Returns the same for other processes: with what this one has found in its environment and profile."""

    def __call__(self) -> ObjectClient:
        """Opens a client for this process.

        Raises:
            InvalidRequest: the settings are wrong.
            Unsupported: a package is not installed.
        """
