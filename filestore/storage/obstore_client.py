"""`ObstoreClient`: S3 through obstore, the Python interface of Rust's object_store (decision 90).

It is used where it is installed: its requests take a third to a twentieth of s3fs's time.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from filestore.ambient import system_ambient
from filestore.errors import AlreadyExists, NotFound, TableStoreError
from filestore.storage.client import Tail
from filestore.storage.credentials import LOOKED_FOR_AFTER_S, FoundCredentials
from filestore.storage.interface import ByteRange, FileInfo, TaggedFile
from filestore.storage.multipart import MultipartUploads
from filestore.storage.refusals import (
    busy,
    cut_short,
    exists_already,
    failed,
    file_changed,
    no_bucket,
    no_file,
    no_permission,
    refused,
)
from filestore.storage.s3_settings import CONNECT_S, LONGEST_S, REQUEST_S, S3Settings

__all__ = ["ObstoreClient"]

_STATUS = re.compile(r"status code: (\d{3})")
_UNNUMBERED = {"redirect without LOCATION": 301, "Server returned error response": 503}
"""Errors whose text has no status: of another region's bucket, and those that come in a reply with the status 200."""
_EMPTY = ("NotPartial", "InvalidRange")
_RANGE_NOT_SATISFIABLE = 416


class ObstoreClient:
    """Implements `filestore.storage.client.ObjectClient`.

    Args:
        settings: How to reach S3.

    Attributes:
        credentials: With which it signs requests; None: it does not.
    """

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings.resolved()
        self.credentials = None if settings.anonymous else FoundCredentials(self._settings)
        self._uploads = MultipartUploads(self._settings, self.credentials)
        self._lock = threading.Lock()
        self._buckets: dict[str, S3Store] = {}
        self._generation = 0

    def get(self, path: str) -> bytes:
        """Returns an object."""
        bucket, key = self._at(path)
        with _errors("read", path):
            return bytes(obstore.get(bucket, key).bytes())

    def get_tail(self, path: str, most: int) -> Tail:
        """Returns the last bytes of an object."""
        bucket, key = self._at(path)
        with _errors("read", path):
            try:
                found = obstore.get(bucket, key, options={"range": {"suffix": most}})
            except BaseError as error:
                if _status(error) != _RANGE_NOT_SATISFIABLE and not any(word in str(error) for word in _EMPTY):
                    raise
                found = obstore.get(bucket, key)  # the end of an empty object cannot be asked for
            data = bytes(found.bytes())
        size = found.meta["size"]
        if len(data) != min(most, size):
            raise cut_short(path)
        return Tail(size, data)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Returns ranges of an object."""
        bucket, key = self._at(path)
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        with _errors("read", path):
            found = obstore.get_ranges(bucket, key, starts=starts, ends=ends, coalesce=0)
        return [bytes(data) for data in found]

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Writes an object by one request."""
        bucket, key = self._at(path)
        with _errors("write", path):
            mode = "create" if create else "overwrite"
            obstore.put(bucket, key, data, mode=mode, use_multipart=False)  # type: ignore[arg-type]

    def get_tagged(self, path: str) -> TaggedFile:
        """Returns an object with its tag."""
        bucket, key = self._at(path)
        with _errors("read", path):
            found = obstore.get(bucket, key)
            data = bytes(found.bytes())
        return TaggedFile(data, _tag(found.meta), int(found.meta["last_modified"].timestamp() * 1000))

    def put_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        """Writes an object on a condition."""
        bucket, key = self._at(path)
        mode: Any = "create" if tag is None else {"e_tag": f'"{tag}"'}
        try:
            with _errors("write", path):
                written = obstore.put(bucket, key, data, mode=mode, use_multipart=False)
        except AlreadyExists as error:
            raise file_changed(path) from error
        except NotFound as error:
            if error.code == "no-bucket" and "NoSuchBucket" not in str(error.__cause__) and tag is not None:
                raise file_changed(path) from error  # the object is gone
            raise
        return _tag(written)

    def list_tagged(self, folder: str) -> dict[str, str]:
        """Returns the tags of the objects in a folder."""
        bucket, key = self._at(folder)
        with _errors("list", folder):
            found = obstore.list_with_delimiter(bucket, key)
        return {meta["path"].rpartition("/")[2]: _tag(meta) for meta in found["objects"]}

    def upload(self, path: str, parts: Iterable[bytes]) -> None:
        """Writes an object in parts."""
        self._uploads.upload(path, parts)

    def exists(self, path: str) -> bool:
        """Returns whether there is such an object."""
        bucket, key = self._at(path)
        try:
            with _errors("look for", path):
                obstore.head(bucket, key)
        except NotFound:
            return False
        return True

    def walk(self, folder: str) -> Iterator[FileInfo]:
        """Yields all objects below a folder."""
        bucket, key = self._at(folder)
        root = folder[: len(folder) - len(key)]
        with _errors("list", folder):
            for batch in obstore.list(bucket, key, chunk_size=1000):
                for meta in batch:
                    modified_ms = int(meta["last_modified"].timestamp() * 1000)
                    yield FileInfo(root + meta["path"], meta["size"], modified_ms)

    def list_names(self, folder: str, after: str) -> list[str]:
        """Returns the names of the objects in a folder."""
        bucket, key = self._at(folder)
        with _errors("list", folder):
            if not after:
                found = obstore.list_with_delimiter(bucket, key)["objects"]
            else:  # it lists folders below, too: those that follow the text
                pages = obstore.list(bucket, key, offset=f"{key}/{after}", chunk_size=1000)
                found = [meta for page in pages for meta in page]
        names = (meta["path"].removeprefix(f"{key}/") for meta in found)
        return [name for name in names if "/" not in name]

    def delta_options(self, path: str) -> dict[str, str]:
        """Returns the settings and credentials for object_store in other libraries."""
        return self._settings.delta_options(urlsplit(path).netloc)

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes objects."""
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            by_bucket.setdefault(urlsplit(path).netloc, []).append(path)
        for some in by_bucket.values():
            bucket = self._at(some[0])[0]
            with _errors("delete", some[0]):
                obstore.delete(bucket, [self._at(path)[1] for path in some])

    def _at(self, path: str) -> tuple[S3Store, str]:
        name, _, key = path.partition("://")[2].partition("/")
        with self._lock:
            if self.credentials is not None and self._generation != self.credentials.generation:
                self._generation = self.credentials.generation
                self._buckets.clear()  # object_store keeps credentials for a few minutes
            if name not in self._buckets:
                self._buckets[name] = _bucket(name, self._settings, self.credentials)
            return self._buckets[name], key


def _bucket(name: str, settings: S3Settings, credentials: FoundCredentials | None) -> S3Store:
    """Opens a bucket; requests are not repeated."""
    endpoint, path_style = settings.address_of(name)
    config: dict[str, Any] = {
        "region": settings.region,
        "virtual_hosted_style_request": not path_style,
        "skip_signature": credentials is None,
    }
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=CONNECT_S),
        "read_timeout": timedelta(seconds=REQUEST_S),
        "timeout": timedelta(seconds=LONGEST_S),
    }
    if endpoint is not None:
        config["aws_endpoint_url_s3"] = endpoint  # over the variable of this name, too
        client["allow_http"] = endpoint.startswith("http://")
    if authorities := os.environ.get("AWS_CA_BUNDLE"):
        with open(authorities, "rb") as file:
            client["root_certificate"] = file.read()
    return S3Store(
        name,
        config=config,  # type: ignore[arg-type]
        client_options=client,  # type: ignore[arg-type]
        credential_provider=None if credentials is None else partial(_signing, credentials),
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=REQUEST_S)},
    )


def _signing(credentials: FoundCredentials) -> Any:
    """Returns the credentials of now for a few minutes, after which object_store asks again."""
    frozen = credentials.current()
    now = datetime.fromtimestamp(system_ambient().now_ms() / 1000, UTC)
    return {
        "access_key_id": frozen.access_key,
        "secret_access_key": frozen.secret_key,
        "token": frozen.token,
        "expires_at": now + timedelta(seconds=LOOKED_FOR_AFTER_S),
    }


def _tag(meta: Any) -> str:
    """Returns an ETag without its quotes, which not every library has."""
    return str(meta["e_tag"]).strip('"')


@contextmanager
def _errors(verb: str, path: str) -> Iterator[None]:
    """Translates obstore's errors."""
    try:
        yield
    except TableStoreError:
        raise
    except FileNotFoundError as error:
        missing = verb == "write" or "NoSuchBucket" in str(error)
        raise (no_bucket(verb, path) if missing else no_file(path)) from error
    except (AlreadyExistsError, PreconditionError) as error:
        if "ConditionalRequestConflict" in str(error):  # S3's 409: two writes at once, of which neither may have won
            raise busy(verb, path, error) from error
        raise exists_already(path) from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise no_permission(verb, path, error) from error
    except (GenericError, OSError) as error:
        raise failed(verb, path, error, _status(error)) from error
    except (BaseError, ValueError) as error:  # of object_store itself, such as for a key that it takes for malformed
        raise refused(verb, path, error) from error


def _status(error: Exception) -> int | None:
    """Returns the HTTP status of a reply, which obstore's errors have in their texts only; None if there was none."""
    text = str(error)
    if (found := _STATUS.search(text)) is not None:
        return int(found[1])
    return next((status for words, status in _UNNUMBERED.items() if words in text), None)
