"""What a compaction wrote and nobody names."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from filestore.delta.vectors import vector_file
from filestore.errors import Unavailable
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile

__all__ = ["discard", "remove"]

logger = logging.getLogger(__name__)


def discard(table: TableFiles, files: Iterable[DataFile], keep: Iterable[DataFile] = ()) -> None:
    """Removes data files, and their vectors, that nothing refers to."""
    remove(table, _paths(files) - _paths(keep))


def remove(table: TableFiles, paths: Iterable[str]) -> None:
    """Removes files that nothing refers to; what cannot be removed now is an orphan for the doctor to list."""
    for path in sorted(paths):
        try:
            table.storage.delete(table.path(path))
        except Unavailable as error:
            logger.warning("%s stays behind: %s", path, error)


def _paths(files: Iterable[DataFile]) -> set[str]:
    listed = list(files)
    return {f.path for f in listed} | {vector_file(f.vector) for f in listed if f.vector}
