"""A storage in memory: a dict of bytes with times of a virtual clock. Listings come sorted, so that runs repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa

from filestore.contexts import Closing
from filestore.errors import AlreadyExists, NotFound
from filestore.storage.interface import ByteRange, FileInfo, TaggedFile
from filestore.storage.refusals import file_changed

__all__ = ["BytesFile", "MemoryStorage", "scanned_from"]


class BytesFile(Closing):
    """A file whose bytes are all in memory (`filestore.storage.interface.ReadableFile`)."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.size = len(data)
        self.file = pa.BufferReader(data)

    def read(self, start: int, end: int) -> bytes:
        return bytes(self.file.read_at(end - start, start)) if start < self.size else b""

    def view(self, start: int, end: int) -> memoryview:
        return memoryview(self.read(start, end))

    def fetch(self, ranges: Iterable[ByteRange]) -> None:
        pass

    @contextmanager
    def part(self, ranges: Iterable[ByteRange]) -> Iterator[BytesFile]:
        yield self

    def close(self) -> None:
        self.file.close()


class MemoryStorage:
    """What `filestore.storage.interface.Storage` asks for.

    Args:
        now_ms: The clock by which files are modified.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.files: dict[str, bytes] = {}
        self.modified: dict[str, int] = {}

    def put(self, path: str, data: bytes) -> None:
        """Writes whatever is there."""
        self.files[path] = data
        self.modified[path] = self._now_ms()

    def read(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise NotFound(f"file {path} does not exist", code="file-not-found") from None

    def read_each(self, paths: Sequence[str]) -> list[bytes | None]:
        return [self.read(path) if path in self.files else None for path in paths]

    def write_new(self, path: str, data: bytes) -> None:
        if path in self.files:
            raise AlreadyExists(f"file {path} exists already", code="file-exists")
        self.put(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def read_tagged(self, path: str) -> TaggedFile:
        data = self.read(path)
        return TaggedFile(data, _tag(data), self.modified[path])

    def replace_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        stored = self.files.get(path)
        if stored != data and (None if stored is None else _tag(stored)) != tag:
            raise file_changed(path)
        self.put(path, data)
        return _tag(data)

    def list_tagged(self, path: str) -> dict[str, str]:
        prefix = path.rstrip("/") + "/"
        return {n.removeprefix(prefix): _tag(d) for n, d in sorted(self.files.items()) if n.startswith(prefix)}

    def open_read(self, path: str) -> BytesFile:
        return BytesFile(path, self.read(path))

    def read_ahead(self, paths: Sequence[str]) -> None:
        pass

    def local_path(self, path: str) -> str:
        return path

    def options(self) -> dict[str, str]:
        return {}

    def delta_options(self, path: str) -> dict[str, str]:
        return {}

    def open_write(self, path: str) -> pa.NativeFile:
        self.put(path, b"")
        return pa.PythonFile(_Sink(self, path), mode="w")

    def sync(self, path: str) -> None:
        self.read(path)

    def sync_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.sync(path)

    def exists(self, path: str) -> bool:
        return path in self.files

    def walk(self, path: str) -> Iterator[FileInfo]:
        prefix = path.rstrip("/") + "/"
        for name in sorted(self.files):
            if name.startswith(prefix):
                yield FileInfo(name, len(self.files[name]), self.modified[name])

    def list_names(self, path: str, after: str = "") -> list[str]:
        prefix = path.rstrip("/") + "/"
        names = {name.removeprefix(prefix).partition("/")[0] for name in self.files if name.startswith(prefix)}
        return sorted(name for name in names if name > after)

    def delete(self, path: str) -> None:
        self.files.pop(path, None)
        self.modified.pop(path, None)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str) -> None:
        for info in list(self.walk(path)):
            self.delete(info.path)

    def copy_to(self, folder: Path, below: str) -> None:
        """Puts all files below a path into a folder of the disk, where readers that are not ours find them."""
        for info in self.walk(below):
            target = folder / info.path.removeprefix(below).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.files[info.path])


def _tag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class _Sink:
    """A file under the pen: what was written so far is there to be seen, and stays if its writer dies."""

    def __init__(self, storage: MemoryStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._written = bytearray()
        self.closed = False

    def write(self, data: bytes) -> int:
        self._written += data
        self._storage.put(self._path, bytes(self._written))
        return len(data)

    def flush(self) -> None:
        pass

    def tell(self) -> int:
        return len(self._written)

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True, slots=True)
class _Scan:
    """What `filestore.files.row_groups` asks polars for; files by path are looked for when it is collected."""

    storage: MemoryStorage
    sources: Sequence[str | bytes]
    start: int = 0
    size: int | None = None
    columns: Sequence[pl.Expr] = ()

    def slice(self, start: int, size: int) -> _Scan:
        return replace(self, start=start, size=size)

    def select(self, columns: Sequence[pl.Expr]) -> _Scan:
        return replace(self, columns=list(columns))

    def collect(self) -> pl.DataFrame:
        rows = pl.scan_parquet([self._stored(source) for source in self.sources], use_statistics=False)
        return rows.slice(self.start, self.size).select(self.columns).collect()

    def _stored(self, source: str | bytes) -> bytes:
        if isinstance(source, bytes):
            return source
        if source not in self.storage.files:
            raise FileNotFoundError(f"No such file or directory: {source}")
        return self.storage.files[source]


class _Polars:
    """polars, as far as it opens paths."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    def scan_parquet(self, sources: Sequence[str | bytes], **_: object) -> _Scan:
        return _Scan(self._storage, sources)

    def __getattr__(self, name: str) -> Any:
        return getattr(pl, name)


@contextmanager
def scanned_from(storage: MemoryStorage) -> Iterator[None]:
    """Columns, which polars reads by the path itself, come from a storage in memory."""
    with patch("filestore.files.row_groups.pl", _Polars(storage)):
        yield
