"""Merge engines in Spark: the same rows as without it, in batches and in streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from tablestore import Store
from tablestore.spark import SparkStore
from tests.tables import assert_healthy
from tests.warehouses import assert_whole, rows

ENGINES = {
    "updated": {"merge-engine": "partial-update", "fields.d.sequence-group": "n"},
    "summed": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.m.aggregate-function": "merge_map",
        "fields.d.aggregate-function": "max",
    },
    "first": {"merge-engine": "first-row"},
}


def test_every_engine_gives_in_spark_what_it_gives_without(lake: SparkStore, store: Store) -> None:
    frame = lake.spark.range(2000).selectExpr(
        "id % 300 AS id",
        "IF(id % 7 = 0, NULL, CAST(id AS INT)) AS n",
        "IF(id % 5 = 0, NULL, map(concat('k', id % 3), id)) AS m",
        "CAST(id AS DECIMAL(10,2)) AS d",
    )
    for name, options in ENGINES.items():
        chosen = {**options, "bucket": "3"}
        columns = "id BIGINT, n INT, m MAP<STRING, BIGINT>, d DECIMAL(10,2)"
        one = store.create_table(f"shop.{name}", columns, primary_key=["id"], options=chosen)
        other = store.create_table(f"shop.{name}_local", columns, primary_key=["id"], options=chosen)
        for part in (frame.where("id < 200"), frame):
            lake.write(f"shop.{name}", part.coalesce(1))
            other.write(part.coalesce(1).toArrow())
        assert_healthy(one.filestore)
        found, wanted = ({row["id"]: row for row in rows(table)} for table in (one, other))
        assert found == wanted


@pytest.mark.deep
def test_a_stream_that_sums_counts_each_batch_once(lake: SparkStore, store: Store, folder: Path) -> None:
    store.create_table("shop.orders", "id BIGINT, customer INT, amount BIGINT", primary_key=["id"])
    options = {
        "merge-engine": "aggregation",
        "fields.amount.aggregate-function": "sum",
        "fields.orders.aggregate-function": "count",
    }
    store.create_table(
        "shop.totals", "customer INT, amount BIGINT, orders BIGINT", primary_key=["customer"], options=options
    )
    for first in (0, 100):
        ids = f"id + {first} AS id"
        lake.write("shop.orders", lake.spark.range(100).selectExpr(ids, "CAST(id % 3 AS INT) customer", "id amount"))
        changes = lake.read_stream("shop.orders", max_rows_per_batch=30).selectExpr(
            "customer", "amount", "id AS orders"
        )
        query = lake.write_stream(
            "shop.totals", changes, checkpoint=str(folder / "checkpoint"), trigger={"availableNow": True}
        )
        query.awaitTermination()
    totals = {row["customer"]: (row["amount"], row["orders"]) for row in assert_whole(store.table("shop.totals"))}
    amounts = [sum(n for n in range(100) if n % 3 == k) * 2 for k in range(3)]
    assert totals == {0: (amounts[0], 68), 1: (amounts[1], 66), 2: (amounts[2], 66)}
