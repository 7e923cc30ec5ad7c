"""``write.format("tablestore")`` and ``writeStream.format("tablestore")``: staged runs, one commit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.warehouses import assert_whole, open_in_log, orphans, rows

ORDERS = "id BIGINT, name STRING, tags MAP<STRING, INT>"


@pytest.fixture
def orders(store: Store) -> Table:
    return store.create_table("shop.orders", ORDERS, primary_key=["id"], options={"bucket": "3"})


def save(lake: SparkStore, frame: DataFrame, mode: str = "append") -> None:
    frame.write.format("tablestore").option("catalog", lake.store.target).mode(mode).save("shop.orders")


def test_a_batch_is_one_commit(lake: SparkStore, orders: Table) -> None:
    spark = lake.spark
    save(lake, spark.range(0, 3000, 1, 3).selectExpr("id % 1000 id", "cast(id AS STRING) name", "map('k', 1) tags"))
    assert orders.filestore.state().version == 1
    assert {row["id"]: row["name"] for row in rows(orders)} == {k: str(2000 + k) for k in range(1000)}
    save(lake, spark.range(10).selectExpr("id", "IF(id < 5, '-D', '+U') _kind", "'b' name"))
    assert len(rows(orders)) == 995
    save(lake, spark.range(7).selectExpr("id", "'c' name"), mode="overwrite")
    assert {row["name"] for row in rows(orders)} == {"c"}
    assert orders.filestore.state().version == 3
    assert orphans(orders) == [], "staged runs are gone"
    assert open_in_log(orders) == []
    assert not orders.examine().problems


def test_a_partitioned_append_table(lake: SparkStore, store: Store) -> None:
    table = store.create_table("shop.orders", "id BIGINT, day INT", partition_by=["day"], options={"bucket": "2"})
    for _ in range(2):
        save(lake, lake.spark.range(0, 500, 1, 3).selectExpr("id", "IF(id % 5 = 0, NULL, cast(id % 3 AS INT)) day"))
    assert len(assert_whole(table)) == 1000


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("id; 'x' nmae", "nmae"),
        ("'x' name", "NOT NULL"),
        ("IF(id = 7, NULL, id) id", "contains 1 nulls"),
        ("id; IF(id = 3, '+X', '+I') _kind", "give each row one of"),
        ("IF(id = 3, 0.5D, cast(id AS DOUBLE)) id", "does not fit"),
        ("IF(id = 3, raise_error('no more'), id) id", "no more"),
    ],
)
def test_bad_rows_change_nothing(lake: SparkStore, orders: Table, select: str, problem: str) -> None:
    save(lake, lake.spark.range(5).selectExpr("id"))
    with pytest.raises(PySparkException, match=problem):
        save(lake, lake.spark.range(0, 100, 1, 2).selectExpr(*select.split("; ")))
    assert orders.filestore.state().version == 1
    assert [left for left in orphans(orders) if not (problem == "no more" and "staged-" in left)] == [], (
        "Spark gives a failing job up while other tasks still put rows away"
    )
    assert open_in_log(orders) == []


def test_bad_rows_are_not_tried_again(lake: SparkStore, orders: Table, folder: Path) -> None:
    """Another attempt meets the same rows."""
    attempts = str(folder / "attempts")

    def noted(batches: Any) -> Any:
        with open(attempts, "a") as file:
            file.write("x")
        yield from batches

    frame = lake.spark.range(9).coalesce(1).mapInArrow(noted, "id BIGINT")
    with pytest.raises(PySparkException, match=r"InvalidRequest: .*does not fit"):
        save(lake, frame.selectExpr("IF(id = 3, 0.5D, cast(id AS DOUBLE)) id"))
    assert Path(attempts).read_text() == "x"
    assert orders.filestore.state().version == 0
    assert orphans(orders) == []


def test_attempts_that_are_repeated_double_nothing(lake: SparkStore, orders: Table) -> None:
    def flaky(batches: Any) -> Any:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("once")

    frame = lake.spark.range(0, 300, 1, 2).selectExpr("id", "'a' name").mapInArrow(flaky, "id BIGINT, name STRING")
    save(lake, frame)
    assert len(assert_whole_keys(orders)) == 300


def assert_whole_keys(table: Table) -> set[int]:
    found = [row["id"] for row in rows(table)]
    assert len(found) == len(set(found))
    assert not table.examine().problems
    return set(found)


def drop_in(inbox: Path, number: int, *ids: int) -> None:
    draft = inbox.parent / "draft"
    draft.write_text("".join(json.dumps({"id": i, "name": str(number)}) + "\n" for i in ids))
    os.utime(draft, (1_700_000_000 + number,) * 2)
    draft.rename(inbox / f"{number:05d}.json")


def stream(lake: SparkStore, folder: Path) -> None:
    files = lake.spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", "1")
    writer = files.json(str(folder / "inbox")).writeStream.format("tablestore").option("catalog", lake.store.target)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start("shop.orders").awaitTermination()


def test_a_stream_is_exactly_once(lake: SparkStore, orders: Table, folder: Path) -> None:
    inbox = folder / "inbox"
    inbox.mkdir()
    drop_in(inbox, 0, 1, 2)
    drop_in(inbox, 1, 2, 3)
    stream(lake, folder)
    assert orders.filestore.state().version == 2
    assert {row["id"]: row["name"] for row in rows(orders)} == {1: "0", 2: "1", 3: "1"}
    # as if the driver had died after its commit and before Spark noted it
    (folder / "checkpoint" / "commits" / "1").unlink()
    (folder / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    drop_in(inbox, 2, 9)
    stream(lake, folder)
    assert orders.filestore.state().version == 3
    assert assert_whole_keys(orders) == {1, 2, 3, 9}
    assert orphans(orders) == []


@pytest.mark.deep  # tests/tablestore/writing/test_in_order.py has it without Spark
@pytest.mark.parametrize("way", ["write", "format", "stream"])
def test_an_update_to_a_lower_sequence_loses_no_row(lake: SparkStore, store: Store, folder: Path, way: str) -> None:
    """The former row of the update won over its new one, so the key lost its row."""
    made: dict[str, Any] = {"primary_key": ["id"], "options": {"sequence.field": "seq", "bucket": "2"}}
    table = store.create_table("shop.orders", "id BIGINT, seq INT, v STRING", **made)
    given = "id BIGINT, seq INT, v STRING, _kind STRING"
    first = [(1, 5, "old", "+I"), (2, 5, "old", "+I"), (3, 5, "old", "+I")]
    changed = [(1, 5, "old", "-U"), (1, 3, "new", "+U"), (2, 5, "old", "-U"), (2, None, "new", "+U")]
    changed += [(3, 5, "old", "-U"), (3, 6, "new", "+U")]
    if way == "stream":
        made["options"] = {"changelog-producer": "lookup"}
        source = store.create_table("shop.source", "id BIGINT, seq INT, v STRING", **made)
    for part in (first, changed):
        frame = lake.spark.createDataFrame(part, given).coalesce(1)
        if way == "write":
            lake.write("shop.orders", frame)
        elif way == "format":
            save(lake, frame)
        else:
            lake.write("shop.source", frame)
            changes = lake.read_stream("shop.source", mode="changelog")
            query = lake.write_stream(
                "shop.orders", changes, checkpoint=folder / "checkpoint", trigger={"availableNow": True}
            )
            query.awaitTermination()
    assert [(row["id"], row["seq"], row["v"]) for row in rows(table)] == [(1, 5, "old"), (2, 5, "old"), (3, 6, "new")]
    if way == "stream":
        assert [(row["id"], row["seq"]) for row in rows(source)] == [(1, 3), (2, None), (3, 6)]
