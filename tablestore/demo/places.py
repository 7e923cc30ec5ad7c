"""Chooses where the demo runs: in a folder of this machine, with all in this process, or on a running deployment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from catalog_service.client import is_service
from catalog_service.server import serving
from filestore.errors import InvalidRequest
from filestore.storage.schemes import is_local
from tablestore.demo.data import DATABASE, TABLES
from tablestore.spark import spark_archive, spark_session
from tablestore.store import Store, connect

__all__ = ["Deployment", "Folder", "Place", "make_room"]

_MARK = ".tablestore-demo"
# A session of a minute ends before the JVM's second compiler would pay off. Few partitions suit few cores: measured, a
# refresh of the delays takes a third of the time that it takes with 200 of them, Spark's default.
_SHORT_LIVED = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of this machine. A catalog service runs in this process, and Spark is local.

    Attributes:
        warehouse: The folder; tables of an earlier demo in it are removed.
    """

    warehouse: Path

    @property
    def title(self) -> str:
        """The place of the demo, for people."""
        return "on this machine"

    @property
    def options(self) -> Mapping[str, str]:
        """Options of all tables."""
        return {}

    @property
    def spark_log(self) -> Path:
        """The file for Spark's output."""
        return self.warehouse / "spark.log"

    @property
    def files_reach_spark(self) -> bool:
        """Returns whether Spark's executors find files of this machine."""
        return True

    def prepare(self) -> None:
        """Makes the folder.

        Raises:
            InvalidRequest: ``demo-warehouse``: it has other files.
        """
        make_room(self.warehouse)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Serves the catalog over REST, and connects to it."""
        with serving(str(self.warehouse)) as url, connect(url) as store:
            yield store

    def spark(self, store: Store, scratch: Path) -> SparkSession:
        """Starts Spark in this process; the store and a folder for files are there."""
        return spark_session("tablestore demo", _SHORT_LIVED)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A catalog service that runs, with its storage, and if they are named a Kafka and a Spark cluster.

    Attributes:
        catalog: The service's URL.
        token: Its token, if it needs one.
        master: The URL of Spark's master; Spark is local if None.
        kafka: Brokers for the tables' logs; the tables have the log of their location if None.
        ships_packages: Whether workers get this package from the driver, because it is not installed there.
        spark_log: The file for Spark's output.
    """

    catalog: str
    token: str | None = None
    master: str | None = None
    kafka: str | None = None
    ships_packages: bool = False
    spark_log: Path = Path(os.devnull)

    @property
    def title(self) -> str:
        """The place of the demo, for people."""
        return f"on the deployment of {self.catalog}" + (f" with Spark at {self.master}" if self.master else "")

    @property
    def options(self) -> Mapping[str, str]:
        """Options of all tables."""
        return {"log.system": "kafka", "log.kafka.bootstrap.servers": self.kafka} if self.kafka else {}

    @property
    def files_reach_spark(self) -> bool:
        """Returns whether Spark's executors find files of this machine."""
        return self.master is None

    def prepare(self) -> None:
        """Checks what needs no service.

        Raises:
            InvalidRequest: ``demo-catalog``: it is not a service.
        """
        if not is_service(self.catalog):
            raise InvalidRequest(
                f"{self.catalog} is not the URL of a catalog service: for a demo in a folder use --warehouse",
                code="demo-catalog",
            )

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Connects to the service.

        Raises:
            InvalidRequest: ``demo-database``: it has a database of the demo's name, which could be somebody's.
        """
        with connect(self.catalog, self.token) as store:
            if DATABASE in store.list_databases():
                raise InvalidRequest(
                    f"{self.catalog} has a database {DATABASE} already: if it is that of an earlier demo, drop it with "
                    f"`tablestore drop {DATABASE} --cascade`",
                    code="demo-database",
                )
            yield store

    def spark(self, store: Store, scratch: Path) -> SparkSession:
        """Starts a session on the cluster, whose executors reach the tables as this process does."""
        table = store.table(TABLES["flights"].identifier)
        return spark_session(
            "tablestore demo",
            _SHORT_LIVED,
            master=self.master,
            archive=_archived(scratch / "packages.tar") if self.ships_packages else None,
            storage_options=None if is_local(table.location) else table.filestore.storage.options(),
        )


Place = Folder | Deployment


def _archived(path: Path) -> Path:
    spark_archive(path)
    return path


def make_room(warehouse: Path) -> None:
    """Makes an empty folder that git ignores; it refuses a folder that is not a demo's."""
    if warehouse.exists() and any(warehouse.iterdir()):
        if not (warehouse / _MARK).exists():
            raise InvalidRequest(
                f"{warehouse} contains something that is not from a demo: choose another folder with --warehouse",
                code="demo-warehouse",
            )
        shutil.rmtree(warehouse)
    warehouse.mkdir(parents=True, exist_ok=True)
    (warehouse / _MARK).touch()
    (warehouse / ".gitignore").write_text("*\n", encoding="utf-8")
