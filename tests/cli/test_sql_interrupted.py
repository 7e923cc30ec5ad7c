"""Ctrl-C while ``tablestore sql`` runs a statement: the statement ends in good order, and no process stays."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tablestore import Store, Table
from tablestore.shell.interruptible import Interruptible
from tests.cli.programs import Program
from tests.servers.spark_programs import has_ended
from tests.tables import assert_healthy
from tests.waiting import until


def interrupt() -> None:
    """Does to this process what Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_an_interrupted_call_is_stopped_until_it_has_ended() -> None:
    stops: list[str] = []
    enough = threading.Event()

    def stop() -> None:
        stops.append("again")
        if len(stops) == 3:
            enough.set()

    def work() -> None:
        interrupt()
        enough.wait()
        raise ValueError("it was stopped")

    calls = Interruptible(stop)
    with pytest.raises(KeyboardInterrupt):
        calls.call(work)
    assert len(stops) == 3
    assert calls.call(lambda: 42) == 42
    with pytest.raises(ValueError, match="the next one"):
        calls.call(lambda: (_ for _ in ()).throw(ValueError("the next one")))
    assert list(calls.each(lambda: [1, 2])) == [1, 2]
    calls.close()


def test_a_second_interrupt_does_not_wait_for_the_end() -> None:
    ends = threading.Event()

    def work() -> None:
        interrupt()
        ends.wait()

    calls = Interruptible(interrupt)
    with pytest.raises(SystemExit, match="130"):
        calls.call(work)
    ends.set()
    calls.close()


@pytest.fixture
def table(store: Store) -> Iterator[Table]:
    made = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
    yield made
    assert_healthy(made.filestore)


@contextmanager
def no_process_stays(pid: int) -> Iterator[None]:
    """Checks that all processes which a process has when the block begins have ended after it."""
    started = psutil.Process(pid).children(recursive=True)
    assert any("java" in process.name() for process in started)
    yield
    until(lambda: all(map(has_ended, started)), what="the end of all processes")


@dataclass(frozen=True)
class Endless:
    """A query that does not end by itself.

    Attributes:
        folder: The place of a file that its task creates.
        query: Its text.
    """

    folder: Path
    query: str

    @property
    def options(self) -> tuple[str, str]:
        """The options of the command that runs it."""
        return ("--conf", f"spark.driver.extraJavaOptions=-Djava.io.tmpdir={self.folder}")

    def until_it_runs(self) -> None:
        until(lambda: list(self.folder.glob("task*runs")), what="a task of the statement", seconds=300)


@pytest.fixture
def endless(folder: Path) -> Endless:
    begins, waits = "'java.io.File', 'createTempFile', 'task', 'runs'", "'java.lang.Thread', 'sleep', 3600000L"
    return Endless(folder, f"SELECT id FROM range(1) WHERE concat(java_method({begins}), java_method({waits})) <> ''")


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("statement", ["INSERT INTO lake.shop.t {}", "{}"])
def test_a_script_ends_with_its_statement(
    start: Callable[..., Program], table: Table, endless: Endless, statement: str
) -> None:
    text = f"INSERT INTO lake.shop.t VALUES (1); {statement.format(endless.query)}; INSERT INTO lake.shop.t VALUES (2)"
    program = start("sql", *endless.options, "--format", "json", text)
    endless.until_it_runs()
    with no_process_stays(program.process.pid):
        program.interrupt()
        assert program.wait() == 130
    assert program.err.lines[-1] == "the statement was cancelled"
    assert not any("error" in line for line in program.err.lines), program.err.lines
    assert table.scan().to_pylist() == [{"id": 1}]


class Terminal:
    """The command in a terminal: Ctrl-C reaches all its processes."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._keys, screen = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tablestore.cli", *arguments],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env=os.environ | environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(screen)
        self._written = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._keys, 4096)
            except OSError:  # Linux says so when the last process has closed the terminal
                return
            if not read:
                return
            self._written += read.decode()

    @property
    def shown(self) -> str:
        """What it has written, without colours."""
        return re.sub(r"\x1b\[\d*m", "", self._written)

    def type(self, text: str) -> None:
        os.write(self._keys, text.encode())

    def until_shown(self, text: str, count: int = 1) -> None:
        until(lambda: self.shown.count(text) >= count, what=f"{count} times {text!r} on the terminal")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        os.close(self._keys)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.spark
def test_the_prompt_goes_on(store: Store, table: Table, endless: Endless, folder: Path) -> None:
    state = {"XDG_STATE_HOME": str(folder / "state"), "TABLESTORE_CATALOG": store.target, "NO_COLOR": "1"}
    terminal = Terminal(["sql", *endless.options], state)
    try:
        terminal.until_shown("lake=> ")
        terminal.type(f"INSERT INTO shop.t {endless.query};\n")
        endless.until_it_runs()
        terminal.type("\x03")
        terminal.until_shown("the statement was cancelled")
        terminal.until_shown("lake=> ", count=2)
        terminal.type("SELECT 40 + 2 AS answer;\n")
        terminal.until_shown("answer\r\n    42")
        with no_process_stays(terminal.process.pid):
            terminal.until_shown("lake=> ", count=3)
            terminal.type("\\q\n")
            assert terminal.process.wait(120) == 0
    finally:
        terminal.close()
    assert "error" not in terminal.shown
    history = (folder / "state" / "tablestore" / "sql_history").read_text().splitlines()
    assert [line for line in history if not line.startswith("_HiStOrY")] == [
        f"INSERT INTO shop.t {endless.query};", "SELECT 40 + 2 AS answer;",
    ]  # fmt: skip
    assert table.scan().to_pylist() == []
