"""Where an operation of `tests.bench.growth` runs: in this process, by a catalog service, or in Spark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from itertools import count

import psutil
from pyspark.sql import SparkSession

import tablestore
from catalog_service.server import serving
from tablestore import Store
from tablestore.spark import spark_session
from tablestore.spark.settings import catalog_settings

__all__ = ["LOCAL", "SERVICE", "SPARK", "Place", "seconds", "sql"]

Place = Callable[[], AbstractContextManager[Store]]
"""Opens an empty store, which has the database ``shop``."""

_names = count()


@contextmanager
def LOCAL() -> Iterator[Store]:  # noqa: N802  # a constant of the table of cases
    """The tables and the catalog are in a folder."""
    with tempfile.TemporaryDirectory(prefix="tablestore-bench-growth-") as folder, tablestore.connect(folder) as store:
        store.create_database("shop")
        yield store


@contextmanager
def SERVICE() -> Iterator[Store]:  # noqa: N802
    """The catalog is a service, in a thread of this process, so that its time counts, too."""
    with (
        tempfile.TemporaryDirectory(prefix="tablestore-bench-growth-") as folder,
        serving(folder) as url,
        tablestore.connect(url) as store,
    ):
        store.create_database("shop")
        yield store


@contextmanager
def SPARK() -> Iterator[Store]:  # noqa: N802
    """Statements find the store's tables in the database ``shop``."""
    with LOCAL() as store:
        name = f"growth{next(_names)}"
        for setting, value in catalog_settings({name: store.target}).items():
            _session().conf.set(setting, value)
        _session().sql(f"USE {name}.shop")
        yield store


@cache
def _session() -> SparkSession:
    """One session for all, since to start one takes longer than to measure."""
    settings = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
    return spark_session("tablestore-bench-growth", settings, master="local[2]", catalogs={"unused": "unused"})


def sql(statement: str) -> int:
    """Runs a statement in Spark to its end; returns the number of its rows."""
    return len(_session().sql(statement).collect())


def seconds() -> float:
    """The processor's time of this process and of all below it: Spark's, and those of its tasks."""
    below = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            times = process.cpu_times()
            below += times.user + times.system
    return time.process_time() + below
