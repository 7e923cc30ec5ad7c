"""Ctrl-C while ``tablestore sql`` runs a statement: the statement ends in good order, and no process stays."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tablestore import Store, Table
from tablestore.shell.interruptible import Interruptible
from tests.cli.programs import Program, Terminal
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
        self.until_it_marks("task")

    def until_it_marks(self, name: str) -> None:
        until(lambda: list(self.folder.glob(f"{name}*runs")), what="a task of the statement", seconds=300)


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
        # a task that does not ask whether it is cancelled: the loop of a join without keys
        joined = "range(1000000) AS a CROSS JOIN range(1000000) AS b"
        marked = "if(a.id + b.id = 5, java_method('java.io.File', 'createTempFile', 'loop', 'runs'), 'x') <> ''"
        terminal.type(f"SELECT count(*) AS pairs FROM {joined} WHERE {marked};\n")
        endless.until_it_marks("loop")
        terminal.type("\x03")
        terminal.until_shown("of it did not end, so Spark was ended")
        terminal.type("SELECT 41 + 2 AS second;\n")
        terminal.until_shown("second\r\n    43")
        with no_process_stays(terminal.process.pid):
            terminal.until_shown("lake=> ", count=5)
            terminal.type("\\q\n")
            assert terminal.process.wait(120) == 0
    finally:
        terminal.close()
    assert "error" not in terminal.shown
    history = (folder / "state" / "tablestore" / "sql_history").read_text().splitlines()
    assert [line for line in history if not line.startswith("_HiStOrY")] == [
        f"INSERT INTO shop.t {endless.query};", "SELECT 40 + 2 AS answer;",
        f"SELECT count(*) AS pairs FROM {joined} WHERE {marked};", "SELECT 41 + 2 AS second;",
    ]  # fmt: skip
    assert table.scan().to_pylist() == []
