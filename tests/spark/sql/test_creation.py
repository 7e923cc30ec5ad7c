"""SHOW CREATE TABLE of a materialized view: its statement makes the same view again. Nothing else makes one."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tablestore import Store
from tablestore.spark.sql.creation import creation_of
from tests.spark.sql.conftest import Sql
from tests.tables import define

GROUPS = (
    "CREATE MATERIALIZED VIEW lake.shop.v PRIMARY KEY (`K-2`) COMMENT 'it\\'s \\\\ \"one\"' "
    "TBLPROPERTIES ('changelog-producer' = 'lookup') AS "
    "SELECT x + 0 AS `K-2`, count(*) AS n, max('a\\'b; -- c') AS t FROM Shop.L GROUP BY x + 0"
)
JOIN = (
    "CREATE MATERIALIZED VIEW lake.shop.v AS SELECT l.k, r.y FROM lake.shop.l l LEFT JOIN lake.shop.r r ON l.x = r.id"
)
EVENTS = (
    "CREATE MATERIALIZED VIEW lake.shop.v TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'x') AS SELECT e.x, r.y "
    "FROM lake.shop.e e JOIN lake.shop.r FOR SYSTEM_TIME AS OF e.at AS r ON e.x = r.id"
)


@pytest.fixture
def tables(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.l (k BIGINT PRIMARY KEY, x BIGINT)")
    sql("CREATE TABLE lake.shop.r (id BIGINT PRIMARY KEY, y STRING)")
    sql("CREATE TABLE lake.shop.e (x BIGINT, at TIMESTAMP)")
    sql("INSERT INTO lake.shop.l VALUES (1, 5), (2, 6)")
    sql("INSERT INTO lake.shop.r VALUES (5, 'foo')")


def test_options_that_follow_from_the_query_are_left_out() -> None:
    options = {"bucket": "2", "bucket-key": "id", "view.query": "SELECT 1 AS id", "log.system": "none"}
    of_join = creation_of("my-lake", "shop.v", define("id INT NOT NULL", ["id"], **options))
    assert of_join == (
        "CREATE MATERIALIZED VIEW `my-lake`.shop.v\nPRIMARY KEY (id)\n"
        "TBLPROPERTIES (\n  'log.system' = 'none')\nAS SELECT 1 AS id\n"
    )
    of_spark = creation_of("lake", "shop.v", define("id INT", [], **options, **{"view.engine": "spark"}))
    assert "  'bucket' = '2',\n  'bucket-key' = 'id',\n" in of_spark
    assert "view.engine" not in of_spark


@pytest.mark.slow
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("statement", [GROUPS, JOIN, EVENTS], ids=["groups", "join", "events"])
def test_the_statement_of_a_view_makes_it_again(session: SparkSession, sql: Sql, store: Store, statement: str) -> None:
    """It was that of a table, into which nobody could write and which nobody could refresh as it was."""
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    sql(statement)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    [(shown,)] = sql("SHOW CREATE TABLE lake.shop.v")
    assert shown.startswith("CREATE MATERIALIZED VIEW lake.shop.v\n")
    before, rows = store.table("shop.v").definition, sql("SELECT * FROM lake.shop.v")
    sql("DROP MATERIALIZED VIEW lake.shop.v")
    sql(shown)
    assert store.table("shop.v").definition == before
    assert sql("SELECT * FROM lake.shop.v") == rows
    assert sql("SHOW CREATE TABLE lake.shop.v") == [(shown,)]


@pytest.mark.slow
@pytest.mark.usefixtures("tables")
def test_a_table_like_a_view_is_a_table(sql: Sql, store: Store) -> None:
    """It was another view, whose first refresh nobody had asked for, and which refused all rows."""
    sql(JOIN)
    sql("CREATE TABLE lake.shop.copy LIKE lake.shop.v")
    sql("INSERT INTO lake.shop.copy VALUES (7, 'own')")
    assert sql("SELECT * FROM lake.shop.copy") == [(7, "own")]
    assert store.table("shop.copy").definition.primary_key == ("k",)
    with pytest.raises(AnalysisException, match=r"\[tablestore: view-option\] .* write CREATE MATERIALIZED VIEW"):
        sql("CREATE TABLE lake.shop.fake (k BIGINT) TBLPROPERTIES ('view.query' = 'SELECT 1')")


@pytest.mark.slow
@pytest.mark.usefixtures("tables")
def test_the_settings_of_a_view_stay(sql: Sql, store: Store) -> None:
    """With others a refresh of what has changed had rows of two time zones."""
    sql(GROUPS)
    with pytest.raises(AnalysisException, match=r"\[tablestore: fixed-option\] .* were computed with the former one"):
        sql("ALTER TABLE lake.shop.v SET TBLPROPERTIES ('view.setting.spark.sql.session.timeZone' = 'Asia/Tokyo')")
    with pytest.raises(AnalysisException, match=r"\[tablestore: fixed-option\]"):
        sql("ALTER TABLE lake.shop.v UNSET TBLPROPERTIES ('view.setting.spark.sql.session.timeZone')")
