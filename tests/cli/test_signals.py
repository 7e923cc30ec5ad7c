"""Commands that a signal ends in good order."""

from __future__ import annotations

import signal
import threading

import pytest

from tablestore.cli.follow import interruptible
from tablestore.cli.signals import ending


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_on_the_way_into_the_wait_is_no_deadlock(kind: signal.Signals) -> None:
    """Found by a compactor that did not end: the handler took a lock that the interrupted thread held."""
    stopping = threading.Event()
    with ending(stopping, (signal.SIGTERM, signal.SIGINT)):
        with stopping._cond:  # as `wait` does before it waits
            signal.raise_signal(kind)
        assert stopping.wait(30)


def test_a_follower_has_no_such_deadlock_either() -> None:
    with interruptible() as stopped:
        with stopped._cond:
            signal.raise_signal(signal.SIGINT)
        assert stopped.wait(30)


def test_a_signal_is_noticed_although_the_main_thread_runs_no_handler() -> None:
    """Found by a compactor that did not end: its signal had arrived right before it began to wait."""
    stopping = threading.Event()
    with ending(stopping, (signal.SIGTERM,)):
        noticed = threading.Event()

        def send() -> None:
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # here, so that it interrupts no wait there
            noticed.set() if stopping.wait(30) else None

        sender = threading.Thread(target=send)
        sender.start()
        sender.join()  # a lock without time-out: no handler runs meanwhile
        assert noticed.is_set()


def test_a_second_signal_has_its_usual_effect() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), ending(threading.Event(), (signal.SIGINT,)):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
