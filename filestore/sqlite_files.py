"""SQLite files that can also be read where nothing can be written.

A file in WAL mode is read through an index beside it (``-shm``), which SQLite makes when the first process opens the
file. That fails on a full disk, on a file system that is mounted read-only, and in a folder that belongs to somebody
else. Then there are two ways:

- No changes wait in ``-wal``: the file is opened as immutable, and `Connection.undisturbed` proves after each read that
  nobody changed it meanwhile.
- Changes wait there: SQLite keeps the index in memory, which needs the right to lock the file. Without that right
  the file cannot be read, since an immutable one would lack these changes.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["Connection", "is_refusal", "open_sqlite", "why_refused"]

_REFUSALS = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_FULL")
_PROBE_BYTES = 65_536  # more than SQLite writes to open a file

_Seal = tuple[int, int, int, int]


class Connection(sqlite3.Connection):
    """A connection that knows whether it only stands in for one that could write."""

    stands_in: bool = False
    path: Path
    seal: _Seal | None = None

    def undisturbed(self) -> bool:
        """Whether all that was read is of one state of the file: False if another process changed an immutable one."""
        return self.seal is None or self.seal == _seal(self.path)


def open_sqlite(path: Path, *, create: bool, **settings: Any) -> Connection:
    """Opens a file; for reading alone if the disk takes no writes.

    Args:
        path: The file.
        create: Whether it is made if it is not there.
        settings: For `sqlite3.connect`.

    Raises:
        sqlite3.OperationalError: it cannot be read either; `why_refused` may know why.
    """
    try:
        return _opened(path, "mode=rwc" if create else "mode=rw", settings)
    except sqlite3.OperationalError as error:
        if not is_refusal(error) or not path.exists():
            raise
        connection = _stand_in(path, settings)
        if connection is None:
            raise
        return connection


def is_refusal(error: BaseException) -> bool:
    """Whether SQLite says that the disk did not let it read or write."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(_REFUSALS)


def why_refused(path: Path) -> OSError | None:
    """Why a file and its companions cannot be written, which SQLite does not say. None if they can be, by now."""
    try:
        os.close(os.open(path if path.exists() else path.parent, os.O_RDWR if path.exists() else os.O_RDONLY))
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error
    return None


def _opened(path: Path, query: str, settings: dict[str, Any], *, exclusive: bool = False) -> Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{query}", uri=True, factory=Connection, **settings)
    try:
        if exclusive:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        connection.execute("PRAGMA schema_version").fetchone()  # the first look is what opens the WAL and its index
    except sqlite3.Error:
        connection.close()
        raise
    connection.path = path
    return connection


def _stand_in(path: Path, settings: dict[str, Any]) -> Connection | None:
    seal = _seal(path)
    try:
        if seal[-1] == 0:
            connection = _opened(path, "immutable=1", settings)
            connection.seal = seal
        else:
            connection = _opened(path, "mode=rw", settings, exclusive=True)
    except sqlite3.OperationalError:
        return None  # the first error says more
    connection.stands_in = True
    return connection


def _seal(path: Path) -> _Seal:
    """What differs as soon as anybody has changed the file: its identity, size and time, and the size of its WAL."""
    found = path.stat()
    wal = path.with_name(f"{path.name}-wal")
    return found.st_ino, found.st_size, found.st_mtime_ns, wal.stat().st_size if wal.exists() else 0
