"""Leases of writers: a file for each commit in progress, locked as long as the process of its writer's driver lives.

A log transaction that no snapshot names belongs to a write in progress or to a dead one. The lock decides which: the
operating system releases it when the process ends, for any reason. A write that succeeds removes its file; an unlocked
file shows every later writer that there may be something to clean up. Leases need a local file system, as the store
itself does for now.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filestore.errors import NotFound
from filestore.layout import DELTA_LOG, LEASES, join
from filestore.refused import refused

__all__ = ["abandoned", "at_work_since_ms", "holds_lease", "lease", "remove_leases"]


@contextmanager
def lease(location: str, commit_id: str) -> Iterator[None]:
    """Holds the lease of a commit until the block or the process ends. After an error the lease's file stays.

    Raises:
        NotFound: ``table-replaced``: the table was dropped. None of its folders and files is created again.
        Unavailable: ``storage-error``.
    """
    path = _path(location, commit_id)
    try:
        _make_folders(location)
        handle = _acquire(path)
    except FileNotFoundError as error:
        raise _dropped(location) from error
    except OSError as error:
        raise refused(f"cannot lock {path}, which a writer does below the table's folder", error) from error
    try:
        if not _there(location):
            raise _dropped(location)
        yield
        _remove(path)
    finally:
        try:
            if not _there(location):
                # the table was dropped meanwhile: no writer will clean up, and the file would disturb the next table
                _remove(path)
        finally:
            os.close(handle)


def holds_lease(location: str, commit_id: str) -> bool:
    """Whether the writer of that commit is still alive.

    REQUIRES: the writer's log transaction exists, so that it has taken its lease before.
    """
    return _locked(_path(location, commit_id))


def abandoned(location: str) -> list[str]:
    """Lists commits whose writers died or failed. A commit that is just beginning may be among them, without writes."""
    folder = Path(join(location, LEASES))
    try:
        found = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    return [commit_id for commit_id in found if not _locked(folder / commit_id)]


def at_work_since_ms(location: str) -> int | None:
    """Returns when the oldest held lease was taken, in milliseconds since 1970 UTC; None if no lease is held."""
    folder = Path(join(location, LEASES))
    began: list[int] = []
    for name in os.listdir(folder) if folder.is_dir() else ():
        with suppress(FileNotFoundError):
            if _locked(folder / name):
                began.append((folder / name).stat().st_mtime_ns // 1_000_000)
    return min(began, default=None)


def remove_leases(location: str, commit_ids: Iterable[str]) -> None:
    """Removes the files of abandoned commits after their clean-up; files that are locked meanwhile stay."""
    for commit_id in commit_ids:
        path = _path(location, commit_id)
        # removed under the lock: a writer that was about to take it finds out in `_acquire`
        with suppress(FileNotFoundError, BlockingIOError), _try_lock(path, fcntl.LOCK_EX):
            path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise refused(f"cannot remove {path}, the lease of a write that has ended", error) from error


def _make_folders(location: str) -> None:
    """Makes the folders of leases.

    IMPORTANT: it makes them one by one, and only in an existing table: a dropped table must not be created again.
    """
    if not _there(location):
        raise _dropped(location)
    folder = Path(join(location, LEASES))
    for level in (folder.parent, folder):
        level.mkdir(exist_ok=True)


def _there(location: str) -> bool:
    return Path(join(location, DELTA_LOG)).is_dir()


def _dropped(location: str) -> NotFound:
    return NotFound(
        f"the table at {location} was dropped, or dropped and made again, since it was opened: open it again",
        code="table-replaced",
    )


def _acquire(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            # `remove_leases` of another process may have removed it before it was locked
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)


def _locked(path: Path) -> bool:
    try:
        with _try_lock(path, fcntl.LOCK_SH):
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


@contextmanager
def _try_lock(path: Path, kind: int) -> Iterator[None]:
    """Locks a file; raises `FileNotFoundError`, or `BlockingIOError` if another process has the lock."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _path(location: str, commit_id: str) -> Path:
    return Path(join(location, LEASES)) / commit_id
