"""Servers that give SQL to others, the Thrift server and Spark Connect, and sessions in them that are not ours."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import sql_client
from tests.servers.spark_programs import environment, has_ended, listed_settings, program, python_processes
from tests.servers.sql_client import text_of
from tests.servers.system import free_ports
from tests.waiting import until

__all__ = ["RemoteSession", "SqlServer", "connect_server", "remote_session", "thrift_server"]


@dataclass(frozen=True)
class SqlServer:
    """A running server.

    Attributes:
        url: Where it is, as `sql_client` takes it.
        process: Its process.
    """

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def thrift_server(folder: Path, catalogs: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[SqlServer]:
    """Runs a Thrift server with settings of catalogs. In the end none of its processes is there."""
    [port] = free_ports(1)
    hive = {"hive.server2.thrift.port": str(port), "hive.server2.thrift.bind.host": "127.0.0.1"}
    command = [program("spark-submit"), "--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"]
    command += [*listed_settings(catalogs), "spark-internal"]
    command += [part for name, value in hive.items() for part in ("--hiveconf", f"{name}={value}")]
    with _running(command, folder, variables, port) as process:
        yield SqlServer(f"thrift://127.0.0.1:{port}", process)


@contextmanager
def connect_server(folder: Path, catalogs: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[SqlServer]:
    """Runs a server of Spark Connect, likewise."""
    [port] = free_ports(1)
    grpc = {"spark.connect.grpc.binding.port": str(port), "spark.connect.grpc.binding.address": "127.0.0.1"}
    command = [program("spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [*listed_settings({**catalogs, **grpc}), "spark-internal"]
    with _running(command, folder, variables, port) as process:
        yield SqlServer(f"sc://127.0.0.1:{port}", process)


@contextmanager
def _running(
    command: list[str], folder: Path, variables: Mapping[str, str], port: int
) -> Iterator[subprocess.Popen[bytes]]:
    output = folder / "output"
    with (
        output.open("wb") as printed,
        subprocess.Popen(
            command, stdout=printed, stderr=printed, cwd=folder, env={**environment(), **variables}
        ) as process,
    ):
        left = []
        try:
            until(lambda: _listens(port) or process.poll() is not None, 600, what="the server")
            assert process.poll() is None, output.read_text()
            yield process
            left = python_processes(process.pid)
        finally:
            process.terminate()
        process.wait(timeout=120)
        until(lambda: all(map(has_ended, left)), what="the end of its Python process")


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class RemoteSession:
    """A session in a server, of a client in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, statement: str) -> list[str]:
        """Returns the lines of a statement's rows, or of its error."""
        answer = self._ask(statement)
        return [answer] if isinstance(answer, str) else [line for row in answer for line in text_of(row)]

    def run_all(self, statements: list[str]) -> list[list[str]]:
        """Runs statements one after the other."""
        return [self.run(statement) for statement in statements]

    def renew(self) -> None:
        """Ends the session and begins another one, in the same client."""
        assert self._ask({"renew": True}) == []

    def unset(self, setting: str) -> None:
        """Removes a setting from the session; only Spark Connect can."""
        assert self._ask({"unset": setting}) == []

    def save(self, query: str, table: str) -> str:
        """Saves the rows of a query over a table as a DataFrame does, or returns the error; only Spark Connect can."""
        answer = self._ask({"save": query, "over": table})
        return answer if isinstance(answer, str) else ""

    def stream(self, table: str, calls: Sequence[Sequence[str]], into: str, checkpoint: str) -> str:
        """Writes what a stream of a table has by now into another one, or returns the error; only Spark Connect can."""
        answer = self._ask({"stream": table, "calls": calls, "into": into, "checkpoint": checkpoint})
        return answer if isinstance(answer, str) else ""

    def _ask(self, request: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the client has ended"
        return json.loads(answer)


@contextmanager
def remote_session(server: SqlServer, folder: Path) -> Iterator[RemoteSession]:
    """Begins a session. The client runs in a folder where it finds nothing of ours."""
    environment_of_client = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        [sys.executable, str(sql_client.__file__), server.url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment_of_client,
    ) as process:  # fmt: skip
        try:
            yield RemoteSession(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)
