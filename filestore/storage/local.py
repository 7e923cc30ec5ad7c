"""`LocalStorage`: tables on the local file system (FORMAT.md section 1)."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from io import FileIO
from pathlib import Path

import pyarrow as pa

from filestore.contexts import Closing
from filestore.errors import InvalidRequest, NotFound, TableStoreError, Unavailable
from filestore.refused import refused, unreadable
from filestore.storage.interface import ByteRange, FileInfo, TaggedFile
from filestore.storage.refusals import exists_already, no_conditions, no_file
from filestore.threads import in_threads

__all__ = ["LocalFile", "LocalStorage", "sync_folder", "writing"]

_MAPPED_BYTES = 512 << 10
_ATTEMPTS = 5
_FLUSHED_TOGETHER = 16
"""The threads that flush files of a write: a file then takes a twentieth of the time, and more gain little."""


class LocalFile(Closing):
    """A file of which bytes are read, or that is mapped into memory, so that what nobody asks for is never read.

    IMPORTANT: a page of a mapped file that the disk does not return ends the process. So whoever checks or decodes a
    file reads its bytes first, in small parts.

    Raises:
        NotFound: ``file-not-found``.
        Corrupt: ``unreadable``: by the other methods, too.
        Unavailable: the operating system refuses to open it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with _reading("open", path):
            self._bytes = FileIO(path)
            self.size = os.fstat(self._bytes.fileno()).st_size

    @cached_property
    def file(self) -> pa.NativeFile:
        """The file in memory."""
        with _reading("open", self.path):
            return pa.memory_map(self.path, "r")

    def read(self, start: int, end: int) -> bytes:
        """Reads bytes."""
        try:
            return os.pread(self._bytes.fileno(), end - start, start)
        except OSError as error:
            raise _unreadable("read", self.path, error) from error

    def view(self, start: int, end: int) -> memoryview:
        """Returns bytes: a copy of a few, since it takes longer to map a file into memory and to touch its pages."""
        if end - start < _MAPPED_BYTES:
            return memoryview(self.read(start, end))
        with _reading("read", self.path):
            self.file.seek(start)
            return memoryview(self.file.read_buffer(end - start)).cast("B")

    def fetch(self, ranges: Iterable[ByteRange]) -> None:
        """Does nothing."""

    @contextmanager
    def part(self, ranges: Iterable[ByteRange]) -> Iterator[LocalFile]:
        """Returns the file itself."""
        yield self

    def close(self) -> None:
        """Closes the file."""
        self._bytes.close()
        if "file" in self.__dict__:
            self.file.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # there is no such file
            self._bytes.close()  # Python would warn of a look-up that nobody reads to its end


