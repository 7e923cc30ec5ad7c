"""delta-spark as the judge of what an expiry, a tag and a rollback leave; a stream that holds what it has to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from filestore.errors import InvalidRequest, NotFound
from tablestore import Table
from tablestore.spark import SparkStore
from tests.depth import sampled
from tests.tables import in_order
from tests.warehouses import assert_whole, rows, to_arrow

OPTIONS = {
    "bucket": "2",
    "checkpoint.interval": "3",
    "snapshot.num-retained.min": "2",
    "snapshot.time-retained": "0 ms",
}
NOW = {"availableNow": True}


@pytest.fixture
def orders(lake: SparkStore) -> Table:
    return lake.store.create_table("shop.orders", "id BIGINT, v INT", primary_key=["id"], options=OPTIONS)


def put(table: Table, *keys: int, value: int, overwrite: bool = False) -> int:
    return table.write(to_arrow(table, [{"id": n, "v": value} for n in keys]), overwrite=overwrite).version


def grow(table: Table, versions: int) -> None:
    for number in range(versions):
        put(table, number % 3, number, value=number)


def by_spark(lake: SparkStore, table: Table, version: int) -> list[dict[str, Any]]:
    frame = lake.spark.read.format("delta").option("versionAsOf", version).load(table.location)
    return in_order(row.asDict() for row in frame.collect())


@pytest.mark.deep
@pytest.mark.slow
def test_delta_spark_reads_all_that_is_promised(lake: SparkStore, orders: Table) -> None:
    grow(orders, 5)
    orders.create_tag("early", 4)
    orders.compact(full=True)
    grow(orders, 6)
    orders.rollback(tag="early")
    grow(orders, 3)
    assert orders.expire().log_entries
    promised = [snapshot.version for snapshot in orders.snapshots()]
    assert 4 in promised
    assert 5 not in promised
    for version in promised:
        assert by_spark(lake, orders, version) == rows(orders, version)
    with pytest.raises(NotFound) as caught:
        lake.read("shop.orders", version=5)
    assert caught.value.code == "snapshot-expired"
    orders.rollback(tag="early")
    assert in_order(row.asDict() for row in lake.read("shop.orders").collect()) == by_spark(lake, orders, 4)
    assert orders.examine().healthy


@pytest.mark.deep
@pytest.mark.slow
def test_a_stream_with_a_consumer_misses_nothing(lake: SparkStore, orders: Table, tmp_path: Path) -> None:
    grow(orders, 3)
    found: list[dict[str, Any]] = []

    def run(consumer: str | None, checkpoint: str) -> None:
        stream = lake.read_stream("shop.orders", consumer=consumer)
        writer = stream.writeStream.foreachBatch(lambda frame, _: found.extend(r.asDict() for r in frame.collect()))
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(**NOW).start().awaitTermination()

    run("job", "held")
    assert len(found) == len(rows(orders))
    (held,) = orders.consumers()
    assert held.version <= 3
    found.clear()
    before = rows(orders)
    put(orders, 7, 8, value=1, overwrite=True)  # whose rows are read from files
    grow(orders, 6)
    orders.compact(full=True)
    orders.expire()
    run("job", "held")
    assert {r["id"] for r in found if r["_kind"] == "-D"} == {r["id"] for r in before}
    assert {r["id"] for r in found if r["_kind"] != "-D"} == {r["id"] for r in rows(orders)}
    put(orders, 9, value=9)
    run("job", "held")  # Spark says that a batch is done when the next one begins
    assert orders.consumers()[0].version > held.version
    assert_whole_now(orders)


def assert_whole_now(table: Table) -> None:
    table.delete_consumer("job")
    assert table.examine().healthy
    assert table.expire().files


@pytest.mark.slow
@pytest.mark.deep
def test_a_rollback_reaches_a_stream(lake: SparkStore, orders: Table, tmp_path: Path) -> None:
    then = put(orders, 1, 2, value=1)
    put(orders, 2, 3, value=2)
    found: list[dict[str, Any]] = []

    def run() -> None:
        stream = lake.read_stream("shop.orders")
        writer = stream.writeStream.foreachBatch(lambda frame, _: found.extend(r.asDict() for r in frame.collect()))
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(**NOW).start().awaitTermination()

    run()
    found.clear()
    orders.rollback(then)
    run()
    assert sorted((r["_kind"], r["id"], r["v"]) for r in found) == [("+U", 2, 1), ("-D", 3, 2)]
    assert_whole(orders)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("mode", sampled(["metadata", "rewrite"], 2, test=2))
@pytest.mark.parametrize("write_mode", ["merge-on-write", "merge-on-read"])
def test_delta_spark_reads_a_rollback_over_changes_of_columns(lake: SparkStore, mode: str, write_mode: str) -> None:
    table = lake.store.create_table(
        "shop.changed",
        "id BIGINT, v INT, t STRING",
        primary_key=["id"],
        options=OPTIONS | {"schema.evolution-mode": mode, "write-mode": write_mode},
    )
    then = table.write(to_arrow(table, [{"id": n, "v": n, "t": "a"} for n in range(5)])).version
    table.write(to_arrow(table, [{"id": 4, "_kind": "-D"}, {"id": 7, "v": 7}]))
    table.compact(full=True)
    table.alter("ADD COLUMN n STRUCT<x: INT> FIRST", "ALTER COLUMN v COMMENT 'how many'")
    if mode == "metadata":
        table.alter("RENAME COLUMN t TO u", "ALTER COLUMN v TYPE BIGINT")
        table.alter("DROP COLUMN n", "ADD COLUMN t INT", "ADD COLUMN n INT")
    table.write(to_arrow(table, [{"id": 1, "v": 9}, {"id": 8, "v": 8}]))
    version = table.rollback(then).version
    found = by_spark(lake, table, version)
    assert [(row["id"], row["v"]) for row in sorted(found, key=lambda row: row["id"])] == [(n, n) for n in range(5)]
    assert in_order(found) == rows(table)
    assert in_order(row.asDict() for row in lake.read("shop.changed").collect()) == rows(table)
    filtered = lake.spark.read.format("delta").load(table.location).where("v >= 3 AND n IS NULL")
    assert {row["id"] for row in filtered.collect()} == {3, 4}, "statistics of then are true"
    assert table.examine().problems == ()


def test_a_bad_consumer_id_is_refused_before_anything_starts(lake: SparkStore, orders: Table) -> None:
    with pytest.raises(InvalidRequest, match="no id for a consumer"):
        lake.read_stream("shop.orders", consumer="a/b")
