"""Executors and whole hosts are killed in each phase of a write: exactly once, and what is left can be removed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tablestore
from filestore.layout import LEASES, join
from filestore.model.snapshot import Operation
from tablestore import Store
from tests.integration.foreign import ForeignConsumer
from tests.servers.kafka import KafkaBroker
from tests.servers.s3 import MotoServer
from tests.servers.spark_cluster import SparkCluster
from tests.servers.spark_driver import SparkDriver
from tests.spark.cluster.programs import COLUMNS, Gate, streamed_from, upserted
from tests.tables import assert_healthy, in_order
from tests.waiting import until
from tests.warehouses import assert_whole, open_in_log, replay, rows

pytestmark = pytest.mark.slow

IN_TASKS = ("after", "in", "before")  # the first is that of `make test`
IN_THE_DRIVER = ("commit", "committed")


def _executor(cluster: SparkCluster, at_the_gate: int) -> None:
    """The one whose task waits at the gate; any if the driver does."""
    found = [(worker, executor) for worker in cluster.workers for executor in worker.executors()]
    waiting = [pair for pair in found if at_the_gate in [child.pid for child in pair[1].children(recursive=True)]]
    worker, executor = (waiting or found)[0]
    worker.kill_executor(executor)


def _hosts(cluster: SparkCluster, _: int) -> None:
    """Both hosts, one after the other, each with all that runs there; they come back."""
    for worker in cluster.workers:
        worker.kill()
        worker.start()
    cluster.wait()


LOSSES: dict[str, Callable[[SparkCluster, int], None]] = {"executor": _executor, "hosts": _hosts}


def _lose(loss: str, cluster: SparkCluster, gate: Gate, running: Future[Any]) -> None:
    """Waits until the program is at the gate, kills, and lets it go on."""
    reached = Path(gate.folder) / "reached"
    until(lambda: reached.exists() or running.done(), seconds=600.0, what=f"the program is at {gate.phase}")
    assert reached.exists(), running.result()
    until(lambda: reached.read_text() != "", what="it has written its process id")
    LOSSES[loss](cluster, int(reached.read_text()))
    (Path(gate.folder) / "open").touch()


@pytest.mark.deep(rarely=4)
@pytest.mark.parametrize(("loss", "phase"), [*product(LOSSES, IN_TASKS)])
def test_an_upsert_into_s3(
    spark_cluster: SparkCluster, cluster_driver: SparkDriver, moto: MotoServer, tmp_path: Path, loss: str, phase: str
) -> None:
    reached = {"endpoint": moto.endpoint, "region": moto.region}
    place, database = f"s3://{moto.new_bucket()}/lake", f"sqlite:///{tmp_path / 'catalog.db'}"
    with pytest.MonkeyPatch.context() as environment:
        moto.set_environment(environment)
        with tablestore.connect(place, database=database, storage_options=reached) as store:
            store.create_database("shop")
            table = store.create_table("shop.orders", COLUMNS, primary_key=["id"], options={"bucket": "2"})
            table.write([{"id": n, "v": "a"} for n in range(100)])
            gate = Gate(str(tmp_path), phase)
            running = cluster_driver.begin(upserted, place, database, reached, gate)
            _lose(loss, spark_cluster, gate, running)
            assert running.result() == 2
            assert {row["id"]: row["v"] for row in rows(table)} == {n: "a" if n < 50 else "b" for n in range(150)}
            assert_healthy(table.filestore)
            table.remove_orphans(timedelta(0), dry_run=False, even_young=True)
            assert table.remove_orphans(timedelta(0)) == []
            assert len(rows(table)) == 150


BATCHES = [
    [{"id": n, "v": "a", "_kind": "+I"} for n in range(40)],
    [{"id": n, "v": "b", "_kind": "-D" if n < 10 else "+I"} for n in range(60)],
    [{"id": n, "v": "c", "_kind": "+I"} for n in range(55, 70)],
]
STREAMED = {n: "b" for n in range(10, 55)} | {n: "c" for n in range(55, 70)}


def _inbox(folder: Path) -> Path:
    """A folder with a file for each batch."""
    inbox = folder / "inbox"
    inbox.mkdir()
    for number, batch in enumerate(BATCHES):
        path = inbox / f"{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in batch))
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first
    return inbox


@pytest.mark.deep(rarely=4)
@pytest.mark.parametrize(("loss", "phase"), [*product(LOSSES, (*IN_TASKS, *IN_THE_DRIVER))])
def test_a_stream_into_a_table_with_a_log(
    spark_cluster: SparkCluster, cluster_driver: SparkDriver, store: Store, tmp_path: Path, loss: str, phase: str
) -> None:
    table = store.create_table("shop.orders", COLUMNS, primary_key=["id"], options={"bucket": "2"})
    gate = Gate(str(tmp_path), phase)
    places = str(_inbox(tmp_path)), str(tmp_path / "checkpoint")
    running = cluster_driver.begin(streamed_from, store.target, None, {}, *places, gate)
    _lose(loss, spark_cluster, gate, running)
    running.result()
    assert table.filestore.state().version == len(BATCHES), "one commit a batch"
    assert {row["id"]: row["v"] for row in assert_whole(table)} == STREAMED
    assert open_in_log(table) == [], "what lost attempts had prepared is aborted"
    table.remove_orphans(timedelta(0), dry_run=False, even_young=True)
    assert_whole(table, leftovers=False)


@pytest.mark.deep(rarely=4)
@pytest.mark.parametrize(("loss", "phase"), [*product(LOSSES, (*IN_TASKS, *IN_THE_DRIVER))])
def test_a_stream_into_s3_with_the_log_in_kafka(
    spark_cluster: SparkCluster,
    cluster_driver: SparkDriver,
    moto: MotoServer,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loss: str,
    phase: str,
) -> None:
    """The checkpoint is in S3, too. Consumers of the topic see each batch once, and nothing of lost attempts."""
    moto.set_environment(monkeypatch)
    reached = {"endpoint": moto.endpoint, "region": moto.region}
    place, database = f"s3://{moto.new_bucket()}/lake", f"sqlite:///{tmp_path / 'catalog.db'}"
    with tablestore.connect(place, database=database, storage_options=reached, brokers=kafka_broker.bootstrap) as lake:
        lake.create_database("shop")
        options = {"bucket": "2", "log.lease-timeout": "5 s"}
        lake.create_table("shop.orders", COLUMNS, primary_key=["id"], options=options)
        table = lake.table("shop.orders")
        assert table.definition.options["log.system"] == "kafka"
        gate = Gate(str(tmp_path), phase)
        places = str(_inbox(tmp_path)), f"{place}/checkpoint"
        running = cluster_driver.begin(streamed_from, place, database, reached, *places, gate)
        with ForeignConsumer(table) as foreign:
            _lose(loss, spark_cluster, gate, running)
            running.result()
            assert sorted(s.version for s in table.snapshots() if s.operation is Operation.WRITE) == [1, 2, 3]
            table.recover()
            foreign.catch_up()
            assert {row["id"]: row["v"] for row in assert_whole(table)} == STREAMED
            assert in_order(replay(foreign.changes(), ["id"])) == rows(table)
        assert not table.opened.storage.list_tagged(join(table.location, LEASES))
        table.remove_orphans(timedelta(0), dry_run=False, even_young=True)
        assert table.remove_orphans(timedelta(0)) == []
        assert {row["id"]: row["v"] for row in assert_whole(table)} == STREAMED
