"""A wrong bound in our statistics would lose rows in every reader that skips files by it."""

from __future__ import annotations

import polars as pl
import pytest
from pyspark.sql import SparkSession

from tablestore.spark import SparkStore
from tests.warehouses import warehouse

pytestmark = pytest.mark.spark

COLUMNS = "id INT, at TIMESTAMP, name STRING, d DECIMAL(12,2)"
ROWS = (
    "CAST(id AS INT) id",
    "TIMESTAMP'2026-01-01 00:00:00.999999' + make_interval(0, 0, 0, CAST(id AS INT)) at",
    "concat(repeat('ä', 70), id) name",
    "CAST(id / 7 AS DECIMAL(12,2)) d",
)


@pytest.mark.deep
def test_each_row_is_found_by_each_of_its_values(spark: SparkSession) -> None:
    with warehouse() as store:
        table = store.create_table("shop.wide", COLUMNS, primary_key=["id"])
        lake = SparkStore(spark, store)
        for first in (0, 100, 200):
            lake.write("shop.wide", spark.range(first, first + 100).selectExpr(*ROWS))
        delta = spark.read.format("delta").load(table.location)
        for row in table.scan().to_arrow().to_pylist()[::75]:
            for name in ("at", "name", "d"):
                assert row["id"] in {r.id for r in delta.where(delta[name] == row[name]).collect()}, name
                assert row["id"] in set(
                    pl.scan_delta(table.location).filter(pl.col(name) == row[name]).collect()["id"]
                ), name
