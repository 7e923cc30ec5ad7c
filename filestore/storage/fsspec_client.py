"""`FsspecClient`: any file system of fsspec that can create files exclusively (decision 90)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from fsspec.core import url_to_fs
from fsspec.exceptions import FSTimeoutError

from filestore.errors import NotFound, TableStoreError
from filestore.storage.client import PART_BYTES, Tail
from filestore.storage.interface import ByteRange, FileInfo, TaggedFile
from filestore.storage.refusals import (
    cut_short,
    exists_already,
    failed,
    no_bucket,
    no_conditions,
    no_file,
    no_permission,
    status_of,
)

__all__ = ["FsspecClient", "refusal_of", "translated", "whole"]


class FsspecClient:
    """Implements `filestore.storage.client.ObjectClient`.

    Args:
        file_system: A file system of this process, which caches no listings.
    """

    def __init__(self, file_system: Any) -> None:
        self._files = file_system

    @classmethod
    def open(cls, root: str) -> FsspecClient:
        """Opens the file system of URLs that begin with a scheme and a host, as fsspec reads them.

        Raises:
            ImportError, TypeError, ValueError: there is no such file system, its package is not installed, or the URL
                lacks what it needs.
            Unavailable: its host does not answer.
        """
        with translated("open", root):
            return cls(url_to_fs(root, skip_instance_cache=True, use_listings_cache=False)[0])

    def get(self, path: str) -> bytes:
        """Returns an object."""
        with translated("read", path):
            return bytes(self._files.cat_file(self._name(path)))

    def get_tail(self, path: str, most: int) -> Tail:
        """Returns the last bytes of an object. It sends two requests: one for the size."""
        with translated("read", path):
            size = self._files.info(self._name(path))["size"]
            data = bytes(self._files.cat_file(self._name(path), start=max(0, size - most), end=size)) if size else b""
        return Tail(size, whole(path, data, min(most, size)))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Returns ranges of an object."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        with translated("read", path):
            found = self._files.cat_ranges([self._name(path)] * len(ranges), starts, ends, on_error="raise")
        return [whole(path, bytes(data), end - start) for data, (start, end) in zip(found, ranges, strict=True)]

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Writes an object."""
        with translated("write", path):
            self._files.pipe_file(self._name(path), data, mode="create" if create else "overwrite")

    def get_tagged(self, path: str) -> TaggedFile:
        """Raises `Unsupported`, as the others: fsspec has no words for conditions."""
        raise no_conditions(path)

    def put_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        """Raises `Unsupported`."""
        raise no_conditions(path)

    def list_tagged(self, folder: str) -> dict[str, str]:
        """Raises `Unsupported`."""
        raise no_conditions(folder)

    def upload(self, path: str, parts: Iterable[bytes]) -> None:
        """Writes an object in parts."""
        with translated("write", path):
            file = self._files.open(self._name(path), "wb", block_size=PART_BYTES, autocommit=False)
            try:
                for part in parts:
                    file.write(part)
                file.close()
            except BaseException:
                file.discard()
                file.closed = True  # or it would be closed once more when it is collected
                raise
            file.commit()

    def exists(self, path: str) -> bool:
        """Returns whether there is such an object."""
        try:
            with translated("look for", path):
                return bool(self._files.info(self._name(path))["type"] == "file")
        except NotFound:
            return False

    def walk(self, folder: str) -> Iterator[FileInfo]:
        """Yields all objects below a folder."""
        root = self._name(folder)
        with translated("list", folder):
            found = self._files.find(root, detail=True)
        for name, info in found.items():
            modified = info.get("LastModified") or info.get("mtime") or info.get("created")
            modified_ms = int((modified.timestamp() if isinstance(modified, datetime) else modified or 0) * 1000)
            # not by `unstrip_protocol`, which leaves hosts out
            yield FileInfo(folder.rstrip("/") + name.removeprefix(root), info["size"], modified_ms)

    def list_names(self, folder: str, after: str) -> list[str]:
        """Returns the names of the objects in a folder."""
        try:
            with translated("list", folder):
                found = self._files.ls(self._name(folder), detail=True)
        except NotFound:
            return []
        names = (info["name"].rpartition("/")[2] for info in found if info["type"] == "file")
        return [name for name in names if name > after]

    def delta_options(self, path: str) -> dict[str, str]:
        """Returns no options: deltalake and polars find what they need in the environment."""
        return {}

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes objects, one by one."""
        for path in paths:
            try:
                with translated("delete", path):
                    self._files.rm_file(self._name(path))
            except NotFound:
                continue

    def _name(self, path: str) -> str:
        """Returns a path as the file system itself writes it: not all of its methods take URLs."""
        return str(self._files._strip_protocol(path))


def whole(path: str, data: bytes, size: int) -> bytes:
    """Returns what was read, if it has the size that was asked for; else the reply was cut short."""
    if len(data) != size:
        raise cut_short(path)
    return data


@contextmanager
def translated(verb: str, path: str) -> Iterator[None]:
    """Translates errors of fsspec and of the clients below it."""
    try:
        yield
    except TableStoreError:
        raise
    except FileNotFoundError as error:
        missing = verb == "write" or "bucket" in str(error).lower()
        raise (no_bucket(verb, path) if missing else no_file(path)) from error
    except FileExistsError as error:
        raise exists_already(path) from error
    except PermissionError as error:
        raise no_permission(verb, path, error) from error
    except (OSError, FSTimeoutError, TimeoutError, *_client_errors()) as error:
        refusal = refusal_of(error)
        raise failed(verb, path, refusal or error, None if refusal is None else status_of(refusal)) from error


def refusal_of(error: BaseException) -> Any:
    """Returns S3's refusal (botocore's `ClientError`) that has led to an error; None if there was no reply."""
    try:
        from botocore.exceptions import ClientError
    except ImportError:
        return None
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ClientError):
        cause = cause.__cause__
    return cause


def _client_errors() -> tuple[type[Exception], ...]:
    """Returns the errors of the HTTP clients that s3fs lets through."""
    try:
        from aiohttp import ClientError
        from botocore.exceptions import BotoCoreError
        from botocore.exceptions import ClientError as Refused
    except ImportError:
        return ()
    return (ClientError, BotoCoreError, Refused)
