"""Removes files that an operation wrote and that no version names."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from filestore.delta.vectors import stored_paths
from filestore.errors import Unavailable
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile
from filestore.storage.local import writing

__all__ = ["discard", "remove", "write_file"]

logger = logging.getLogger(__name__)


def discard(table: TableFiles, files: Iterable[DataFile], keep: Iterable[DataFile] = ()) -> None:
    """Removes data files, and their vectors, that nothing refers to."""
    remove(table, stored_paths(files) - stored_paths(keep))


def remove(table: TableFiles, paths: Iterable[str]) -> None:
    """Removes files that nothing refers to. One that cannot be removed stays as an orphan, which the doctor lists."""
    listed = sorted(paths)
    try:
        table.storage.delete_all([table.path(path) for path in listed])
    except Unavailable:
        for path in listed:  # each for itself, so that one that is refused keeps no other
            try:
                table.storage.delete(table.path(path))
            except Unavailable as error:
                logger.warning("%s could not be removed: %s", path, error)


def write_file(table: TableFiles, path: str, content: bytes) -> None:
    """Writes a small file and makes it durable; after a failure it removes what may be there all the same.

    Args:
        table: The table.
        path: The file's path, relative to the table, at which no file exists yet.
        content: All of its bytes.

    Raises:
        Unavailable: the storage failed.
    """
    try:
        with writing(table.path(path)), table.storage.open_write(table.path(path)) as file:
            file.write(content)
        table.sync(path)
    except Unavailable:
        remove(table, [path])
        raise
