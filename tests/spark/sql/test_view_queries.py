"""Materialized views of queries that sqlglot and Spark write in different ways: PIVOT, pipes, TABLE."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

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
    *_, (first,) = sql("EXPLAIN CREATE MATERIALIZED VIEW lake.shop.v AS FROM lake.shop.sales |> WHERE x > 1")
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
    assert "`l`.`k`" in named
    sql("ALTER TABLE lake.shop.sales ADD COLUMNS (x INT, k STRING)")
    assert sql("EXPLAIN REFRESH MATERIALIZED VIEW lake.shop.large")[-1] == (
        "shop.large is refreshed incrementally, without Spark",
    )


@pytest.fixture
def hidden(spark: SparkSession) -> Iterator[None]:
    """Relations of Spark that a query can read without naming a table."""
    made = {
        "TABLE spark_catalog.default.hidden_rows": "USING parquet AS SELECT 7L AS n",
        "FUNCTION spark_catalog.default.hidden_most(x BIGINT)": (
            "RETURNS BIGINT RETURN x + (SELECT max(n) FROM spark_catalog.default.hidden_rows)"
        ),
        "FUNCTION spark_catalog.default.hidden_table()": (
            "RETURNS TABLE(n BIGINT) RETURN SELECT n FROM spark_catalog.default.hidden_rows"
        ),
        "FUNCTION spark_catalog.default.hidden_none(x BIGINT)": "RETURNS BIGINT RETURN x + 1",
        "GLOBAL TEMPORARY VIEW hidden_view": "AS SELECT 7L AS n",
    }
    for name, text in made.items():
        spark.sql(f"CREATE {name} {text}")
    yield
    for name in reversed(made):
        kind = name.replace("GLOBAL TEMPORARY VIEW ", "VIEW global_temp.").split("(", maxsplit=1)[0]
        spark.sql(f"DROP {kind}")


@pytest.mark.few(3)
@pytest.mark.usefixtures("sales", "hidden")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT id, hidden_most(item) AS m FROM lake.shop.sales", "Relation spark_catalog.default.hidden_rows"),
        ("SELECT id FROM lake.shop.sales WHERE item IN (SELECT n FROM hidden_table())", "Relation spark_catalog"),
        ("SELECT id FROM lake.shop.sales, LATERAL hidden_table()", "Relation spark_catalog"),
        (
            "SELECT id FROM lake.shop.sales WHERE item IN (SELECT n FROM IDENTIFIER('default.hidden_rows'))",
            "Relation spark_catalog",
        ),
        (
            "SELECT id FROM lake.shop.sales WHERE EXISTS (SELECT 1 FROM (SELECT n FROM "
            "IDENTIFIER('global_temp.hidden_view')) WHERE n = item)",
            "the view global_temp.hidden_view",
        ),
        (
            "WITH w AS (SELECT hidden_most(1L) AS m) SELECT id, m FROM lake.shop.sales CROSS JOIN w",
            "Relation spark_catalog",
        ),
    ],
)
def test_a_view_reads_no_table_that_it_does_not_name(sql: Sql, query: str, found: str) -> None:
    """Refreshes said that nothing had changed, whatever was written to that table."""
    assert sql(query)
    with pytest.raises(AnalysisException, match=rf"view-query\] .*: it reads {found}.* does not name as a table"):
        sql(f"CREATE MATERIALIZED VIEW lake.shop.v AS {query}")


@pytest.mark.few(2)
@pytest.mark.usefixtures("sales", "hidden")
@pytest.mark.parametrize(
    "query",
    [
        """
        WITH w AS (SELECT * FROM lake.shop.sales), v AS (SELECT * FROM VALUES (1), (2) AS v(x))
        SELECT w.id, v.x, hidden_none(w.id) AS f, r.id AS r, e
        FROM w JOIN w AS again ON w.id = again.id JOIN v ON w.x = v.x JOIN range(9) r ON r.id = w.id,
        LATERAL explode(array(1, 2)) AS t(e) WHERE EXISTS (SELECT 1) AND w.id IN (SELECT id FROM w)""",
        """
        WITH RECURSIVE r(id, n) AS (
            SELECT id, x FROM lake.shop.sales UNION ALL SELECT id, n - 1 FROM r WHERE n > 0
        ) SELECT id, n FROM r""",
        "SELECT id, e FROM lake.shop.sales LATERAL VIEW posexplode(array(x)) t AS p, e WHERE x IN (1, 2) LIMIT 9",
    ],
    ids=["with", "recursive", "lateral view"],
)
def test_a_view_may_hold_rows_in_its_text(sql: Sql, query: str) -> None:
    sql(f"CREATE MATERIALIZED VIEW lake.shop.v AS {query}")
    sql("INSERT INTO lake.shop.sales VALUES (4, 'b', 2, 8)")
    sql("REFRESH MATERIALIZED VIEW lake.shop.v")
    assert sql("SELECT * FROM lake.shop.v") == sql(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k COLLATE UTF8_LCASE AS g, count(*) AS n FROM lake.shop.sales GROUP BY k COLLATE UTF8_LCASE",
        "SELECT id, k COLLATE UTF8_LCASE AS g, array(collate(k, 'UNICODE_CI')) AS a FROM lake.shop.sales",
    ],
    ids=["group", "column"],
)
@pytest.mark.few(1)
@pytest.mark.usefixtures("sales")
def test_a_view_with_a_collation_is_refreshed(sql: Sql, query: str) -> None:
    """It was created, and no refresh could compare its strings with the stored ones."""
    sql(f"CREATE MATERIALIZED VIEW lake.shop.v PRIMARY KEY ({'g' if 'GROUP' in query else 'id'}) AS {query}")
    sql("INSERT INTO lake.shop.sales VALUES (4, 'B', 9, 8), (5, 'c', 9, 8)")
    sql("REFRESH MATERIALIZED VIEW lake.shop.v")
    wanted, found = (
        sorted((str(row).lower() for row in sql(q)), key=str) for q in (query, "SELECT * FROM lake.shop.v")
    )
    assert found == wanted
