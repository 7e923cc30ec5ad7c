"""Objects that are being uploaded: small ones by one request, large ones in parts, all in threads of this process.

A writer continues while its file is uploaded, and waits for it before a commit names the file. An upload holds a few
parts in memory at a time, however large the object is.
"""

from __future__ import annotations

import io
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial

from filestore.errors import Unavailable
from filestore.storage.client import PART_BYTES, TAIL_BYTES, ObjectClient, Tail
from filestore.storage.retries import repeated

__all__ = ["UploadFile", "Uploads"]

_THREADS = 16
_LARGE = 256  # large objects that may be open for writing at a time
_PENDING = 16  # small objects, of at most PART_BYTES each, that wait for their upload
_AHEAD = 2  # parts of a large object that wait for their upload
_LOOKS_S = 0.1  # how often a waiting thread looks whether the other side has ended


class _GivenUp(Exception):
    """The writer gave the file up: it must not become an object."""


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """The parts of a large object on their way from its writer to its upload. It does not refer to the writer."""

    waiting: queue.Queue[bytes | None] = field(default_factory=lambda: queue.Queue(_AHEAD))
    given_up: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def offer(self, part: bytes | None) -> bool:
        """Hands a part to the upload, None at the end; returns False if it has ended before, by an error."""
        while not self.ended.is_set():
            try:
                self.waiting.put(part, timeout=_LOOKS_S)
            except queue.Full:
                continue
            return True
        return False

    def upload(self, client: ObjectClient, path: str) -> None:
        """Uploads the parts as they come."""
        try:
            client.upload(path, self._received())
        finally:
            self.ended.set()

    def _received(self) -> Iterator[bytes]:
        while not self.given_up.is_set():
            try:
                part = self.waiting.get(timeout=_LOOKS_S)
            except queue.Empty:
                continue
            if part is None:
                return
            yield part
        raise _GivenUp


class Uploads:
    """The uploads of one storage in one process, by path."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Future[None]] = {}
        self._in_parts: dict[str, _Parts] = {}
        self._room = threading.BoundedSemaphore(_PENDING)
        self._small = ThreadPoolExecutor(_THREADS, "upload")
        self._large = ThreadPoolExecutor(_LARGE, "upload-parts")

    def put(self, client: ObjectClient, path: str, data: bytes) -> None:
        """Starts to write a small object. It waits while too many of them are not written yet."""
        self._room.acquire()

        def work() -> None:
            try:
                repeated(lambda: client.put(path, data))
            finally:
                self._room.release()

        try:
            self._start(self._small, path, work)
        except RuntimeError:  # the interpreter is shutting down and starts no threads any more
            work()

    def in_parts(self, client: ObjectClient, path: str) -> _Parts:
        """Starts to write a large object, in a thread of its own, since it waits for its writer."""
        parts = _Parts()
        try:
            self._start(self._large, path, lambda: parts.upload(client, path))
        except RuntimeError as error:
            raise Unavailable(f"cannot write {path}: this process is shutting down") from error
        with self._lock:
            self._in_parts[path] = parts
        return parts

    def _start(self, pool: ThreadPoolExecutor, path: str, work: Callable[[], None]) -> None:
        with self._lock:
            started = self._running[path] = pool.submit(work)
        started.add_done_callback(partial(self._ended, path))

    def _ended(self, path: str, upload: Future[None]) -> None:
        """Forgets an upload that has succeeded. An error is kept for `wait`, which whoever reads the object calls."""
        if not upload.cancelled() and upload.exception() is None:
            self._drop(path, upload)

    def _drop(self, path: str, upload: Future[None]) -> None:
        with self._lock:
            if self._running.get(path) is upload:
                del self._running[path]
                self._in_parts.pop(path, None)

    def wait(self, path: str) -> None:
        """Waits for the upload of an object, if there is one, and raises its error, every time until `forget`."""
        with self._lock:
            future = self._running.get(path)
        if future is not None:
            future.result()
            self._drop(path, future)

    def forget(self, path: str) -> None:
        """Gives up the upload of an object that will be deleted, and waits for its end."""
        with self._lock:
            future = self._running.get(path)
            parts = self._in_parts.get(path)
        if parts is not None:
            parts.given_up.set()
        if future is not None:
            wait([future])
            self._drop(path, future)


class UploadFile(io.RawIOBase):
    """The file that a writer writes: it collects parts, and becomes an object when it is closed.

    A file that is not closed, because its writer has failed, does not become an object.

    Args:
        uploads: Runs the upload.
        client: The store.
        path: The object.
        keep: Takes the object's size and last bytes when it is closed.
    """

    def __init__(self, uploads: Uploads, client: ObjectClient, path: str, keep: Callable[[str, Tail], None]) -> None:
        self._uploads = uploads
        self._client = client
        self._path = path
        self._keep = keep
        self._buffer = bytearray()
        self._last = b""
        self._written = 0
        self._parts: _Parts | None = None

    def writable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """The bytes that were written."""
        return self._written

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        """Takes bytes; an error of the upload is raised here or by `Uploads.wait`."""
        view = memoryview(data).cast("B")
        self._buffer += view
        self._written += len(view)
        while len(self._buffer) > PART_BYTES:
            self._send(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return len(view)

    def _send(self, part: bytes) -> None:
        if self._parts is None:
            self._parts = self._uploads.in_parts(self._client, self._path)
        self._last = part[-TAIL_BYTES:]
        self._offer(self._parts, part)

    def _offer(self, parts: _Parts, part: bytes | None) -> None:
        if not parts.offer(part):
            self._uploads.wait(self._path)

    def close(self) -> None:
        """Ends the object. It may not be stored yet: `Uploads.wait` waits for that."""
        if self.closed:
            return
        try:
            rest = bytes(self._buffer)
            if self._parts is None:
                self._uploads.put(self._client, self._path, rest)
            else:
                self._offer(self._parts, rest)
                self._offer(self._parts, None)
            self._keep(self._path, Tail(self._written, (self._last + rest)[-TAIL_BYTES:]))
        finally:
            self._buffer = bytearray()
            super().close()

    def __del__(self) -> None:
        """Gives the file up unless it was closed: the base class would close it."""
        if not self.closed:
            if self._parts is not None:
                self._parts.given_up.set()
            super().close()
