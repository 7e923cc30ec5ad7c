"""Compactors on two hosts, which share nothing but S3, PostgreSQL and Kafka, and of which one is killed at its work.

What they do is recorded outside of them: PostgreSQL notes each change of a lease by a trigger, and the requests of each
host go through a proxy of its own, which also holds a merge at its first file.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Any, Self

import polars as pl
import psutil
import pytest

import tablestore
from compaction.compact import plan_compaction
from filestore.model.snapshot import Operation
from tablestore import Store, Table
from tests.cli.programs import Program
from tests.depth import DEPTH, Depth
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import Call, Fault, Kind, S3Proxy
from tests.tables import assert_healthy
from tests.waiting import until
from tests.warehouses import changes, replay, rows

pytestmark = [pytest.mark.slow, pytest.mark.s3]

LEASE_S = 5.0
TABLES = 4
CHECKPOINT = re.compile(r"/_delta_log/(_last_checkpoint|[0-9]{20}\.checkpoint\.parquet)$")
READS = (Kind.GET, Kind.GET_RANGE, Kind.HEAD, Kind.LIST)

HISTORY = (
    "CREATE TABLE lease_history "
    "(number BIGSERIAL, at_ms DOUBLE PRECISION, table_id TEXT, owner TEXT, expires_at_ms BIGINT)",
    """
    CREATE FUNCTION note_lease() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE now_ms DOUBLE PRECISION := extract(epoch FROM clock_timestamp()) * 1000;
    BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO lease_history VALUES (DEFAULT, now_ms, OLD.table_id::text, '', 0);
        ELSE
            INSERT INTO lease_history VALUES (DEFAULT, now_ms, NEW.table_id::text, NEW.owner, NEW.expires_at_ms);
        END IF;
        RETURN NULL;
    END $$
    """,
    "CREATE TRIGGER note_lease AFTER INSERT OR UPDATE OR DELETE ON leases FOR EACH ROW EXECUTE FUNCTION note_lease()",
)


@dataclass(frozen=True)
class Held:
    """A change of a table's lease, as PostgreSQL has noted it.

    Attributes:
        at_ms: When, by the clock of the machine.
        table_id: The table.
        owner: ``host/process id/unique id``; empty: nobody from then on.
        expires_at_ms: Until when it is held.
    """

    at_ms: float
    table_id: str
    owner: str
    expires_at_ms: int

    @property
    def pid(self) -> int | None:
        return int(self.owner.split("/")[1]) if self.owner else None


@dataclass(frozen=True)
class Written:
    """A request of a compactor that changes something in a table's folder."""

    at_ms: float
    table: str
    pid: int
    key: str


