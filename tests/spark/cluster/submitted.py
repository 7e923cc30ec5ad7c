"""A program for spark-submit, which makes its own session: ``submitted.py WAREHOUSE DATABASE ENDPOINT REGION``."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import tablestore
from tablestore.spark import SparkStore


def main(place: str, database: str, endpoint: str, region: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    reached = {"endpoint": endpoint, "region": region}
    with tablestore.connect(place, database=database, storage_options=reached) as store:
        store.create_database("shop")
        store.create_table("shop.orders", "id BIGINT", primary_key=["id"], options={"bucket": "2"})
        lake = SparkStore(spark, store)
        lake.write("shop.orders", spark.range(10))
        print("rows", lake.read("shop.orders").count(), "files", lake.read("shop.orders$files").count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
