"""`RenewedClient`: a client of S3 that goes on with other credentials when the store refuses those that it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from filestore.storage.client import ObjectClient, Tail
from filestore.storage.credentials import FoundCredentials, renewing
from filestore.storage.interface import ByteRange, FileInfo, TaggedFile

__all__ = ["RenewedClient"]


class RenewedClient:
    """Implements `filestore.storage.client.ObjectClient`.

    The error of a refused request is ``storage-busy`` if other credentials were found, so it is repeated with them.

    Args:
        client: It takes the credentials as of each request.
        credentials: Its credentials.
    """

    def __init__(self, client: ObjectClient, credentials: FoundCredentials) -> None:
        self._client = client
        self._credentials = credentials

    def get(self, path: str) -> bytes:
        """Returns an object."""
        with renewing(self._credentials):
            return self._client.get(path)

    def get_tail(self, path: str, most: int) -> Tail:
        """Returns the last bytes of an object."""
        with renewing(self._credentials):
            return self._client.get_tail(path, most)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Returns ranges of an object."""
        with renewing(self._credentials):
            return self._client.get_ranges(path, ranges)

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Writes an object."""
        with renewing(self._credentials):
            self._client.put(path, data, create=create)

    def get_tagged(self, path: str) -> TaggedFile:
        """Returns an object with its tag."""
        with renewing(self._credentials):
            return self._client.get_tagged(path)

    def put_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        """Writes an object on a condition."""
        with renewing(self._credentials):
            return self._client.put_tagged(path, data, tag)

    def list_tagged(self, folder: str) -> dict[str, str]:
        """Returns the tags of the objects in a folder."""
        with renewing(self._credentials):
            return self._client.list_tagged(folder)

    def upload(self, path: str, parts: Iterable[bytes]) -> None:
        """Writes an object in parts: `MultipartUploads` goes on with other credentials by itself."""
        self._client.upload(path, parts)

    def exists(self, path: str) -> bool:
        """Returns whether there is such an object."""
        with renewing(self._credentials):
            return self._client.exists(path)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        """Yields all objects below a folder."""
        with renewing(self._credentials):
            yield from self._client.walk(folder)

    def list_names(self, folder: str, after: str) -> list[str]:
        """Returns the names of the objects in a folder."""
        with renewing(self._credentials):
            return self._client.list_names(folder, after)

    def delta_options(self, path: str) -> dict[str, str]:
        """Returns the settings and credentials for other libraries, which are looked for at each call."""
        return self._client.delta_options(path)

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes objects."""
        with renewing(self._credentials):
            self._client.delete(paths)
