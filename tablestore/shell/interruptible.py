"""Work in a thread of its own, so that Ctrl-C in the main thread stops it in good order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["Interruptible"]

T = TypeVar("T")

_POLL_S = 0.2
"""A signal that arrives right before the main thread begins to wait is noticed when the wait is over."""


class Interruptible:
    """Runs calls of Spark one after the other, and stops the one that runs at Ctrl-C.

    Python raises KeyboardInterrupt in the main thread. If that thread called Java itself, it would leave an answer in
    its connection that the next call takes for its own, and could not ask Java to cancel anything meanwhile. If Java
    was calling Python back, the interrupt would become an error of the statement.

    Args:
        stop: Makes a running call fail soon. It is called again until the call has ended, since it stops nothing
            between two jobs of Spark.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._calls = _Worker("statements")
        self._stops = _Worker("cancellations")

    def call(self, work: Callable[[], T]) -> T:
        """Returns the result of the work.

        Raises:
            KeyboardInterrupt: Ctrl-C, after the work has ended.
            SystemExit: a second Ctrl-C, which does not wait for that.
        """
        future = self._calls.begin(work)
        try:
            _wait(future)
        except KeyboardInterrupt:
            self._end(future)
            raise
        return future.result()

    def each(self, parts: Callable[[], Iterable[T]]) -> Iterator[T]:
        """Yields what an iterable yields, each as a call."""
        found = self.call(lambda: iter(parts()))
        while (part := self.call(lambda: next(found, None))) is not None:
            yield part

    def _end(self, future: Future[T]) -> None:
        """Stops a call, and waits until it has ended, whether by that or by itself."""
        try:
            while not future.done():
                _wait(self._stops.begin(self._stop))
                wait([future], timeout=_POLL_S)
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    def close(self) -> None:
        """Ends both threads, once their calls have ended; the end of the process does not wait for that."""
        self._calls.close()
        self._stops.close()


class _Worker:
    """A thread that does one thing after the other. As a daemon it does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def begin(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._waiting.put((future, work))
        return future

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            future, work = waiting
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  # raised where the result is wanted
                future.set_exception(error)

    def close(self) -> None:
        self._waiting.put(None)


def _wait(future: Future[T]) -> None:
    while not wait([future], timeout=_POLL_S).done:
        pass
