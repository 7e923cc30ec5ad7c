"""The schemes of locations: which of them are on a local disk, and which are S3's. It loads no library."""

from __future__ import annotations

__all__ = ["S3_SCHEMES", "is_local", "root_of", "scheme_of"]

S3_SCHEMES = ("s3", "s3a", "s3n")
"""S3's, and Hadoop's names of it."""


def is_local(location: str) -> bool:
    """Returns whether a location is on this machine's disks (or mounted there): a path, or a ``file:`` URL."""
    return scheme_of(location) in ("", "file")


def scheme_of(location: str) -> str:
    """Returns the scheme of a URL in lower case; an empty text for a path. Hadoop writes ``file:/path``, too."""
    if location.startswith("file:/"):
        return "file"
    scheme, separator, _ = location.partition("://")
    return scheme.lower() if separator else ""


def root_of(location: str) -> str:
    """Returns a URL's scheme and host, as in ``hdfs://name:8020``; an empty text for a location on a local disk."""
    if is_local(location):
        return ""
    scheme, _, rest = location.partition("://")
    return f"{scheme.lower()}://{rest.partition('/')[0]}"
