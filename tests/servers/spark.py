"""A Spark session with Delta for tests: as `spark_session` makes it, with small settings."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.class_archive import SPARK, archived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JVM", "SETTINGS", "SHORT_LIVED_JVM", "start_spark"]

ROOT = Path(__file__).parent.parent.parent

# The JVM's first compiler alone: a program that ends soon does so before the second has paid for itself.
SHORT_LIVED_JVM = {"JAVA_TOOL_OPTIONS": " ".join(["-XX:TieredStopAtLevel=1", *archived(SPARK)])}

# The first compiler alone, too: each test has queries of its own, and compiling them twice took half of the time.
# By default it has room for 48 MB of code: a long session then spends a tenth of its time on removing code.
_SESSION_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
JVM = " ".join([*_SESSION_JVM, *archived(SPARK)])
"""Options of the JVM of a session, or of an executor."""

SETTINGS = {
    "spark.master": "local[2,3]",  # two cores, and three attempts for a task
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JVM,
    # Compiling code for a query of a few rows takes longer than the rows: measured, a quarter of all queries' time.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.liveUpdate.period": "-1",  # nobody looks at the progress of tasks
    "spark.sql.shuffle.partitions": "3",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def start_spark(options: Sequence[str] = archived(SPARK)) -> SparkSession:
    """Starts the session of this process, with options of its JVM instead of the archive; the caller stops it."""
    from tablestore.spark import spark_session  # imported here, because tests without Spark must not need it

    os.environ["PYTHONPATH"] = str(ROOT)  # workers import the functions that tests send them
    rubbish = tempfile.mkdtemp(prefix="tablestore-spark-")
    folders = {"spark.sql.warehouse.dir": f"{rubbish}/warehouse", "spark.local.dir": f"{rubbish}/local"}
    java = {"spark.driver.extraJavaOptions": " ".join([*_SESSION_JVM, *options])}
    return spark_session("tests", SETTINGS | folders | java)
