"""Materialized views of queries that sqlglot and Spark write in different ways: PIVOT, pipes, TABLE."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import AnalysisException

from tests.spark.sql.conftest import Sql


@pytest.fixture
def sales(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.sales (id BIGINT PRIMARY KEY, k STRING, x INT, item BIGINT)")
    sql("INSERT INTO lake.shop.sales VALUES (1, 'a', 1, 7), (2, 'b', 2, 7), (3, 'a', 3, 8)")
    sql("CREATE TABLE lake.shop.items (n BIGINT PRIMARY KEY, name STRING)")
    sql("INSERT INTO lake.shop.items VALUES (7, 'pen'), (8, 'ink')")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM lake.shop.sales PIVOT (sum(x) FOR k IN ('a' AS a, 'b' AS b))",
        "SELECT a FROM lake.shop.sales s PIVOT (sum(x) FOR k IN ('a' AS a)) WHERE item > 7",
        "SELECT u.v, u.n FROM lake.shop.sales UNPIVOT (v FOR n IN (id, item)) AS u",
        "FROM lake.shop.sales |> WHERE x > 1 |> AGGREGATE sum(x) AS total GROUP BY k",
        "FROM lake.shop.sales |> SET x = x + 1 |> DROP item |> EXTEND x * 2 AS twice |> LIMIT 9 |> WHERE x > 2",
        "SELECT id, item FROM lake.shop.sales |> JOIN lake.shop.items ON item = n",
        "SELECT k, x FROM lake.shop.sales |> WHERE x > 1",
        "TABLE lake.shop.sales |> PIVOT (max(x) FOR k IN ('a' AS a, 'b' AS b)) |> UNION ALL (SELECT 0, 0, 0, 0)",
        "TABLE lake.shop.sales",
    ],
)
@pytest.mark.usefixtures("sales")
def test_a_view_of_any_query_is_computed(sql: Sql, query: str) -> None:
    sql(f"CREATE MATERIALIZED VIEW lake.shop.v AS {query}")
    before = sql(query)
    assert sql("SELECT * FROM lake.shop.v") == before
    sql("INSERT INTO lake.shop.sales VALUES (4, 'b', 9, 8), (1, 'a', 5, 8)")
    sql("REFRESH MATERIALIZED VIEW lake.shop.v")
    assert sql("SELECT * FROM lake.shop.v") == sql(query) != before


@pytest.mark.usefixtures("sales")
def test_why_a_pipe_is_computed_as_a_whole(sql: Sql) -> None:
    (first, *_), *_ = sql("EXPLAIN CREATE MATERIALIZED VIEW lake.shop.v AS FROM lake.shop.sales |> WHERE x > 1")[2:]
    assert first == "shop.v is refreshed as a whole, by Spark: it has a pipe (|>)"
    with pytest.raises(AnalysisException, match=r"rand\(\) has another value each time"):
        sql("CREATE MATERIALIZED VIEW lake.shop.v AS SELECT rand() AS r FROM lake.shop.sales |> SELECT r + 1 AS s")


@pytest.mark.usefixtures("sales")
def test_explain_says_that_a_table_has_lost_a_column(sql: Sql) -> None:
    """It said how the view is refreshed, which it was no more, and REFRESH named a place in a text of ours."""
    sql("CREATE MATERIALIZED VIEW lake.shop.large AS SELECT id, x FROM lake.shop.sales WHERE x > 1")
    join = "SELECT s.id, s.k, i.name FROM lake.shop.sales s LEFT JOIN lake.shop.items i ON s.item = i.n"
    sql(f"CREATE MATERIALIZED VIEW lake.shop.named AS {join}")
    sql("ALTER TABLE lake.shop.sales DROP COLUMN x")
    sql("ALTER TABLE lake.shop.sales DROP COLUMN k")
    lacks = "does not fit the tables of its query any more. Spark refuses the query: .*with name `x` cannot be resolved"
    ((large,),) = sql("EXPLAIN REFRESH MATERIALIZED VIEW lake.shop.large")
    assert re.fullmatch(rf"shop\.large cannot be refreshed: shop\.large {lacks}.* create it with another query", large)
    assert "SQLSTATE" not in large
    with pytest.raises(AnalysisException, match=rf"\[tablestore: view-outdated\] shop\.large {lacks}"):
        sql("REFRESH MATERIALIZED VIEW lake.shop.large")
    ((named,),) = sql("EXPLAIN REFRESH MATERIALIZED VIEW lake.shop.named")
    assert named.startswith("shop.named cannot be refreshed: "), named
    assert "'k'" in named
    sql("ALTER TABLE lake.shop.sales ADD COLUMNS (x INT, k STRING)")
    assert sql("EXPLAIN REFRESH MATERIALIZED VIEW lake.shop.large")[-1] == (
        "shop.large is refreshed incrementally, by Spark",
    )
