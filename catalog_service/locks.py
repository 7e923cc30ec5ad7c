"""Locks of names: they show which process is creating or dropping a database or table right now.

Rule: a process that creates or drops a name holds the name's lock from its first look at the catalog until its last
step. A lock ends with its process, so a row that is not ACTIVE and whose lock is free was left by a crash, and
the process that gets the lock may finish it at once. A lease with a time-out would allow that a minute later, and
wrongly where a slow step outlives the lease or clocks differ.

Locks nest in one order only: a database, then a table of it. No process locks two tables at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from filestore.ambient import Ambient
from filestore.errors import Unavailable
from filestore.refused import refused

__all__ = ["AdvisoryLocks", "FileLocks", "NameLocks"]

logger = logging.getLogger(__name__)

WAIT_S = 30.0
_POLL_S = 0.02


class NameLocks(Protocol):
    """Locks that are exclusive among threads, processes and (if the catalog is shared by hosts) hosts."""

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Waits for the name's lock, and holds it during the block.

        Raises:
            Unavailable: ``busy``: another holder has kept it for `WAIT_S` seconds.
        """
        yield

    @contextmanager
    def try_hold(self, name: str) -> Iterator[bool]:
        """Holds the name's lock if it is free; yields whether it was."""
        yield False

    def close(self) -> None:
        """Releases what locking needs."""


class FileLocks:
    """Locks processes of one machine against each other, for a catalog in SQLite: `flock` on a file for each name.

    The files exist only while they are locked, or after a crash until the name is locked again.
    """

    def __init__(self, folder: Path, ambient: Ambient, wait_s: float = WAIT_S) -> None:
        self._folder = folder
        self._ambient = ambient
        self._wait_s = wait_s

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Waits by polling, since `flock` has no time-out."""
        for _ in range(max(1, ceil(self._wait_s / _POLL_S))):
            handle = self._acquire(name)
            if handle is not None:
                break
            self._ambient.sleep(_POLL_S)
        else:
            raise _busy(name, self._wait_s)
        try:
            yield
        finally:
            self._release(name, handle)

    @contextmanager
    def try_hold(self, name: str) -> Iterator[bool]:
        """Makes one attempt."""
        handle = self._acquire(name)
        try:
            yield handle is not None
        finally:
            if handle is not None:
                self._release(name, handle)

    def close(self) -> None:
        """Does nothing: no lock is kept."""

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def _acquire(self, name: str) -> int | None:
        path = self._path(name)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            what = f"cannot lock {path}, so nothing was changed"
            raise refused(what, error, "catalog-read-only", read_only="catalog-read-only") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(handle, path):
                return handle
        except BlockingIOError:
            pass
        os.close(handle)
        return None

    def _release(self, name: str, handle: int) -> None:
        # The file is removed while it is locked: a waiter that opened it sees, once it has the lock, that the name
        # belongs to another file by now.
        self._path(name).unlink(missing_ok=True)
        os.close(handle)


class AdvisoryLocks:
    """PostgreSQL's session locks: they end with the session, and hold for all clients of the database.

    One session holds all locks of a process, on an engine of its own: the work under a lock needs connections too, and
    must not wait for those of other locks. PostgreSQL grants a session the same lock twice, so this class itself
    excludes the process's own threads.

    Args:
        engine: An engine with one connection.
        ambient: It makes the pauses between attempts.
        wait_s: How many seconds to wait for a lock.
    """

    def __init__(self, engine: Engine, ambient: Ambient, wait_s: float = WAIT_S) -> None:
        self._engine = engine
        self._ambient = ambient
        self._wait_s = wait_s
        self._turn = threading.Lock()
        self._held: set[str] = set()
        self._session: Connection | None = None

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Waits by polling, as the file locks do; it asks the server only for names that no thread here holds."""
        for _ in range(max(1, ceil(self._wait_s / _POLL_S))):
            with self.try_hold(name) as held:
                if held:
                    yield
                    return
            self._ambient.sleep(_POLL_S)
        raise _busy(name, self._wait_s)

    @contextmanager
    def try_hold(self, name: str) -> Iterator[bool]:
        """Makes one attempt."""
        held = self._acquire(name)
        try:
            yield held
        finally:
            if held:
                self._release(name)

    def close(self) -> None:
        """Ends the session, and with it every lock."""
        with self._turn:
            self._end_session()
        self._engine.dispose()

    def _acquire(self, name: str) -> bool:
        with self._turn:
            if name in self._held:
                return False
            try:
                if self._session is not None and not self._held:
                    # An idle session may be gone. A session with locks is not replaced silently.
                    self._ask("SELECT 1")
            except SQLAlchemyError:
                self._end_session()
            try:
                got = bool(self._ask("SELECT pg_try_advisory_lock(:key)", key=_key_of(name)))
            except SQLAlchemyError as error:
                self._end_session()
                raise Unavailable(
                    f"cannot lock {name!r} in the catalog's database: {error}", code="catalog-unavailable"
                ) from error
            if got:
                self._held.add(name)
            return got

    def _release(self, name: str) -> None:
        with self._turn:
            self._held.discard(name)
            try:
                if self._session is not None:
                    self._ask("SELECT pg_advisory_unlock(:key)", key=_key_of(name))
            except SQLAlchemyError as error:
                # The server releases the locks of a session that it lost, also those of other threads here, as it
                # would if each had a connection.
                logger.warning("the session of the catalog's locks is lost: %s", error)
                self._end_session()

    def _ask(self, statement: str, **values: int) -> object:
        if self._session is None:
            self._session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._session.scalar(text(statement), values)

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.invalidate()
            session.close()


def _key_of(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _busy(name: str, wait_s: float) -> Unavailable:
    return Unavailable(
        f"another request has been creating or dropping {name!r} for {wait_s:g} s: retry when it is done",
        code="busy",
    )
