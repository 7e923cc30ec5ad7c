"""A Spark session with Delta's jars and settings in place. Any other session that has them will do as well."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from filestore.errors import Unavailable
from tablestore.jars import delta_jars, find_java

__all__ = ["spark_session"]

_DELTA: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_LOCAL: Mapping[str, str] = {
    "spark.master": "local[*]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Delta's own default of 50 partitions for a table's metadata is made for clusters
    "spark.databricks.delta.snapshotPartitions": "2",
    # rows of a batch on their way to a Python worker: larger ones save hand-overs, memory stays at some MB
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


def spark_session(app: str, extra_conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session on this machine, with Delta; jars are fetched once into a cache.

    Args:
        app: The application's name.
        extra_conf: Settings that go over the defaults here, such as ``spark.master`` or ``spark.driver.memory``.

    Raises:
        Unavailable: no Java, or the jars cannot be fetched.
    """
    find_java()
    # Spark starts whatever "python3" is on the path unless told: it may lack our packages
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    jars = ",".join(str(jar) for jar in delta_jars())
    builder = SparkSession.builder.appName(app).config("spark.jars", jars)
    for name, value in {**_LOCAL, **_DELTA, **(extra_conf or {})}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except OSError as error:
        raise Unavailable(f"Spark did not start: {error}", code="spark-start") from error
