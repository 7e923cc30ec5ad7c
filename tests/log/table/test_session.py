"""A log session lends each thread a log of its own, and closes all of them at its end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

import pytest

from filestore.ambient import Ambient, system_ambient
from log.table.config import LogConfig
from log.table.session import LogSession
from log.table.store import LogStore


class _Opened:
    """Stands in for a log, and knows whether it is open."""

    def __init__(self) -> None:
        self.is_open = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[_Opened]:
    """The logs that are opened."""
    found: list[_Opened] = []

    @contextmanager
    def open_log(config: LogConfig, ambient: Ambient) -> Iterator[_Opened]:
        found.append(log := _Opened())
        yield log
        log.is_open = False

    monkeypatch.setattr("log.table.session.open_log", open_log)
    return found


def session() -> LogSession:
    return LogSession(None, system_ambient())  # type: ignore[arg-type]  # nothing asks for its configuration


def test_loans_of_a_thread_are_of_one_log(opened: list[_Opened]) -> None:
    with session() as log:
        assert not opened, "nobody has asked for it"
        with log.lend() as one, log.lend() as within:
            assert one is within
        with log.lend() as later:
            assert later is one
        assert [found.is_open for found in opened] == [True]
    assert [found.is_open for found in opened] == [False]


def test_threads_share_none(opened: list[_Opened]) -> None:
    both = Barrier(3, timeout=60)

    def borrow(log: LogSession) -> LogStore:
        with log.lend() as lent:
            both.wait()
            return lent

    with session() as log, ThreadPoolExecutor(2) as threads:
        others = [threads.submit(borrow, log) for _ in range(2)]
        lent = [borrow(log), *(other.result() for other in others)]
        assert len({id(one) for one in lent}) == len(opened) == 3
        assert all(found.is_open for found in opened)
    assert not any(found.is_open for found in opened)


def test_outside_of_its_context_each_loan_is_closed(opened: list[_Opened]) -> None:
    log = session()
    with log.lend() as one, log.lend() as other:
        assert one is not other
    assert [found.is_open for found in opened] == [False, False]
