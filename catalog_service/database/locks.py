"""Locks of names: they show which process is creating or dropping a database or table right now.

Rule: a process that creates or drops a name holds the name's lock from its first look at the catalog until its last
step. A lock ends with its process, so a row that is not ACTIVE and whose lock is free was left by a crash, and
the process that gets the lock may finish it at once. A lease with a time-out would allow that a minute later, and
wrongly where a slow step outlives the lease or clocks differ.

A lock in PostgreSQL can also end before its process, with the session that has it: the server restarts, or an
administrator ends the session. So a holder calls `NameLocks.check` before each step outside of the database, and every
change of a row names the state that it changes (`catalog_service.database.repository`).

Locks nest in one order only: a database, then tables of it in the order of their names. Only a hidden name, which no
other process can know yet, is locked after others.
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

from catalog_service.database.url import shown_url
from filestore.ambient import Ambient
from filestore.errors import Unavailable, Unsupported
from filestore.refused import refused

__all__ = ["LOCK_LOST", "AdvisoryLocks", "FileLocks", "NameLocks", "lock_lost"]

logger = logging.getLogger(__name__)

LOCK_LOST = "lock-lost"
WAIT_S = 30.0
_POLL_S = 0.02
_POOL_PROBES = 4
# A lock of 64 bits is stored as two halves, and objsubid = 1 says so.
_IS_HELD = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid() AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (CAST(classid AS BIGINT) << 32) | CAST(objid AS BIGINT) = :key
"""


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

    def check(self, name: str) -> None:
        """Checks that the lock, which a block here holds, was not lost. REQUIRES: it is held.

        Raises:
            Unavailable: ``lock-lost``: another process may hold it now, so the block must change nothing more.
        """

    def start(self) -> None:
        """Prepares what locking needs, so that a database that cannot lock is refused at once.

        Raises:
            Unsupported: ``database-pooling``.
            Unavailable: the database does not answer.
        """

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

    def check(self, name: str) -> None:
        """Does nothing: a lock is part of an open file, which only this process closes."""

    def start(self) -> None:
        """Does nothing: the folder is created with the first lock."""

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
        engine: An engine without a pool, so that a session ends when it is closed.
        ambient: It makes the pauses between attempts.
        wait_s: How many seconds to wait for a lock.
    """

    def __init__(self, engine: Engine, ambient: Ambient, wait_s: float = WAIT_S) -> None:
        self._engine = engine
        self._ambient = ambient
        self._wait_s = wait_s
        self._turn = threading.Lock()
        self._held: dict[str, Connection] = {}  # each name with the session that locked it
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

    def check(self, name: str) -> None:
        """Asks the server, since a session that ended on its side looks open here."""
        with self._turn:
            session = self._held[name]
            if session is not self._session:
                raise lock_lost(name, "its session has ended")
            try:
                found = session.scalar(text(_IS_HELD), {"key": _key_of(name)})
            except SQLAlchemyError as error:
                self._end_session()
                raise lock_lost(name, error) from error
            if not found:
                raise lock_lost(name, "its session has it no more")

    def start(self) -> None:
        """Opens the session, unless it is open."""
        with self._turns("connect"):
            self._ready("connect")

    def close(self) -> None:
        """Ends the session, and with it every lock."""
        with self._turn:
            self._end_session()
        self._engine.dispose()

    def _acquire(self, name: str) -> bool:
        with self._turns(name):
            if name in self._held:
                return False
            session = self._ready(name)
            try:
                got = bool(session.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _key_of(name)}))
            except SQLAlchemyError as error:
                self._end_session()
                raise _cannot_lock(name, error) from error
            if got:
                self._held[name] = session
            return got

    def _release(self, name: str) -> None:
        with self._turn:
            session = self._held.pop(name)
            if session is not self._session:
                return  # the server released it when it lost the session
            try:
                session.scalar(text("SELECT pg_advisory_unlock(:key)"), {"key": _key_of(name)})
            except SQLAlchemyError as error:
                # The server releases the locks of a session that it lost, also those of other threads here, as it
                # would if each had a connection.
                logger.warning("the session of the catalog's locks is lost: %s", error)
                self._end_session()

    @contextmanager
    def _turns(self, name: str) -> Iterator[None]:
        """Waits no longer for other threads than for a lock: each may wait for a server that does not answer."""
        if not self._turn.acquire(timeout=self._wait_s):
            raise _cannot_lock(name, "it has not answered other requests")
        try:
            yield
        finally:
            self._turn.release()

    def _ready(self, name: str) -> Connection:
        """Returns a session that is alive; a new one, if the last one is gone."""
        try:
            if self._session is not None and not any(held is self._session for held in self._held.values()):
                self._session.scalar(text("SELECT 1"))  # an idle session may be gone
        except SQLAlchemyError:
            self._end_session()
        try:
            if self._session is None:
                session = self._connect()
                try:
                    self._require_sessions(session)
                except BaseException:
                    session.close()
                    raise
                self._session = session
        except SQLAlchemyError as error:
            raise _cannot_lock(name, error) from error
        return self._session

    def _connect(self) -> Connection:
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _require_sessions(self, session: Connection) -> None:
        """Raises `Unsupported` if a proxy gives each transaction any of its connections: a lock would have no owner.

        A proxy shows by the process id that it announced to the client instead of the server's. With a pool by session
        two clients have two server processes, and each keeps its own.
        """
        announced = getattr(getattr(session.connection.dbapi_connection, "info", None), "backend_pid", None)
        if announced is None or announced == _backend_of(session):
            return
        with self._connect() as other:
            seen = [(_backend_of(session), _backend_of(other)) for _ in range(_POOL_PROBES)]
        one, two = ({pair[side] for pair in seen} for side in (0, 1))
        if len(one) > 1 or len(two) > 1 or one == two:
            raise Unsupported(
                f"a proxy before the catalog's database {shown_url(self._engine.url)} (such as PgBouncer) "
                "pools by transaction or by statement, and the catalog's locks need sessions: set pool_mode = session "
                "for this database, or connect to PostgreSQL itself",
                code="database-pooling",
            )

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.invalidate()
            session.close()


def _backend_of(session: Connection) -> object:
    return session.scalar(text("SELECT pg_backend_pid()"))


def _key_of(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _cannot_lock(name: str, reason: object) -> Unavailable:
    return Unavailable(
        f"cannot lock {name!r} in the catalog's database: {_text_of(reason)}; retry",
        code="catalog-unavailable",
    )


def lock_lost(name: str, reason: object) -> Unavailable:
    """The error of a block whose lock another process may hold."""
    return Unavailable(
        f"the lock of {name!r} in the catalog's database was lost ({_text_of(reason)}), and this request stopped "
        "half-way: retry, which completes or undoes it",
        code=LOCK_LOST,
    )


def _text_of(reason: object) -> str:
    """Returns the server's text, without the statement that SQLAlchemy adds."""
    cause = getattr(reason, "orig", None) or reason
    return " ".join(str(cause).split())


def _busy(name: str, wait_s: float) -> Unavailable:
    return Unavailable(
        f"another request has been creating or dropping {name!r} for {wait_s:g} s: retry when it is done",
        code="busy",
    )
