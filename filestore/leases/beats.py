"""`Beats`: a thread that does something again and again while a block runs, and never longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

__all__ = ["Beats"]


class Beats:
    """Calls a function at intervals until the block ends. The first call is one interval after the block's begin.

    The end of the block waits for a call that is running. The thread is a daemon, so it does not keep a process alive.

    Args:
        name: The thread's name.
        interval_s: Seconds between two calls.
        beat: The function; no call follows one that returns False.
    """

    def __init__(self, name: str, interval_s: float, beat: Callable[[], bool]) -> None:
        self._interval_s = interval_s
        self._beat = beat
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        with suppress(RuntimeError):  # an interpreter that is shutting down starts no threads any more
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._interval_s):
            if not self._beat():
                return
