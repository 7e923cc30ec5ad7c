"""Views in SQL: the catalog keeps them, and each session that reads them understands them as they were meant."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tablestore import Store, Table
from tablestore.spark.settings import catalog_settings
from tests.spark.sql.conftest import Sql


@pytest.fixture
def orders(sql: Sql, store: Store) -> Table:
    sql("CREATE TABLE lake.shop.orders (id BIGINT, amount DOUBLE, PRIMARY KEY (id))")
    sql("INSERT INTO lake.shop.orders VALUES (1, 10), (2, 200), (3, 300)")
    return store.table("shop.orders")


def test_a_view_is_created_read_listed_and_dropped(sql: Sql, store: Store, orders: Table) -> None:
    sql(
        "CREATE VIEW lake.shop.large (number COMMENT 'of the order', amount) COMMENT 'large ones' "
        "TBLPROPERTIES ('owner-team' = 'sales') AS SELECT id, amount FROM lake.shop.orders WHERE amount > 100"
    )
    assert sql("SELECT * FROM lake.shop.large") == [(2, 200.0), (3, 300.0)]
    assert sql("SELECT number FROM lake.shop.large WHERE amount > 250") == [(3,)]
    assert sql("SHOW VIEWS IN lake.shop") == [("shop", "large", False)]
    assert sql("DESCRIBE lake.shop.large") == [("amount", "double", None), ("number", "bigint", "of the order")]
    assert store.view("shop.large").comment == "large ones"
    assert ("owner-team", "sales") in sql("SHOW TBLPROPERTIES lake.shop.large")
    (created,) = sql("SHOW CREATE TABLE lake.shop.large")[0]
    sql("DROP VIEW lake.shop.large")
    assert store.list_views("shop") == []
    sql(created)
    assert sql("SELECT * FROM lake.shop.large") == [(2, 200.0), (3, 300.0)]


def test_a_view_sees_what_is_committed_later(sql: Sql, orders: Table) -> None:
    sql("CREATE VIEW lake.shop.total AS SELECT sum(amount) AS total FROM lake.shop.orders")
    assert sql("SELECT * FROM lake.shop.total") == [(510.0,)]
    sql("DELETE FROM lake.shop.orders WHERE id = 3")
    assert sql("SELECT * FROM lake.shop.total") == [(210.0,)]


@pytest.mark.deep
def test_a_view_is_replaced_altered_and_renamed(sql: Sql, store: Store, orders: Table) -> None:
    sql("CREATE VIEW lake.shop.v AS SELECT id FROM lake.shop.orders")
    sql("CREATE VIEW IF NOT EXISTS lake.shop.v AS SELECT 5 AS five")
    with pytest.raises(AnalysisException, match="already exists"):
        sql("CREATE VIEW lake.shop.v AS SELECT 5 AS five")
    assert sql("SELECT * FROM lake.shop.v") == [(1,), (2,), (3,)]
    sql("CREATE OR REPLACE VIEW lake.shop.v AS SELECT amount FROM lake.shop.orders")
    assert sql("SELECT * FROM lake.shop.v") == [(10.0,), (200.0,), (300.0,)]
    sql("ALTER VIEW lake.shop.v AS SELECT id + 1 AS next FROM lake.shop.orders")
    assert sql("SELECT next FROM lake.shop.v") == [(2,), (3,), (4,)]
    sql("ALTER VIEW lake.shop.v SET TBLPROPERTIES ('a' = 'b', 'c' = 'd')")
    sql("ALTER VIEW lake.shop.v UNSET TBLPROPERTIES ('a')")
    assert store.view("shop.v").properties == {"c": "d"}
    sql("ALTER VIEW lake.shop.v RENAME TO lake.shop.w")
    sql("ALTER VIEW lake.shop.w RENAME TO u")
    assert store.list_views("shop") == ["u"]
    assert sql("SELECT next FROM lake.shop.u") == [(2,), (3,), (4,)]


def test_names_in_a_view_mean_what_they_meant_when_it_was_made(
    spark: SparkSession, session: SparkSession, sql: Sql, store: Store, orders: Table
) -> None:
    """Another session may call the catalog by another name, and has another current database."""
    session.sql("USE lake.shop")
    sql("CREATE VIEW large AS WITH l AS (SELECT * FROM orders WHERE amount > 100) SELECT count(*) AS n FROM l")
    session.sql("USE spark_catalog.default")
    assert sql("SELECT n FROM lake.shop.large") == [(2,)]
    other = spark.newSession()
    for name, value in catalog_settings({"pond": store.target}).items():
        other.conf.set(name, value)
    assert [tuple(row) for row in other.sql("SELECT n FROM pond.shop.large").collect()] == [(2,)]


@pytest.mark.deep
def test_views_of_views_and_joins(sql: Sql, orders: Table) -> None:
    sql("CREATE VIEW lake.shop.large AS SELECT * FROM lake.shop.orders WHERE amount > 100")
    sql("CREATE VIEW lake.shop.ids AS SELECT id FROM lake.shop.large")
    joined = "SELECT o.id, o.amount FROM lake.shop.orders o JOIN lake.shop.ids i ON o.id = i.id"
    assert sql(joined) == [(2, 200.0), (3, 300.0)]
    sql("INSERT INTO lake.shop.orders SELECT id + 10, amount FROM lake.shop.large")
    assert sql("SELECT * FROM lake.shop.ids") == [(12,), (13,), (2,), (3,)]
    with pytest.raises(AnalysisException, match=r"(?i)recursive"):
        sql("CREATE OR REPLACE VIEW lake.shop.large AS SELECT * FROM lake.shop.ids")


@pytest.mark.deep
def test_what_sparks_grammar_lacks_works_in_a_view(sql: Sql, store: Store, orders: Table) -> None:
    sql("CREATE VIEW lake.shop.old AS SELECT * FROM lake.shop.orders VERSION AS OF 0")
    sql("CREATE VIEW lake.shop.versions AS SELECT version FROM lake.shop.orders$snapshots")
    sql("DELETE FROM lake.shop.orders WHERE id = 1")
    assert sql("SELECT * FROM lake.shop.old") == []
    assert sql("SELECT * FROM lake.shop.versions") == [(0,), (1,), (2,)]
    sql("CREATE VIEW lake.shop.deleted AS SELECT id FROM lake.shop.orders CHANGES FROM VERSION 2 TO VERSION 2")
    assert sql("SELECT * FROM lake.shop.deleted") == [(1,)]


def test_a_view_is_not_a_table(sql: Sql, store: Store, orders: Table) -> None:
    sql("CREATE VIEW lake.shop.v AS SELECT * FROM lake.shop.orders")
    for statement, message in (
        ("INSERT INTO lake.shop.v VALUES (9, 9)", "is a view"),
        ("DELETE FROM lake.shop.v WHERE id = 1", "(?i)view"),
        ("UPDATE lake.shop.v SET amount = 0", "(?i)view"),
        ("DROP TABLE lake.shop.v", "DROP VIEW"),
        ("ALTER TABLE lake.shop.v ADD COLUMN x INT", "(?i)view"),
        ("ALTER TABLE lake.shop.v RENAME TO w", "(?i)view"),
        ("DROP VIEW lake.shop.orders", "DROP TABLE"),
        ("ALTER VIEW lake.shop.orders AS SELECT 1", "(?i)view"),
        ("CREATE VIEW lake.shop.orders AS SELECT 1 AS x", "already exists"),
        ("CREATE OR REPLACE VIEW lake.shop.orders AS SELECT 1 AS x", "(?i)already exists|is not a view|view"),
        ("CREATE TABLE lake.shop.v (a INT)", "already exists"),
        ("CALL lake.sys.compact('shop.v')", "is-view"),
        ("SELECT * FROM lake.shop.v$snapshots", "is a view"),
        ("SELECT * FROM lake.shop.v VERSION AS OF 1", "(?i)view"),
        ("CREATE VIEW lake.none.v AS SELECT 1 AS x", "(?i)none"),
        ("CREATE VIEW lake.shop.`a-b` AS SELECT 1 AS x", "bad-name"),
        ("DROP VIEW lake.shop.nothing", "cannot be found"),
    ):
        with pytest.raises(AnalysisException, match=message):
            sql(statement)
        assert store.list_tables("shop") == ["orders"], statement
        assert store.list_views("shop") == ["v"], statement
    sql("DROP VIEW IF EXISTS lake.shop.nothing")
    assert len(sql("SELECT * FROM lake.shop.orders")) == 3


def test_a_view_does_not_keep_what_only_a_session_has(session: SparkSession, sql: Sql, store: Store) -> None:
    session.range(3).createOrReplaceTempView("mine")
    with pytest.raises(AnalysisException, match=r"(?i)temporary"):
        sql("CREATE VIEW lake.shop.v AS SELECT * FROM mine")
    assert store.list_views("shop") == []


@pytest.mark.deep
def test_a_view_without_its_table_says_what_is_missing(sql: Sql, orders: Table) -> None:
    sql("CREATE VIEW lake.shop.v AS SELECT * FROM lake.shop.orders")
    sql("DROP TABLE lake.shop.orders")
    with pytest.raises(AnalysisException, match="`orders` cannot be found"):
        sql("SELECT * FROM lake.shop.v")
    sql("CREATE TABLE lake.shop.orders (id BIGINT, amount DOUBLE)")
    assert sql("SELECT * FROM lake.shop.v") == []


def test_views_go_with_their_database(sql: Sql, store: Store) -> None:
    sql("CREATE DATABASE lake.more")
    sql("CREATE VIEW lake.more.v AS SELECT 1 AS x")
    with pytest.raises(AnalysisException, match="contains objects"):
        sql("DROP DATABASE lake.more")
    sql("DROP DATABASE lake.more CASCADE")
    assert store.list_databases() == ["shop"]
