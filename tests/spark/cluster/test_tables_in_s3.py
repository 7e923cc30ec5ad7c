"""Tables in S3 whose commits the catalog's database holds, and tables with pending runs, in Spark.

On a cluster the tasks are in processes that lack our package, and in local mode in processes beside the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tablestore
from catalog_service.client import connect
from catalog_service.server import serving
from filestore.reading.overlay_table import overlay_location
from tests.depth import Depth
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.servers.s3 import MotoServer
from tests.servers.s3_proxy import Fault, S3Proxy
from tests.servers.spark_cluster import SparkCluster
from tests.servers.spark_driver import SparkDriver
from tests.spark.cluster.programs import COLUMNS
from tests.spark.cluster.s3_programs import (
    by_name,
    held_batches,
    held_runs,
    held_stream,
    past_the_catalog,
    pruned,
    read,
)
from tests.tables import assert_healthy, in_order, read_deltalake, read_polars
from tests.tablestore.test_catalog_commits import plain
from tests.warehouses import rows

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.s3]


@dataclass(frozen=True)
class Place:
    """An empty warehouse: its location, its catalog's database, and how it is reached."""

    location: str
    database: str
    options: dict[str, str]

    @property
    def bucket(self) -> str:
        return self.location.split("/")[2]

    @property
    def named(self) -> tuple[str, str, dict[str, str]]:
        return self.location, self.database, self.options


