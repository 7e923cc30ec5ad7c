"""Streaming queries that read tables are measured on the driver."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tablestore
from tablestore.spark import SparkStore
from tests.folders import memory_folder
from tests.measured import measured
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.mark.deep
def test_time_to_first_row_and_latency_of_a_query(spark: SparkSession, folder: Path) -> None:
    metrics = tablestore.Metrics()

    def value(name: str) -> float:
        return measured(metrics, f"tablestore_follow_{name}").get(("shop.t",), 0)

    with memory_folder() as warehouse, tablestore.connect(str(warehouse), metrics=metrics) as store:
        store.create_database("shop")
        table = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
        table.write(pa.table({"id": range(5)}))
        changes = SparkStore(spark, store).read_stream("shop.t")
        query = changes.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
        try:
            query.processAllAvailable()
            until(lambda: value("first_row_seconds_count") == 1)
            assert value("rows_total") == 5
            assert value("latency_seconds_count") == 0, "the snapshot was there before the query"
            table.write(pa.table({"id": range(3, 7)}))
            query.processAllAvailable()
            until(lambda: value("latency_seconds_count") == 1)
            assert value("rows_total") == 9
            assert value("first_row_seconds_count") == 1
        finally:
            query.stop()
