"""Makes a Spark session with Delta's jars and settings, and those of clusters and S3; others that have them will do."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from filestore.arguments import checked
from filestore.errors import InvalidRequest, Unavailable
from tablestore.jars import find_java
from tablestore.spark.interpreter import started_with_this_python
from tablestore.spark.settings import DELTA, SQL, TUNED, catalog_settings, joined, program_settings, refuse_secrets
from tablestore.spark.source import TableStoreSource
from tablestore.spark.sql.bridge import start_bridge
from tablestore.spark.sql.jar import sql_jar

__all__ = ["spark_session"]

_DEFAULTS: Mapping[str, str] = {
    **TUNED,
    "spark.master": "local[*]",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_ON_ONE_MACHINE: Mapping[str, str] = {
    "spark.ui.enabled": "false",
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
def spark_session(
    app: str,
    extra_conf: Mapping[str, str] | None = None,
    *,
    master: str | None = None,
    archive: str | PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    catalogs: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with Delta, on this machine or on a cluster; jars are fetched once into a cache.

    A running session is returned with these settings, as far as it can still take them.

    Args:
        app: The application's name.
        extra_conf: Settings that go over the defaults here, such as ``spark.driver.memory``. Lists of jars, archives,
            extensions and Java options are appended. Settings that carry credentials are refused.
        master: Such as ``spark://host:7077``; None: what `extra_conf` says, or else this machine.
        archive: An archive of `spark_archive`, for a cluster whose hosts lack this package. Without it they need the
            same Python and packages under the same paths as this process, or ``PYSPARK_PYTHON`` says which Python has
            them.
        storage_options: For tables in S3: how to reach it, as `tablestore.connect` takes them. The jars and settings
            of S3 are added, for ``s3://`` and ``s3a://``; ``{}`` if environment or profile says all. None: no S3.
        catalogs: Table stores as catalogs for SQL: for each name a warehouse or a service's URL, such as
            ``{"lake": "http://127.0.0.1:8080"}``, so that ``lake.shop.orders`` is a table in ``spark.sql``. Their other
            settings (docs/sql.md) are in `extra_conf`.

    Raises:
        InvalidRequest: ``spark-session``: a session without Delta is running. ``spark-archive``: the archive is of
            another version. ``spark-secret``, ``bad-storage-option``.
        NotFound: ``spark-archive-not-found``; ``no-sql-jar``: with `catalogs`.
        Unavailable: no Java, or the jars cannot be fetched.
    """
    _require_delta(SparkContext._active_spark_context)
    if catalogs:
        _require_sql(SparkContext._active_spark_context)
    find_java()
    given = dict(extra_conf or {}) | ({} if master is None else {"spark.master": master})
    if catalogs:
        sql_jar()
        given |= catalog_settings(catalogs)
    refuse_secrets(given)
    defaults = {**_DEFAULTS, **(_ON_ONE_MACHINE if _is_local(given) else {})}
    needed = program_settings(archive, storage_options)
    settings = joined(needed, {name: value for name, value in defaults.items() if name not in given}, given)
    builder = SparkSession.builder.appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with started_with_this_python(needed.get("spark.pyspark.python")):
            session = builder.getOrCreate()
    except (OSError, Py4JError) as error:
        raise Unavailable(_did_not_start(settings["spark.master"], error), code="spark-start") from error
    session.dataSource.register(TableStoreSource)
    start_bridge(session.sparkContext)
    return session


def _require_sql(running: SparkContext | None) -> None:
    if running is None:
        return
    extensions = running.getConf().get("spark.sql.extensions") or ""
    if SQL["spark.sql.extensions"] not in extensions.split(","):
        raise InvalidRequest(
            "a Spark session is running in this process that lacks Tablestore's jar and extension, so it can have no "
            "catalogs of table stores, and Spark cannot add them now: stop it first with spark.stop(), or make it with "
            "spark_session() in the first place",
            code="spark-session",
        )


def _is_local(given: Mapping[str, str]) -> bool:
    return given.get("spark.master", _DEFAULTS["spark.master"]).startswith("local")


def _did_not_start(master: str, error: Exception) -> str:
    """Says why; of Java's stacks only the first line is for people."""
    reason = next((line for line in str(error).splitlines() if "An error occurred while calling" not in line), "")
    if master.startswith("local"):
        return f"Spark did not start: {reason.removeprefix(': ')}"
    return (
        f"Spark did not start on {master}: {reason.removeprefix(': ')}. Look whether the master answers there, and "
        "into its workers' logs whether they could start executors"
    )


def _require_delta(running: SparkContext | None) -> None:
    """Refuses a running session without Delta: Spark would return it, and it takes no jars or extensions any more."""
    if running is None:
        return
    extensions = running.getConf().get("spark.sql.extensions") or ""
    if DELTA["spark.sql.extensions"] not in extensions.split(","):
        raise InvalidRequest(
            "a Spark session is running in this process that lacks Delta's extension, and Spark cannot add it now: "
            "stop it first with spark.stop(), or make it with spark_session() in the first place",
            code="spark-session",
        )
