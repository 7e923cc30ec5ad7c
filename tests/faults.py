"""A storage and a log that fail on purpose: they call a hook before and after each call.

If the hook raises before a call, the call has no effect; if it raises after it, only the reply is lost. `Killed` stands
for the death of the process: after it every call raises, so that no handler of the code under test can clean up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import log.table.session
import managed_table.log_change
import managed_table.new_log
import tablestore.recovering.republish
from filestore.ambient import Ambient
from filestore.commit.claims import Claim, Claims
from filestore.errors import NotFound, TableStoreError, Unavailable
from filestore.storage.interface import FileInfo, ReadableFile, Storage, TaggedFile
from filestore.storage.locations import Storages
from log.table.systems import open_log

__all__ = [
    "Call",
    "FailAt",
    "FaultyClaims",
    "FaultyStorage",
    "Hook",
    "Killed",
    "OneStorage",
    "Undeletable",
    "faulty_logs",
]


class Killed(BaseException):
    """The process is dead. It is not an `Exception`, because only the test may catch it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A storage call: its operation, its path, and whether it has had its effect."""

    operation: str
    path: str
    done: bool

    @property
    def only_reads(self) -> bool:
        """Whether the call has no effect, so that a failure after it leaves what a failure before it leaves."""
        return self.operation in ("read", "read_tagged", "open_read", "exists", "walk", "list_names", "list_tagged")


Hook = Callable[[Call], None]


@dataclass(slots=True)
class FailAt:
    """Raises an error at the n-th matching call, once; `Killed` is raised at every later call, too.

    Args:
        number: The number of the call among those that match, from 1.
        error: The error.
        after: Whether the call has its effect first.
        operation: The operation that matches; all if empty.
        path: A text that the path must contain.
    """

    number: int
    error: BaseException
    after: bool = False
    operation: str = ""
    path: str = ""
    seen: int = 0
    fired: bool = False

    def __call__(self, call: Call) -> None:
        if self.fired and isinstance(self.error, Killed):
            raise self.error
        if self.operation not in ("", call.operation) or self.path not in call.path or call.done != self.after:
            return
        self.seen += 1
        if self.seen == self.number:
            self.fired = True
            raise self.error


@dataclass(slots=True)
class Undeletable:
    """Refuses each attempt to delete the first file that anybody deletes.

    Args:
        path: A text that its path must contain.
    """

    path: str = ""
    file: str = ""

    def __call__(self, call: Call) -> None:
        if call.operation != "delete" or self.path not in call.path:
            return
        self.file = self.file or call.path
        if call.path == self.file:
            raise Unavailable(f"injected: {call.path} cannot be deleted")


class OneStorage(Storages):
    """The same storage for all locations."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage

    def of(self, location: str, defaults: Mapping[str, str] | None = None) -> Storage:
        return self._storage


