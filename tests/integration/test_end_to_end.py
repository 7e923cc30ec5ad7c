"""The whole path at once: a catalog over HTTP, a log in Kafka, Spark on one side and plain Python on the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

import tablestore
from catalog_service.server import serving
from tablestore.spark import SparkStore
from tests.integration.foreign import ForeignConsumer
from tests.servers.kafka import KafkaBroker, quiet
from tests.warehouses import assert_whole, changes, replay, rows


@pytest.mark.slow
def test_from_a_service_through_kafka_and_spark_and_back(
    spark: SparkSession, kafka_broker: KafkaBroker, folder: Path
) -> None:
    with serving(str(folder / "warehouse")) as url, tablestore.connect(url) as store:
        store.create_database("shop")
        kafka = {"log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap}
        orders = store.create_table(
            "shop.orders",
            "id BIGINT, status STRING, price DECIMAL(12,2), at TIMESTAMP",
            primary_key=["id"],
            options={"bucket": "3", **kafka},
        )
        copy = store.create_table(
            "shop.copy",
            "id BIGINT, status STRING, price DECIMAL(12,2), at TIMESTAMP",
            primary_key=["id"],
            options={"bucket": "2"},
        )
        topic = f"shop.orders.{orders.opened.identity.table_id}"
        assert topic in AdminClient(quiet(kafka_broker.bootstrap)).list_topics().topics
        lake = SparkStore(spark, store)

        def copy_changes() -> None:
            lake.write_stream(
                "shop.copy",
                lake.read_stream("shop.orders"),
                checkpoint=str(folder / "checkpoint"),
                trigger={"availableNow": True},
            ).awaitTermination()

        with ForeignConsumer(orders) as foreign:
            load = spark.range(500).selectExpr(
                "id", "'new' status", "id / 4 price", "timestamp_seconds(1700000000 + id) at"
            )
            lake.write("shop.orders", load)
            copy_changes()
            assert rows(copy) == rows(orders)
            orders.write(pa.table({"id": [1, 2, 700], "status": ["paid", "sent", "new"]}))
            orders.write(pa.table({"id": [3, 4], "_kind": ["-D", "-D"]}))
            lake.write("shop.orders", spark.range(100, 110).selectExpr("id", "'late' status"))
            orders.compact(full=True)
            copy_changes()
            foreign.catch_up()
            found = assert_whole(orders)
            assert len(found) == 499
            assert rows(copy) == found
            assert sorted(row["id"] for row in replay(foreign.changes(), ["id"])) == [row["id"] for row in sorted(
                found, key=lambda row: row["id"])]  # fmt: skip
            assert len(changes(orders, version=1)) == 15
        assert lake.read("shop.orders").where("status = 'paid'").count() == 1
        store.drop_table("shop.orders")
        assert topic not in AdminClient(quiet(kafka_broker.bootstrap)).list_topics().topics
        assert store.list_tables("shop") == ["copy"]
        assert not Path(orders.location).exists()
