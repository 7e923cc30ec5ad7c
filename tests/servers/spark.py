"""A Spark session with Delta for tests: as `spark_session` makes it, with small settings."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.depth import DEPTH, Depth
from tests.servers.class_archive import SPARK, SQL, archived

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

__all__ = [
    "INTERPRETED",
    "JVM",
    "SETTINGS",
    "SHORT_LIVED_JVM",
    "generates_code",
    "jars_in_path",
    "java_options",
    "short_lived_jvm_with_jars",
    "start_spark",
]

ROOT = Path(__file__).parent.parent.parent

# The JVM's first compiler alone: a program that ends soon does so before the second has paid for itself.
SHORT_LIVED_JVM = {"JAVA_TOOL_OPTIONS": " ".join(["-XX:TieredStopAtLevel=1", *archived(SPARK)])}

# The first compiler alone, too: each test has queries of its own, and compiling them twice took half of the time.
# By default it has room for 48 MB of code: a long session then spends a tenth of its time on removing code.
_SESSION_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
JVM = " ".join([*_SESSION_JVM, *archived(SPARK)])
"""Options of the JVM of a program that fetches jars as its settings name them, or of an executor."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Queries run without generated code: compiling it for a few rows took a quarter of all queries' time.

Spark evaluates some things elsewhere with generated code, such as what several conditions have in common, so half of
the deep runs have it: see `generates_code`.
"""

SETTINGS = {
    "spark.master": "local[2,3]",  # two cores, and three attempts for a task
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JVM,
    "spark.ui.liveUpdate.period": "-1",  # nobody looks at the progress of tasks
    "spark.sql.ui.explainMode": "simple",  # nor at the text of each plan, whose formatting took a twentieth of the time
    "spark.sql.shuffle.partitions": "3",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def generates_code(config: pytest.Config) -> bool:
    """Whether Spark runs this run's queries by code that it generates, its default: a deep run with an odd seed."""
    return DEPTH is Depth.DEEP and config.getoption("randomly_seed", default=0) % 2 == 1


def java_options(options: Sequence[str]) -> str:
    """Returns the options of a session's JVM, with those of an archive of its classes."""
    return " ".join([*_SESSION_JVM, *options])


def jars_in_path(options: Sequence[str] | None = None) -> dict[str, str]:
    """Returns the settings of a driver's JVM that has all jars in its class path: an archive has the classes of these.

    Args:
        options: Options of the JVM instead of the archive's.
    """
    from tablestore.spark.settings import in_class_path, program_settings

    java = java_options(archived(SQL) if options is None else options)
    return {"spark.driver.extraJavaOptions": java, **in_class_path(program_settings())}


def short_lived_jvm_with_jars() -> dict[str, str]:
    """Returns variables like `SHORT_LIVED_JVM` for a program of Python, whose JVM has all jars in its class path."""
    path = jars_in_path()["spark.driver.extraClassPath"]
    return {
        "JAVA_TOOL_OPTIONS": " ".join(["-XX:TieredStopAtLevel=1", *archived(SQL)]),
        "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {shlex.quote(path)} pyspark-shell",
    }


def start_spark(java: Mapping[str, str] | None = None, *, generated: bool = False) -> SparkSession:
    """Starts the session of this process; the caller stops it.

    Args:
        java: The settings of its JVM; None: those of `jars_in_path`.
        generated: Whether it generates code for queries.
    """
    from tablestore.spark import spark_session  # imported here, because tests without Spark must not need it

    os.environ["PYTHONPATH"] = str(ROOT)  # workers import the functions that tests send them
    rubbish = tempfile.mkdtemp(prefix="tablestore-spark-")
    folders = {"spark.sql.warehouse.dir": f"{rubbish}/warehouse", "spark.local.dir": f"{rubbish}/local"}
    settings = SETTINGS | ({} if generated else INTERPRETED) | folders
    return spark_session("tests", settings | (jars_in_path() if java is None else dict(java)))
