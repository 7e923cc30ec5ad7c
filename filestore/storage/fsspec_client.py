"""`FsspecClient`: any file system of fsspec that can create files exclusively; S3 through s3fs (decision 90)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import fsspec
from fsspec.exceptions import FSTimeoutError

from filestore.errors import NotFound, TableStoreError
from filestore.storage.client import PART_BYTES, Tail
from filestore.storage.interface import ByteRange, FileInfo
from filestore.storage.refusals import busy, cut_short, exists_already, no_bucket, no_file, no_permission
from filestore.storage.s3_settings import CONNECT_S, REQUEST_S, S3Settings, credentials_of

__all__ = ["FsspecClient", "s3_file_system"]


class FsspecClient:
    """Implements `filestore.storage.client.ObjectClient`.

    Args:
        protocol: The scheme of the URLs.
        file_system: A file system of this process, which caches no listings.
        settings: The settings of S3; None for other stores.
    """

    def __init__(self, protocol: str, file_system: Any, settings: S3Settings | None = None) -> None:
        self._protocol = protocol
        self._files = file_system
        self._settings = settings

    @classmethod
    def open(cls, protocol: str, options: Mapping[str, Any], settings: S3Settings | None = None) -> FsspecClient:
        """Opens a file system by its protocol.

        Raises:
            ImportError, ValueError: there is no such file system, or its package is not installed.
        """
        made = fsspec.filesystem(protocol, skip_instance_cache=True, use_listings_cache=False, **options)
        return cls(protocol, made, settings)

    def get(self, path: str) -> bytes:
        """Returns an object."""
        with _errors("read", path):
            return bytes(self._files.cat_file(path))

    def get_tail(self, path: str, most: int) -> Tail:
        """Returns the last bytes of an object. It sends two requests: one for the size."""
        with _errors("read", path):
            size = self._files.info(path)["size"]
            data = bytes(self._files.cat_file(path, start=max(0, size - most), end=size)) if size else b""
        return Tail(size, _whole(path, data, min(most, size)))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Returns ranges of an object."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        with _errors("read", path):
            found = self._files.cat_ranges([path] * len(ranges), starts, ends, on_error="raise")
        return [_whole(path, bytes(data), end - start) for data, (start, end) in zip(found, ranges, strict=True)]

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Writes an object."""
        with _errors("write", path):
            self._files.pipe_file(path, data, mode="create" if create else "overwrite")

    def upload(self, path: str, parts: Iterable[bytes]) -> None:
        """Writes an object in parts."""
        with _errors("write", path):
            file = self._files.open(path, "wb", block_size=PART_BYTES, autocommit=False)
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
        """Whether there is such an object."""
        try:
            with _errors("look for", path):
                return bool(self._files.info(path)["type"] == "file")
        except NotFound:
            return False

    def walk(self, folder: str) -> Iterator[FileInfo]:
        """Yields all objects below a folder."""
        with _errors("list", folder):
            found = self._files.find(folder, detail=True)
        for name, info in found.items():
            modified = info.get("LastModified") or info.get("mtime") or info.get("created")
            modified_ms = int((modified.timestamp() if isinstance(modified, datetime) else modified or 0) * 1000)
            yield FileInfo(f"{self._protocol}://{name.lstrip('/')}", info["size"], modified_ms)

    def list_names(self, folder: str) -> list[str]:
        """Returns the names of the objects in a folder."""
        try:
            with _errors("list", folder):
                found = self._files.ls(folder, detail=True)
        except NotFound:
            return []
        return [info["name"].rpartition("/")[2] for info in found if info["type"] == "file"]

    def delta_options(self) -> dict[str, str]:
        """Returns the settings of S3. Of other stores deltalake and polars find what they need in the environment."""
        return {} if self._settings is None else self._settings.delta_options()

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes objects, one by one."""
        for path in paths:
            try:
                with _errors("delete", path):
                    self._files.rm_file(path)
            except NotFound:
                continue


def s3_file_system(settings: S3Settings) -> FsspecClient:
    """Opens S3 through s3fs."""
    found = settings.resolved()
    if not found.anonymous:
        credentials_of(found)  # raises an error that says what is missing; s3fs would ask without a signature
    client = FsspecClient.open(
        "s3",
        {
            "anon": found.anonymous,
            "endpoint_url": found.endpoint,
            "profile": found.profile,
            "client_kwargs": {"region_name": found.region},
            "config_kwargs": {
                "connect_timeout": CONNECT_S,
                "read_timeout": REQUEST_S,
                "retries": {"total_max_attempts": 1, "mode": "standard"},
                "s3": {"addressing_style": "path" if found.path_style else "virtual"},
                "http_session_cls": _session_that_repeats_nothing(),
            },
        },
        found,
    )
    client._files.retries = 1  # `filestore.storage.retries` repeats requests
    return client


def _session_that_repeats_nothing() -> type:
    """Returns aiobotocore's class of HTTP sessions without a habit of aiohttp.

    aiohttp sends a PUT again by itself if a kept connection ends without a reply. The second of two conditional writes
    is refused, so one's own success would look like another writer's.
    """
    from aiobotocore.httpsession import AIOHTTPSession

    class Session(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: Any) -> Any:
            session = await super()._get_session(proxy_url)
            session._retry_connection = False
            return session

    return Session


def _whole(path: str, data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise cut_short(path)
    return data


@contextmanager
def _errors(verb: str, path: str) -> Iterator[None]:
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
        raise busy(verb, path, error) from error


def _client_errors() -> tuple[type[Exception], ...]:
    """Returns the errors of the HTTP clients that s3fs lets through."""
    try:
        from aiohttp import ClientError
        from botocore.exceptions import BotoCoreError
        from botocore.exceptions import ClientError as Refused
    except ImportError:
        return ()
    return (ClientError, BotoCoreError, Refused)
