"""`ObjectStorage`: tables in a store of objects, such as S3, through an `ObjectClient` (FORMAT.md section 1).

What it adds to a client: requests are repeated within bounds, a conditional write whose reply was lost is recognised
as one's own, files are uploaded while their writer goes on, and the ends of files are kept, since files of a table
never change. Paths whose objects do change (log entries, which may be created anew, consumers) are read by `read`,
which keeps nothing.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from filestore.errors import AlreadyExists, Conflict, NotFound, Unavailable
from filestore.forks import forked_process
from filestore.storage.client import TAIL_BYTES, ObjectClient, OpensClient, Tail
from filestore.storage.interface import FileInfo, TaggedFile
from filestore.storage.kept import Kept
from filestore.storage.refusals import NO_ANSWER
from filestore.storage.retries import repeated
from filestore.storage.sparse import RemoteFile
from filestore.storage.uploads import UploadFile, Uploads

__all__ = ["ObjectStorage"]

_DELETED_TOGETHER = 1000
_READ_TOGETHER = 16

_users: set[int] = set()
"""The processes that have opened a client: this one, or one of which this one is a fork."""


@dataclass(slots=True)
class _Process:
    """The parts of a storage that each process has for itself."""

    client: ObjectClient
    uploads: Uploads = field(default_factory=Uploads)
    kept: Kept = field(default_factory=Kept)
    readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_READ_TOGETHER, "read"))


class ObjectStorage:
    """Implements `filestore.storage.interface.Storage`.

    Args:
        opens: Opens a client, once in each process.
    """

    def __init__(self, opens: OpensClient) -> None:
        self._opens = opens
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._shared: OpensClient | None = None

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[OpensClient]]:
        return ObjectStorage, (self._for_others(),)

    def _for_others(self) -> OpensClient:
        """Returns what opens the same store in a process whose environment is another one, such as a task of Spark."""
        if self._shared is None:
            self._shared = self._opens.shared()
        return self._shared

    def __repr__(self) -> str:
        return f"ObjectStorage({self._opens!r})"

    @property
    def _own(self) -> _Process:
        if _users - {os.getpid()}:
            raise forked_process("used a store of objects", "connections and threads")
        if self._process is None:
            with self._lock:
                if self._process is None:
                    self._process = _Process(self._opens())
                    _users.add(os.getpid())
        return self._process

    def read(self, path: str) -> bytes:
        """Returns the object's bytes."""
        own = self._own
        own.uploads.wait(path)
        return repeated(lambda: own.client.get(path))

    def read_each(self, paths: Sequence[str]) -> list[bytes | None]:
        """Reads the objects side by side."""
        if not paths:
            return []
        first, *others = paths
        with suppress(RuntimeError):  # the interpreter is shutting down and starts no threads any more
            coming = [self._own.readers.submit(self._read_if_there, path) for path in others]
            return [self._read_if_there(first), *(found.result() for found in coming)]
        return [self._read_if_there(path) for path in paths]

    def _read_if_there(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except NotFound:
            return None

    def write_new(self, path: str, data: bytes) -> None:
        """Writes the object unless there is one.

        A request that is answered by "exists already" may be a repetition of a request that has succeeded. Then the
        object has our bytes, which no other writer can have: a log entry contains the id of its commit, and other names
        are unique. That is found out for repetitions by this client. If a gateway sends the first request twice, it is
        up to the caller, who looks at what is there in any case: to read it here, too, would cost a request for each
        race that is lost.

        Raises:
            Unavailable: ``storage-no-answer``: the object may be there, or arrive later. Other codes: it will not.
        """
        client = self._own.client
        tries = itertools.count()
        unanswered = False

        def create() -> None:
            nonlocal unanswered
            first = next(tries) == 0
            try:
                client.put(path, data, create=True)
            except AlreadyExists:
                if first or not self._holds(path, data):
                    raise
            except Unavailable as error:
                unanswered = unanswered or error.code == NO_ANSWER
                raise

        try:
            repeated(create)
        except Unavailable as error:
            if unanswered:  # whatever the last reply was: the request without one may still arrive
                raise Unavailable(error.message, code=NO_ANSWER) from error
            raise

    def _holds(self, path: str, data: bytes) -> bool:
        try:
            return self.read(path) == data
        except NotFound:
            return False  # it was deleted meanwhile, as an expired log entry is

    def replace(self, path: str, data: bytes) -> None:
        """Writes the object, and replaces one that exists."""
        own = self._own
        own.kept.drop(path)
        repeated(lambda: own.client.put(path, data))

    def read_tagged(self, path: str) -> TaggedFile:
        """Returns an object with its tag."""
        client = self._own.client
        return repeated(lambda: client.get_tagged(path))

    def replace_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        """Writes an object on a condition.

        A condition may fail because the same request, sent before or repeated on its way, has succeeded: then the
        object has our bytes, which no other writer can have.
        """
        client = self._own.client

        def write() -> str:
            try:
                return client.put_tagged(path, data, tag)
            except Conflict as error:
                stored = self._tagged(path)
                if stored is None or stored.data != data:
                    raise error from None
                return stored.tag

        return repeated(write)

    def _tagged(self, path: str) -> TaggedFile | None:
        try:
            return self.read_tagged(path)
        except NotFound:
            return None

    def list_tagged(self, path: str) -> dict[str, str]:
        """Returns the tags of the objects in a folder."""
        client = self._own.client
        return repeated(lambda: client.list_tagged(path))

    def open_read(self, path: str) -> RemoteFile:
        """Opens an object that never changes: one request for its end, unless that is known."""
        own = self._own
        tail = self._tail(own, path)

        def get_ranges(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            own.uploads.wait(path)
            return repeated(lambda: own.client.get_ranges(path, ranges))

        return RemoteFile(path, tail, get_ranges, own.kept)

    def _tail(self, own: _Process, path: str) -> Tail:
        kept = own.kept.get(path)
        if kept is not None:
            return kept.tail
        own.uploads.wait(path)
        tail = repeated(lambda: own.client.get_tail(path, TAIL_BYTES))
        own.kept.put(path, tail)
        return tail

    def read_ahead(self, paths: Sequence[str]) -> None:
        """Reads the ends of objects of which nothing is kept."""
        own = self._own
        with suppress(RuntimeError):  # as in `read_each`
            wait([own.readers.submit(self._tail, own, path) for path in paths if own.kept.get(path) is None])

    def local_path(self, path: str) -> None:
        """Returns None: no object is on this machine."""

    def options(self) -> dict[str, str]:
        """Returns the options of the store."""
        return dict(self._for_others().options)

    def delta_options(self, path: str) -> dict[str, str]:
        """Returns the options of the client."""
        return self._own.client.delta_options(path)

    def open_write(self, path: str) -> pa.NativeFile:
        """Creates an object, which is uploaded by threads of this process until `sync` returns."""
        own = self._own
        return pa.PythonFile(UploadFile(own.uploads, own.client, path, own.kept.put), "w")

    def sync(self, path: str) -> None:
        """Waits for the upload of an object."""
        self._own.uploads.wait(path)

    def sync_all(self, paths: Sequence[str]) -> None:
        """Waits for the uploads of objects, which run side by side."""
        for path in paths:
            self.sync(path)

    def exists(self, path: str) -> bool:
        """Returns whether there is such an object."""
        own = self._own
        return repeated(lambda: own.client.exists(path))

    def walk(self, path: str) -> Iterator[FileInfo]:
        """Yields the objects below a folder."""
        client = self._own.client
        yield from repeated(lambda: list(client.walk(path)))

    def list_names(self, path: str, after: str = "") -> list[str]:
        """Returns the names of the objects in a folder, by one request for 1,000 of them where the store can."""
        client = self._own.client
        return repeated(lambda: client.list_names(path, after))

    def delete(self, path: str) -> None:
        """Deletes an object."""
        self.delete_all([path])

    def delete_all(self, paths: Sequence[str]) -> None:
        """Deletes objects, by one request for 1,000 of them where the store can."""
        own = self._own
        for path in paths:
            own.uploads.forget(path)
            own.kept.drop(path)
        for start in range(0, len(paths), _DELETED_TOGETHER):
            some = paths[start : start + _DELETED_TOGETHER]
            repeated(partial(own.client.delete, some))

    def delete_tree(self, path: str) -> None:
        """Deletes the objects below a folder."""
        self.delete_all([info.path for info in self.walk(path)])