@pytest.fixture
def place(moto: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    moto.set_environment(monkeypatch)
    reached = {"endpoint": moto.endpoint, "region": moto.region}
    return Place(f"s3://{moto.new_bucket()}/lake", f"sqlite:///{tmp_path}/catalog.db", reached)


@pytest.fixture
def unconditional(moto: MotoServer, place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A warehouse in a store that ignores conditions. Spark's own readers do not pass by the proxy that does so."""
    with S3Proxy(moto, lambda _: Fault.DROP_CONDITIONS) as proxy:
        proxy.set_environment(monkeypatch)
        yield Place(place.location, place.database, {"endpoint": proxy.endpoint, "region": proxy.region})


def tuples(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["v"]) for row in found)


# ------------------------------------------------------------------------------------- the catalog holds the commits


EXPECTED = [(n, "b" if n < 10 else f"a{n}") for n in range(5, 1000)]


def check_held_batches(driver: SparkDriver, place: Place) -> None:
    assert driver.run(held_batches, *place.named) == EXPECTED
    check_tables(place, "now")


def check_held_stream(driver: SparkDriver, moto: MotoServer, place: Place) -> None:
    """Of which a micro-batch comes again: it has its commit already."""
    assert driver.run(held_stream, *place.named) == 1
    forget_the_end_of_a_batch(moto, place)
    assert driver.run(held_stream, *place.named) == 1
    check_tables(place, "now", "copy")


def check_more_that_is_held(driver: SparkDriver, place: Place) -> None:
    """Pending runs, compaction, and a stream that goes on; nobody passes the catalog by."""
    found = driver.run(held_runs, *place.named)
    assert found["later"] == found["compacted"] == EXPECTED
    assert len(found["changes"]) == 5 + 2 * 5
    assert driver.run(past_the_catalog, *place.named) == ["catalog-commits"] * 2
    with tablestore.connect(place.location, database=place.database, storage_options=place.options) as store:
        store.table("shop.now").write([{"id": 1, "v": "b"}])
        assert driver.run(held_stream, *place.named) == 2
        store.table("shop.now").write([{"id": 1, "v": None, "_kind": "-D"}])
        assert driver.run(held_stream, *place.named) == 3
    check_tables(place, "now", "later", "copy")


def check_tables(place: Place, *names: str) -> None:
    """All readers see the same rows, the database has the newest version, published, and tasks have left nothing."""
    with tablestore.connect(place.location, database=place.database, storage_options=place.options) as store:
        for name in names:
            table = store.table(f"shop.{name}")
            assert tuples(rows(table)) == tuples(plain(table)) == EXPECTED
            report = assert_healthy(table.filestore)
            assert [found for found in report.findings if not str(found.path).startswith("_overlays/")] == []
            state = table.filestore.state()
            assert state.catalog_commits
            newest = store._catalog.newest_claim("shop", name, state.table_id).claim()
            assert newest is not None
            assert (newest.version, newest.published) == (state.version, True)


def forget_the_end_of_a_batch(moto: MotoServer, place: Place) -> None:
    """Makes the checkpoint what it is when a driver dies behind our commit."""
    with moto.client() as s3:
        key = "lake/checkpoint/commits/0"
        assert key in moto.keys(place.bucket)
        s3.delete_object(Bucket=place.bucket, Key=key)


@pytest.mark.deep
def test_commits_that_the_catalog_holds(
    spark_cluster: SparkCluster, cluster_driver: SparkDriver, moto: MotoServer, unconditional: Place, depth: Depth
) -> None:
    check_held_batches(cluster_driver, unconditional)
    if depth is Depth.DEEP:
        check_held_stream(cluster_driver, moto, unconditional)
        check_more_that_is_held(cluster_driver, unconditional)


@pytest.mark.deep
def test_commits_that_the_catalog_holds_in_local_mode(
    local_driver: SparkDriver, moto: MotoServer, unconditional: Place
) -> None:
    """And by the name of the format, through a service: it is asked as long as the commit takes, and by no reader."""
    check_held_batches(local_driver, unconditional)
    check_held_stream(local_driver, moto, unconditional)
    check_more_that_is_held(local_driver, unconditional)
    location, database, options = unconditional.named
    with serving(location, database=database, storage_options=options) as url:
        assert local_driver.run(by_name, url, location) == [100, 150, 1000, 1000]
        with connect(url) as catalog, tablestore.connect(url) as store:
            table = store.table("shop.named")
            assert table.filestore.state().version == 3
            newest = catalog.newest_claim("shop", "named", table.filestore.state().table_id).claim()
            assert newest is not None and (newest.version, newest.published) == (3, True)
            assert_healthy(table.filestore)


# -------------------------------------------------------------------------------------------------------- pending runs


def check_pending(driver: SparkDriver, place: Place, depth: Depth = Depth.DEEP) -> None:
    """Spark makes an overlay, which it and delta-rs read; what is written later has another one."""
    with ExitStack() as stack:
        store = stack.enter_context(
            tablestore.connect(place.location, database=place.database, storage_options=place.options)
        )
        store.create_database("shop")
        options = {"bucket": "2", "write-mode": "merge-on-read"}
        store.create_table("shop.t", COLUMNS, primary_key=["id"], options=options)
        table = store.table("shop.t")
        table.write([{"id": n, "v": "a"} for n in range(300)])
        table.compact(full=True)
        table.write([{"id": n, "v": "b"} for n in range(200, 400)])
        table.write([{"id": n, "v": None, "_kind": "-D"} for n in range(50)])
        pending = tuples(rows(table))
        assert len(pending) == 350
        assert driver.run(read, *place.named, "shop.t") == pending
        found, plan = driver.run(pruned, *place.named, "shop.t", "id >= 398")
        assert found == [(398,), (399,)]
        assert "GreaterThanOrEqual(id,398)" in plan
        state = table.filestore.state()
        overlay = overlay_location(table.filestore.table_files(state), state.version)
        assert read_deltalake(overlay) == in_order(rows(table))
        assert len(read_deltalake(table.location)) == len(read_polars(table.location)) == 300, "as of the last fold"
        if depth is not Depth.DEEP:
            return
        assert driver.run(read, *place.named, "shop.t") == pending, "by the same overlay"
        assert driver.run(read, *place.named, "shop.t", fresh=True) == pending
        table.write([{"id": 1, "v": "c"}])
        assert driver.run(read, *place.named, "shop.t") == [(1, "c"), *pending]
        assert driver.run(read, *place.named, "shop.t", version=state.version) == pending
        table.compact(full=True)
        assert driver.run(read, *place.named, "shop.t") == [(1, "c"), *pending] == tuples(read_polars(table.location))
        assert_healthy(table.filestore)


@pytest.mark.deep
def test_pending_runs(spark_cluster: SparkCluster, cluster_driver: SparkDriver, place: Place, depth: Depth) -> None:
    check_pending(cluster_driver, place, depth)


@pytest.mark.deep
def test_pending_runs_in_local_mode(local_driver: SparkDriver, place: Place) -> None:
    check_pending(local_driver, place)


# ----------------------------------------------------------------------------------------------- what is in the log


@pytest.mark.deep
@pytest.mark.parametrize("consistency", ["eventual", "transactional"])
def test_fresh_rows_of_a_log_in_kafka(
    local_driver: SparkDriver, place: Place, kafka_broker: KafkaBroker, consistency: str
) -> None:
    """A writer stands between its records and its commit: an eventual log shows them, a transactional one does not."""
    with tablestore.connect(
        place.location, database=place.database, storage_options=place.options, brokers=kafka_broker.bootstrap
    ) as store:
        store.create_database("shop")
        options = {"bucket": "2", "log.consistency": consistency}
        options |= {} if consistency == "eventual" else {"write-mode": "merge-on-read"}
        store.create_table("shop.t", COLUMNS, primary_key=["id"], options=options)
        table = store.table("shop.t")
        assert table.definition.options["log.system"] == "kafka"
        table.write([{"id": n, "v": "a"} for n in range(100)])
        table.write([{"id": n, "v": "b"} for n in range(90, 110)])
        before, seen = tuples(rows(table)), []

        def look(call: Call) -> None:
            if call.operation == "write_new" and call.path.endswith(".json") and not call.done and not seen:
                seen.append(local_driver.run(read, *place.named, "shop.t", fresh=True))
                seen.append(local_driver.run(read, *place.named, "shop.t"))

        writer = again(table, storage=FaultyStorage(table.opened.storage, look))
        writer.write([{"id": n, "v": "c"} for n in range(50, 150)])
        after = tuples(rows(table))
        assert seen == [after if consistency == "eventual" else before, before]
        assert local_driver.run(read, *place.named, "shop.t", fresh=True) == after
