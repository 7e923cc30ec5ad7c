"""One at a time: tasks that run in threads of their own, of which the seed lets one go on to its next storage call.

Nothing runs beside the one whose turn it is, so a run is as a single thread's, and the same seed gives the same one.
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
    """Work that stops at each storage call until it is its turn again."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._abandoned = False
        self.done = False
        self.error: BaseException | None = None

    def resume(self) -> None:
        """Lets it go on until it waits again or ends."""
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        assert self._back.acquire(timeout=300), "a task hangs"

    def wait(self) -> None:
        """Called by the task: gives its turn away."""
        self._back.release()
        self._go.acquire()
        if self._abandoned:
            raise Killed("the run is over")

    def abandon(self) -> None:
        """Ends it where it waits."""
        self._abandoned = True
        while not self.done and self._thread.ident is not None:
            self.resume()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # whoever resumed it tells
            self.error = error
        finally:
            self.done = True
            self._back.release()


class Turns:
    """Who goes on."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.current: Task | None = None

    def resume(self, task: Task) -> None:
        """One turn of a task; raises what it raised."""
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
    """Does what is submitted at once, in the thread that submits it."""

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
    """Threads of the kernel do their work where they are asked for it, on every machine as on one with two cores."""
    with ExitStack() as stack:
        for module in ("filestore.threads", "filestore.reading.scan"):
            stack.enter_context(patch(f"{module}.ThreadPoolExecutor", _Inline))
        stack.enter_context(patch.object(os, "cpu_count", lambda: 2))
        yield