class LocalStorage:
    """The local file system. `write_new` makes a hard link, which is atomic and exclusive in POSIX.

    A clean-up of young files may remove the temporary file of a write that is running: it is then made again.
    """

    def read(self, path: str) -> bytes:
        """Returns the file's bytes."""
        _require_local(path)
        with _reading("read", path):
            return Path(path).read_bytes()

    def read_each(self, paths: Sequence[str]) -> list[bytes | None]:
        """Reads the files one after the other."""
        return [self._read_if_there(path) for path in paths]

    def _read_if_there(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except NotFound:
            return None

    def write_new(self, path: str, data: bytes) -> None:
        """Writes a temporary file, flushes it to disk and links it to its name."""
        _require_local(path)
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _publish(target, data, os.link)
            sync_folder(target.parent)
        except FileExistsError as error:
            raise exists_already(path) from error
        except OSError as error:
            raise _unavailable("write", path, error) from error

    def replace(self, path: str, data: bytes) -> None:
        """Writes a temporary file and renames it, so that the target is never missing or torn."""
        _require_local(path)
        target = Path(path)
        try:
            target.parent.mkdir(exist_ok=True)
            _publish(target, data, os.replace)
            sync_folder(target.parent)
        except FileNotFoundError as error:
            raise NotFound(f"folder {target.parent.parent} does not exist", code="file-not-found") from error
        except OSError as error:
            raise _unavailable("write", path, error) from error

    def read_tagged(self, path: str) -> TaggedFile:
        """Raises `Unsupported`: processes of one machine use locks instead (`filestore.leases.locks`)."""
        raise no_conditions(path)

    def replace_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        """Raises `Unsupported`."""
        raise no_conditions(path)

    def list_tagged(self, path: str) -> dict[str, str]:
        """Raises `Unsupported`."""
        raise no_conditions(path)

    def open_read(self, path: str) -> LocalFile:
        """Opens the file."""
        _require_local(path)
        return LocalFile(path)

    def read_ahead(self, paths: Sequence[str]) -> None:
        """Does nothing."""

    def local_path(self, path: str) -> str:
        """Returns the path itself."""
        return path

    def options(self) -> dict[str, str]:
        """Returns no options: a local disk needs none."""
        return {}

    def delta_options(self, path: str) -> dict[str, str]:
        """Returns no options."""
        return {}

    def open_write(self, path: str) -> pa.NativeFile:
        """Creates a file, with its folders."""
        _require_local(path)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return pa.OSFile(path, "wb")
        except OSError as error:
            raise _unavailable("create", path, error) from error

    def sync(self, path: str) -> None:
        """Flushes a file and its folder's entry to disk."""
        _flush(path)
        _flush_folder(os.path.dirname(path))

    def sync_all(self, paths: Sequence[str]) -> None:
        """Flushes files, then each of their folders once, in threads: a file system joins flushes that are waiting."""
        folders = sorted({os.path.dirname(path) for path in paths})
        if len(paths) == 1:
            return self.sync(paths[0])
        for flush, flushed in ((_flush, paths), (_flush_folder, folders)):
            shares = [flushed[number::_FLUSHED_TOGETHER] for number in range(_FLUSHED_TOGETHER)]
            in_threads("flush", partial(_each, flush), shares, lambda _: None, most=_FLUSHED_TOGETHER)

    def exists(self, path: str) -> bool:
        """Returns whether the file exists."""
        _require_local(path)
        try:
            return stat.S_ISREG(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unreadable("look for", path, error) from error

    def walk(self, path: str) -> Iterator[FileInfo]:
        """Yields the files in a folder, at any depth."""
        _require_local(path)

        def unreadable(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):  # another process may have removed it
                raise _unreadable("list", error.filename or path, error) from error

        for folder, _, names in os.walk(path, onerror=unreadable):
            for name in names:
                full = os.path.join(folder, name)
                try:
                    found = os.stat(full)
                except FileNotFoundError:
                    continue  # another process has removed it during the walk
                except OSError as error:
                    raise _unreadable("list", full, error) from error
                yield FileInfo(full, found.st_size, found.st_mtime_ns // 1_000_000)

    def list_names(self, path: str, after: str = "") -> list[str]:
        """Returns the names in a folder."""
        _require_local(path)
        try:
            return [name for name in os.listdir(path) if name > after]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable("list", path, error) from error

    def delete(self, path: str) -> None:
        """Deletes a file."""
        _require_local(path)
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable("delete", path, error) from error

    def delete_all(self, paths: Sequence[str]) -> None:
        """Deletes files."""
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str) -> None:
        """Deletes a folder. Symbolic links are deleted, not followed."""
        _require_local(path)
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unavailable("delete", path, error) from error


def _each(work: Callable[[str], None], paths: Iterable[str]) -> None:
    for path in paths:
        work(path)


def _flush(path: str) -> None:
    _require_local(path)
    try:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    except FileNotFoundError as error:
        raise no_file(path) from error
    except OSError as error:
        raise _unavailable("flush", path, error) from error


def _flush_folder(path: str) -> None:
    try:
        sync_folder(Path(path))
    except OSError as error:
        raise _unavailable("flush", path, error) from error


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Translates errors of writing to an `open_write`: a full disk raises `Unavailable`, as everywhere."""
    try:
        yield
    except OSError as error:
        raise _unavailable("write", path, error) from error


def _publish(target: Path, data: bytes, publish: Callable[[Path, Path], None]) -> None:
    """Gives bytes a name at once; again, if somebody removed the temporary file. Without its folder it fails."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            with _temporary(target, data) as temporary:
                return publish(temporary, target)
        except FileNotFoundError:
            if not left:
                raise


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


def _require_local(path: str) -> None:
    """Refuses a URL, of which the system would make a folder with that name."""
    if "://" in path:
        raise InvalidRequest(
            f"{path} is not a local path: open its storage with filestore.storage.locations.storage_of", code="bad-path"
        )


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable: those of files that were created, renamed or removed there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _reading(verb: str, path: str) -> Iterator[None]:
    """Translates errors of reading what is there."""
    try:
        yield
    except FileNotFoundError as error:
        raise no_file(path) from error
    except OSError as error:
        raise _unreadable(verb, path, error) from error


def _unreadable(verb: str, path: str, error: OSError) -> TableStoreError:
    return unreadable(f"cannot {verb} {path}", error)


def _unavailable(verb: str, path: str, error: OSError) -> Unavailable:
    return refused(f"cannot {verb} {path}", error)
