"""Columns of any name in SQL, and for the readers of Delta's own format in Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from filestore.model.names import listed, quoted
from tablestore import Store
from tablestore.spark import SparkStore
from tests.names import PEOPLES
from tests.spark.sql.conftest import Sql
from tests.tables import assert_healthy, read_deltalake, read_polars

pytestmark = pytest.mark.spark

ALL_AT_ONCE = "".join(dict.fromkeys("".join(PEOPLES)))
"""Every character that one of the names has."""


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [ALL_AT_ONCE, *PEOPLES])
def test_statements_take_columns_of_any_name(session: SparkSession, store: Store, sql: Sql, name: str) -> None:
    """CREATE refused blanks and parentheses, "which Parquet readers refuse": they do not, and neither does Spark."""
    session.conf.set("spark.sql.variable.substitute", "false")  # Spark takes ${a} for a variable in any statement
    column, new = quoted(name), quoted(f"{name} (new)")
    sql("USE lake.shop")
    sql(
        f"CREATE TABLE t (id BIGINT, {column} STRING NOT NULL, v INT, s STRUCT<{column}: INT>) "
        f"PARTITIONED BY ({column}) TBLPROPERTIES ('primary-key' = {_literal(listed(['id', name]))}, "
        "'bucket' = '2', 'changelog-producer' = 'lookup')"
    )
    sql(f"INSERT INTO t (id, {column}, v, s) VALUES (1, 'x', 1, named_struct('z', 1)), (2, 'y z', 2, NULL)")
    assert sql(f"SELECT id, {column} FROM t WHERE {column} = 'y z' AND s.{column} IS NULL") == [(2, "y z")]
    sql(f"UPDATE t SET v = 9 WHERE {column} = 'x'")
    sql(
        f"MERGE INTO t USING (SELECT 3L AS id, 'w' AS {column}, 3 AS v) s ON t.id = s.id AND t.{column} = s.{column} "
        "WHEN MATCHED THEN UPDATE SET v = s.v "
        f"WHEN NOT MATCHED THEN INSERT (id, {column}, v) VALUES (s.id, s.{column}, s.v)"
    )
    sql(f"DELETE FROM t WHERE {column} = 'y z'")
    sql(f"INSERT OVERWRITE t PARTITION ({column} = 'w') (id, v) VALUES (4, 4)")
    rows = [(1, "x", 9), (4, "w", 4)]
    assert sql(f"SELECT id, {column}, v FROM t") == rows
    table = store.table("shop.t")
    _check_readers(session, table.location, name, rows)
    sql(f"CREATE VIEW w AS SELECT {column}, v AS {new} FROM t")
    assert sql(f"SELECT {column}, {new} FROM w") == [("w", 4), ("x", 9)]
    sql(f"CREATE MATERIALIZED VIEW m AS SELECT {column}, sum(v) AS {new} FROM t GROUP BY {column}")
    SparkStore(session, store).write("shop.t", session.sql(f"SELECT 5L AS id, 'x' AS {column}, 1 AS v, NULL AS s"))
    sql("REFRESH MATERIALIZED VIEW m")
    assert sql(f"SELECT {column}, {new} FROM m") == [("w", 4), ("x", 10)]
    _check_changes_of_columns(sql, column, new)
    assert_healthy(table.filestore)


def _check_readers(session: SparkSession, location: str, name: str, rows: list[tuple[Any, ...]]) -> None:
    """Delta in Spark, by batch, as a stream and its change feed; polars; delta-rs: nobody needs column mapping."""
    column = quoted(name)
    delta = session.read.format("delta").load(location)
    assert sorted(tuple(row) for row in delta.select("id", column, "v").collect()) == rows
    assert [tuple(row) for row in delta.where(f"{column} = 'x'").select("id").collect()] == [(1,)]
    feed = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(location)
    assert feed.where(f"{column} = 'y z'").select("_change_type").distinct().count() == 2
    for read in (read_polars, read_deltalake):
        assert sorted((row["id"], row[name], row["v"]) for row in read(location)) == rows


def _check_changes_of_columns(sql: Sql, column: str, new: str) -> None:
    sql(f"ALTER TABLE t ADD COLUMN {new} STRING COMMENT 'x' AFTER id")
    for mode in ("rewrite", "metadata"):
        sql(f"ALTER TABLE t SET TBLPROPERTIES ('schema.evolution-mode' = '{mode}')")
        sql(f"ALTER TABLE t RENAME COLUMN {new} TO plain")
        sql(f"ALTER TABLE t RENAME COLUMN plain TO {new}")
    sql(f"INSERT INTO t (id, {column}, {new}) VALUES (20, 'x', 'p')")
    assert sql(f"SELECT id FROM t WHERE {new} = 'p' AND {column} = 'x'") == [(20,)]


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
