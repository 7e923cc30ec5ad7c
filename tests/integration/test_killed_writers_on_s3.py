"""Kill -9 of a process that writes to a table in S3, at each of its calls and of its requests: all or nothing."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

import tablestore
from filestore.layout import LEASES, join
from filestore.model.snapshot import Operation
from filestore.storage.locations import S3Store
from filestore.storage.objects import ObjectStorage
from filestore.storage.s3_settings import S3Settings
from tablestore import Store, Table
from tests.depth import DEPTH, Depth
from tests.integration.crashing import APP, acknowledged, after, died, start_writing, write_on
from tests.integration.foreign import ForeignConsumer
from tests.integration.test_killed_writers import SCHEMA, by_value, crash, die_at_each_call
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import Call, Fault, Kind, S3Proxy
from tests.tables import assert_healthy
from tests.waiting import until
from tests.warehouses import assert_whole, replay, rows

pytestmark = [pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(1800)]

ENTRY = re.compile(r"/_delta_log/\d+\.json$")


@pytest.fixture
def store(moto: S3Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store in S3, whose catalog is a local database."""
    moto.set_environment(monkeypatch)
    place, reached = f"s3://{moto.new_bucket()}/lake", {"endpoint": moto.endpoint, "region": moto.region}
    with tablestore.connect(place, database=f"sqlite:///{tmp_path}/catalog.db", storage_options=reached) as opened:
        opened.create_database("shop")
        yield opened


def create(store: Store, broker: KafkaBroker | None = None, **options: str) -> Table:
    logged = {} if broker is None else {"log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap}
    options = {"bucket": "2", "log.lease-timeout": "1 s"} | logged | options
    table = store.create_table("shop.orders", SCHEMA, primary_key=["id"], options=options)
    assert isinstance(table, Table)
    assert table.definition.options["log.system"] == ("none" if broker is None else "kafka")
    return table


def known(table: Table) -> int:
    """How many batches the table has."""
    return table.filestore.state().app_versions.get(APP, -1) + 1


class Killer:
    """Kills a process as one of its requests arrives, which the store never sees."""

    def __init__(self, when: Callable[[Call], bool]) -> None:
        self._when = when
        self.pid = 0
        self.ready = Event()
        self.at: Call | None = None

    def __call__(self, call: Call) -> Fault | None:
        if self.at is not None or not self._when(call):
            return None
        self.at = call
        self.ready.wait()
        os.kill(self.pid, signal.SIGKILL)
        return Fault.RESET


def die_at_a_request(
    proxy: S3Proxy, table: Table, seed: int, acks: Path, when: Callable[[Call], bool]
) -> tuple[int, int]:
    """Runs a process that writes two batches, to its end or its death.

    Returns:
        How many batches the table had before, and how many commits have arrived.
    """
    before = known(table)
    proxy.reset()
    proxy.choose = killer = Killer(when)
    through = ObjectStorage(S3Store(S3Settings(proxy.endpoint, proxy.region)))
    process = start_writing(table, seed, before, acks, until=before + 2, storage=through)
    killer.pid = process.pid
    killer.ready.set()
    assert died(process) == (killer.at is not None)
    until(lambda: not proxy._open, what="what was on its way has arrived")
    return before, committed(proxy.calls, killer.at.number if killer.at else len(proxy.calls) + 1)


def committed(calls: list[Call], number: int) -> int:
    """How many log entries arrived before that request."""
    return sum(is_entry(call) and call.number < number for call in calls)


def is_entry(call: Call) -> bool:
    return call.kind is Kind.PUT_IF and ENTRY.search(call.key) is not None


@pytest.mark.parametrize("log", ["none", pytest.param("kafka", marks=[pytest.mark.deep, pytest.mark.kafka])])
def test_death_at_each_request_of_a_write(
    store: Store, moto: S3Endpoint, tmp_path: Path, seed: int, log: str, request: pytest.FixtureRequest
) -> None:
    table = create(store, request.getfixturevalue("kafka_broker") if log == "kafka" else None)
    acks = tmp_path / "acks"
    write_on(table, seed, 0, acks, until=2)
    with S3Proxy(moto) as proxy:
        points: list[Callable[[Call], bool]] = [is_entry, lambda call: committed(proxy.calls, call.number) == 1]
        if DEPTH is Depth.DEEP:
            die_at_a_request(proxy, table, seed, acks, lambda _: False)
            points += [lambda call, n=n: call.number == n for n in range(1, len(proxy.calls) + 1)]
        seen = []
        for when in points:
            version = table.filestore.state().version
            before, arrived = die_at_a_request(proxy, table, seed, acks, when)
            where = f"seed {seed}, {len(seen)}, {[(call.kind, call.key) for call in proxy.calls]}"
            now = known(again(table))
            later = [snapshot.operation for snapshot in table.snapshots() if snapshot.version > version]
            assert len(later) == arrived, where
            assert now - before == later.count(Operation.WRITE), where
            assert set(later) <= {Operation.WRITE, Operation.FENCE}, where  # of the one that died before
            assert rows(table) == by_value(after(seed, range(now))), where
            assert_healthy(table.filestore)
            seen.append(arrived)
        assert seen[:2] == [0, 1]
    check(table, seed, acks)


@pytest.mark.deep
@pytest.mark.kafka
@pytest.mark.parametrize("log", ["none", "kafka", "eventual"])
def test_death_at_each_call_of_a_write(
    store: Store, kafka_broker: KafkaBroker, tmp_path: Path, seed: int, log: str, depth: Depth
) -> None:
    """At every call of storage and log, before and after it."""
    consistency = {"log.consistency": "eventual"} if log == "eventual" else {}
    table = create(store, None if log == "none" else kafka_broker, **consistency)
    acks = tmp_path / "acks"
    write_on(table, seed, 0, acks, until=2)
    _, call = die_at_each_call(table, seed, 2, acks, depth.counting(13, deep=2 if log == "none" else 4))
    assert call > 20
    check(table, seed, acks)


@pytest.mark.deep
def test_deaths_of_a_writer_with_kafka(store: Store, kafka_broker: KafkaBroker, tmp_path: Path, seed: int) -> None:
    """As on a local disk: other consumers of the topic see what was committed, all of it, and nothing else."""
    table, acks = create(store, kafka_broker), tmp_path / "acks"
    with ForeignConsumer(table) as foreign:
        crash(store, table, seed, 8, acks)
        done = acknowledged(acks)
        write_on(store.table("shop.orders"), seed, done, acks, until=done + 1)
        table.recover()
        foreign.catch_up()
        assert replay(foreign.changes(), ["id"]) == assert_whole(table)


def check(table: Table, seed: int, acks: Path) -> None:
    """The next write succeeds; once the dead are given up, files, log and other readers agree, and no lease is left."""
    done = known(table)
    assert acknowledged(acks) <= done
    write_on(again(table), seed, done, acks, until=done + 1)
    table.recover()
    assert not table.opened.storage.list_tagged(join(table.location, LEASES))
    assert assert_whole(table) == by_value(after(seed, range(done + 1)))
    if table.definition.options["log.system"] == "kafka" and table.definition.options["log.consistency"] != "eventual":
        with ForeignConsumer(table) as foreign:
            foreign.catch_up()
