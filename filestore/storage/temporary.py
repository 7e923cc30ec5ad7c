"""`temporary_folder`: a folder for temporary files that is removed at its end, and after a kill by the next one.

Its process locks it as long as it uses it. Whoever opens another folder with the same prefix removes those that nobody
locks, so what a killed process leaves does not stay for ever.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filestore.refused import refused

__all__ = ["temporary_folder"]

_LOCKED = "locked-"
"""A part of the names of folders that are locked. Earlier releases have others without a lock."""


@contextmanager
def temporary_folder(prefix: str, parent: str | None = None) -> Iterator[str]:
    """Creates a folder for temporary files, by default in the system's place for them, and removes it afterwards.

    Raises:
        Unavailable: the operating system refuses it.
    """
    place = parent or "the system's folder for them"
    try:
        folder, lock = _locked(prefix + _LOCKED, parent)
    except OSError as error:  # this also looks for the system's folder, which fails on a full disk
        raise refused(f"cannot create a folder for temporary files in {place}", error) from error
    try:
        _remove_abandoned(Path(folder), prefix + _LOCKED)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what cannot be removed now is removed with the abandoned ones
        os.close(lock)


def _locked(prefix: str, parent: str | None) -> tuple[str, int]:
    while True:
        folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
        with suppress(FileNotFoundError):  # another process has taken it for an abandoned one, before it was locked
            lock = os.open(folder, os.O_RDONLY)
            if _lock(lock) and os.path.isdir(folder):
                return folder, lock
            os.close(lock)


def _lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: nobody else can lock it, either
    return True


def _remove_abandoned(own: Path, prefix: str) -> None:
    for other in own.parent.glob(f"{prefix}*"):
        if other == own:
            continue
        try:
            lock = os.open(other, os.O_RDONLY)
        except OSError:
            continue  # its owner has removed it, or it is another user's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(other, ignore_errors=True)
        except OSError:
            continue  # it is in use, or the file system has no locks
        finally:
            os.close(lock)
