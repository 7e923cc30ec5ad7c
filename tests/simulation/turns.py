"""One task at a time: tasks run in threads of their own, and the seed lets one continue to its next storage call.

Only one task runs at a time, so a run is like that of a single thread, and the same seed repeats it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tests.faults import Killed

__all__ = ["Task", "Turns", "single_threaded"]


class Task:
    """Work that waits at each storage call for its next turn."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._abandoned = False
        self.done = False
        self.error: BaseException | None = None

    def resume(self) -> None:
        """Lets the task run until it waits again or ends."""
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        assert self._back.acquire(timeout=300), "a task hangs"

    def wait(self) -> None:
        """Ends the task's turn; the task calls it."""
        self._back.release()
        self._go.acquire()
        if self._abandoned:
            raise Killed("the run is over")

    def abandon(self) -> None:
        """Ends the task where it waits."""
        self._abandoned = True
        while not self.done and self._thread.ident is not None:
            self.resume()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # the caller of `resume` raises it
            self.error = error
        finally:
            self.done = True
            self._back.release()


class Turns:
    """The tasks, and the one that runs."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.current: Task | None = None

    def resume(self, task: Task) -> None:
        """Lets a task take one turn; raises what it raised."""
        self.current = task
        task.resume()
        self.current = None
        if task.done:
            self.tasks.remove(task)
            if task.error is not None:
                raise task.error

    def abandon(self) -> None:
        """Ends all tasks."""
        for task in self.tasks:
            self.current = task
            task.abandon()
        self.tasks.clear()


class _Inline(Executor):
    """Does submitted work at once, in the thread that submits it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  # as an executor does it
            future.set_exception(error)
        return future


@contextmanager
def single_threaded() -> Iterator[None]:
    """Runs the work of thread pools in the caller's thread, and pretends that every machine has two cores."""
    with ExitStack() as stack:
        for module in ("filestore.threads", "filestore.reading.scan"):
            stack.enter_context(patch(f"{module}.ThreadPoolExecutor", _Inline))
        stack.enter_context(patch.object(os, "cpu_count", lambda: 2))
        yield
