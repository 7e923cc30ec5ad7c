"""A lease shows whether the writer of a commit is alive, however it ended."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tablestore.recovering.lease import abandoned, holds_lease, lease, remove_leases
from tests.folders import memory_folder
from tests.processes import PROCESSES
from tests.waiting import until


@pytest.fixture
def table() -> Iterator[str]:
    with memory_folder() as folder:
        (folder / "_delta_log").mkdir()  # a table is there
        yield str(folder)


def test_it_is_held_while_the_block_runs_and_gone_afterwards(table: str) -> None:
    assert not holds_lease(table, "c")
    with lease(table, "c"):
        assert holds_lease(table, "c")
        assert abandoned(table) == []
    assert not holds_lease(table, "c")
    assert abandoned(table) == []


def test_after_an_error_it_is_not_held_and_its_file_informs_the_next_writer(table: str) -> None:
    with pytest.raises(KeyError), lease(table, "c"):
        raise KeyError
    assert not holds_lease(table, "c")
    assert abandoned(table) == ["c"]
    remove_leases(table, ["c"])
    assert abandoned(table) == []


def test_a_lease_that_is_held_is_not_forgotten(table: str) -> None:
    with lease(table, "c"):
        remove_leases(table, ["c", "never-was"])
        assert holds_lease(table, "c")


def test_a_file_that_a_recovery_removes_before_it_is_locked_is_created_again(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise others would take the writer for dead, because they look for the file."""
    flock, removed = fcntl.flock, list[Path]()

    def remove_first(handle: int, kind: int) -> None:
        if kind == fcntl.LOCK_EX and not removed:
            removed.append(Path(table, "_log", "leases", "c"))
            removed[0].unlink()
        flock(handle, kind)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with lease(table, "c"):
        assert removed
        assert holds_lease(table, "c")
    assert abandoned(table) == []


def hold(table: str, ready: object) -> None:
    with lease(table, "c"):
        ready.set()  # type: ignore[attr-defined]
        threading.Event().wait()


def test_a_process_that_is_killed_lets_go(table: str) -> None:
    ready = PROCESSES.Event()
    writer = PROCESSES.Process(target=hold, args=(table, ready))
    writer.start()
    try:
        assert ready.wait(300)
        assert holds_lease(table, "c")
        assert abandoned(table) == []
    finally:
        writer.kill()
        writer.join()
    assert not holds_lease(table, "c")
    assert abandoned(table) == ["c"]


def test_looking_does_not_disturb_the_writer_nor_another_looker(table: str) -> None:
    """A recovery may remove a file between its creation and its locking: the writer then makes another."""
    stop = threading.Event()
    problems: list[str] = []

    def recover() -> None:
        while not stop.is_set():
            remove_leases(table, abandoned(table))

    recoveries = [threading.Thread(target=recover) for _ in range(2)]
    for thread in recoveries:
        thread.start()
    for i in range(200):
        with lease(table, f"c{i}"):
            if not holds_lease(table, f"c{i}"):
                problems.append(f"c{i}")
    stop.set()
    for thread in recoveries:
        thread.join()
    assert problems == []
    until(lambda: not os.listdir(Path(table, "_log", "leases")), 5)
