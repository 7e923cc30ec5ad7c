"""Reads locations of warehouses as users write them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from filestore.errors import InvalidRequest
from filestore.storage.schemes import S3_SCHEMES, is_local

__all__ = ["is_service", "warehouse_location"]


def is_service(target: str) -> bool:
    """Whether a catalog is the URL of a service, and not the location of a warehouse."""
    return target.startswith(("http://", "https://"))


def warehouse_location(text: str) -> str:
    """Returns a warehouse's location: an absolute path, or the URL of a folder in a store of objects.

    Hadoop's names of S3, ``s3a`` and ``s3n``, become ``s3``, so that a table has one location for everybody.

    Raises:
        InvalidRequest: ``bad-path``: it is empty, contains NUL, or names the home of an unknown user; or it is a URL
            without a bucket, or with a login, query or fragment.
    """
    if is_local(text):
        return _local_path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
    scheme, _, rest = text.partition("://")
    parts = urlsplit(text)
    if "@" in parts.netloc:
        raise InvalidRequest(
            f"the warehouse's URL {scheme}://…@{parts.netloc.rpartition('@')[2]} contains a login: leave it out, and "
            "set credentials in the environment of each process",
            code="bad-path",
        )
    if not parts.netloc or parts.query or parts.fragment or "\0" in rest:
        raise InvalidRequest(
            f"{text!r} is not the URL of a warehouse: write it as in s3://bucket/folder", code="bad-path"
        )
    scheme = "s3" if scheme.lower() in S3_SCHEMES else scheme.lower()
    return f"{scheme}://{rest.rstrip('/')}"


def _local_path(path: str) -> str:
    """Returns a warehouse's path as an absolute one, with ``~`` resolved as in a shell.

    Raises:
        InvalidRequest: ``bad-path``: it is empty, contains NUL, or names the home of an unknown user.
    """
    if not path or "\0" in path:
        raise InvalidRequest(
            f"{path!r} is not the path of a warehouse: name a folder, '.' for this one", code="bad-path"
        )
    try:
        return str(Path(path).expanduser().absolute())
    except RuntimeError as error:
        raise InvalidRequest(f"warehouse {path!r}: {error}; write the whole path", code="bad-path") from error
