"""Names in SQL: tables are renamed, filled before they are seen, and replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, SparkRuntimeException
from pyspark.sql import SparkSession

from tablestore import Store, Table
from tests.spark.sql.conftest import Sql

BOOM = "CAST(raise_error('boom') AS STRING)"


@pytest.fixture
def orders(sql: Sql, store: Store) -> Table:
    sql("CREATE TABLE lake.shop.orders (id BIGINT, v INT, PRIMARY KEY (id)) TBLPROPERTIES ('bucket' = '2')")
    sql("INSERT INTO lake.shop.orders VALUES (1, 10), (2, 20), (3, 30)")
    return store.table("shop.orders")


def folders(store: Store) -> list[str]:
    return sorted(os.listdir(f"{store.target}/shop"))


# ------------------------------------------------------------------------------------------ RENAME TO


def test_a_table_gets_another_name(sql: Sql, store: Store, orders: Table) -> None:
    sql("ALTER TABLE lake.shop.orders RENAME TO lake.shop.sales")
    assert [row[1] for row in sql("SHOW TABLES IN lake.shop")] == ["sales"]
    assert sql("SELECT id, v FROM lake.shop.sales") == [(1, 10), (2, 20), (3, 30)]
    sql("UPDATE lake.shop.sales SET v = v + 1 WHERE id = 1")
    sql("DELETE FROM lake.shop.sales WHERE id = 2")
    assert sql("SELECT id, v FROM lake.shop.sales") == [(1, 11), (3, 30)]
    assert store.table("shop.sales").location == orders.location
    with pytest.raises(AnalysisException, match="cannot be found"):
        sql("SELECT * FROM lake.shop.orders")
    assert store.table("shop.sales").examine().problems == ()


def test_the_new_name_may_leave_out_where_the_table_is(sql: Sql, store: Store, orders: Table) -> None:
    for old, new in (("orders", "a"), ("a", "shop.b"), ("b", "C"), ("c", "lake.shop.orders")):
        sql(f"ALTER TABLE lake.shop.{old} RENAME TO {new}")
        assert store.list_tables("shop") == [new.rpartition(".")[2].lower()]


def test_a_name_that_is_taken_or_not_there(sql: Sql, orders: Table) -> None:
    sql("CREATE TABLE lake.shop.sales (a INT)")
    for taken in ("sales", "orders"):
        with pytest.raises(AnalysisException, match="already exists"):
            sql(f"ALTER TABLE lake.shop.orders RENAME TO {taken}")
    with pytest.raises(AnalysisException, match="cannot be found"):
        sql("ALTER TABLE lake.shop.nothing RENAME TO other")
    assert len(sql("SELECT * FROM lake.shop.orders")) == 3


def test_the_old_name_is_another_table(sql: Sql, orders: Table) -> None:
    sql("ALTER TABLE lake.shop.orders RENAME TO sales")
    sql("CREATE TABLE lake.shop.orders (a STRING)")
    sql("INSERT INTO lake.shop.orders VALUES ('x')")
    assert sql("SELECT * FROM lake.shop.orders") == [("x",)]
    assert sql("SELECT count(*) FROM lake.shop.sales") == [(3,)]


@pytest.mark.deep
def test_a_stream_goes_on_after_its_tables_were_renamed(
    session: SparkSession, sql: Sql, store: Store, orders: Table, tmp_path: Path
) -> None:
    sql("CREATE TABLE lake.shop.copy LIKE lake.shop.orders")
    changes = session.readStream.table("lake.shop.orders").select("*", "_kind")
    query = changes.writeStream.option("checkpointLocation", str(tmp_path / "c")).toTable("lake.shop.copy")
    try:
        query.processAllAvailable()
        sql("ALTER TABLE lake.shop.orders RENAME TO sales")
        sql("INSERT INTO lake.shop.sales VALUES (4, 40)")
        query.processAllAvailable()
        assert sql("SELECT id, v FROM lake.shop.copy") == [(1, 10), (2, 20), (3, 30), (4, 40)]
        sql("ALTER TABLE lake.shop.copy RENAME TO mirror")
    finally:
        query.stop()

    changes = session.readStream.table("lake.shop.sales").select("*", "_kind")
    sql("INSERT INTO lake.shop.sales VALUES (5, 50)")
    query = changes.writeStream.option("checkpointLocation", str(tmp_path / "c")).toTable("lake.shop.mirror")
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert len(sql("SELECT * FROM lake.shop.mirror")) == 5
    assert store.table("shop.mirror").examine().problems == ()


def test_a_writer_that_has_opened_the_table_goes_on(sql: Sql, store: Store, orders: Table) -> None:
    sql("ALTER TABLE lake.shop.orders RENAME TO sales")
    orders.write([{"id": 9, "v": 90}])
    assert (9, 90) in sql("SELECT id, v FROM lake.shop.sales")
    rows = [row for batch in orders.follow(stop=lambda: True) for row in batch.to_pylist()]
    assert {row["id"] for row in rows} == {1, 2, 3, 9}


# ------------------------------------------------------------------------------------------ AS SELECT


def test_a_table_is_made_of_a_query(sql: Sql, store: Store, orders: Table) -> None:
    sql(
        "CREATE TABLE lake.shop.copy PARTITIONED BY (v) COMMENT 'of orders' "
        "TBLPROPERTIES ('primary-key' = 'id, v', 'bucket' = '1') AS SELECT * FROM lake.shop.orders"
    )
    definition = store.table("shop.copy").definition
    assert (definition.primary_key, definition.partition_by, definition.comment) == (("id", "v"), ("v",), "of orders")
    assert definition.options["bucket"] == 1
    assert sql("SELECT * FROM lake.shop.copy") == [(1, 10), (2, 20), (3, 30)]
    assert folders(store) == ["copy", "orders"]
    assert store.table("shop.copy").examine().problems == ()


def test_of_two_keys_the_statement_says_which_is_too_many(sql: Sql, store: Store) -> None:
    with pytest.raises(AnalysisException, match="key-twice"):
        sql("CREATE TABLE lake.shop.t (a INT, b INT, PRIMARY KEY (a)) TBLPROPERTIES ('primary-key' = 'b')")
    sql("CREATE TABLE lake.shop.t (a INT, b INT) TBLPROPERTIES ('primary-key' = 'b')")
    assert store.table("shop.t").definition.primary_key == ("b",)


def test_nothing_is_left_of_a_query_that_fails(sql: Sql, store: Store, orders: Table) -> None:
    for statement in (
        f"CREATE TABLE lake.shop.bad AS SELECT id, {BOOM} AS x FROM lake.shop.orders",
        "CREATE TABLE lake.shop.bad TBLPROPERTIES ('primary-key' = 'x') AS SELECT id, NULL + 1 AS x FROM range(3)",
        f"CREATE OR REPLACE TABLE lake.shop.bad AS SELECT id, {BOOM} AS x FROM lake.shop.orders",
    ):
        with pytest.raises((SparkRuntimeException, AnalysisException)):
            sql(statement)
        assert store.list_tables("shop") == ["orders"], statement
        assert folders(store) == ["orders"], statement


def test_a_table_that_is_there_is_not_made_again(sql: Sql, orders: Table) -> None:
    with pytest.raises(AnalysisException, match="already exists"):
        sql("CREATE TABLE lake.shop.orders AS SELECT 1 AS x")
    sql("CREATE TABLE IF NOT EXISTS lake.shop.orders AS SELECT 1 AS x")
    assert len(sql("SELECT id, v FROM lake.shop.orders")) == 3


@pytest.mark.deep
def test_an_empty_query_makes_an_empty_table(sql: Sql, store: Store, orders: Table) -> None:
    sql("CREATE TABLE lake.shop.none AS SELECT * FROM lake.shop.orders WHERE id > 99")
    assert sql("SELECT * FROM lake.shop.none") == []
    assert [c.name for c in store.table("shop.none").definition.schema] == ["id", "v"]


# ------------------------------------------------------------------------------------------ REPLACE


@pytest.mark.deep
def test_a_table_is_replaced(sql: Sql, store: Store, orders: Table) -> None:
    sql("CREATE OR REPLACE TABLE lake.shop.orders (a STRING, b INT, PRIMARY KEY (a)) COMMENT 'other'")
    table = store.table("shop.orders")
    assert (table.definition.primary_key, table.definition.comment) == (("a",), "other")
    assert sql("SELECT * FROM lake.shop.orders") == []
    assert table.location != orders.location
    assert not Path(orders.location).exists()
    sql("REPLACE TABLE lake.shop.orders AS SELECT 1 AS x")
    assert sql("SELECT * FROM lake.shop.orders") == [(1,)]
    assert len(folders(store)) == 1
    assert store.table("shop.orders").examine().problems == ()


def test_a_table_is_replaced_by_what_reads_it(session: SparkSession, sql: Sql, store: Store, orders: Table) -> None:
    sql("CREATE OR REPLACE TABLE lake.shop.orders AS SELECT id, v * 2 AS v FROM lake.shop.orders WHERE id > 1")
    assert sql("SELECT * FROM lake.shop.orders") == [(2, 40), (3, 60)]
    session.table("lake.shop.orders").where("id > 2").write.mode("overwrite").saveAsTable("lake.shop.orders")
    assert sql("SELECT * FROM lake.shop.orders") == [(3, 60)]
    rows = session.table("lake.shop.orders").selectExpr("id + 1 AS id", "v")
    rows.writeTo("lake.shop.orders").tableProperty("primary-key", "id").createOrReplace()
    assert sql("SELECT * FROM lake.shop.orders") == [(4, 60)]
    assert store.table("shop.orders").definition.primary_key == ("id",)


def test_a_table_stays_if_what_shall_replace_it_fails(sql: Sql, store: Store, orders: Table) -> None:
    for statement in (
        f"CREATE OR REPLACE TABLE lake.shop.orders AS SELECT id, {BOOM} AS x FROM lake.shop.orders",
        "CREATE OR REPLACE TABLE lake.shop.orders (a INT DEFAULT 5)",
        "CREATE OR REPLACE TABLE lake.shop.orders (a INT) TBLPROPERTIES ('bucketz' = '1')",
    ):
        with pytest.raises((SparkRuntimeException, AnalysisException)):
            sql(statement)
        assert sql("SELECT id, v FROM lake.shop.orders") == [(1, 10), (2, 20), (3, 30)], statement
        assert folders(store) == ["orders"]


@pytest.mark.deep
def test_what_is_not_there_is_replaced_only_by_create_or_replace(sql: Sql, store: Store) -> None:
    with pytest.raises(AnalysisException, match="cannot be found"):
        sql("REPLACE TABLE lake.shop.t AS SELECT 1 AS x")
    sql("CREATE OR REPLACE TABLE lake.shop.t AS SELECT 1 AS x")
    assert sql("SELECT * FROM lake.shop.t") == [(1,)]
    sql("CREATE VIEW lake.shop.v AS SELECT 1 AS x")
    with pytest.raises(AnalysisException, match=r"already exists|is a view|VIEW"):
        sql("CREATE OR REPLACE TABLE lake.shop.v AS SELECT 1 AS x")
    assert folders(store) == ["t"]


@pytest.mark.deep
def test_a_cached_table_is_not_stale_after_it_was_replaced(sql: Sql, orders: Table) -> None:
    sql("CACHE TABLE lake.shop.orders")
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(3,)]
    sql("CREATE OR REPLACE TABLE lake.shop.orders AS SELECT id, v FROM lake.shop.orders WHERE id = 1")
    assert sql("SELECT id, v FROM lake.shop.orders") == [(1, 10)]
    sql("ALTER TABLE lake.shop.orders RENAME TO sales")
    sql("INSERT INTO lake.shop.sales VALUES (7, 70)")
    assert sql("SELECT id, v FROM lake.shop.sales") == [(1, 10), (7, 70)]


# ------------------------------------------------------------------------------------------ Python


def test_a_staged_table_in_python(store: Store, sql: Sql, orders: Table) -> None:
    with store.staged_table("shop.totals", "id BIGINT, total DOUBLE", primary_key=["id"]) as totals:
        totals.write([{"id": 1, "total": 1.5}])
        assert store.list_tables("shop") == ["orders"]
    assert sql("SELECT * FROM lake.shop.totals") == [(1, 1.5)]
    with pytest.raises(RuntimeError), store.staged_table("shop.totals", "id BIGINT", replace=True) as totals:
        totals.write([{"id": 2}])
        raise RuntimeError("given up")
    assert sql("SELECT * FROM lake.shop.totals") == [(1, 1.5)]
    with store.staged_table("shop.totals", "id BIGINT", replace=True) as totals:
        totals.write([{"id": 2}])
    assert sql("SELECT * FROM lake.shop.totals") == [(2,)]
    assert len(folders(store)) == 2
