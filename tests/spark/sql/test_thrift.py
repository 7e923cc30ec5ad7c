"""SQL by the Thrift server, with clients that are not ours: beeline, over JDBC."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tablestore
from tests.folders import memory_folder
from tests.servers.spark_programs import environment, has_ended, listed_settings, program, python_processes
from tests.tables import assert_healthy
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.deep]  # the shell is in `make test`, and works alike


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Path, subprocess.Popen[bytes]]]:
    """The URL of a server, the warehouse of its catalog, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hive = {"hive.server2.thrift.port": str(port), "hive.server2.thrift.bind.host": "127.0.0.1"}
    with memory_folder() as folder:
        command = [program("spark-submit"), "--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"]
        command += [*listed_settings(folder / "warehouse"), "spark-internal"]
        command += [part for name, value in hive.items() for part in ("--hiveconf", f"{name}={value}")]
        output = folder / "output"
        with (
            output.open("wb") as printed,
            subprocess.Popen(command, stdout=printed, stderr=printed, cwd=folder, env=environment()) as process,
        ):
            try:
                until(lambda: _listens(port) or process.poll() is not None, what="the Thrift server")
                assert process.poll() is None, output.read_text()
                yield f"jdbc:hive2://127.0.0.1:{port}", folder / "warehouse", process
                left = python_processes(process.pid)
            finally:
                process.terminate()
            process.wait(timeout=60)
            until(lambda: all(map(has_ended, left)), what="the end of its Python process")


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def beeline(url: str, *statements: str) -> tuple[list[str], str]:
    """Runs statements in a session of their own; returns what they print, and what goes wrong."""
    arguments = [part for statement in statements for part in ("-e", f"{statement};")]
    ended = subprocess.run(
        [program("beeline"), "-u", url, "-n", "anybody", "--silent=true", "--outputformat=tsv2", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=300,
    )
    return ended.stdout.splitlines(), ended.stderr


def test_statements_of_two_clients(server: tuple[str, Path, subprocess.Popen[bytes]]) -> None:
    url, warehouse, process = server
    _, problems = beeline(
        url,
        "CREATE DATABASE lake.shop",
        "CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, v INT) WITH ('bucket' = '1')",
        "INSERT INTO lake.shop.t VALUES (1, 10), (2, 20)",
        "MERGE INTO lake.shop.t t USING (SELECT 2L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = v + 1",
    )
    assert "Error" not in problems, problems
    printed, _ = beeline(url, "USE lake.shop", "SELECT * FROM t ORDER BY id", "CALL sys.doctor('shop.t')")
    lines = [line for line in printed if line not in ("", "Result")]
    assert lines == ["id\tv", "1\t10", "2\t21", "severity\tcode\tpath\tmessage"]
    assert len(python_processes(process.pid)) == 1
    with tablestore.connect(str(warehouse)) as store:
        assert_healthy(store.managed_table("shop.t").filestore)


def test_a_session_gets_no_file_of_the_server(server: tuple[str, Path, subprocess.Popen[bytes]], folder: Path) -> None:
    """It names a catalog itself: neither files nor tokens of the server's process go there."""
    url, _, _ = server
    secret = folder / "secret"
    secret.write_text("very secret")
    setting = "SET spark.sql.catalog.mine"
    _, problems = beeline(
        url,
        f"{setting}=tablestore.spark.TablestoreCatalog",
        f"{setting}.uri=http://127.0.0.1:9",
        f"SET `spark.sql.catalog.mine.token-file`={secret}",
        "SHOW DATABASES IN mine",
    )
    assert "set it where the server is started" in problems, problems
    assert "very secret" not in problems
