"""Looks at every byte of a Parquet file: they are those that were written (FORMAT.md section 12.2).

Other checks decode what they need, and a file has more than that: an index by which another reader skips rows, say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from filestore.delta.vectors import positions
from filestore.errors import Corrupt, TableStoreError
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile, Tombstones
from filestore.threads import in_threads
from filestore.unreadable import is_unreadable

__all__ = ["damage_of", "is_checksum", "require_undamaged", "restoring"]


def damage_of(parquet: ParquetReader) -> str | None:
    """Describes which bytes of a file are damaged; None if none are, or if the file has no checksums.

    Raises:
        Corrupt: the footer is damaged, or this is no Parquet file.
    """
    damaged = parquet.damaged()
    if not damaged:
        return None
    (start, end), *others = damaged
    more = f" and {len(others)} other parts" if others else ""
    return f"is damaged: its bytes {start} to {end - 1}{more} are not those that were written"


def is_checksum(error: Corrupt) -> bool:
    """Returns whether an error says that bytes differ from their checksum."""
    return error.code == "checksum"


def require_undamaged(
    table: TableFiles, files: Iterable[DataFile], runs: Iterable[Tombstones], version: int, *, whole: bool
) -> None:
    """Reads the files that a version needs, before it is restored.

    Args:
        table: The table.
        files: The data files.
        runs: The runs.
        version: The version.
        whole: Whether every byte is read; otherwise the files have to be there, with their footers and vectors.

    Raises:
        Corrupt: ``restored-file``: a file is damaged or missing.
    """
    listed = list(files)
    paths = [*(file.path for file in listed), *(run.path for run in runs)]
    with restoring(version):
        if paths:
            in_threads("restored", lambda path: _require_readable(table, path, whole=whole), paths, lambda _: None)
        for file in listed:
            positions(table.storage, table.location, file.vector)


@contextmanager
def restoring(version: int) -> Iterator[None]:
    """Surrounds the reading of files that a version needs which is restored.

    Raises:
        Corrupt: ``restored-file``: a file is damaged or missing.
    """
    try:
        yield
    except TableStoreError as error:
        if not is_unreadable(error):
            raise
        raise Corrupt(
            f"version {version} needs a file that cannot be read: choose a version before that file was written, or "
            f"restore the file from a backup ({error.message})",
            code="restored-file",
        ) from error


def _require_readable(table: TableFiles, path: str, *, whole: bool) -> None:
    with ParquetReader(table.storage, table.path(path)) as parquet:
        _ = parquet.footer  # it raises the error of one that is damaged
        if whole and (damage := damage_of(parquet)) is not None:
            raise Corrupt(f"{path} {damage}", code="checksum")
