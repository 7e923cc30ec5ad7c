"""Work that is done beside what the caller does next: in one thread of the process, which ends when nothing is left.

Nobody waits for it but the end of the process, and that for seconds only: such work makes later work faster, and the
next process does it if this one did not.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from multiprocessing.util import Finalize

__all__ = ["PATIENCE_S", "Work", "Worker", "at_once", "awaited", "beside", "finish"]

logger = logging.getLogger(__name__)

Work = Callable[[], None]

PATIENCE_S = 10.0
"""The seconds that the end of a process waits, and that of a store."""


class Worker:
    """Does one piece of work after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Work] = {}
        self._thread: threading.Thread | None = None
        self._used = False
        self._awaited = 0

    def take(self, key: str, work: Work) -> None:
        """Has work done soon.

        Args:
            key: Earlier work of the same key that has not begun is not done any more.
            work: It logs its own errors.
        """
        with self._lock:
            self._waiting[key] = work
            if not self._used:  # `atexit` does nothing in processes of multiprocessing
                Finalize(None, self.finish, (PATIENCE_S,), exitpriority=0)
                self._used = True
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="beside", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # an interpreter that is shutting down starts no threads any more
                self._waiting.clear()
            else:
                self._thread = thread

    def finish(self, timeout_s: float) -> bool:
        """Waits until nothing is left, at most that long; returns whether that is so."""
        with self._lock:
            thread = self._thread
            self._awaited += 1
        try:
            if thread is not None:
                thread.join(timeout_s)
            return thread is None or not thread.is_alive()
        finally:
            with self._lock:
                self._awaited -= 1

    @property
    def awaited(self) -> bool:
        """True while somebody waits for the end of all work: what is of use to this process only may be left then."""
        return self._awaited > 0

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException:
                logger.exception("work beside commits failed unexpectedly")

    def _next(self) -> Work | None:
        with self._lock:
            if not self._waiting:
                self._thread = None
                return None
            return self._waiting.pop(next(iter(self._waiting)))


_worker = Worker()


def beside(key: str, work: Work) -> None:
    """Has work done by the thread of this process; see `Worker.take`."""
    _worker.take(key, work)


def finish(timeout_s: float = PATIENCE_S) -> bool:
    """Waits for the thread of this process; see `Worker.finish`."""
    return _worker.finish(timeout_s)


def awaited() -> bool:
    """Returns whether somebody waits for the thread of this process; see `Worker.awaited`."""
    return _worker.awaited


def at_once(key: str, work: Work) -> None:
    """Does work now, for callers that want everything in its order."""
    work()


def _in_child() -> None:
    global _worker
    _worker = Worker()  # the parent's thread does its work


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
