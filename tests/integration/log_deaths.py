"""Writers of many tables that all wait at one point between log and snapshot, where a test kills them together."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any
from unittest import mock

from filestore.ambient import system_ambient
from filestore.errors import Unavailable
from filestore.sorting.chunks import by_slot
from filestore.sorting.order import sort_rows
from filestore.storage.local import LocalStorage
from log.kafka.transactions import TransactionClient
from log.table.on_kafka.writer import KafkaLogWriter
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore.table import Table
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.faults import Call, FaultyStorage
from tests.integration.crashing import KEYS, Row
from tests.processes import PROCESSES
from tests.warehouses import to_arrow

__all__ = ["COMMITTED", "POINTS", "large_batch", "rows_after", "standing_still", "write_tasks"]

POINTS = ("before-flush", "after-flush", "after-snapshot", "between-ends")
COMMITTED = {"before-flush": False, "after-flush": False, "after-snapshot": True, "between-ends": True}
SECONDS = 120.0


def large_batch(seed: int, number: int) -> list[Row]:
    """Returns puts and deletes of so many keys of a small set that both of two buckets contain some."""
    dice = random.Random(f"{seed}.{number}")
    kinds = {key: "-D" if dice.random() < 0.25 else "+U" for key in dice.sample(range(KEYS), 30)}
    return [{"id": key, "batch": number if kind == "+U" else None, "_kind": kind} for key, kind in kinds.items()]


def rows_after(seed: int, numbers: Iterable[int]) -> list[Row]:
    """Returns the table's rows after those batches were written in order."""
    state: dict[int, Row] = {}
    for row in (row for number in numbers for row in large_batch(seed, number)):
        state.pop(row["id"], None)
        if row["_kind"] == "+U":
            state[row["id"]] = {"id": row["id"], "batch": row["batch"]}
    return [state[key] for key in sorted(state)]


def write_tasks(table: Table, rows: list[dict[str, Any]]) -> int:
    """Writes rows as Spark does, with a task and a log transaction for each bucket."""
    sorted_rows = sort_rows(to_arrow(table, rows), table.definition)
    parts = [part for _, part in by_slot(sorted_rows, table.definition)]

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        return [job.run(part.to_batches(), f"{number}.0") for number, part in enumerate(parts)]

    return table.writer().write(run).version


class _Points:
    """Runs in the writers' process: stops each thread at its point."""

    def __init__(self, point: str, reached: Callable[[], None]) -> None:
        self._point = point
        self._reached = reached
        self._calls = threading.local()

    def begin(self) -> None:
        """A thread begins a write, for the first time or again."""
        self._calls.seen, self._calls.committed = 0, False

    def pass_by(self, point: str, number: int) -> None:
        """A thread reaches a point, where it stops at the n-th time."""
        if point != self._point:
            return
        self._calls.seen += 1
        if self._calls.seen == number:
            self._reached()
            threading.Event().wait()

    def storage(self, call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith(".json") and call.done:
            self._calls.committed = True
            self.pass_by("after-snapshot", 1)

    def watching(self) -> ExitStack:
        """Watches the log's calls while the context is open."""
        prepare, end = KafkaLogWriter.prepare, TransactionClient.end
        points = self

        def watched_prepare(writer: KafkaLogWriter) -> Any:
            points.pass_by("before-flush", 2)
            found = prepare(writer)
            points.pass_by("after-flush", 2)
            return found

        def watched_end(client: TransactionClient, *args: Any, **named: Any) -> int:
            found = end(client, *args, **named)
            if points._calls.committed:  # calls that end earlier writes' transactions are left out
                points.pass_by("between-ends", 1)
            return found

        stack = ExitStack()
        stack.enter_context(mock.patch.object(KafkaLogWriter, "prepare", watched_prepare))
        stack.enter_context(mock.patch.object(TransactionClient, "end", watched_end))
        return stack


def _write_all(tables: Sequence[TableIdentity], seed: int, number: int, point: str, reached: Any) -> None:
    points = _Points(point, reached.release)

    def write(table: TableIdentity, own: int) -> None:
        while True:  # until it waits at the point: a broker that has just restarted may answer too late
            points.begin()
            opened = Table(OpenedTable(table, FaultyStorage(LocalStorage(), points.storage), system_ambient()))
            with suppress(Unavailable):
                write_tasks(opened, large_batch(seed + own, number))

    with points.watching():
        for own, table in enumerate(tables):
            threading.Thread(target=write, args=(table, own), daemon=True).start()
        threading.Event().wait()


def standing_still(tables: Sequence[TableIdentity], seed: int, number: int, point: str) -> Any:
    """Starts a process whose writers, one for each table, have all reached the point with the batch of that number."""
    reached = PROCESSES.Semaphore(0)
    process = PROCESSES.Process(target=_write_all, args=(tables, seed, number, point, reached))
    process.start()
    until = time.monotonic() + SECONDS
    for at in range(len(tables)):
        if not reached.acquire(timeout=max(0.0, until - time.monotonic())):
            process.kill()
            process.join()
            raise AssertionError(f"{at} of {len(tables)} writers reached {point} (exit code {process.exitcode})")
    return process
