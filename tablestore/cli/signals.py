"""Signals that end a command in good order."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

__all__ = ["ending"]


@contextmanager
def ending(stopping: threading.Event, kinds: Sequence[signal.Signals]) -> Iterator[None]:
    """Sets an event at the first of these signals. A second signal has the effect that it has without this.

    Python runs handlers in the main thread only, between two of its instructions. If a signal arrives right before that
    thread begins to wait for the event, its handler runs when the wait is over; and if it arrives while the thread
    holds the event's lock, a handler that sets the event waits for itself. So a thread of its own sets the event, which
    the interpreter wakes as soon as the signal arrives (`signal.set_wakeup_fd`).

    Args:
        stopping: What the command waits for, or asks between two pieces of work.
        kinds: The signals.
    """

    def usual_again(_: int, __: FrameType | None) -> None:
        for kind in kinds:
            signal.signal(kind, before[kind])

    def listen() -> None:
        while number := arriving.recv(1):
            if number[0] in kinds:
                stopping.set()

    arriving, arrived = socket.socketpair()
    arrived.setblocking(False)
    before = {kind: signal.getsignal(kind) for kind in kinds}
    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    wakes_before = signal.set_wakeup_fd(arrived.fileno(), warn_on_full_buffer=False)
    for kind in kinds:
        signal.signal(kind, usual_again)
    try:
        yield
    finally:
        for kind in kinds:
            signal.signal(kind, before[kind])
        signal.set_wakeup_fd(wakes_before)
        arrived.close()
        listener.join()
        arriving.close()
