"""Leases as locked files: a file for each commit in progress, locked as long as the process of its driver lives.

The operating system releases the lock when the process ends, for any reason. So a writer without its lock is dead, and
nothing has to be renewed. A write that succeeds removes its file; an unlocked file shows every later writer that there
may be something to clean up.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filestore.errors import NotFound, Unavailable
from filestore.layout import DELTA_LOG, LEASES, join
from filestore.refused import refused

__all__ = ["LockedLeases"]


class LockedLeases:
    """Implements `filestore.leases.interface.WriterLeases` on a local file system.

    Args:
        location: The table's folder.
    """

    certain = True

    def __init__(self, location: str) -> None:
        self._location = location.removeprefix("file://")

    @contextmanager
    def hold(self, commit_id: str) -> Iterator[None]:
        """Locks the commit's file."""
        path = self._path(commit_id)
        try:
            self._make_folders()
            handle = _acquire(path)
        except FileNotFoundError as error:
            raise self._dropped() from error
        except OSError as error:
            raise refused(f"cannot lock {path}, which a writer does below the table's folder", error) from error
        try:
            if not self._there():
                raise self._dropped()
            yield
            _remove(path)
        finally:
            try:
                if not self._there():
                    # the table was dropped meanwhile: no writer will clean up, and the file would disturb the next one
                    _remove(path)
            finally:
                os.close(handle)

    def dead_among(self, commit_ids: Collection[str]) -> set[str]:
        """Returns those without a lock."""
        return {commit_id for commit_id in commit_ids if not _locked(self._path(commit_id))}

    def abandoned(self) -> list[str]:
        """Lists the files without a lock."""
        return [name for name in self._names() if not _locked(self._path(name))]

    def wait_until_known(self) -> None:
        """Does nothing: a lock says at once whether its process lives."""

    def at_work_since_ms(self) -> int | None:
        """Returns when the oldest locked file was made."""
        began: list[int] = []
        for name in self._names():
            path = self._path(name)
            try:
                if _locked(path):
                    began.append(path.stat().st_mtime_ns // 1_000_000)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise _refused(str(path), error) from error
        return min(began, default=None)

    def remove(self, commit_ids: Iterable[str]) -> None:
        """Removes files under their locks: a writer that was about to take one finds out in `_acquire`."""
        for commit_id in commit_ids:
            path = self._path(commit_id)
            try:
                with _try_lock(path, fcntl.LOCK_EX):
                    path.unlink(missing_ok=True)
            except (FileNotFoundError, BlockingIOError):
                pass
            except OSError as error:
                raise _refused(str(path), error) from error

    def _names(self) -> list[str]:
        folder = join(self._location, LEASES)
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _refused(folder, error) from error

    def _path(self, commit_id: str) -> Path:
        return Path(join(self._location, LEASES)) / commit_id

    def _make_folders(self) -> None:
        """Makes the folders of leases.

        IMPORTANT: it makes them one by one, and only in an existing table: a dropped table must not be created again.
        """
        if not self._there():
            raise self._dropped()
        folder = Path(join(self._location, LEASES))
        for level in (folder.parent, folder):
            level.mkdir(exist_ok=True)

    def _there(self) -> bool:
        folder = join(self._location, DELTA_LOG)
        try:
            return stat.S_ISDIR(os.stat(folder).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _refused(folder, error) from error

    def _dropped(self) -> NotFound:
        return NotFound(
            f"the table at {self._location} was dropped, or dropped and made again, since it was opened: open it again",
            code="table-replaced",
        )


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise refused(f"cannot remove {path}, the lease of a write that has ended", error) from error


def _acquire(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            # `LockedLeases.remove` of another process may have removed it before it was locked
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
    except OSError as error:
        raise _refused(str(path), error) from error


def _refused(path: str, error: OSError) -> Unavailable:
    return refused(f"cannot look for running writers in {path}", error)


@contextmanager
def _try_lock(path: Path, kind: int) -> Iterator[None]:
    """Locks a file; raises `FileNotFoundError`, or `BlockingIOError` if another process has the lock."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
