"""``WITH ('fresh' = 'true')``: what an eventual log has beyond the newest version."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tablestore import Store
from tests.integration.test_eventual_log import between
from tests.spark.sql.conftest import Row, Sql


def test_a_fresh_read_shows_what_is_not_committed_yet(session: SparkSession, sql: Sql, store: Store) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, v INT) TBLPROPERTIES ('log.consistency' = 'eventual')")
    sql("INSERT INTO lake.shop.t VALUES (1, 1), (2, 2)")
    seen: list[list[Row]] = []

    def look() -> None:
        seen.append(sql("SELECT * FROM lake.shop.t WITH ('fresh' = 'true')"))
        frame = session.read.option("fresh", "true").table("lake.shop.t").where("v > 1")
        seen.append(sorted(tuple(row) for row in frame.collect()))
        seen.append(sql("SELECT * FROM lake.shop.t"))

    between(store.table("shop.t"), look).write([{"id": 2, "v": 20}, {"id": 3, "v": 30}])
    assert seen == [[(1, 1), (2, 20), (3, 30)], [(2, 20), (3, 30)], [(1, 1), (2, 2)]]
    assert sql("SELECT * FROM lake.shop.t WITH ('fresh' = 'false')") == [(1, 1), (2, 20), (3, 30)]


def test_what_cannot_be_fresh(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, v INT) TBLPROPERTIES ('write-mode' = 'merge-on-read')")
    sql("INSERT INTO lake.shop.t VALUES (1, 1)")
    assert sql("SELECT * FROM lake.shop.t WITH ('fresh' = 'true')") == [(1, 1)]
    for query, code in (
        ("lake.shop.t$files WITH ('fresh' = 'true')", "unknown-option"),
        ("lake.shop.t VERSION AS OF 1 WITH ('fresh' = 'true')", "bad-time-travel|SYNTAX"),
        ("lake.shop.t WITH ('frash' = 'true')", "unknown-option"),
    ):
        with pytest.raises(AnalysisException, match=code):
            sql(f"SELECT * FROM {query}")
