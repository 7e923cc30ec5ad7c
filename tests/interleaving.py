"""Runs several tasks on one storage, one storage call at a time, in an order that the test chooses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from filestore.storage.local import LocalStorage
from tests.faults import Call, FaultyStorage

__all__ = ["interleave"]

Party = Callable[[FaultyStorage], Any]


class _Turns:
    """Lets one party at a time go on to its next storage call."""

    def __init__(self, count: int, order: Sequence[int]) -> None:
        self._changed = threading.Condition()
        self._alive = set(range(count))
        self._waiting: set[int] = set()
        self._order = list(order)
        self._running: int | None = None

    def wait(self, party: int) -> None:
        with self._changed:
            self._waiting.add(party)
            if self._running == party:
                self._running = None
            self._choose()
            while self._running != party:
                assert self._changed.wait(300), "a party hangs"
            self._waiting.discard(party)

    def end(self, party: int) -> None:
        with self._changed:
            self._alive.discard(party)
            if self._running == party:
                self._running = None
            self._choose()

    def _choose(self) -> None:
        """IMPORTANT: only once all that live wait, so that nothing but the order decides."""
        if self._running is not None or self._waiting != self._alive or not self._alive:
            return
        wish = self._order.pop(0) if self._order else 0
        ready = sorted(self._alive)
        self._running = ready[wish % len(ready)]
        self._changed.notify_all()


def interleave(parties: Sequence[Party], order: Sequence[int]) -> list[Any]:
    """Runs all parties to their end.

    Args:
        parties: Each gets a storage of its own, before each call of which it waits for its turn.
        order: Who of those that are not done goes next, by number; the first one when it is used up.

    Returns:
        What each gave, or the exception that it raised.
    """
    turns, results = _Turns(len(parties), order), [None] * len(parties)

    def run(number: int) -> None:
        def hook(call: Call) -> None:
            if not call.done:
                turns.wait(number)

        try:
            turns.wait(number)
            results[number] = parties[number](FaultyStorage(LocalStorage(), hook))
        except Exception as error:  # noqa: BLE001  # the test looks at it
            results[number] = error  # type: ignore[call-overload]
        finally:
            turns.end(number)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(parties))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return results
