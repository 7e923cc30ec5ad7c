"""Lanes run the work of requests in threads: work that waits for a broker never delays reads of the catalog.

Each lane has a bounded number of threads and a bounded queue. A request that finds the queue full, or waits in it for
too long, fails with `Busy`. A thread that hangs occupies its own lane only.

The threads are daemons: a process that stops does not wait for a broker. Their unfinished work is the same as that of
a killed process, and `catalog_service.tables.lifecycle` finishes it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from catalog_service.server.refusals import Busy

__all__ = ["Lane", "Lanes"]

Result = TypeVar("Result")


class Lane:
    """A group of threads that do one kind of work. One event loop uses it.

    Args:
        name: The kind of work, for messages.
        threads: How many requests it works on at once.
        waiting: How many requests may wait.
        patience_s: How many seconds a request may wait.
    """

    def __init__(self, name: str, threads: int, waiting: int, patience_s: float) -> None:
        self._name = name
        self._limit = threads
        self._waiting = waiting
        self._patience_s = patience_s
        self._started = 0
        self._taken = 0  # jobs that wait or run
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Does the work in a thread of the lane and returns its result.

        Raises:
            Busy: ``service-busy``: the work was not begun.
        """
        if self._taken >= self._limit + self._waiting:
            raise self._busy(f"{self._waiting} wait already")
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future(), self._release)
        self._taken += 1
        self._jobs.put(job)
        if self._started < min(self._limit, self._taken):
            self._started += 1
            threading.Thread(target=self._serve, name=f"catalog-{self._name}", daemon=True).start()
        if self._taken <= self._limit:
            return await job.future  # type: ignore[no-any-return]
        timer = loop.call_later(self._patience_s, self._expire, job)
        try:
            return await job.future  # type: ignore[no-any-return]
        finally:
            timer.cancel()

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            if job.claim():
                job.do()

    def _expire(self, job: _Job) -> None:
        if job.claim():
            self._release()
            if not job.future.done():
                job.future.set_exception(self._busy(f"this one waited for {self._patience_s:g} s"))

    def _release(self) -> None:
        self._taken -= 1

    def _busy(self, why: str) -> Busy:
        return Busy(
            f"the service handles at most {self._limit} requests at once that {self._name}, and {why}: nothing was "
            "changed; retry in a moment"
        )


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    release: Callable[[], None]
    claimed: threading.Lock = field(default_factory=threading.Lock)

    def claim(self) -> bool:
        """Returns whether the caller is first: the thread that does the work, or the timer that gives the job up."""
        return self.claimed.acquire(blocking=False)

    def do(self) -> None:
        result, error = None, None
        try:
            result = self.work()
        except BaseException as raised:  # noqa: BLE001  # it is raised again in the coroutine that awaits the job
            error = raised
        if not self.loop.is_closed():
            try:
                self.loop.call_soon_threadsafe(self._finish, result, error)
            except RuntimeError:  # the loop has just been closed: nothing waits for the result any more
                return

    def _finish(self, result: Any, error: BaseException | None) -> None:
        self.release()
        if self.future.done():
            return  # the request was cancelled
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Lanes:
    """Holds the lanes of a service."""

    def __init__(self) -> None:
        # There are few threads since most of this work is Python code, which one thread runs at a time.
        self.rows = Lane("read the catalog", 4, 256, 10.0)
        self.files = Lane("read tables' files", 8, 256, 10.0)
        self.changes = Lane("change tables", 8, 256, 30.0)
        self.brokers = Lane("ask Kafka's brokers", 8, 64, 30.0)
        self.probes = Lane("ask whether the service is ready", 1, 16, 5.0)
