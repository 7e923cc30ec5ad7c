"""Work beside what the caller does: in its order, never twice for one key, and without making anybody wait."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from filestore.beside import Worker, at_once

WAIT_S = 60.0


def test_it_is_done_in_order_and_the_thread_ends() -> None:
    worker, done = Worker(), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        assert go_on.wait(WAIT_S)
        done.append("first")

    worker.take("a", first)
    assert begun.wait(WAIT_S)
    worker.take("a", lambda: done.append("a, replaced"))
    worker.take("b", lambda: done.append("b"))
    worker.take("a", lambda: done.append("a"))
    assert not worker.finish(0.01), "it still works, and the caller has not waited for it"
    assert done == []
    go_on.set()
    assert worker.finish(WAIT_S)
    assert done == ["first", "a", "b"], "of two that wait with one key, only the later one is done"
    worker.take("c", lambda: done.append("c"))
    assert worker.finish(WAIT_S)
    assert done[-1] == "c", "a thread is started again"


def test_an_error_is_logged_and_the_next_work_is_done(caplog: pytest.LogCaptureFixture) -> None:
    worker, done = Worker(), list[int]()

    def fails() -> None:
        raise ZeroDivisionError("a mistake")

    with caplog.at_level(logging.ERROR):
        worker.take("a", fails)
        worker.take("b", lambda: done.append(1))
        assert worker.finish(WAIT_S)
    assert done == [1]
    assert "a mistake" in caplog.text


def test_at_once_is_done_before_it_returns() -> None:
    done = list[int]()
    at_once("a", lambda: done.append(1))
    assert done == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_does_not_wait_for_its_parents_work() -> None:
    program = """
import os, sys, threading
from filestore.beside import beside, finish
begun, go_on = threading.Event(), threading.Event()
beside("a", lambda: (begun.set(), go_on.wait(60)))
assert begun.wait(60)
if (child := os.fork()) == 0:
    done = []
    beside("b", lambda: done.append(1))
    os._exit(0 if finish(60) and done == [1] else 1)
_, status = os.waitpid(child, 0)
go_on.set()
assert finish(60)
sys.exit(os.waitstatus_to_exitcode(status))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=2 * WAIT_S)


PROGRAM = """
import multiprocessing, pathlib, sys, time
from multiprocessing import util
from filestore.beside import beside

def work():
    while not util._exiting:  # the process has nothing else to do
        time.sleep(0.001)
    pathlib.Path(sys.argv[1]).write_text("done")

def main():
    beside("a", work)

if __name__ == "__main__":
    if len(sys.argv) == 2:
        main()
    else:
        process = multiprocessing.get_context(sys.argv[2]).Process(target=main)
        process.start()
        process.join()
"""


@pytest.mark.parametrize("method", ["", "spawn", "fork", "forkserver"])
def test_a_process_ends_after_its_work(tmp_path: Path, method: str) -> None:
    """A process that writes one version is often the only one that could write its checkpoint."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [sys.executable, str(program), str(tmp_path / "f"), *([method] if method else [])]
    subprocess.run(arguments, check=True, timeout=2 * WAIT_S, env=os.environ | {"PYTHONPATH": os.getcwd()})
    assert (tmp_path / "f").read_text() == "done"
