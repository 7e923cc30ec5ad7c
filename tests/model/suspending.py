"""Writers of a table in a store of objects that stop at any of their calls, are given up, and go on later.

The store is in memory, and the log in SQLite files, as no log of Kafka's can be stopped at a call. No clock runs by
itself: only pauses let time pass. So a writer that stands still renews no lease, and every other process takes it for
dead as soon as it has looked for a time-out.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from filestore.ambient import Ambient
from filestore.errors import Conflict, TableStoreError
from filestore.layout import LEASES, join
from filestore.model.definition import TableDefinition
from filestore.model.sql import parse_columns
from filestore.table import FileStore
from log.table.config import LogConfig, log_config
from log.table.embedded.store import EmbeddedLog
from log.table.systems import open_log
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore import Table
from tests.faults import Call, FaultyStorage, Killed, faulty_logs
from tests.simulation.memory import MemoryStorage, scanned_from
from tests.simulation.turns import Task, Turns, single_threaded
from tests.tables import assert_healthy
from tests.warehouses import changes, replay, rows

__all__ = [
    "EVENTUAL",
    "KINDS",
    "LOCATION",
    "Deed",
    "Kind",
    "Process",
    "Running",
    "World",
    "overwritten",
    "recovered",
    "rolled_back",
    "upserted",
    "world",
]

LOCATION = "mem://lake/shop/t"
TABLE_ID = "11111111-2222-4333-8444-555555555555"
KEYS = 5
EVENTUAL = {"log_consistency": "eventual"}

Deed = Callable[[Table], object]


@dataclass(frozen=True, slots=True)
class _LoggedOnDisk(TableIdentity):
    """A table in a store of objects, with a log in a folder."""

    log_folder: str = ""

    def log_config(self, definition: TableDefinition) -> LogConfig | None:
        return log_config(
            definition,
            database=self.database,
            table=self.name,
            folder=self.folder,
            table_id=self.table_id,
            location=self.log_folder,
        )


class Process:
    """One program with its own view of the table. Its calls are counted, and wait for their turns.

    Attributes:
        calls: The calls so far: of the storage, and of the log.
        dies_at: The number of the call before which it dies; None if it lives.
    """

    def __init__(self, world: World, name: str, dies_at: int | None = None) -> None:
        self.name = name
        self.calls = 0
        self.dies_at = dies_at
        self._world = world
        self._dead = False
        self._table: Table | None = None
        self.storage = FaultyStorage(world.storage, self._hook)
        self.ambient = Ambient(world.now_ms, world.new_id, world.dice.random, self._sleep, lambda: world.now_s)
        world.processes[self.ambient.sleep] = self

    @property
    def table(self) -> Table:
        """The table as this process has opened it, at its first use."""
        if self._table is None:
            self._table = Table(OpenedTable(self._world.identity, self.storage, self.ambient))
        return self._table

    def _sleep(self, seconds: float) -> None:
        self._world.now_s += seconds

    def _hook(self, call: Call) -> None:
        if self._dead:
            raise Killed(self.name)
        if call.done or call.operation == "append":  # an append is called inside of a library, which must not wait
            return
        self.calls += 1
        self._world.history.append(f"{self.name} {self.calls} {call.operation} {call.path.removeprefix(LOCATION)}")
        if self._world.turns.current is not None:
            self._world.turns.current.wait()
        if self.calls == self.dies_at:
            self._dead = True
            raise Killed(self.name)


class World:
    """The store, the clock and the processes of one case."""

    def __init__(self, folder: Path, seed: int, **options: str) -> None:
        self.dice = random.Random(seed)
        self.now_s = 0.0
        self.storage = MemoryStorage(self.now_ms)
        self.turns = Turns()
        self.processes: dict[Any, Process] = {}
        self.history: list[str] = []
        self.identity = _LoggedOnDisk("shop", "t", TABLE_ID, LOCATION, log_folder=str(folder))
        (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
        given = {"bucket": "2", "log.system": "embedded", **options}
        definition = TableDefinition.of(parse_columns("id BIGINT, v STRING", ["id"]), ["id"], (), given)
        config = self.identity.log_config(definition)
        assert config is not None
        self.maker = Process(self, "maker")
        with open_log(config, self.maker.ambient) as log:
            log.create()
            FileStore.create(self.maker.storage, LOCATION, definition, TABLE_ID, self.maker.ambient, log.identity())

    def now_ms(self) -> int:
        self.now_s += 0.001
        return 1_700_000_000_000 + int(self.now_s * 1000)

    def new_id(self) -> str:
        text = f"{self.dice.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"

    def process_of(self, ambient: Ambient) -> FaultyStorage:
        """The storage of the process whose clock it is; a log is opened with it."""
        return self.processes[ambient.sleep].storage

    def begin(self, process: Process, deed: Deed) -> Running:
        """Begins a deed, which stands still before its first call."""
        return Running(self, process, deed)

    def check(self, outcomes: Sequence[tuple[str, object]]) -> None:
        """Files, log and readers agree, each write that was acknowledged is there once, and no other.

        Args:
            outcomes: The name that each writer writes as ``v``, and what it got.
        """
        last = Process(self, "last").table
        last.write([{"id": KEYS, "v": "last"}])
        last.recover()
        report = assert_healthy(last.filestore)
        assert not report.orphans, report.orphans
        snapshots = {s.version: s for s in last.snapshots()}
        for name, outcome in outcomes:
            self._check_outcome(name, outcome, snapshots)
        assert not self.storage.list_tagged(join(LOCATION, LEASES)), "a lease is left"
        found = rows(last)
        assert replay(changes(last, version=0), ["id"]) == found
        assert replay(changes(last), ["id"]) == found
        self._check_log(last)

    def _check_outcome(self, name: str, outcome: object, snapshots: Any) -> None:
        made = getattr(outcome, "commit_id", None)
        if made is not None:
            assert [s.commit_id for s in snapshots.values()].count(made) == 1, (name, outcome)
            return
        assert isinstance(outcome, (Conflict, Killed)), (name, outcome)
        if isinstance(outcome, Conflict):
            assert outcome.code == "fenced", (name, outcome)

    def _check_log(self, table: Table) -> None:
        """The log has the records of versions, and with transactions no others, as others read it."""
        config = table.opened.log_config()
        assert config is not None
        counted: Counter[str] = Counter()
        for path in sorted(Path(config.location).glob("bucket-*.sqlite")):
            with closing(sqlite3.connect(path)) as connection:
                for id_, count in connection.execute("SELECT transaction_id, count FROM segments"):
                    counted[id_] += count
        named = Counter(
            {t.id: sum(r.count for r in t.ranges) for s in table.snapshots() for t in s.transactions if t.ranges}
        )
        if config.eventual:
            assert all(counted[id_] == count for id_, count in named.items())
            return
        assert counted == named
        with open_log(config, self.maker.ambient) as log:
            assert log.open_transactions() == []


class Running:
    """A deed in progress.

    Attributes:
        outcome: What it returned or raised; None while it runs.
    """

    def __init__(self, world: World, process: Process, deed: Deed) -> None:
        self.outcome: object = None
        self.process = process
        self._world = world
        self._deed = deed
        self._task = Task(self._do)
        world.turns.tasks.append(self._task)

    @property
    def done(self) -> bool:
        return self._task.done

    def step(self) -> None:
        """Goes on to the next call."""
        self._world.turns.resume(self._task)

    def until(self, call: int) -> None:
        """Goes on until it stands still before its n-th call, or has ended."""
        while not self.done and self.process.calls < call:
            self.step()

    def past(self, call: str) -> None:
        """Goes on until it stands still right behind a call, which its name or path contains."""
        self.before(call)
        self.step()

    def before(self, call: str) -> None:
        """Goes on until it stands still right before a call."""
        calls = self._world.history
        own = len(calls)
        while not any(line.startswith(f"{self.process.name} ") and call in line for line in calls[own:]):
            assert not self.done, f"{self.process.name} has no call {call}"
            self.step()

    def finish(self) -> object:
        """Goes on to its end; returns what it got."""
        while not self.done:
            self.step()
        return self.outcome

    def _do(self) -> None:
        try:
            self.outcome = self._deed(self.process.table)
        except (TableStoreError, Killed) as error:
            self.outcome = error


@contextmanager
def world(folder: Path, seed: int = 0, **options: str) -> Iterator[World]:
    """A world whose work is all done in the threads of its tasks.

    An eventual log knows no open transactions here, as one of Kafka's, which has none.
    """
    with ExitStack() as stack:
        stack.enter_context(single_threaded())
        stack.enter_context(patch("filestore.leases.objects.Beats", lambda *_: nullcontext()))
        if "log_consistency" in options:
            stack.enter_context(patch.object(EmbeddedLog, "abort_unnamed", lambda *_: []))
            stack.enter_context(patch.object(EmbeddedLog, "stable_offsets", EmbeddedLog.end_offsets))
        made = World(folder, seed, **{name.replace("_", "."): value for name, value in options.items()})
        stack.enter_context(scanned_from(made.storage))
        stack.enter_context(faulty_logs(made.process_of))
        try:
            yield made
        finally:
            made.turns.abandon()


def upserted(process: Process) -> Deed:
    """Upserts and deletes some keys, under the process's name."""
    data = [{"id": n, "v": process.name, "_kind": "-D" if n == 3 else "+U"} for n in range(4)]
    return lambda table: table.write(data)


def overwritten(process: Process) -> Deed:
    """Replaces all rows by some with the process's name."""
    data = [{"id": n, "v": process.name} for n in range(1, 4)]
    return lambda table: table.write(data, overwrite=True)


def rolled_back(process: Process) -> Deed:
    """Restores the rows of version 1."""
    return lambda table: table.rollback(1)


def recovered(process: Process) -> Deed:
    """Repairs the log after dead writers."""
    return lambda table: table.recover()


Kind = Callable[[Process], Deed]
KINDS = [
    pytest.param(upserted, {}, id="upsert"),
    pytest.param(overwritten, {}, id="overwrite"),
    pytest.param(rolled_back, {}, id="rollback"),
    pytest.param(upserted, EVENTUAL, id="eventual upsert"),
    pytest.param(overwritten, EVENTUAL, id="eventual overwrite"),
]
"""Writers, with the options of their tables."""
