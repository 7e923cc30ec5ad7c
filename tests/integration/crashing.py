"""Writers that die at a chosen moment, and what they write: batches that are a function of their number."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas  # noqa: F401  # which pyarrow imports with its first array: once here, not in each child

import log.table.session
from filestore.ambient import system_ambient
from filestore.storage.interface import Storage
from filestore.storage.local import LocalStorage
from log.table.systems import open_log
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore.table import Table
from tests.faults import Call, FaultyStorage
from tests.processes import PROCESSES
from tests.warehouses import to_arrow

__all__ = [
    "APP",
    "KEYS",
    "Death",
    "Row",
    "acknowledge",
    "acknowledged",
    "after",
    "batch",
    "die_writing",
    "died",
    "reach",
    "start_writing",
    "struck",
    "write_on",
]

APP = "crasher"
KEYS = 40

Row = dict[str, Any]


def batch(seed: int, number: int) -> list[Row]:
    """Returns some puts and deletes of a small set of keys; each row contains its batch's number."""
    dice = random.Random(f"{seed}.{number}")
    found = []
    for key in dice.sample(range(KEYS), dice.randint(1, 12)):
        kind = "-D" if dice.random() < 0.25 else "+U"
        found.append({"id": key, "batch": number if kind == "+U" else None, "_kind": kind})
    return found


def after(seed: int, numbers: Iterable[int]) -> list[Row]:
    """Returns the table's rows after those batches were written in order."""
    rows: dict[int, Row] = {}
    for number in numbers:
        for row in batch(seed, number):
            if row["_kind"] == "-D":
                rows.pop(row["id"], None)
            else:
                rows[row["id"]] = {"id": row["id"], "batch": row["batch"]}
    return [rows[key] for key in sorted(rows)]


@dataclass(frozen=True)
class Death:
    """When a process kills itself, like ``kill -9``: before or after its n-th call of storage or log."""

    call: int


def start_writing(
    table: Table,
    seed: int,
    start: int,
    acks: Path,
    death: Death | None = None,
    until: int | None = None,
    storage: Storage | None = None,
) -> Any:
    """Starts a process that writes batches from `start` on.

    Args:
        table: The table.
        seed: Of the batches.
        start: The first batch.
        acks: Where the process records what was acknowledged.
        death: When it kills itself, if it does.
        until: The batch before which it ends.
        storage: The process's storage; the table's if None.
    """
    credentials = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    where = table.opened.identity, storage or table.opened.storage, credentials
    process = PROCESSES.Process(target=_write, args=(*where, seed, start, str(acks), death, until))
    process.start()
    return process


def die_writing(table: Table, seed: int, start: int, acks: Path, death: Death, until: int | None = None) -> bool:
    """Runs a process that writes batches from `start` on; returns whether it died before the batch `until`."""
    return died(start_writing(table, seed, start, acks, death, until))


def died(process: Any) -> bool:
    """Waits for a process's end; returns whether it was killed."""
    process.join(300)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("the writer hangs")
    assert process.exitcode in (0, -signal.SIGKILL), f"the writer ended with {process.exitcode} instead of dying"
    return bool(process.exitcode != 0)


def reach(table: TableIdentity, strike: Callable[[], None] = lambda: None, storage: Storage | None = None) -> Table:
    """Opens a table in another process, on a storage that calls `strike` before and after each call."""

    def hook(call: Call) -> None:
        if call.operation != "append" or call.done:  # a file has many appends
            strike()

    return Table(OpenedTable(table, FaultyStorage(storage or LocalStorage(), hook), system_ambient()))


def _write(
    table: TableIdentity,
    storage: Storage,
    credentials: Mapping[str, str],
    seed: int,
    start: int,
    acks: str,
    death: Death | None,
    until: int | None,
) -> None:
    os.environ.update(credentials)
    with struck(Countdown(death.call if death else 0)) as strike:
        write_on(reach(table, strike, storage), seed, start, Path(acks), until)


def write_on(table: Table, seed: int, start: int, acks: Path, until: int | None = None) -> None:
    """Writes batches one after the other, and records each that was acknowledged."""
    number = start
    while until is None or number < until:
        table.write(to_arrow(table, batch(seed, number)), app=(APP, number))
        acknowledge(acks, number)
        number += 1


def acknowledge(acks: Path, number: int) -> None:
    """Records that the write of a batch was acknowledged."""
    handle = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{number}\n".encode())
    os.close(handle)


def acknowledged(acks: Path) -> int:
    """Returns how many batches were acknowledged."""
    return len(acks.read_text().splitlines()) if acks.exists() else 0


class Countdown:
    """Kills this process at its n-th call."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class struck(AbstractContextManager[Callable[[], None]]):  # noqa: N801  # reads as a verb
    """While this context is open, logs that writers open call `strike` before and after each call, too."""

    def __init__(self, strike: Callable[[], None]) -> None:
        self._strike = strike

    def __enter__(self) -> Callable[[], None]:
        log.table.session.open_log = lambda *how: _Struck(open_log(*how), self._strike)
        return self._strike

    def __exit__(self, *exc: object) -> None:
        log.table.session.open_log = open_log


class _Struck:
    """A log, or a writer of one."""

    def __init__(self, inner: Any, strike: Callable[[], None]) -> None:
        self._inner = inner
        self._strike = strike

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._strike()
            result = getattr(self._inner, name)(*args, **kwargs)
            self._strike()
            return _Struck(result, self._strike) if name == "begin" else result

        return call
