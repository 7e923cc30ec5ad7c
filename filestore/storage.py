"""The storage interface: the few operations that tables need, and their local implementation (FORMAT.md section 1).

A storage must offer read-after-write consistency, and `write_new`, which is atomic and lets exactly one of several
writers win. Other operations (listing, deletion) may be slow or delayed. Tests inject failures by wrapping it.
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
    """A stored file: its whole path, size in bytes, and time of modification in milliseconds."""

    path: str
    size: int
    modified_ms: int


class Storage(Protocol):
    """Paths are whole: a location and a relative path. Errors are `NotFound`, `AlreadyExists` and `Unavailable`."""

    def read(self, path: str) -> bytes:
        """Returns the file's bytes."""

    def write_new(self, path: str, data: bytes) -> None:
        """Writes all bytes or nothing, durably; raises `AlreadyExists` if the path exists."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes all bytes or nothing, and replaces an existing file; creates at most the last folder of the path."""

    def open_read(self, path: str) -> pa.NativeFile:
        """Opens a file for reading; the reader can seek."""

    def open_write(self, path: str) -> pa.NativeFile:
        """Creates a file, with its folders. Until it is closed only a part of it may exist, to which nothing refers."""

    def sync(self, path: str) -> None:
        """Makes a closed file durable; this happens before a commit names it."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def walk(self, path: str) -> Iterator[FileInfo]:
        """Yields all files in a folder, at any depth and in any order; none if the folder does not exist."""

    def list_names(self, path: str) -> list[str]:
        """Returns the names in a folder, in any order; none if the folder does not exist."""

    def delete(self, path: str) -> None:
        """Deletes a file; it may be gone already."""

    def delete_tree(self, path: str) -> None:
        """Deletes a folder and everything in it; it may be gone already."""


class LocalStorage:
    """The local file system. `write_new` makes a hard link, which is atomic and exclusive in POSIX."""

    def read(self, path: str) -> bytes:
        """Returns the file's bytes."""
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
        """Writes a temporary file and renames it, so that the target is never missing or torn."""
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
        """Maps the file into memory, so that pruned pages are never read."""
        try:
            return pa.memory_map(path, "r")
        except FileNotFoundError as error:
            raise NotFound(f"file {path} does not exist", code="file-not-found") from error
        except OSError as error:
            raise _unavailable("open", path, error) from error

    def open_write(self, path: str) -> pa.NativeFile:
        """Creates a file, with its folders."""
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
        """Whether the file exists."""
        return Path(path).is_file()

    def walk(self, path: str) -> Iterator[FileInfo]:
        """Yields the files in a folder, at any depth."""
        for folder, _, names in os.walk(path):
            for name in names:
                full = os.path.join(folder, name)
                try:
                    stat = os.stat(full)
                except FileNotFoundError:
                    continue  # another process has removed it during the walk
                yield FileInfo(full, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def list_names(self, path: str) -> list[str]:
        """Returns the names in a folder."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable("list", path, error) from error

    def delete(self, path: str) -> None:
        """Deletes a file."""
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable("delete", path, error) from error

    def delete_tree(self, path: str) -> None:
        """Deletes a folder. Symbolic links are deleted, not followed."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unavailable("delete", path, error) from error


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Translates errors of writing to an `open_write`: a full disk raises `Unavailable`, as everywhere."""
    try:
        yield
    except OSError as error:
        raise _unavailable("write", path, error) from error


@contextmanager
def temporary_folder(prefix: str, parent: str | None = None) -> Iterator[str]:
    """Creates a folder for temporary files, by default in the system's place for them, and removes it afterwards."""
    place = parent or "the system's folder for them"
    try:
        made = tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
    except OSError as error:  # this also looks for the system's folder, which fails on a full disk
        raise refused(f"cannot create a folder for temporary files in {place}", error) from error
    with made as folder:
        yield folder


@contextmanager
def _temporary(target: Path, data: bytes) -> Iterator[Path]:
    """Writes a durable file beside its target, to be linked or renamed to it; removes it at the end."""
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
