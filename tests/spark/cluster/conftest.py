"""A standalone cluster whose workers have nothing but Spark and a Python, S3, and a driver with a session on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tablestore.spark import spark_archive
from tests.depth import DEPTH, Depth
from tests.servers.s3 import MotoServer
from tests.servers.spark import INTERPRETED, JVM, ROOT
from tests.servers.spark_cluster import EXECUTORS, SparkCluster
from tests.servers.spark_driver import SparkDriver

HOSTS = 2 if DEPTH is Depth.DEEP else 1
"""How many workers there are, and executors: each unpacks a gigabyte, and a second one does what the first does."""

SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": JVM,
    **INTERPRETED,
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # tasks are spread over both executors
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10min",  # which unpack a gigabyte each, however slowly
    "spark.excludeOnFailure.enabled": "false",
}


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive for executors: not compressed, which is faster to make."""
    path = tmp_path_factory.mktemp("archive") / "packages.tar"
    spark_archive(path)
    return path


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory, moto: MotoServer) -> Iterator[SparkCluster]:
    """Workers whose host has a file with the credentials of S3, as an administrator would put it there."""
    folder = tmp_path_factory.mktemp("cluster")
    secrets = folder / "credentials"
    secrets.write_text(f"[default]\naws_access_key_id = {moto.access_key}\naws_secret_access_key = {moto.secret_key}\n")
    secrets.chmod(0o600)
    with SparkCluster(folder, HOSTS, cores=2, environment={"AWS_SHARED_CREDENTIALS_FILE": str(secrets)}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster_driver(
    spark_cluster: SparkCluster, packages: Path, moto: MotoServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkDriver]:
    """A driver with a page and an event log, which has its credentials in variables; others find free cores, too."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "events").mkdir()
    shown = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",  # tests search it
        "spark.eventLog.dir": str(folder / "events"),
        "spark.log.level": "INFO",
        "spark.cores.max": str(HOSTS),
    }
    environment = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "AWS_PROFILE"))
    credentials = {"AWS_ACCESS_KEY_ID": moto.access_key, "AWS_SECRET_ACCESS_KEY": moto.secret_key}
    with SparkDriver(
        folder / "driver.log",
        SMALL | EXECUTORS | shown,
        environment | credentials | {"SPARK_LOCAL_IP": "127.0.0.1"},
        master=spark_cluster.url,
        archive=packages,
        storage_options={"endpoint": moto.endpoint, "region": moto.region},
    ) as driver:
        yield driver


@pytest.fixture(scope="module")
def local_driver(moto: MotoServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    """A driver without a cluster: its tasks run on this machine, in processes of Python that Spark starts."""
    folder = tmp_path_factory.mktemp("local-driver")
    credentials = {"AWS_ACCESS_KEY_ID": moto.access_key, "AWS_SECRET_ACCESS_KEY": moto.secret_key}
    with SparkDriver(
        folder / "driver.log",
        SMALL | {"spark.master": "local[2,3]", "spark.local.dir": str(folder / "local")},
        credentials | {"PYTHONPATH": str(ROOT), "AWS_PROFILE": None},
        storage_options={"endpoint": moto.endpoint, "region": moto.region},
    ) as driver:
        yield driver
