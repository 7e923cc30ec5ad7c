"""Reads locations of warehouses as users write them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from filestore.errors import InvalidRequest
from filestore.storage.schemes import S3_SCHEMES, is_local

__all__ = ["check_for_creation", "is_service", "warehouse_location"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MISREAD_ON_DISK = re.compile(r"[\x00-\x1f\x7f\\]|%[0-9A-Fa-f]{2}")
_SAFE = re.compile(r"[A-Za-z0-9_.~!$&'()+,;@/-]*")


def is_service(target: str) -> bool:
    """Returns whether a catalog is the URL of a service, and not the location of a warehouse."""
    return target.startswith(("http://", "https://"))


def warehouse_location(text: str) -> str:
    """Returns a warehouse's location: an absolute path, or the URL of a folder in a store of objects.

    Hadoop's names of S3, ``s3a`` and ``s3n``, become ``s3``, so that a table has one location for everybody.

    Raises:
        InvalidRequest: ``bad-path``: it is empty, contains NUL, or names the home of an unknown user; or it is a URL
            without a bucket, with a login, query or fragment, or with a path that clients do not take as it is.
    """
    if is_local(text):
        return _local_path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
    scheme, _, rest = text.partition("://")
    rest = rest.rstrip("/")
    host, _, folder = rest.partition("/")
    if "@" in host:
        raise InvalidRequest(
            f"the warehouse's URL {scheme}://…@{_before_query(host.rpartition('@')[2])} contains a login: leave it "
            "out, and set credentials in the environment of each process",
            code="bad-path",
        )
    if not host or "?" in rest or "#" in rest:
        raise InvalidRequest(  # it may be another service's URL, with a login or a password in it
            f"{scheme}://{_before_query(host)}… is not the URL of a warehouse: write it as in s3://bucket/folder, "
            "without ? and #",
            code="bad-path",
        )
    if _CONTROL.search(rest) or (folder and not {"", ".", ".."}.isdisjoint(folder.split("/"))):
        raise InvalidRequest(
            f"the path of the warehouse {text!r} has an empty part, '.', '..' or a control character, which clients of "
            "stores refuse or take for another path: leave it out",
            code="bad-path",
        )
    return f"{'s3' if scheme.lower() in S3_SCHEMES else scheme.lower()}://{rest}"


def check_for_creation(location: str) -> None:
    """Refuses new tables in a warehouse whose path deltalake or polars take for another one.

    Then these could not scan the tables. Those that are there can still be used.

    Raises:
        InvalidRequest: ``bad-path``.
    """
    if is_local(location):
        misread = _MISREAD_ON_DISK.search(location) is not None
        wrong = "a backslash, a control character, or % before two digits or letters from A to F"
    else:
        misread = _SAFE.fullmatch(location.partition("://")[2].partition("/")[2]) is None
        wrong = "other characters than ASCII letters, digits, and _ - . ~ ! $ & ' ( ) + , ; @"
    if misread:
        raise InvalidRequest(
            f"no table can be created in the warehouse {location!r}: its path has {wrong}, and libraries that read "
            "Delta tables would look in another place; take another folder",
            code="bad-path",
        )


def _before_query(host: str) -> str:
    return re.split(r"[?#]", host, maxsplit=1)[0]


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
