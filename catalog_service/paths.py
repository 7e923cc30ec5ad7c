"""Reads paths of warehouses as users write them."""

from __future__ import annotations

from pathlib import Path

from filestore.errors import InvalidRequest

__all__ = ["local_path"]


def local_path(path: str) -> str:
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
