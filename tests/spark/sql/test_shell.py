"""SQL where there is no Python driver: the spark-sql shell, which starts a Python process of ours."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import tablestore
from tests.servers.spark_programs import environment, has_ended, listed_settings, program, python_processes
from tests.tables import assert_healthy
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.spark]


class Shell:
    """A shell that takes statements one by one, as a user types them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def run(self, statement: str) -> list[str]:
        """Returns what the shell prints for a statement, up to the row of a second one that marks its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{statement};\nSELECT 'the end' AS it;\n")
        self.process.stdin.flush()
        printed: list[str] = []
        while not (printed and printed[-1] == "the end"):
            printed.append(self._lines.get(timeout=120))
        return [line for line in printed[:-1] if line and not line.startswith(("spark-sql", "Time taken", "it"))]

    @property
    def python(self) -> psutil.Process:
        """The Python process of ours."""
        [found] = python_processes(self.process.pid)
        return found


@contextmanager
def shell(warehouse: Path) -> Iterator[Shell]:
    with subprocess.Popen(
        [program("spark-sql"), *listed_settings(warehouse)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=warehouse.parent,
        env=environment(),
    ) as process:
        opened = Shell(process)
        try:
            yield opened
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)
            opened.reader.join()


def test_a_shell_and_the_death_of_its_python_process(folder: Path) -> None:
    with shell(folder / "warehouse") as opened:
        opened.run("CREATE DATABASE lake.shop")
        opened.run("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, v INT) WITH ('bucket' = '1')")
        opened.run("INSERT INTO lake.shop.t VALUES (1, 10), (2, 20)")
        opened.run("UPDATE lake.shop.t SET v = v + 1 WHERE id = 2")
        assert opened.run("SELECT * FROM lake.shop.t ORDER BY id") == ["1\t10", "2\t21"]
        first = opened.python
        first.kill()
        until(lambda: has_ended(first), what="the death of the Python process")
        refused = opened.run("INSERT INTO lake.shop.t VALUES (3, 30)")
        assert any("Python process ended" in line for line in refused), refused
        opened.run("INSERT INTO lake.shop.t VALUES (4, 40)")
        assert opened.run("SELECT * FROM lake.shop.t ORDER BY id") == ["1\t10", "2\t21", "4\t40"]
        second = opened.python
        assert second.pid != first.pid
    until(lambda: has_ended(second), what="the end of the Python process with its shell")
    with tablestore.connect(str(folder / "warehouse")) as store:
        assert_healthy(store.managed_table("shop.t").filestore)
