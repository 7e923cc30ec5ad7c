"""Storage: the few operations that the store needs, and the local file system's (FORMAT.md section 1).

A store must offer: read after write, and `write_new`, which is atomic and lets exactly one of several
writers win. Everything else (listing, deletion) may be slow or late. Failure injection wraps this protocol.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from filestore.errors import AlreadyExists, NotFound, Unavailable
from filestore.refused import refused

__all__ = ["FileInfo", "LocalStorage", "Storage", "temporary_folder", "writing"]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A stored file: its whole path, bytes, and time of modification in milliseconds."""

    path: str
    size: int
    modified_ms: int


class Storage(Protocol):
    """Paths are whole: a location joined with a relative path. Errors: `NotFound`, `AlreadyExists`, `Unavailable`."""

    def read(self, path: str) -> bytes:
        """The file's bytes."""

    def write_new(self, path: str, data: bytes) -> None:
        """Writes all bytes or nothing; `AlreadyExists` if the path is taken. Durable when it returns."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes all bytes or nothing over what is there; of its folders it makes the last one only."""

    def open_read(self, path: str) -> pa.NativeFile:
        """A seekable reader."""

    def open_write(self, path: str) -> pa.NativeFile:
        """A new file that appears whole, or as a part that nothing refers to. Makes folders."""

    def sync(self, path: str) -> None:
        """Makes a closed file durable: called before a commit names it."""

    def exists(self, path: str) -> bool:
        """Whether the file is there."""

    def walk(self, path: str) -> Iterator[FileInfo]:
        """All files below a folder, at any depth, in any order; none if there is no such folder."""

    def list_names(self, path: str) -> list[str]:
        """Names directly below a folder, in any order; empty if there is no such folder."""

    def delete(self, path: str) -> None:
        """Removes a file; it may be gone already."""

    def delete_tree(self, path: str) -> None:
        """Removes a folder with all below it; it may be gone already."""


class LocalStorage:
    """The local file system. `write_new` is a hard link, which POSIX makes atomic and exclusive."""

    def read(self, path: str) -> bytes:
        """The file's bytes."""
        try:
            return Path(path).read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"file {path} does not exist", code="file-not-found") from error
        except OSError as error:
            raise _unavailable("read", path, error) from error

    def write_new(self, path: str, data: bytes) -> None:
        """Writes a temporary file, flushes it to disk and links it to its name."""
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with _temporary(target, data) as temporary:
                os.link(temporary, target)
            _sync_folder(target.parent)
        except FileExistsError as error:
            raise AlreadyExists(f"file {path} exists already", code="file-exists") from error
        except OSError as error:
            raise _unavailable("write", path, error) from error

    def replace(self, path: str, data: bytes) -> None:
        """Writes a temporary file and renames it; what it replaces is never seen missing or torn."""
        target = Path(path)
        try:
            target.parent.mkdir(exist_ok=True)
            with _temporary(target, data) as temporary:
                os.replace(temporary, target)
            _sync_folder(target.parent)
        except FileNotFoundError as error:
            raise NotFound(f"folder {target.parent.parent} does not exist", code="file-not-found") from error
        except OSError as error:
            raise _unavailable("write", path, error) from error

    def open_read(self, path: str) -> pa.NativeFile:
        """A memory-mapped reader, so that pruned pages are never read."""
        try:
            return pa.memory_map(path, "r")
        except FileNotFoundError as error:
            raise NotFound(f"file {path} does not exist", code="file-not-found") from error
        except OSError as error:
            raise _unavailable("open", path, error) from error

    def open_write(self, path: str) -> pa.NativeFile:
        """A new file."""
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            return pa.OSFile(path, "wb")
        except OSError as error:
            raise _unavailable("create", path, error) from error

    def sync(self, path: str) -> None:
        """Flushes a file and its folder's entry to disk."""
        try:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            _sync_folder(Path(path).parent)
        except OSError as error:
            raise _unavailable("flush", path, error) from error

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        return Path(path).is_file()

    def walk(self, path: str) -> Iterator[FileInfo]:
        """Files below a folder, at any depth."""
        for folder, _, names in os.walk(path):
            for name in names:
                full = os.path.join(folder, name)
                try:
                    stat = os.stat(full)
                except FileNotFoundError:
                    continue  # removed by another process while we walk
                yield FileInfo(full, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def list_names(self, path: str) -> list[str]:
        """Names directly below a folder."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable("list", path, error) from error

    def delete(self, path: str) -> None:
        """Removes a file."""
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable("delete", path, error) from error

    def delete_tree(self, path: str) -> None:
        """Removes a folder. Symbolic links are removed, not followed."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unavailable("delete", path, error) from error


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Around the writing of an `open_write`: a full disk is `Unavailable`, as everywhere."""
    try:
        yield
    except OSError as error:
        raise _unavailable("write", path, error) from error


@contextmanager
def temporary_folder(prefix: str, parent: str | None = None) -> Iterator[str]:
    """A folder for temporary files, in the system's place for them unless another is named; removed afterwards."""
    place = parent or "the system's place for them"
    try:
        made = tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
    except OSError as error:  # the system's place is also looked for here, which fails on a full disk
        raise refused(f"cannot make a folder for temporary files in {place}", error) from error
    with made as folder:
        yield folder


@contextmanager
def _temporary(target: Path, data: bytes) -> Iterator[Path]:
    """A durable file beside its target, to be linked or renamed to it; gone in the end."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unavailable(verb: str, path: str, error: OSError) -> Unavailable:
    return refused(f"cannot {verb} {path}", error)
