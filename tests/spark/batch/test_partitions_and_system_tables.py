"""Partitions that are overwritten from Spark, and system tables as DataFrames."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from filestore.errors import InvalidRequest, NotFound
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tablestore.system.names import SYSTEM_TABLES
from tests.tables import in_order
from tests.warehouses import assert_whole, rows


@pytest.fixture
def sales(store: Store) -> Table:
    return store.create_table(
        "shop.sales",
        "id BIGINT, day DATE, name STRING",
        primary_key=["id", "day"],
        partition_by=["day"],
        options={"bucket": "2"},
    )


def some(lake: SparkStore, *days: str, count: int = 3, name: str = "a") -> DataFrame:
    listed = [(n, day, name) for day in days for n in range(count)]
    frame = lake.spark.createDataFrame(listed, "id LONG, day STRING, name STRING")
    return frame.selectExpr("id", "cast(day AS DATE) day", "name")


def save(lake: SparkStore, frame: DataFrame, **options: str) -> None:
    writer = frame.write.format("tablestore").option("catalog", lake.store.target).mode("overwrite")
    writer.options(**options).save("shop.sales")


def held(table: Table) -> set[tuple[str, int, str]]:
    return {(f"{row['day']:%d}", row["id"], row["name"]) for row in assert_whole(table)}


def system(lake: SparkStore, name: str, **which: int) -> list[dict[str, Any]]:
    return [row.asDict() for row in lake.read(f"shop.sales${name}", **which).collect()]  # type: ignore[arg-type]


@pytest.mark.deep
def test_partitions_are_overwritten(lake: SparkStore, sales: Table) -> None:
    lake.write("shop.sales", some(lake, "2026-01-01", "2026-01-02"))
    old = {(day, n, "a") for day in ("01", "02") for n in range(3)}
    assert held(sales) == old

    lake.write("shop.sales", some(lake, "2026-01-01", count=1, name="b"), overwrite="dynamic")
    second = {row for row in old if row[0] == "02"}
    assert held(sales) == second | {("01", 0, "b")}

    lake.write("shop.sales", some(lake, "2026-01-01", count=1, name="c"), overwrite={"day": "2026-01-01"})
    assert held(sales) == second | {("01", 0, "c")}
    with pytest.raises(InvalidRequest) as caught:
        lake.write("shop.sales", some(lake, "2026-01-01", "2026-01-02"), overwrite={"day": "2026-01-01"})
    assert caught.value.code == "outside-partitions"

    save(lake, some(lake, "2026-01-01", count=1, name="d"), partitionOverwriteMode="dynamic")
    assert held(sales) == second | {("01", 0, "d")}
    save(lake, some(lake, "2026-01-02", count=1, name="e"), partition="day=2026-01-02")
    assert held(sales) == {("01", 0, "d"), ("02", 0, "e")}
    for options, problem in (
        ({"partitionOverwriteMode": "dynamik"}, "use 'static' or 'dynamic'"),
        ({"partitionOverwriteMode": "dynamic", "partition": "day=2026-01-01"}, "leave 'partition' out"),
        ({"partition": "day=x"}, "give a value of that type"),
        ({"partition": "day=2026-01-01"}, "are not in the partitions that the overwrite names"),
    ):
        with pytest.raises(PySparkException, match=problem):
            save(lake, some(lake, "2026-01-02"), **options)
    assert held(sales) == {("01", 0, "d"), ("02", 0, "e")}
    sales.drop_partitions([{"day": "2026-01-01"}])
    assert [row.asDict() for row in lake.read("shop.sales").select("name").collect()] == [{"name": "e"}]


@pytest.mark.deep
def test_system_tables_are_data_frames(lake: SparkStore, sales: Table) -> None:
    lake.write("shop.sales", some(lake, "2026-01-01", "2026-01-02"))
    lake.write("shop.sales", some(lake, "2026-01-01", count=1, name="b"))
    lake.write("shop.sales", some(lake, "2026-01-02", count=1, name="c"), overwrite="dynamic")
    sales.compact(full=True)
    for name in SYSTEM_TABLES:
        which = {"from_version": 1} if name == "changes" else {}
        here = sales.system(name, **which)  # type: ignore[arg-type]
        frame = lake.read(f"shop.sales${name}", **which)  # type: ignore[arg-type]
        assert frame.columns == here.schema.names
        assert frame.count() == here.to_arrow().num_rows, name
    assert {(row["version"], row["operation"]) for row in system(lake, "snapshots")} >= {(1, "WRITE"), (3, "OVERWRITE")}
    assert {row["partition"]["day"] for row in system(lake, "files")} == {"2026-01-01", "2026-01-02"}
    assert sum(row["live_record_count"] for row in system(lake, "partitions", version=1)) == 6
    changes = lake.read("shop.sales$changes", from_version=1, to_version=3)
    kinds = {(row.rowkind, f"{row.day:%d}", row.id, row["name"]) for row in changes.collect()}
    assert kinds == {
        ("-U", "01", 0, "a"),
        ("+U", "01", 0, "b"),
        ("-U", "02", 0, "a"),
        ("+U", "02", 0, "c"),
        ("-D", "02", 1, "a"),
        ("-D", "02", 2, "a"),
    }
    audited = lake.read("shop.sales$audit_log").where("_commit_version = 3")
    counts = {row["rowkind"]: row["count"] for row in audited.groupBy("rowkind").count().collect()}
    assert counts == {"-D": 3, "+I": 1}
    assert audited.rdd.getNumPartitions() == 2, "a task for each bucket"
    before = in_order(row.asDict() for row in lake.read("shop.sales", version=1).collect())
    assert before == rows(sales, 1)


@pytest.mark.deep
def test_the_format_knows_system_tables(lake: SparkStore, sales: Table) -> None:
    lake.write("shop.sales", some(lake, "2026-01-01"))
    reader = lake.spark.read.format("tablestore").option("catalog", lake.store.target)
    assert reader.load("shop.sales$files").count() == len(sales.files())
    assert reader.option("fromVersion", 0).option("toVersion", 1).load("shop.sales$changes").count() == 3
    for path, problem in (
        ("shop.sales$flies", "no system table 'flies'"),
        ("shop.sales$files", "takes no from_version"),
    ):
        with pytest.raises(PySparkException, match=problem):
            reader.option("fromVersion", 0).load(path).count()
    with pytest.raises(PySparkException, match="is a system table, which can only be read"):
        some(lake, "2026-01-01").write.format("tablestore").option("catalog", lake.store.target).mode("append").save(
            "shop.sales$files"
        )
    with pytest.raises(InvalidRequest) as caught:
        lake.read("shop.sales", from_version=1)
    assert caught.value.code == "bad-versions"
    with pytest.raises(NotFound):
        lake.read("shop.sales$flies")
