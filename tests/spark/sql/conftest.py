"""A session with a catalog ``lake``, whose warehouse is that of `store`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tablestore import Store
from tablestore.spark.settings import catalog_settings

Row = tuple[Any, ...]
Sql = Callable[[str], list[Row]]


@pytest.fixture
def session(spark: SparkSession, store: Store) -> SparkSession:
    """A session of its own: settings and catalogs of one test do not reach another."""
    made = spark.newSession()
    for name, value in catalog_settings({"lake": store.target}).items():
        made.conf.set(name, value)
    return made


@pytest.fixture
def sql(session: SparkSession) -> Sql:
    """Runs a statement, and returns its rows, sorted."""

    def run(statement: str) -> list[Row]:
        return sorted((tuple(row) for row in session.sql(statement).collect()), key=repr)

    return run
