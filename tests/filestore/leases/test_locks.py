"""A locked file shows whether the writer of a commit is alive, however it ended."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from filestore.leases.locks import LockedLeases
from tests.folders import memory_folder
from tests.processes import PROCESSES
from tests.waiting import until


@pytest.fixture
def table() -> Iterator[Path]:
    with memory_folder() as folder:
        (folder / "_delta_log").mkdir()  # a table is there
        yield folder


@pytest.fixture
def leases(table: Path) -> LockedLeases:
    return LockedLeases(str(table))


def test_it_is_held_while_the_block_runs_and_gone_afterwards(leases: LockedLeases) -> None:
    assert leases.dead_among(["c"])
    with leases.hold("c"):
        assert not leases.dead_among(["c"])
        assert leases.abandoned() == []
    assert leases.dead_among(["c"])
    assert leases.abandoned() == []


def test_after_an_error_it_is_not_held_and_its_file_informs_the_next_writer(leases: LockedLeases) -> None:
    with pytest.raises(KeyError), leases.hold("c"):
        raise KeyError
    assert leases.dead_among(["c"])
    assert leases.abandoned() == ["c"]
    leases.remove(["c"])
    assert leases.abandoned() == []


def test_a_lease_that_is_held_is_not_forgotten(leases: LockedLeases) -> None:
    with leases.hold("c"):
        leases.remove(["c", "never-was"])
        assert not leases.dead_among(["c"])


def test_a_file_that_a_recovery_removes_before_it_is_locked_is_created_again(
    table: Path, leases: LockedLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise others would take the writer for dead, because they look for the file."""
    flock, removed = fcntl.flock, list[Path]()

    def remove_first(handle: int, kind: int) -> None:
        if kind == fcntl.LOCK_EX and not removed:
            removed.append(Path(table, "_log", "leases", "c"))
            removed[0].unlink()
        flock(handle, kind)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with leases.hold("c"):
        assert removed
        assert not leases.dead_among(["c"])
    assert leases.abandoned() == []


def hold(table: str, ready: object) -> None:
    with LockedLeases(table).hold("c"):
        ready.set()  # type: ignore[attr-defined]
        threading.Event().wait()


def test_a_process_that_is_killed_lets_go(table: Path, leases: LockedLeases) -> None:
    ready = PROCESSES.Event()
    writer = PROCESSES.Process(target=hold, args=(str(table), ready))
    writer.start()
    try:
        assert ready.wait(300)
        assert not leases.dead_among(["c"])
        assert leases.abandoned() == []
    finally:
        writer.kill()
        writer.join()
    assert leases.dead_among(["c"])
    assert leases.abandoned() == ["c"]


def test_looking_does_not_disturb_the_writer_nor_another_looker(table: Path, leases: LockedLeases) -> None:
    """A recovery may remove a file between its creation and its locking: the writer then makes another."""
    stop = threading.Event()
    problems: list[str] = []

    def recover() -> None:
        while not stop.is_set():
            leases.remove(leases.abandoned())

    recoveries = [threading.Thread(target=recover) for _ in range(2)]
    for thread in recoveries:
        thread.start()
    for i in range(200):
        with leases.hold(f"c{i}"):
            if leases.dead_among([f"c{i}"]):
                problems.append(f"c{i}")
    stop.set()
    for thread in recoveries:
        thread.join()
    assert problems == []
    until(lambda: not os.listdir(Path(table, "_log", "leases")), 5)
