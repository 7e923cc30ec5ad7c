"""What another consumer of the Kafka topic reads when a writer stops between log and snapshot."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tablestore.recovering.recovery
from filestore.ambient import system_ambient
from filestore.errors import Unavailable
from filestore.storage.local import LocalStorage
from log.table.session import LogSession
from log.table.systems import open_log
from tablestore import Store, Table
from tests.faults import FailAt, FaultyStorage
from tests.integration.crashing import reach
from tests.integration.foreign import ForeignConsumer
from tests.opened import again
from tests.processes import PROCESSES
from tests.servers.kafka import KafkaBroker
from tests.waiting import until
from tests.warehouses import assert_whole, changes, replay, rows


def kafka_table(store: Store, broker: KafkaBroker, **options: str) -> Table:
    options = {"bucket": "2", "log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap} | options
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options=options)


def put(table: Table, *ids: int, name: str = "a", **how: Any) -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)}), **how).version


def on(table: Table, storage: Any) -> Table:
    """Opens the table on another storage, as another process does."""
    return again(table, storage=storage)


def session_of(table: Table) -> LogSession:
    config = table.opened.log_config()
    assert config is not None
    return LogSession(config, table.opened.ambient)


@pytest.fixture
def table(store: Store, kafka_broker: KafkaBroker) -> Table:
    return kafka_table(store, kafka_broker)


@pytest.fixture
def foreign(table: Table) -> Iterator[ForeignConsumer]:
    with ForeignConsumer(table) as consumer:
        yield consumer


def test_other_consumers_read_what_the_table_holds(table: Table, foreign: ForeignConsumer) -> None:
    put(table, 1, 2, 3)
    put(table, 2, name="b")
    table.write(pa.table({"id": [1], "_kind": ["-D"]}))
    foreign.catch_up()
    assert replay(foreign.changes(), ["id"]) == assert_whole(table)
    put(table, 9, overwrite=True)
    foreign.catch_up()
    assert foreign.values[-1]["op"] == "m", "a control record says that the table was replaced"


@pytest.mark.few(2)
@pytest.mark.parametrize("point", ["commit", "data-file", "sync"])
def test_log_written_snapshot_not(table: Table, foreign: ForeignConsumer, point: str) -> None:
    """The writer lives and aborts its transaction: nobody ever reads its records, and nobody waits for them."""
    put(table, 1)
    path = {"commit": ".json", "data-file": "bucket", "sync": "bucket"}[point]
    operation = {"commit": "write_new", "data-file": "append", "sync": "sync"}[point]
    fault = FailAt(1, Unavailable("disk full"), operation=operation, path=path)
    with pytest.raises(Unavailable):
        put(on(table, FaultyStorage(LocalStorage(), fault)), *range(20), name="never")
    assert fault.fired
    put(table, 2)
    foreign.catch_up()
    assert {value["after"]["name"] for value in foreign.values} == {"a"}
    assert [row["id"] for row in assert_whole(table, leftovers=point == "data-file")] == [1, 2]


def test_a_lost_reply_of_the_commit(table: Table, foreign: ForeignConsumer) -> None:
    fault = FailAt(1, Unavailable("late"), operation="write_new", path=".json", after=True)
    assert put(on(table, FaultyStorage(LocalStorage(), fault)), 1, 2) == 1
    assert fault.fired
    foreign.catch_up()
    assert len(foreign.values) == 2
    assert_whole(table)


def test_snapshot_written_log_not(table: Table, foreign: ForeignConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our readers see the commit at once; the topic's other consumers see it after the next write by anyone."""

    def unreachable(*how: Any) -> Any:
        raise Unavailable("the network is down")

    put(table, 1)
    with monkeypatch.context() as patch:
        writer = on(table, LocalStorage())
        writer.writer()._recovery.before_write(table.filestore.state(), session_of(table))
        patch.setattr(tablestore.recovering.recovery.Recovery, "commit_transactions", unreachable)
        assert put(writer, 2, 3) == 2
    assert len(assert_whole(table)) == 3
    foreign.poll()
    assert [value["after"]["id"] for value in foreign.values] == [1]
    put(on(table, LocalStorage()), 4)
    foreign.catch_up()
    assert sorted(value["after"]["id"] for value in foreign.values) == [1, 2, 3, 4]


def test_a_repeated_batch_rolls_the_log_forward(
    table: Table, foreign: ForeignConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        writer = on(table, LocalStorage())
        writer.writer()._recovery.before_write(table.filestore.state(), session_of(table))
        patch.setattr(tablestore.recovering.recovery.Recovery, "commit_transactions", lambda *_: None)
        put(writer, 1, app=("query", 0))
    foreign.poll()
    assert foreign.values == []
    assert put(on(table, LocalStorage()), 1, app=("query", 0)) == 1
    foreign.catch_up()
    assert len(foreign.values) == 1


def wait_before_commit(where: Any, name: str, at_commit: Any) -> None:
    """Stops a writer between its log and its snapshot, once."""

    def hook(call: Any) -> None:
        if call.operation == "write_new" and call.path.endswith(".json") and not at_commit.is_set():
            at_commit.set()
            os.kill(os.getpid(), signal.SIGSTOP)

    table = reach(where)
    put(on(table, FaultyStorage(LocalStorage(), hook)), 1, 5, name=name)


@pytest.mark.few(1)
@pytest.mark.parametrize("end", ["goes-on", "dies"])
def test_a_writer_that_is_stopped_for_long_keeps_its_transaction_until_it_dies(
    table: Table, foreign: ForeignConsumer, end: str
) -> None:
    """Only a dead writer's transaction is aborted: a time-out would abort what a slow writer commits later."""
    at_commit = PROCESSES.Event()
    stopped = PROCESSES.Process(target=wait_before_commit, args=(table.opened.identity, "slow", at_commit))
    stopped.start()
    try:
        assert at_commit.wait(300)
        until(lambda: Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        put(on(table, LocalStorage()), 1, 2)
        foreign.poll()
        assert foreign.values == [], "held back by the open transaction"
        os.kill(stopped.pid, signal.SIGCONT if end == "goes-on" else signal.SIGKILL)
        stopped.join(300)
    finally:
        if stopped.is_alive():
            stopped.kill()
    if end == "goes-on":
        assert stopped.exitcode == 0
        assert {row["id"]: row["name"] for row in rows(table)} == {1: "slow", 2: "a", 5: "slow"}
    put(table, 7)
    foreign.catch_up()
    assert_whole(table)


def test_a_living_writers_lease_is_seen_by_others(table: Table) -> None:
    seen: list[set[str]] = []

    def dead(open_ids: Sequence[str]) -> set[str]:
        seen.append(table.filestore.leases.dead_among({id_.split("/")[1] for id_ in open_ids}))
        return set()

    def hook(call: Any) -> None:
        if call.operation == "write_new" and call.path.endswith(".json") and not call.done:
            config = table.opened.log_config()
            with open_log(config, system_ambient()) as log:
                log.abort_unnamed(dead)

    put(on(table, FaultyStorage(LocalStorage(), hook)), 1)
    assert seen == [set()]
    assert len(changes(table, version=0)) == 1
