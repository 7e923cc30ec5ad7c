"""Parameters of a statement (``spark.sql(text, args)``) in the places that are rewritten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.sql.conftest import Sql

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def orders(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, v STRING)")
    sql("INSERT INTO lake.shop.t VALUES (1, 'a')")
    sql("INSERT INTO lake.shop.t VALUES (1, 'b')")
    sql("CALL lake.sys.create_tag('shop.t', 'first', 1)")


@pytest.mark.usefixtures("orders")
def test_regression_parameters_of_versions_and_changes(session: SparkSession, sql: Sql) -> None:
    """Those of table_changes ended with Delta's sentence that it is only supported for Delta tables."""
    cases: list[tuple[str, Any, int]] = [
        ("lake.shop.t VERSION AS OF :v", {"v": 1}, 1),
        ("lake.shop.t VERSION AS OF ?", ["first"], 1),
        ("lake.shop.t TIMESTAMP AS OF :at", {"at": datetime.now(UTC) - timedelta(milliseconds=1)}, 1),
        ("lake.shop.t CHANGES FROM VERSION :a TO VERSION :b", {"a": 1, "b": 1}, 1),
        ("table_changes('lake.shop.t', :a, :b)", {"a": 1, "b": 2}, 2),
        ("table_changes('lake.shop.t', ?)", [2], 1),
        ("table_changes(:t, :a)", {"t": "lake.shop.t", "a": "2020-01-01"}, 2),
        ("table_changes('lake.shop.t', :a)", {"a": LONG_AGO}, 2),
        ("table_changes('lake.shop.t', :a)", {"a": LONG_AGO.date()}, 2),
        ("lake.shop.t WITH ('fresh' = :f)", {"f": "true"}, 1),
        ("lake.shop.t /*+ OPTIONS('fresh' = :f) */", {"f": "true"}, 1),
    ]
    for text, given, rows in cases:
        assert session.sql(f"SELECT * FROM {text}", given).count() == rows, text
    with pytest.raises(AnalysisException, match="bad-versions"):
        session.sql("SELECT * FROM table_changes('lake.shop.t', :a, :b)", {"a": 1, "b": LONG_AGO})


@pytest.mark.usefixtures("orders")
def test_regression_a_stream_gets_the_values_of_its_parameters(session: SparkSession, sql: Sql, folder: Path) -> None:
    """A ``?`` became the name of the checkpoint's folder, and one in the query was never given a value."""
    sql("CREATE TABLE lake.shop.s (id BIGINT PRIMARY KEY, v STRING) TBLPROPERTIES ('log.system' = 'embedded')")
    sql("INSERT INTO lake.shop.s VALUES (7, 'x'), (8, 'y')")
    options = "'checkpoint' = {}, 'trigger' = 'available-now'"
    insert = f"INSERT INTO lake.shop.t WITH ({options}) SELECT * FROM STREAM lake.shop.s"
    session.sql(insert.format("?") + " WHERE id = ?", [str(folder / "one"), 7])
    session.sql(insert.format(":c") + " WHERE id = :id", {"c": str(folder / "two"), "id": 8})
    assert sql("SELECT * FROM lake.shop.t") == [(1, "b"), (7, "x"), (8, "y")]
    assert (folder / "one" / "offsets").exists()


@pytest.mark.usefixtures("orders")
def test_regression_a_materialized_view_keeps_the_values_of_its_parameters(session: SparkSession, sql: Sql) -> None:
    session.sql("CREATE MATERIALIZED VIEW lake.shop.mv AS SELECT id, v FROM lake.shop.t WHERE v = :v", {"v": "it's"})
    sql("INSERT INTO lake.shop.t VALUES (5, 'it\\'s')")
    sql("REFRESH MATERIALIZED VIEW lake.shop.mv")
    assert sql("SELECT id FROM lake.shop.mv") == [(5,)]
