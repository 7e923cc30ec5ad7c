"""SQL where there is no Python driver: the spark-sql shell, which starts a Python process of ours."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import tablestore
from tablestore.spark.settings import catalog_settings
from tests.depth import Depth
from tests.servers.spark_programs import environment, has_ended, listed_settings, program, python_processes
from tests.servers.sql_client import text_of
from tests.spark.sql.conftest import Catalogs
from tests.spark.sql.deaths import FORGET, killed_within_a_write
from tests.spark.sql.statements import differences
from tests.tables import assert_healthy
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.spark]


GO_ON = ("--hiveconf", "hive.cli.errors.ignore=true")
"""The shell's option by which a script goes on after a statement that fails."""


NO_ROW = re.compile(r"Time taken: |[\d/]+ [\d:]+ WARN ")
"""What the shell prints beside rows and errors."""


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
def shell(settings: Mapping[str, str], folder: Path) -> Iterator[Shell]:
    with subprocess.Popen(
        [program("spark-sql"), *listed_settings(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
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


def run_script(statements: list[str], settings: Mapping[str, str], folder: Path) -> list[list[str]]:
    """Runs statements as one script, and returns what the shell prints for each."""
    marked = [f"SELECT 'the statement {number}';\n{statement};" for number, statement in enumerate(statements)]
    (folder / "script.sql").write_text("\n".join(marked))
    ended = subprocess.run(
        [program("spark-sql"), "-S", *listed_settings(settings), "-f", "script.sql", *GO_ON],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,  # its code is that of the last statement, which is refused
        cwd=folder,
        env=environment(),
    )
    found: list[list[str]] = []
    for line in ended.stdout.splitlines():
        if line == f"the statement {len(found)}":
            found.append([])
        elif found and line and not NO_ROW.match(line):
            found[-1] += text_of(line.split("\t"))
    return found


@pytest.mark.deep
@pytest.mark.parametrize("catalog", ["lake", "served"])
def test_a_script_of_all_statements(catalogs: Catalogs, catalog: str, depth: Depth) -> None:
    def run(listed: list[str]) -> list[list[str]]:
        return run_script(listed, catalogs.settings, catalogs.folder)

    # The shell of Spark 4.2 splits what it reads at each semicolon, also within BEGIN … END.
    assert differences(catalog, run, depth, scripts=False) == []


@pytest.mark.deep
def test_the_death_of_the_python_process_within_a_write(folder: Path) -> None:
    warehouse = str(folder / "warehouse")
    with shell(catalog_settings({"lake": warehouse}), folder) as opened:
        opened.run("CREATE DATABASE lake.shop")
        opened.run("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, v INT) WITH ('bucket' = '1')")
        opened.run("INSERT INTO lake.shop.t VALUES (1, 10), (2, 20)")
        first = opened.python
        with tablestore.connect(warehouse) as store, ThreadPoolExecutor(1) as beside:
            table = store.table("shop.t")
            with killed_within_a_write(table, opened.process.pid):
                write = beside.submit(opened.run, "INSERT INTO lake.shop.t VALUES (3, 30)")
            refused = write.result()
            assert any("Python process ended" in line for line in refused), refused
            opened.run("INSERT INTO lake.shop.t VALUES (4, 40)")
            for statement in FORGET:
                opened.run(statement)
            assert opened.run("SELECT * FROM lake.shop.t ORDER BY id") == ["1\t10", "2\t20", "4\t40"]
            second = opened.python
            assert second.pid != first.pid
            assert_healthy(table.filestore)
    until(lambda: has_ended(second), what="the end of the Python process with its shell")
