"""A process that writes to a table in S3 with its log in Kafka, and stops itself (SIGSTOP) at one of its calls."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import tablestore
from filestore.errors import TableStoreError
from filestore.layout import LEASES
from tablestore import Table
from tests.faults import Call, FaultyStorage, faulty_logs
from tests.opened import again
from tests.processes import PROCESSES
from tests.waiting import until

__all__ = ["POINTS", "Suspended", "suspended"]

Where = tuple[str, str, bool]

POINTS: Mapping[str, Where] = {
    "before its lease": ("replace_tagged", LEASES, False),
    "behind its lease": ("replace_tagged", LEASES, True),
    "before its records": ("log.append", "", False),
    "behind its records": ("log.append", "", True),
    "before they are prepared": ("log.prepare", "", False),
    "once they are prepared": ("log.prepare", "", True),
    "before its entry": ("write_new", "_delta_log", False),
    "behind its entry": ("write_new", "_delta_log", True),
    "before the end of its transaction": ("log.end", "", False),
    "behind the end of its transaction": ("log.end", "", True),
    "before the end of its lease": ("delete", LEASES, False),
}
"""Where a writer stops: the operation, a part of the path, and whether it has had its effect."""


class Suspended:
    """The process, seen by the test."""

    def __init__(self, process: Any, result: Connection) -> None:
        self._process = process
        self._result = result
        until(lambda: self._state() == "T" or not process.is_alive(), what="the writer stops")
        assert process.is_alive(), f"it ended with {process.exitcode}"

    def goes_on(self) -> str:
        """Wakes it; returns the id of its commit, or the code of its error."""
        os.kill(self._process.pid, signal.SIGCONT)
        assert self._result.poll(120), "no result"
        outcome: str = self._result.recv()
        self._process.join(60)
        assert self._process.exitcode == 0
        return outcome

    def dies(self) -> None:
        """Ends it where it stands."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(60)

    def _state(self) -> str:
        try:
            return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return ""


@contextmanager
def suspended(
    connecting: Mapping[str, Any], environment: Mapping[str, str], rows: list[dict[str, Any]], point: str
) -> Iterator[Suspended]:
    """A writer of ``shop.t`` that stands at a point; at the end of the block it is killed.

    Args:
        connecting: The arguments of `tablestore.connect`.
        environment: The variables by which it finds its credentials.
        rows: What it writes.
        point: One of `POINTS`.
    """
    receiving, sending = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_write, args=(connecting, environment, rows, point, sending))
    process.start()
    sending.close()
    try:
        yield Suspended(process, receiving)
    finally:
        process.kill()
        process.join()


def _write(
    connecting: Mapping[str, Any],
    environment: Mapping[str, str],
    rows: list[dict[str, Any]],
    point: str,
    result: Connection,
) -> None:
    os.environ.update(environment)
    operation, path, done = POINTS[point]
    stopped: list[str] = []

    def hook(call: Call) -> None:
        here = call.operation == operation and path in call.path and call.done == done
        if here and not stopped:
            stopped.append(point)
            os.kill(os.getpid(), signal.SIGSTOP)

    with tablestore.connect(**connecting) as store:
        table = store.table("shop.t")
        storage = FaultyStorage(table.opened.storage, hook)
        with faulty_logs(storage):
            result.send(_outcome(again(table, storage=storage), rows))


def _outcome(table: Table, rows: list[dict[str, Any]]) -> str:
    try:
        return table.write(rows).commit_id
    except TableStoreError as error:
        return error.code
