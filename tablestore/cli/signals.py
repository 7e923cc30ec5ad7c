"""Signals that end a command in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

__all__ = ["ending"]


@contextmanager
def ending(stopping: threading.Event, kinds: Sequence[signal.Signals]) -> Iterator[None]:
    """Sets an event at the first of these signals. A second signal has the effect that it has without this.

    Args:
        stopping: What the command waits for, or asks between two pieces of work.
        kinds: The signals.
    """

    def stop(_: int, __: FrameType | None) -> None:
        # The event's lock is not reentrant, and the signal may interrupt this thread while it holds it, on its way into
        # `wait`: so another thread sets the event, and this one goes on into the wait.
        threading.Thread(target=stopping.set, name="stopping", daemon=True).start()
        for kind in kinds:
            signal.signal(kind, before[kind])

    before = {kind: signal.getsignal(kind) for kind in kinds}
    for kind in kinds:
        signal.signal(kind, stop)
    try:
        yield
    finally:
        for kind in kinds:
            signal.signal(kind, before[kind])
