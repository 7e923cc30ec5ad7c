"""A session with a catalog ``lake``, whose warehouse is that of `store`; and catalogs for programs of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog_service.server import serving
from tablestore import Store
from tablestore.spark.settings import catalog_settings
from tests.folders import memory_folder

Row = tuple[Any, ...]
Sql = Callable[[str], list[Row]]

collect_ignore = ["dbt_suite"]  # dbt's own Python runs it (test_dbt_suite.py)


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


@dataclass(frozen=True)
class Catalogs:
    """A folder of its own as the catalog ``lake``, and a service that wants a token as ``served``.

    Attributes:
        folder: A folder beside both.
        warehouse: The folder of ``lake``.
        url: The URL of the service.
        token: Its token.
        settings: The settings that name both catalogs, with a file of the token.
    """

    folder: Path
    warehouse: str
    url: str
    token: str
    settings: dict[str, str]


@pytest.fixture(scope="module")
def catalogs() -> Iterator[Catalogs]:
    token = "a token of the service"
    with memory_folder() as folder, serving(str(folder / "served"), token=token) as url:
        warehouse, file = str(folder / "lake"), folder / "token"
        file.write_text(token)
        settings = catalog_settings({"lake": warehouse, "served": url})
        yield Catalogs(folder, warehouse, url, token, {**settings, "spark.sql.catalog.served.token-file": str(file)})
