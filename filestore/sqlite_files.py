"""Opens SQLite files also where nothing can be written.

SQLite reads a file in WAL mode through an index beside it (``-shm``), which it creates when the first process opens the
file. That fails on a full disk, on a file system that is mounted read-only, and in a folder of another user. Then there
are two ways:

- If ``-wal`` has no changes, the file is opened as immutable, and `Connection.read_was_consistent` checks after each
  read that no process has changed it during the read.
- If it has changes, SQLite keeps the index in memory, which needs the right to lock the file. Without that right
  the file cannot be read, since an immutable connection would not see these changes.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["REFUSALS", "Connection", "is_refusal", "open_sqlite", "why_refused"]

REFUSALS = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_FULL")
"""The beginnings of the names of errors by which SQLite reports that the disk did not let it read or write."""

_PROBE_BYTES = 65_536  # more than SQLite writes when it opens a file

_Fingerprint = tuple[int, int, int, int]


class Connection(sqlite3.Connection):
    """A connection that says whether it can only read because the disk takes no writes."""

    is_fallback: bool = False
    path: Path
    fingerprint: _Fingerprint | None = None

    def read_was_consistent(self) -> bool:
        """Returns whether a read saw one state of the file: False if another process changed an immutable file."""
        return self.fingerprint is None or self.fingerprint == _fingerprint(self.path)


def open_sqlite(path: Path, *, create: bool, **settings: Any) -> Connection:
    """Opens a file; only for reading if the disk takes no writes.

    Args:
        path: The file.
        create: Whether to create a missing file.
        settings: Arguments of `sqlite3.connect`.

    Raises:
        sqlite3.OperationalError: the file cannot be read either; `why_refused` may find the cause.
    """
    try:
        return _opened(path, "mode=rwc" if create else "mode=rw", settings)
    except sqlite3.OperationalError as error:
        if not is_refusal(error) or not os.path.exists(path):  # False, too, without the right to look
            raise
        connection = _fallback(path, settings)
        if connection is None:
            raise
        return connection


def is_refusal(error: BaseException) -> bool:
    """Returns whether SQLite reports that the disk did not let it read or write."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(REFUSALS)


def why_refused(path: Path) -> OSError | None:
    """Finds out why a file and its companions cannot be written. None if they can be, by now."""
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
        connection.execute("PRAGMA schema_version").fetchone()  # SQLite opens the WAL and its index on the first read
    except (sqlite3.Error, UnicodeDecodeError):  # a message of SQLite quotes the damaged bytes
        connection.close()
        raise
    connection.path = path
    return connection


def _fallback(path: Path, settings: dict[str, Any]) -> Connection | None:
    fingerprint = _fingerprint(path)
    try:
        if fingerprint[-1] == 0:
            connection = _opened(path, "immutable=1", settings)
            connection.fingerprint = fingerprint
        else:
            connection = _opened(path, "mode=rw", settings, exclusive=True)
    except sqlite3.OperationalError:
        return None  # the first error has more details
    connection.is_fallback = True
    return connection


def _fingerprint(path: Path) -> _Fingerprint:
    """A fingerprint that differs after every change of the file: its identity, size and time, and its WAL's size."""
    found = path.stat()
    wal = path.with_name(f"{path.name}-wal")
    return found.st_ino, found.st_size, found.st_mtime_ns, wal.stat().st_size if wal.exists() else 0
