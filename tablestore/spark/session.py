"""A Spark session with Delta's jars and settings in place. Any other session that has them will do as well."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark import SparkContext
from pyspark.sql import SparkSession

from filestore.arguments import checked
from filestore.errors import InvalidRequest, Unavailable
from tablestore.jars import delta_jars, find_java
from tablestore.spark.source import TableStoreSource

__all__ = ["spark_session"]

_DELTA: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_DEFAULTS: Mapping[str, str] = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Delta's own default of 50 partitions for a table's metadata is made for clusters
    "spark.databricks.delta.snapshotPartitions": "2",
    # with a limit of bytes Spark adds up all of a batch's buffers after each row, which takes longer than the rows do
    # (measured: half of the time to a Python worker); rows of 200 kB want the limit, or fewer records in a batch
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
_ON_ONE_MACHINE: Mapping[str, str] = {
    # measured: tests of our data source, which plan small queries all the time, take an eighth less
    "spark.python.daemon.module": "tablestore.spark.daemon",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # what a shuffle writes is read on this machine, where compressing takes longer than the disk does
    "spark.shuffle.compress": "false",
    # on a few cores, where nobody waits for a pause: measured, writing takes an eighth less than with G1
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}


@checked()
def spark_session(app: str, extra_conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session on this machine, with Delta; jars are fetched once into a cache. A running session is returned.

    Args:
        app: The application's name.
        extra_conf: Settings that go over the defaults here, such as ``spark.master`` or ``spark.driver.memory``.

    Raises:
        InvalidRequest: ``spark-session``: a session without Delta is running.
        Unavailable: no Java, or the jars cannot be fetched.
    """
    _require_delta(SparkContext._active_spark_context)
    find_java()
    # without these Spark starts the "python3" of the path, which may lack our packages
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    jars = ",".join(str(jar) for jar in delta_jars())
    builder = SparkSession.builder.appName(app).config("spark.jars", jars)
    settings = {**_DEFAULTS, **_DELTA, **(extra_conf or {})}
    if settings["spark.master"].startswith("local"):
        settings = {**_ON_ONE_MACHINE, **settings}
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except OSError as error:
        raise Unavailable(f"Spark did not start: {error}", code="spark-start") from error
    session.dataSource.register(TableStoreSource)
    return session


def _require_delta(running: SparkContext | None) -> None:
    """Spark would return the running session, which takes no jars and no extensions any more."""
    if running is None:
        return
    extensions = running.getConf().get("spark.sql.extensions") or ""
    if _DELTA["spark.sql.extensions"] not in extensions.split(","):
        raise InvalidRequest(
            "a Spark session is running in this process that lacks Delta's extension, and Spark cannot add it now: "
            "stop it first with spark.stop(), or make it with spark_session() in the first place",
            code="spark-session",
        )