@dataclass(slots=True)
class FaultyStorage:
    """A storage with a hook. Each write to an open file is a call, too (``append``), so that files can be cut off."""

    inner: Storage
    hook: Hook = lambda call: None
    calls: list[Call] = field(default_factory=list)

    def _do(self, operation: str, path: str, work: Callable[[], Any]) -> Any:
        before = Call(operation, path, done=False)
        self.calls.append(before)
        self.hook(before)
        result = work()
        self.hook(Call(operation, path, done=True))
        return result

    def read(self, path: str) -> bytes:
        return self._do("read", path, lambda: self.inner.read(path))  # type: ignore[no-any-return]

    def read_each(self, paths: Sequence[str]) -> list[bytes | None]:
        return [self._read_if_there(path) for path in paths]

    def _read_if_there(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except NotFound:
            return None

    def write_new(self, path: str, data: bytes) -> None:
        self._do("write_new", path, lambda: self.inner.write_new(path, data))

    def replace(self, path: str, data: bytes) -> None:
        self._do("replace", path, lambda: self.inner.replace(path, data))

    def read_tagged(self, path: str) -> TaggedFile:
        return self._do("read_tagged", path, lambda: self.inner.read_tagged(path))  # type: ignore[no-any-return]

    def replace_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        return self._do(  # type: ignore[no-any-return]
            "replace_tagged", path, lambda: self.inner.replace_tagged(path, data, tag)
        )

    def list_tagged(self, path: str) -> dict[str, str]:
        return self._do("list_tagged", path, lambda: self.inner.list_tagged(path))  # type: ignore[no-any-return]

    def open_read(self, path: str) -> ReadableFile:
        return self._do("open_read", path, lambda: self.inner.open_read(path))  # type: ignore[no-any-return]

    def read_ahead(self, paths: Sequence[str]) -> None:
        self.inner.read_ahead(paths)

    def local_path(self, path: str) -> str | None:
        return self.inner.local_path(path)

    def options(self) -> dict[str, str]:
        return self.inner.options()

    def delta_options(self, path: str) -> dict[str, str]:
        return self.inner.delta_options(path)

    def open_write(self, path: str) -> pa.NativeFile:
        sink = self._do("open_write", path, lambda: self.inner.open_write(path))
        return pa.PythonFile(_Sink(self, path, sink), mode="w")

    def sync(self, path: str) -> None:
        self._do("sync", path, lambda: self.inner.sync(path))

    def sync_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.sync(path)

    def exists(self, path: str) -> bool:
        return self._do("exists", path, lambda: self.inner.exists(path))  # type: ignore[no-any-return]

    def walk(self, path: str) -> Iterator[FileInfo]:
        return self._do("walk", path, lambda: self.inner.walk(path))  # type: ignore[no-any-return]

    def list_names(self, path: str, after: str = "") -> list[str]:
        return self._do("list_names", path, lambda: self.inner.list_names(path, after))  # type: ignore[no-any-return]

    def delete(self, path: str) -> None:
        self._do("delete", path, lambda: self.inner.delete(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str) -> None:
        self._do("delete_tree", path, lambda: self.inner.delete_tree(path))


class _Sink:
    """A file that is being written, as a Python file object."""

    def __init__(self, storage: FaultyStorage, path: str, sink: pa.NativeFile) -> None:
        self._storage = storage
        self._path = path
        self._sink = sink

    @property
    def closed(self) -> bool:
        return bool(self._sink.closed)

    def write(self, data: bytes) -> int:
        return int(self._storage._do("append", self._path, lambda: self._sink.write(data)))

    def flush(self) -> None:
        self._sink.flush()

    def tell(self) -> int:
        return int(self._sink.tell())

    def close(self) -> None:
        self._sink.close()


@dataclass(slots=True)
class FaultyClaims:
    """Claims that call a hook before and after each call, as `FaultyStorage` does."""

    inner: Claims
    hook: Hook

    def _do(self, name: str, work: Callable[[], Any]) -> Any:
        self.hook(Call(f"claims.{name}", "", done=False))
        result = work()
        self.hook(Call(f"claims.{name}", "", done=True))
        return result

    def newest(self) -> Claim | None:
        return self._do("newest", self.inner.newest)  # type: ignore[no-any-return]

    def claim(self, wanted: Claim, after: Claim | None) -> Claim:
        return self._do("claim", lambda: self.inner.claim(wanted, after))  # type: ignore[no-any-return]

    def publish(self, claim: Claim) -> Claim | None:
        return self._do("publish", lambda: self.inner.publish(claim))  # type: ignore[no-any-return]


@contextmanager
def faulty_logs(storage: FaultyStorage | Callable[[Ambient], FaultyStorage]) -> Iterator[None]:
    """Logs that are opened for writing in the block ask the storage's hook: ``log.prepare`` is such a call.

    Args:
        storage: Whose hook; or a function that returns it for the clock of the process that opens the log.
    """

    def opened(config: Any, ambient: Any) -> _FaultyLog:
        return _FaultyLog(open_log(config, ambient), storage(ambient) if callable(storage) else storage)

    with pytest.MonkeyPatch.context() as patch:
        for module in (
            log.table.session,
            managed_table.log_change,
            managed_table.new_log,
            tablestore.recovering.republish,
        ):
            patch.setattr(module, "open_log", opened)
        yield


class _FaultyLog:
    """A log, or one of its writers. It is always closed; an error says only that this failed."""

    def __init__(self, inner: Any, storage: FaultyStorage) -> None:
        self._inner = inner
        self._storage = storage

    def __enter__(self) -> _FaultyLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()
        self._storage._do("log.close", "", lambda: None)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **how: Any) -> Any:
            with suppress(*([TableStoreError] if name == "abort" else [])):  # a writer's abort only logs its errors
                result = self._storage._do(f"log.{name}", "", lambda: getattr(self._inner, name)(*args, **how))
                return _FaultyLog(result, self._storage) if name == "begin" else result

        return call
