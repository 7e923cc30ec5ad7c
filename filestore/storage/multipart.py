"""`MultipartUploads`: large objects in S3, uploaded in parts through botocore (S3's multipart upload).

Both clients of S3 use it, since neither obstore nor s3fs repeats each of the requests of an upload: a lost reply to the
first or the last one would fail the whole upload, whose bytes nobody has any more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from filestore.errors import NotFound, TableStoreError, Unavailable
from filestore.storage.credentials import FoundCredentials, plain_session, renewing
from filestore.storage.refusals import failed, no_bucket, no_file, status_of
from filestore.storage.retries import repeated
from filestore.storage.s3_settings import S3Settings, plain_client

__all__ = ["MultipartUploads"]

_PARTS_AT_ONCE = 3
_THREADS = 12
_NO_UPLOAD = "no-upload"


@dataclass(frozen=True, slots=True)
class _Upload:
    """An upload that has begun."""

    path: str
    id: str

    @property
    def object(self) -> dict[str, str]:
        """The arguments that name its object."""
        return _object(self.path)

    @property
    def named(self) -> dict[str, str]:
        """The arguments that name it."""
        return self.object | {"UploadId": self.id}


class MultipartUploads:
    """Uploads objects in parts. It connects at the first upload; threads may share it.

    Args:
        settings: How to reach S3. REQUIRES: they are resolved.
        credentials: With which requests are signed; None: they are not.
    """

    def __init__(self, settings: S3Settings, credentials: FoundCredentials | None) -> None:
        self._settings = settings
        self._credentials = credentials
        self._lock = threading.Lock()
        self._client: Any = None
        self._pool = ThreadPoolExecutor(_THREADS, "upload-part")

    def upload(self, path: str, parts: Iterable[bytes]) -> None:
        """Writes an object; each request is repeated within bounds. It holds `_PARTS_AT_ONCE` parts in memory.

        Args:
            path: The object; nobody else writes one of that name.
            parts: All but the last have 5 MB or more. If they raise an error, no object is written.
        """
        begun = repeated(lambda: self._ask("create_multipart_upload", path, **_object(path)))
        upload = _Upload(path, begun["UploadId"])
        try:
            sent, size = self._send(upload, parts)
            self._complete(upload, sent, size)
        except BaseException:
            with suppress(TableStoreError):  # the error that led here counts; a rule of the bucket removes what is left
                repeated(lambda: self._ask("abort_multipart_upload", path, **upload.named))
            raise

    def _send(self, upload: _Upload, parts: Iterable[bytes]) -> tuple[list[dict[str, Any]], int]:
        sent: list[dict[str, Any]] = []
        waiting: deque[Future[dict[str, Any]]] = deque()
        size = 0
        try:
            for number, part in enumerate(parts, 1):
                size += len(part)
                if len(waiting) == _PARTS_AT_ONCE:
                    sent.append(waiting.popleft().result())
                waiting.append(self._submit(upload, number, part))
            sent += [future.result() for future in waiting]
        finally:
            for future in waiting:
                future.cancel()
            wait(waiting)  # parts that arrive after the upload was given up would stay
        return sent, size

    def _submit(self, upload: _Upload, number: int, part: bytes) -> Future[dict[str, Any]]:
        def put() -> dict[str, Any]:
            reply = self._ask("upload_part", upload.path, **upload.named, PartNumber=number, Body=part)
            return {"PartNumber": number, "ETag": reply["ETag"]}

        try:
            return self._pool.submit(repeated, put)
        except RuntimeError as error:
            raise Unavailable(f"cannot write {upload.path}: this process is shutting down") from error

    def _complete(self, upload: _Upload, sent: list[dict[str, Any]], size: int) -> None:
        """Makes the parts an object. If a reply was lost, its size shows whether the request has succeeded."""
        whole = {"Parts": sent}
        try:
            repeated(lambda: self._ask("complete_multipart_upload", upload.path, **upload.named, MultipartUpload=whole))
        except (NotFound, Unavailable) as error:
            if error.code == "no-bucket" or self._size(upload) != size:
                raise

    def _size(self, upload: _Upload) -> int:
        try:
            return int(repeated(lambda: self._ask("head_object", upload.path, **upload.object))["ContentLength"])
        except TableStoreError:  # the caller raises what happened before
            return -1

    def _ask(self, operation: str, path: str, **arguments: Any) -> dict[str, Any]:
        with renewing(self._credentials), _errors(path):
            call: Callable[..., dict[str, Any]] = getattr(self._connected(), operation)
            return call(**arguments)

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                session = None if self._credentials is None else plain_session(self._settings, self._credentials)
                self._client = plain_client(self._settings, _THREADS, session)
            return self._client


def _object(path: str) -> dict[str, str]:
    bucket, _, key = path.partition("://")[2].partition("/")
    return {"Bucket": bucket, "Key": key}


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Translates botocore's errors."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code == "NoSuchBucket":
            raise no_bucket("write", path) from error
        if code == "NoSuchUpload":
            raise NotFound(
                f"cannot write {path}: its upload was ended meanwhile, perhaps by a rule of the bucket; retry",
                code=_NO_UPLOAD,
            ) from error
        if code in ("NoSuchKey", "404"):
            raise no_file(path) from error
        raise failed("write", path, error, status_of(error)) from error
    except (BotoCoreError, OSError) as error:
        raise failed("write", path, error, None) from error
