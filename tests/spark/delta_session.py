"""A program whose Spark session has Delta, but no jar of ours, and reads tables of which a file is gone.

python tests/spark/delta_session.py WAREHOUSE      (prints what it finds, line by line)
"""

from __future__ import annotations

import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tablestore
from tablestore.jars import delta_jars
from tablestore.spark import SparkStore
from tablestore.spark.settings import DELTA


def found(frame: DataFrame) -> object:
    try:
        return frame.selectExpr("sum(v)").collect()[0][0]
    except (PySparkException, Py4JJavaError):
        return "refused"


def main(warehouse: str) -> None:
    settings = {**DELTA, "spark.jars": ",".join(map(str, delta_jars())), "spark.ui.enabled": "false"}
    builder = SparkSession.builder.master("local[1]")
    for name, value in (settings | {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with tablestore.connect(warehouse) as store:
        lake = SparkStore(spark, store)
        for name in ("shop.t", "shop.k"):
            before = lake.read(name)
            print(name, found(before))
            table = store.table(name)
            Path(table.location, next(iter(table.filestore.state().files)).path).unlink()
            spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
            print(name, found(before), found(lake.read(name)))
            spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
