"""Settings of Spark for Delta, for clusters and for S3, as `spark_session` and ``tablestore spark-settings`` give them.

None of them is a secret, because Spark shows settings: on command lines, in its pages, in event logs. Each process
finds its credentials by itself; `refuse_secrets` refuses settings that would carry some.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from filestore.errors import InvalidRequest
from filestore.storage.s3_settings import S3Settings
from tablestore.jars import delta_jars, s3a_jars
from tablestore.spark.archive import UNPACKED, ArchiveInfo, checked_archive
from tablestore.spark.sql.jar import has_sql_jar, sql_jar

__all__ = [
    "CATALOG",
    "DELTA",
    "SQL",
    "TUNED",
    "archive_settings",
    "catalog_settings",
    "in_class_path",
    "joined",
    "program_settings",
    "refuse_secrets",
    "s3_settings",
]

DELTA: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""The settings that a session needs to read tables; its jars are those of `tablestore.jars`."""

SQL: Mapping[str, str] = {"spark.sql.extensions": "tablestore.spark.TablestoreExtensions"}
"""The settings for catalogs of table stores, beside `DELTA`; their jar is that of `tablestore.spark.sql.jar`."""

CATALOG = "tablestore.spark.TablestoreCatalog"

TUNED: Mapping[str, str] = {
    # Delta's own default of 50 partitions for a table's metadata is made for the largest tables
    "spark.databricks.delta.snapshotPartitions": "2",
    # with a limit of bytes Spark adds up all of a batch's buffers after each row, which takes longer than the rows do
    # (measured: half of the time to a Python worker); rows of 200 kB want the limit, or fewer records in a batch
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.session.timeZone": "UTC",
}
"""The settings that make reads and writes faster, and times the same everywhere."""

_S3A = "spark.hadoop.fs.s3a."
_CREDENTIALS = "software.amazon.awssdk.auth.credentials."
# what Spark's own spark.redaction.regex takes for a secret, and AWS's names of variables
_SECRET = re.compile(r"secret|password|token|access[._]?key", re.I)
_CARRIERS = ("spark.hadoop.fs.s3", "spark.executorEnv.", "spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")
_KEYS_OF_S3A = ("spark.hadoop.fs.s3a.encryption.key", "spark.hadoop.fs.s3a.server-side-encryption.key")
_JAVA_SECRET = re.compile(r"-Daws\.(secretAccessKey|secretKey|sessionToken|accessKeyId)=")
_NO_SECRET = re.compile(r"provider(\.path)?$|file$|relative_uri$", re.I)  # such as AWS_WEB_IDENTITY_TOKEN_FILE

_LISTS: Mapping[str, str] = {
    "spark.jars": ",",
    "spark.archives": ",",
    "spark.sql.extensions": ",",
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
}


def program_settings(
    archive: str | os.PathLike[str] | None = None, storage_options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns what a program's session needs beside its master: settings of jars, Delta, S3 and the archive.

    Args:
        archive: As for `tablestore.spark.spark_session`.
        storage_options: Likewise.

    Raises:
        InvalidRequest: ``spark-archive``, ``bad-storage-option``.
        NotFound: ``spark-archive-not-found``.
        Unavailable: the jars cannot be fetched.
    """
    s3 = None if storage_options is None else S3Settings.of(storage_options).resolved()
    of_archive = {} if archive is None else archive_settings(Path(archive), checked_archive(Path(archive)))
    sql = [sql_jar()] if has_sql_jar() else []
    jars: Sequence[Path] = [*delta_jars(), *([] if s3 is None else s3a_jars()), *sql]
    named = {"spark.jars": ",".join(map(str, jars))}
    extensions = SQL if sql else {}
    return joined(named, DELTA, extensions, {} if s3 is None else s3_settings(s3), of_archive)


def catalog_settings(catalogs: Mapping[str, str]) -> dict[str, str]:
    """Settings that make table stores catalogs of a session: for each name a warehouse, or the URL of a service."""
    found: dict[str, str] = {}
    for name, uri in catalogs.items():
        found |= {f"spark.sql.catalog.{name}": CATALOG, f"spark.sql.catalog.{name}.uri": uri}
    return found


def in_class_path(settings: Mapping[str, str]) -> dict[str, str]:
    """Puts the jars of settings into the driver's class path: a Thrift server's sessions see no others."""
    return {"spark.driver.extraClassPath": settings["spark.jars"].replace(",", os.pathsep)}


def s3_settings(settings: S3Settings) -> dict[str, str]:
    """Makes Hadoop's S3A read locations of tables, ``s3://`` ones too, where and as whom our own clients do.

    Args:
        settings: They are resolved.
    """
    found = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        f"{_S3A}endpoint.region": str(settings.region),
        f"{_S3A}path.style.access": "true" if settings.path_style else "false",
        f"{_S3A}aws.credentials.provider": _provider(settings),
    }
    if settings.endpoint is not None:
        found[f"{_S3A}endpoint"] = settings.endpoint
        found[f"{_S3A}connection.ssl.enabled"] = "false" if settings.endpoint.startswith("http://") else "true"
    if settings.profile is not None:
        option = f"-Daws.profile={settings.profile}"
        found |= {f"spark.{process}.extraJavaOptions": option for process in ("driver", "executor")}
    return found


def _provider(settings: S3Settings) -> str:
    """Returns the class that finds credentials: in AWS's order, as botocore does, or only in a named profile."""
    if settings.anonymous:
        return "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    return _CREDENTIALS + ("DefaultCredentialsProvider" if settings.profile is None else "ProfileCredentialsProvider")


def archive_settings(path: Path, info: ArchiveInfo) -> dict[str, str]:
    """Makes executors unpack an archive of `tablestore.spark.archive.spark_archive` and import from it."""
    return {
        "spark.archives": f"{path.absolute()}#{UNPACKED}",
        "spark.executorEnv.PYTHONPATH": f"./{UNPACKED}",
        "spark.pyspark.python": f"python{info.python}",  # on the PATH of each host, the driver's too
        "spark.python.daemon.module": "tablestore.spark.daemon",
    }


def joined(*layers: Mapping[str, str]) -> dict[str, str]:
    """Puts settings over each other: later ones replace earlier ones, and Spark's lists are joined."""
    merged: dict[str, str] = {}
    for layer in layers:
        for name, value in layer.items():
            separator = _LISTS.get(name)
            if separator is None or name not in merged:
                merged[name] = value
            else:
                merged[name] = separator.join(dict.fromkeys([*merged[name].split(separator), *value.split(separator)]))
    return merged


def refuse_secrets(settings: Mapping[str, str]) -> None:
    """Refuses credentials in settings.

    Raises:
        InvalidRequest: ``spark-secret``.
    """
    for name, value in settings.items():
        own = next((name.removeprefix(carrier) for carrier in _CARRIERS if name.startswith(carrier)), "")
        named = _SECRET.search(own) and not _NO_SECRET.search(own)
        in_java = name.endswith("JavaOptions") and _JAVA_SECRET.search(value)
        if named or in_java or name in _KEYS_OF_S3A:
            raise InvalidRequest(
                f"the setting {name} is a secret, and Spark shows settings on the driver's command line: leave it out. "
                "Each host has to find its credentials itself: in its environment, in a file that "
                "spark.executorEnv.AWS_SHARED_CREDENTIALS_FILE names, or by its role (docs/spark.md, Clusters)",
                code="spark-secret",
            )
