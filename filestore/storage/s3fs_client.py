"""`S3fsClient`: S3 through s3fs, fsspec's file system for it (decision 90).

Where a call of fsspec needs several requests, it calls S3's operation itself by `S3FileSystem.call_s3`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError
from fsspec.asyn import sync
from s3fs.errors import translate_boto_error

from filestore.errors import TableStoreError
from filestore.storage.client import Tail
from filestore.storage.credentials import FoundCredentials, aio_session
from filestore.storage.fsspec_client import FsspecClient, refusal_of, translated, whole
from filestore.storage.interface import TaggedFile
from filestore.storage.multipart import MultipartUploads
from filestore.storage.refusals import file_changed, status_of
from filestore.storage.s3_settings import CONNECT_S, REQUEST_S, S3Settings

__all__ = ["S3fsClient"]

_RANGE_NOT_SATISFIABLE = 416
_GONE = ("NoSuchKey", "404")
_OF_ONE_OBJECT = 503  # the reply to a bulk deletion has a code for each object, and no status


class S3fsClient(FsspecClient):
    """Implements `filestore.storage.client.ObjectClient`.

    Args:
        settings: How to reach S3.

    Attributes:
        credentials: With which it signs requests; None: it does not.
    """

    def __init__(self, settings: S3Settings) -> None:
        found = settings.resolved()
        self.credentials = None if found.anonymous else FoundCredentials(found)
        super().__init__(_file_system(found, self.credentials))
        self._settings = found
        self._uploads = MultipartUploads(found, self.credentials)

    def get(self, path: str) -> bytes:
        """Returns an object by one request: s3fs would ask for its size first, to read large ones in parts."""
        with translated("read", path):
            return bytes(self._files.cat_file(path, max_concurrency=1))

    def get_tail(self, path: str, most: int) -> Tail:
        """Returns the last bytes of an object."""
        with translated("read", path), _s3_errors():
            try:
                found, data = self._get(path, Range=f"bytes=-{most}")
            except ClientError as error:
                if status_of(error) != _RANGE_NOT_SATISFIABLE:
                    raise
                found, data = self._get(path)  # the end of an empty object cannot be asked for
        size = int(found.get("ContentRange", f"/{len(data)}").rpartition("/")[2])
        return Tail(size, whole(path, data, min(most, size)))

    def _get(self, path: str, **how: str) -> tuple[dict[str, Any], bytes]:
        bucket, key = _at(path)
        found = self._files.call_s3("get_object", Bucket=bucket, Key=key, **how)
        try:
            return found, bytes(sync(self._files.loop, found["Body"].read))
        finally:
            self._files.loop.call_soon_threadsafe(found["Body"].close)

    def get_tagged(self, path: str) -> TaggedFile:
        """Returns an object with its tag."""
        with translated("read", path), _s3_errors():
            found, data = self._get(path)
        return TaggedFile(data, _tag(found), int(found["LastModified"].timestamp() * 1000))

    def put_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        """Writes an object on a condition."""
        bucket, key = _at(path)
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": f'"{tag}"'}
        try:
            with translated("write", path), _s3_errors():
                return _tag(self._files.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition))
        except TableStoreError as error:
            refusal = _code(error)
            if refusal == "PreconditionFailed" or (refusal == "NoSuchKey" and tag is not None):
                raise file_changed(path) from error
            raise

    def upload(self, path: str, parts: Iterable[bytes]) -> None:
        """Writes an object in parts."""
        self._uploads.upload(path, parts)

    def list_names(self, folder: str, after: str) -> list[str]:
        """Returns the names of the objects in a folder, by a request for each 1,000 of them."""
        return [found["Key"].rpartition("/")[2] for found in self._listed(folder, after)]

    def list_tagged(self, folder: str) -> dict[str, str]:
        """Returns the tags of the objects in a folder by their names."""
        return {found["Key"].rpartition("/")[2]: _tag(found) for found in self._listed(folder, "")}

    def _listed(self, folder: str, after: str) -> list[dict[str, Any]]:
        bucket, key = _at(folder)
        asked = {"Bucket": bucket, "Prefix": f"{key}/", "Delimiter": "/", "StartAfter": f"{key}/{after}"}
        listed: list[dict[str, Any]] = []
        with translated("list", folder), _s3_errors():
            while True:
                page = self._files.call_s3("list_objects_v2", **asked)
                listed += page.get("Contents", ())
                if not page.get("IsTruncated"):
                    return listed
                asked["ContinuationToken"] = page["NextContinuationToken"]

    def delta_options(self, path: str) -> dict[str, str]:
        """Returns the settings and credentials for object_store in other libraries."""
        return self._settings.delta_options(_at(path)[0])

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes objects, of each bucket by one request; an object that is refused raises an error."""
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = _at(path)
            by_bucket.setdefault(bucket, []).append(key)
        for bucket, keys in by_bucket.items():
            asked = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            with translated("delete", f"s3://{bucket}/{keys[0]}"), _s3_errors():
                found = self._files.call_s3("delete_objects", Bucket=bucket, Delete=asked)
            for error in found.get("Errors", ()):
                if error.get("Code") in _GONE:
                    continue
                with translated("delete", f"s3://{bucket}/{error.get('Key')}"), _s3_errors():
                    inside = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": _OF_ONE_OBJECT}}
                    raise ClientError(inside, "DeleteObjects")


def _tag(found: Mapping[str, Any]) -> str:
    """Returns an ETag without its quotes, as obstore's client does."""
    return str(found["ETag"]).strip('"')


def _code(error: TableStoreError) -> str | None:
    """Returns the code with which S3 has refused a request."""
    refusal = refusal_of(error)
    return None if refusal is None else str(refusal.response.get("Error", {}).get("Code"))


def _at(path: str) -> tuple[str, str]:
    bucket, _, key = path.partition("://")[2].partition("/")
    return bucket, key


@contextmanager
def _s3_errors() -> Iterator[None]:
    """Translates S3's errors to those of Python, as s3fs does in its other calls."""
    try:
        yield
    except ClientError as error:
        raise translate_boto_error(error) from error


def _file_system(settings: S3Settings, credentials: FoundCredentials | None) -> Any:
    from s3fs import S3FileSystem

    made = S3FileSystem(
        skip_instance_cache=True,
        use_listings_cache=False,
        anon=settings.anonymous,
        endpoint_url=settings.endpoint,
        session=None if credentials is None else aio_session(settings, credentials),
        client_kwargs={"region_name": settings.region},
        config_kwargs={
            "connect_timeout": CONNECT_S,
            "read_timeout": REQUEST_S,
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "s3": {"addressing_style": "path" if settings.path_style else "virtual"},
            "http_session_cls": _session_that_repeats_nothing(),
        },
    )
    made.retries = 1  # `filestore.storage.retries` repeats requests
    return made


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