class Host(AbstractContextManager["Host"]):
    """A compactor with folders of its own, which reaches S3 by a proxy of its own.

    Args:
        folder: A folder that nobody else uses.
        server: S3.
        settings: The variables by which it finds the catalog.
    """

    def __init__(self, folder: Path, server: S3Endpoint, settings: dict[str, str]) -> None:
        self.folder = folder
        self.proxy = S3Proxy(server, self._choose)
        self.written: list[Written] = []
        self.printed: list[str] = []
        """What compactors that have ended have reported."""
        self._settings = settings
        self._lock = Lock()
        self._running: Program | None = None
        self._pid = 0
        self._open, self._answer = Event(), None
        self._open.set()
        self.reached = Event()
        self.held = ""

    def __enter__(self) -> Self:
        self.proxy.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.set()
        if self._running is not None:
            self._running.__exit__(None, None, None)
        self.proxy.stop()

    def start(self) -> None:
        """Starts a compactor if none runs."""
        if self._running is not None:
            return
        own = {name: str(self.folder / name.lower()) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
        for folder in own.values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        variables = own | self.proxy.environment() | self._settings
        variables |= {"TABLESTORE_STORAGE": f"endpoint={self.proxy.endpoint};region={self.proxy.region}"}
        arguments = ("compactor", "--every", "0.2", "--lease", LEASE_S)
        self._running = Program(arguments, cwd=self.folder, **variables)
        self._pid = self._running.process.pid

    def hold_its_next_merge(self) -> None:
        """From now on it cannot store a data file, until `go_on` or `kill`."""
        self.reached.clear()
        self._open, self.held = Event(), ""

    def go_on(self) -> None:
        """Lets its requests pass."""
        self._answer = None
        self._open.set()

    def kill(self) -> None:
        """Ends the compactor where it stands; what it has sent and is held never arrives."""
        assert self._running is not None
        self._running.process.kill()
        assert self._running.wait() == -signal.SIGKILL
        self._ended()
        self._answer = Fault.RESET
        self._open.set()

    def end(self) -> None:
        """Ends the compactor as an operator does."""
        assert self._running is not None
        self._running.err.until_any("maintaining tables")
        self._running.process.send_signal(signal.SIGTERM)
        assert self._running.wait() == 0, self._running.err.lines
        self._ended()

    def _ended(self) -> None:
        assert self._running is not None
        self.printed += self._running.out.lines
        errors, self._running = self._running.err.lines, None
        assert [line for line in errors if "error[" in line] == []

    def files_of_others(self) -> list[str]:
        """Files beyond its folder that its process has opened to write."""
        assert self._running is not None
        opened = psutil.Process(self._pid).open_files()
        return [file.path for file in opened if file.mode != "r" and not Path(file.path).is_relative_to(self.folder)]

    def _choose(self, call: Call) -> Fault | None:
        """Records a request, and holds it if it stores a data file."""
        found = re.match(r"lake/shop/(t\d+)/", call.key)
        if found is None or call.kind in READS:
            return None
        with self._lock:
            self.written.append(Written(1000 * time.time(), found[1], self._pid, call.key))
        if "/bucket-" in call.key and call.kind in (Kind.PUT, Kind.PUT_IF, Kind.CREATE_UPLOAD):
            opened = self._open
            if not opened.is_set():
                self.held = found[1]
                self.reached.set()
                opened.wait()
                return self._answer
        return None


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def place(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> str:
    moto.set_environment(monkeypatch)
    for name in [name for name in os.environ if name.startswith("TABLESTORE_")]:
        monkeypatch.delenv(name)
    return f"s3://{moto.new_bucket()}/lake"


@pytest.fixture
def store(moto: S3Endpoint, postgres: PostgresServer, kafka_broker: KafkaBroker, place: str) -> Iterator[Store]:
    reached = {"endpoint": moto.endpoint, "region": moto.region}
    with tablestore.connect(
        place, database=postgres.url, storage_options=reached, brokers=kafka_broker.bootstrap
    ) as store:
        store.create_database("shop")
        for statement in HISTORY:
            postgres.ask(statement)
        yield store


def wear(table: Table, round_number: int) -> None:
    for v in range(3):
        table.write(pl.DataFrame({"id": range(v, 50), "v": [10 * round_number + v] * (50 - v)}))


def due(table: Table) -> bool:
    return bool(plan_compaction(table.filestore.state()))


@pytest.mark.deep
def test_each_table_is_kept_by_one_of_two_hosts_and_by_the_other_after_its_death(
    store: Store, moto: S3Endpoint, postgres: PostgresServer, place: str, tmp_path: Path, depth: Depth
) -> None:
    options = {"num-sorted-run.compaction-trigger": "3"}
    tables = {
        f"t{n}": store.create_table(f"shop.t{n}", "id BIGINT, v BIGINT", primary_key=["id"], options=options)
        for n in range(TABLES)
    }
    assert {table.definition.options["log.system"] for table in tables.values()} == {"kafka"}
    settings = {"TABLESTORE_CATALOG": place, "TABLESTORE_DATABASE": postgres.url}
    with Host(tmp_path / "one", moto, settings) as one, Host(tmp_path / "two", moto, settings) as two:
        killed, other = one, two
        for number in range(depth.times(1, deep=6)):
            for host in (one, two):
                host.hold_its_next_merge()
                host.start()
            for table in tables.values():
                wear(table, number)
            before = {name: rows(table) for name, table in tables.items()}
            until(lambda: one.reached.is_set() and two.reached.is_set(), what="a merge on each host")
            assert one.held != two.held, "both hosts work on the same table"
            assert one.files_of_others() == two.files_of_others() == []
            if DEPTH is Depth.DEEP:
                _outlives_its_time(postgres, [tables[host.held] for host in (one, two)])
            killed.kill()
            other.go_on()
            until(lambda: not any(due(table) for table in tables.values()), what="the compactions")
            _check_takeover(postgres, tables[killed.held], killed, other)
            assert {name: rows(table) for name, table in tables.items()} == before
            killed, other = other, killed
        killed.end()  # the one that has lived through the last round
        _check_history(postgres, tables, [one, two])
        for table in tables.values():
            assert assert_healthy(table.filestore).findings == ()
            assert replay(changes(table, version=0), ["id"]) == rows(table)


def _outlives_its_time(postgres: PostgresServer, tables: list[Table]) -> None:
    """Waits until both leases were renewed for longer than they last without that."""

    def renewed(table: Table) -> bool:
        mine = [held for held in history(postgres) if held.table_id == table.opened.identity.table_id]
        first = next(held for held in mine if held.owner == mine[-1].owner)
        return mine[-1].at_ms - first.at_ms > 1000 * LEASE_S

    until(lambda: all(renewed(table) for table in tables), what="leases that outlive their time")


def _check_takeover(postgres: PostgresServer, table: Table, killed: Host, other: Host) -> None:
    """The other host had the table as soon as the lease of the dead one had expired, and no sooner."""
    mine = [held for held in history(postgres) if held.table_id == table.opened.identity.table_id]
    pid = next(written.pid for written in reversed(killed.written))
    at = max(at for at, held in enumerate(mine) if held.pid == pid)
    assert mine[at + 1].pid == other.written[-1].pid
    assert mine[at + 1].at_ms >= mine[at].expires_at_ms


def _check_history(postgres: PostgresServer, tables: dict[str, Table], hosts: list[Host]) -> None:
    """No lease was taken that another held, nobody wrote without one, and each merge was done by one host."""
    noted = history(postgres)
    merges: Counter[tuple[str, int]] = Counter()
    for name, table in tables.items():
        mine = [held for held in noted if held.table_id == table.opened.identity.table_id]
        for before, after in itertools.pairwise(mine):
            free = not before.owner or before.expires_at_ms <= after.at_ms
            assert not after.owner or after.owner == before.owner or free, f"{after} took what {before} held"
        for host in hosts:
            for written in (written for written in host.written if written.table == name):
                if CHECKPOINT.search(written.key):
                    continue  # whoever has committed writes one beside, and needs no lease for it (decision 147)
                holder = next(held for held in reversed(mine) if held.at_ms <= written.at_ms)
                assert holder.pid == written.pid, f"{written} without the lease, which {holder} has"
        merges.update((name, s.version) for s in table.snapshots() if s.operation is Operation.COMPACT)
    reported: dict[int, Counter[tuple[str, int]]] = {}
    for at, host in enumerate(hosts):
        found = (re.match(r"shop\.(t\d+) compaction: version (\d+):", line) for line in host.printed)
        reported[at] = Counter((line[1], int(line[2])) for line in found if line is not None)
        assert {written.table for written in host.written}, "a host has done nothing"
    assert sum(reported.values(), Counter()) == merges
    assert len(merges) >= TABLES


def history(postgres: PostgresServer) -> list[Held]:
    found: list[tuple[Any, ...]] = postgres.ask(
        "SELECT at_ms, table_id, owner, expires_at_ms FROM lease_history ORDER BY number"
    )
    return [Held(*row) for row in found]
