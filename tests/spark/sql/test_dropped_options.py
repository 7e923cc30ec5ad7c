"""Options of what has none are refused: Spark drops those of queries of WITH and of temporary views silently."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.sql.conftest import Sql

OPTIONS = "WITH ('fresh' = 'true')"


@pytest.mark.parametrize(
    "statement",
    [
        f"WITH q AS (SELECT 1 AS a) SELECT * FROM Q {OPTIONS}",
        f"WITH q AS (SELECT 1 AS a), r AS (SELECT * FROM q {OPTIONS}) SELECT * FROM r",
        f"WITH RECURSIVE q AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM q {OPTIONS} WHERE a < 3) SELECT * FROM q",
        f"WITH q AS (SELECT 1 AS a) SELECT 1 WHERE 1 IN (SELECT a FROM q {OPTIONS})",
        f"SELECT * FROM (WITH q AS (SELECT 1 AS a) SELECT * FROM q {OPTIONS})",
        f"BEGIN WITH q AS (SELECT 1 AS a) SELECT * FROM q {OPTIONS}; END",
        f"EXPLAIN WITH q AS (SELECT 1 AS a) SELECT * FROM q {OPTIONS}",
        f"CREATE TABLE lake.shop.x AS WITH q AS (SELECT 1 AS a) SELECT * FROM q {OPTIONS}",
    ],
)
def test_options_of_a_query_of_with(sql: Sql, statement: str) -> None:
    with pytest.raises(AnalysisException, match=r"\[tablestore: unknown-option\] [qQ] is a query of WITH here"):
        sql(statement)


def test_the_hint_of_a_query_of_with(session: SparkSession, sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    session.sql("USE lake.shop")
    hint = "/*+ OPTIONS('fresh' = 'true') */"
    with pytest.raises(AnalysisException, match=r"\[tablestore: unknown-option\] q is a query of WITH here"):
        sql(f"WITH q AS (SELECT 1 AS a) SELECT * FROM q {hint}")
    assert sql(f"WITH t AS (SELECT * FROM t {hint}) SELECT * FROM t") == []
    assert sql(f"TABLE t {hint} ORDER BY id LIMIT 1") == []


def test_options_with_a_parameter(session: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="is a query of WITH here"):
        session.sql(f"WITH q AS (SELECT :one AS a) SELECT * FROM q {OPTIONS}", args={"one": 1})


def test_a_query_of_with_may_read_the_table_of_its_name(session: SparkSession, sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    sql("INSERT INTO lake.shop.t VALUES (1)")
    session.sql("USE lake.shop")
    assert sql(f"WITH t AS (SELECT * FROM t {OPTIONS}) SELECT * FROM t") == [(1,)]
    assert sql(f"WITH t AS (SELECT 2) SELECT id FROM shop.t {OPTIONS}") == [(1,)], "that is no name of WITH"


@pytest.mark.parametrize("options", [OPTIONS, "/*+ OPTIONS('fresh' = 'true') */"])
def test_options_of_a_temporary_view(session: SparkSession, sql: Sql, options: str) -> None:
    session.sql("USE lake.shop")
    sql("CREATE TEMPORARY VIEW v AS SELECT 1 AS a")
    with pytest.raises(AnalysisException, match=r"\[tablestore: unknown-option\] v is a temporary view"):
        sql(f"SELECT * FROM v {options}")
    assert sql("SELECT * FROM v") == [(1,)]


def test_options_of_a_table_that_the_statement_reads_and_writes(sql: Sql) -> None:
    """Spark has one relation for both places: it lost the options of the target, and failed with those of the read."""
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    sql("INSERT INTO lake.shop.t VALUES (1)")
    for insert in ("INSERT INTO", "INSERT OVERWRITE"):
        with pytest.raises(AnalysisException, match=r"\[tablestore: unknown-option\] a write of rows has no option a;"):
            sql(f"{insert} lake.shop.t WITH ('a' = 'b') SELECT id + 1 FROM lake.shop.t")
        with pytest.raises(AnalysisException, match=r"\[tablestore: unknown-option\] .* FROM .* has no option"):
            sql(f"{insert} lake.shop.t SELECT id + 1 FROM lake.shop.t {OPTIONS}")
    assert sql("SELECT * FROM lake.shop.t") == [(1,)]
    sql(f"CREATE TABLE lake.shop.u AS SELECT * FROM lake.shop.t {OPTIONS}")
    sql(f"INSERT INTO lake.shop.u SELECT id + 1 FROM lake.shop.t {OPTIONS}")
    assert sql("SELECT * FROM lake.shop.u") == [(1,), (2,)]


@pytest.mark.few(3)
@pytest.mark.parametrize("query", ["SELECT day, v + 3 FROM {} WHERE v = 2", "SELECT DATE'2026-01-02', 5"])
@pytest.mark.parametrize(("mode", "option"), [("static", "dynamic"), ("dynamic", "dynamic"), ("static", "static")])
def test_regression_an_overwrite_that_reads_its_table_has_its_options(
    session: SparkSession, sql: Sql, query: str, mode: str, option: str
) -> None:
    """The option was dropped, so that the overwrite of one partition emptied the other ones."""
    sql("CREATE TABLE lake.shop.d (day DATE, v INT) PARTITIONED BY (day)")
    sql("INSERT INTO lake.shop.d VALUES (DATE'2026-01-01', 1), (DATE'2026-01-02', 2)")
    session.conf.set("spark.sql.sources.partitionOverwriteMode", mode)
    insert = f"INSERT OVERWRITE lake.shop.d WITH ('partitionOverwriteMode' = '{option}')"
    with pytest.raises(AnalysisException, match="bad-option-value"):
        sql(f"{insert.replace(option, 'both')} {query.format('lake.shop.d')}")
    if "{}" in query:
        with pytest.raises(AnalysisException, match="has no option fresh in it"):
            sql(f"{insert} {query.format(f'lake.shop.d {OPTIONS}')}")
    sql(f"{insert} {query.format('lake.shop.d')}")
    assert sql("SELECT v FROM lake.shop.d") == ([(1,), (5,)] if option == "dynamic" else [(5,)])


def test_regression_a_mode_against_the_session_s_is_refused_by_its_name(session: SparkSession, sql: Sql) -> None:
    """The sentence said that FROM has no option partitionoverwritemode, in a statement without FROM."""
    sql("CREATE TABLE lake.shop.d (day DATE, v INT) PARTITIONED BY (day)")
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    for query in ("SELECT DATE'2026-01-02', 5", "SELECT day, v + 1 FROM lake.shop.d"):
        with pytest.raises(AnalysisException, match="says static: SET spark"):
            sql(f"INSERT OVERWRITE lake.shop.d WITH ('partitionOverwriteMode' = 'static') {query}")
