"""Divides the limits of a table's cache among the processes of a machine that look keys up, such as Spark's workers.

Spark starts a Python process for each task that an executor runs at the same time, and a machine may have several
executors. They have no parent in common that could count, so each process has a claim: a small file in a folder for the
table, below the system's folder for temporary files, which says how much it may hold. A process locks its file as long
as it lives, so the claim of one that was killed ends with it, and whoever comes next removes it. All claims together
never exceed a limit: a process gets what others have not claimed, and no more than an equal part. It claims in steps,
as its cache grows, and gives up what exceeds its part when it uses its cache next and others have joined.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filestore.errors import Unavailable

__all__ = ["CacheClaim", "HostShare", "granted"]

logger = logging.getLogger(__name__)

_STEPS = 16
_MUTEX = ".mutex"  # beside the folders of tables, whose names have no dot
_CLAIM = re.compile(rb"(\d+) (\d+)")


@dataclass(frozen=True, slots=True)
class CacheClaim:
    """The bytes that a process may hold.

    Attributes:
        memory: In memory.
        disk: On the disk; None: as much as the disk has room for.
    """

    memory: int
    disk: int | None


def granted(limit: int, others: Sequence[int], needed: int) -> int:
    """Returns how many bytes a process may hold.

    Args:
        limit: What all processes may hold together.
        others: What each of the others has claimed.
        needed: What the process holds, or wants to; it gets some more, so that it need not ask each time.
    """
    step = max(1, limit // _STEPS)
    wanted = (needed // step + 1) * step
    return max(0, min(wanted, limit // (len(others) + 1), limit - sum(others)))


class HostShare:
    """A process's part of the limits. It is not thread-safe: its owner locks.

    Args:
        table_id: The table whose cache it is.
        parent: The folder in which the processes of this machine meet; None: one in the system's for temporary files.
    """

    def __init__(self, table_id: str, parent: Path | None = None) -> None:
        self._table_id = table_id
        self._parent = parent
        self._file: int | None = None
        self._owner = 0
        self._name = ""
        self._folder = Path()
        self._seen = 0
        self._claim = CacheClaim(0, 0)

    def limits(self, whole: CacheClaim, memory: int, disk: int) -> CacheClaim:
        """Returns what this process may hold now.

        Args:
            whole: What all processes may hold together.
            memory: The bytes that it holds in memory, or wants to.
            disk: Likewise on the disk.
        """
        try:
            if not self._holds(whole, memory, disk):
                self._ask(whole, memory, disk)
        except (OSError, Unavailable) as error:
            logger.warning("this process caches as if it were alone on this machine: %s", error)
            self.close()
            return whole
        return CacheClaim(self._claim.memory, None if whole.disk is None else self._claim.disk)

    def close(self) -> None:
        """Ends the claim."""
        if self._file is not None and self._owner == os.getpid():
            with suppress(OSError):  # a claim that stays is that of a process without a lock, which counts as dead
                (self._folder / self._name).unlink(missing_ok=True)
            os.close(self._file)
            with suppress(OSError):  # others have claims, or one of them is at work, who comes by here again
                self._leave()
        self._file = None

    def _leave(self) -> None:
        with (self._folder.parent / _MUTEX).open("w") as mutex:
            fcntl.flock(mutex, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._folder.rmdir()

    def _holds(self, whole: CacheClaim, memory: int, disk: int) -> bool:
        """Returns whether the claim of before fits: it is large enough, not too large, and nobody has come or gone."""
        if self._file is None or self._owner != os.getpid() or os.stat(self._folder).st_mtime_ns != self._seen:
            return False
        pairs = [(whole.memory, memory, self._claim.memory)]
        if whole.disk is not None:
            pairs.append((whole.disk, disk, self._claim.disk or 0))
        return all(needed <= own <= needed + limit // _STEPS * 2 for limit, needed, own in pairs)

    def _ask(self, whole: CacheClaim, memory: int, disk: int) -> None:
        if self._file is not None and self._owner != os.getpid():
            self._file = None  # it is the parent's, who still has it
        first = self._folder == Path()
        self._folder = self._meeting_place() / re.sub(r"[^\w-]", "_", self._table_id)
        with self._alone():
            if first:
                self._sweep()
            self._folder.mkdir(exist_ok=True)
            others = list(self._others())
            disk_limit = whole.disk or 0
            self._claim = CacheClaim(
                granted(whole.memory, [claim.memory for claim in others], memory),
                granted(disk_limit, [claim.disk or 0 for claim in others], disk),
            )
            self._write()
            self._seen = os.stat(self._folder).st_mtime_ns  # it changes when a claim is added or removed

    def _meeting_place(self) -> Path:
        """The folder of the claims for all tables, which is this user's alone.

        Raises:
            Unavailable: somebody else has made one of this name.
        """
        own = (self._parent or Path(tempfile.gettempdir())) / f"tablestore-{os.getuid()}"
        folder = own / "look-ups"
        folder.mkdir(parents=True, exist_ok=True)
        if own.stat().st_uid != os.getuid():
            raise Unavailable(f"{own} belongs to another user", code="cache-folder")
        return folder

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Excludes the other processes while this one reads and writes claims."""
        with (self._folder.parent / _MUTEX).open("w") as mutex:
            fcntl.flock(mutex, fcntl.LOCK_EX)
            yield

    def _sweep(self) -> None:
        """Removes what dead processes have left of other tables."""
        with os.scandir(self._folder.parent) as entries:
            folders = [Path(entry) for entry in entries if entry.is_dir() and Path(entry) != self._folder]
        for folder in folders:
            with suppress(OSError):  # others have claims there
                for path in folder.iterdir():
                    _living(path)
                folder.rmdir()

    def _others(self) -> Iterator[CacheClaim]:
        """The claims of other processes; those of dead ones are removed."""
        for name in os.listdir(self._folder):
            if self._file is None or name != self._name:
                found = _CLAIM.fullmatch(_living(self._folder / name) or b"")
                if found is not None:
                    yield CacheClaim(int(found[1]), int(found[2]))

    def _write(self) -> None:
        if self._file is None:
            self._file, path = tempfile.mkstemp(prefix=f"{os.getpid()}-", dir=self._folder)
            self._owner, self._name = os.getpid(), os.path.basename(path)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        text = f"{self._claim.memory} {self._claim.disk}".encode()
        os.pwrite(self._file, text, 0)
        os.ftruncate(self._file, len(text))


def _living(path: Path) -> bytes | None:
    """Returns the claim in a file; None, and removes it, if its process has ended."""
    try:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read()
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # its process has just ended it, for which it need not be alone
    return None
