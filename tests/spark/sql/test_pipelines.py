"""Declarative pipelines of Spark: what docs/views.md says that works on our catalog, and what does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import tablestore
from tablestore import Store
from tests.servers.spark_programs import environment
from tests.servers.sql_servers import SqlServer, connect_server
from tests.spark.sql.conftest import Catalogs
from tests.warehouses import Row, rows

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

SPEC = """
name: p
catalog: lake
database: shop
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""
BEGIN = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
"""
PYTHON = """
@dp.materialized_view
def total():
    return spark.sql("SELECT count(*) AS n FROM lake.shop.orders")

@dp.table
def copied():
    return spark.readStream.table("lake.shop.events")
"""
SQL = "CREATE STREAMING TABLE streamed AS SELECT x FROM STREAM lake.shop.events"


@pytest.fixture(scope="module")
def server(catalogs: Catalogs) -> Iterator[SqlServer]:
    with connect_server(catalogs.folder, catalogs.settings, {"TABLESTORE_TOKEN": catalogs.token}) as running:
        yield running


@pytest.fixture
def store(catalogs: Catalogs) -> Iterator[Store]:
    with tablestore.connect(catalogs.warehouse) as store:
        store.create_database("shop")
        store.create_table("shop.orders", "id BIGINT", primary_key=["id"]).write([{"id": 1}, {"id": 2}])
        store.create_table("shop.events", "x BIGINT").write([{"x": 1}, {"x": 1}])
        yield store
        store.drop_database("shop", cascade=True)


class Pipeline:
    """A pipeline in a folder of its own."""

    def __init__(self, server: SqlServer, folder: Path) -> None:
        self._server, self._folder = server, folder
        for name in ("storage", "transformations"):
            (folder / name).mkdir()
        (folder / "spark-pipeline.yml").write_text(SPEC.format(folder=folder))

    def define(self, python: str = "", sql: str = "") -> None:
        for name, text in (("a.py", BEGIN + python), ("b.sql", sql)):
            (self._folder / "transformations" / name).write_text(text)

    def run(self, *arguments: str) -> str:
        """Runs it as ``spark-pipelines --remote`` does; returns what it prints."""
        program = Path(pyspark.__file__).parent / "pipelines" / "cli.py"
        variables = {"SPARK_REMOTE": self._server.url, "SPARK_CONNECT_MODE_ENABLED": "1"}
        done = subprocess.run(
            [sys.executable, str(program), "run", "--spec", "spark-pipeline.yml", *arguments],
            cwd=self._folder, env={**environment(), **variables}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr


@pytest.fixture
def pipeline(server: SqlServer, tmp_path: Path) -> Pipeline:
    return Pipeline(server, tmp_path)


def found(store: Store, name: str) -> list[Row]:
    return rows(store.table(f"shop.{name}"))


def test_streaming_tables_and_views_of_a_pipeline(pipeline: Pipeline, store: Store) -> None:
    pipeline.define(PYTHON, SQL)
    assert "Run is COMPLETED" in (printed := pipeline.run()), printed
    assert found(store, "total") == [{"n": 2}]
    assert found(store, "copied") == found(store, "streamed") == [{"x": 1}, {"x": 1}]
    store.table("shop.orders").write([{"id": 3}])
    store.table("shop.events").write([{"x": 2}])
    assert "Run is COMPLETED" in (printed := pipeline.run()), printed
    assert found(store, "total") == [{"n": 3}]
    assert found(store, "copied") == found(store, "streamed") == [{"x": 1}, {"x": 1}, {"x": 2}]
    operations = [str(snapshot.operation) for snapshot in store.table("shop.total").snapshots()]
    assert operations == ["WRITE", "OVERWRITE", "WRITE", "CREATE TABLE"]
    assert not store.table("shop.total").definition.is_view
    assert "Run is COMPLETED" in (printed := pipeline.run("--full-refresh", "copied")), printed
    assert found(store, "copied") == [{"x": 1}, {"x": 1}, {"x": 2}]


def test_what_a_pipeline_cannot_do(pipeline: Pipeline, store: Store) -> None:
    pipeline.define(sql="CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM lake.shop.orders")
    assert "Unsupported plan Call" in pipeline.run()
    keyed = '@dp.materialized_view(table_properties={"primary-key": "id"})\ndef keyed():\n'
    pipeline.define(f'{keyed}    return spark.sql("SELECT id FROM lake.shop.orders")\n')
    assert "Run is COMPLETED" in (printed := pipeline.run()), printed
    assert "nullable-key" in pipeline.run()
