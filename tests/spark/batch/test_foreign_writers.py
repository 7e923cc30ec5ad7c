"""A foreign writer cannot break keys: the writer feature `tablestore.primaryKey` makes it refuse."""

from __future__ import annotations

from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tablestore
from tablestore import Table

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> Table:
    store = tablestore.connect(str(tmp_path / "warehouse"))
    store.create_database("shop")
    table = store.create_table("shop.orders", "id BIGINT, status STRING", primary_key=["id"])
    table.write(pa.table({"id": [1, 2], "status": ["PAID", "SENT"]}))
    table.write(pa.table({"id": [3], "status": ["PAID"]}))  # a second file, so that OPTIMIZE has work to refuse
    return table


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO delta.`{0}` VALUES (1, 'TWICE')",
        "UPDATE delta.`{0}` SET status = 'LOST'",
        "DELETE FROM delta.`{0}`",
        "OPTIMIZE delta.`{0}`",
    ],
)
def test_delta_spark_refuses_to_write(spark: SparkSession, table: Table, statement: str) -> None:
    before = table.scan().to_polars()

    with pytest.raises((PySparkException, Py4JJavaError), match="delta-folder"):
        spark.sql(statement.format(table.location)).collect()

    assert table.scan().to_polars().equals(before)
    assert table.detail()["version"] == 2


def test_delta_rs_refuses_to_write(table: Table) -> None:
    with pytest.raises(DeltaError):
        deltalake.write_deltalake(table.location, pa.table({"id": [1], "status": ["TWICE"]}), mode="append")

    assert pl.scan_delta(table.location).collect().height == 3
    assert table.detail()["version"] == 2
