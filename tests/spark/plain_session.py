"""A program that makes a Spark session of its own, without Delta and without `SparkStore`, and knows a format's name.

python tests/spark/plain_session.py WAREHOUSE      (prints what it finds, line by line)
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import tablestore
from filestore.errors import InvalidRequest
from tablestore.spark import SparkStore, spark_session


def main(warehouse: str) -> None:
    settings = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1"}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    reader = spark.read.format("tablestore").option("catalog", warehouse)
    print("rows", [row.id for row in reader.load("shop.orders").collect()])
    more = spark.range(2, 4).write.format("tablestore").option("catalog", warehouse)
    more.mode("append").save("shop.orders")
    print("rows", sorted(row.id for row in reader.load("shop.orders").collect()))
    with tablestore.connect(warehouse) as store:
        print("version", SparkStore(spark, store).write("shop.orders", spark.range(5, 6)).version)
    try:
        spark_session("another")
    except InvalidRequest as error:
        print(error.code, error)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
