"""``CHANGES FROM VERSION``: what versions changed."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.sql.conftest import Sql

CHANGED = {
    # the log has of a delete what the write knew: its key
    "none": [("delete", 1, None, 3), ("insert", 3, "c", 2), ("update_postimage", 1, "A", 2)],
    "lookup": [
        ("delete", 1, "A", 3),
        ("insert", 3, "c", 2),
        ("update_postimage", 1, "A", 2),
        ("update_preimage", 1, "a", 2),
    ],
}
"""By changelog-producer."""


@pytest.fixture(params=["none", "lookup"])
def orders(request: pytest.FixtureRequest, sql: Sql) -> str:
    options = f"'log.system' = 'embedded', 'log.changelog-mode' = 'auto', 'changelog-producer' = '{request.param}'"
    sql(f"CREATE TABLE lake.shop.orders (id BIGINT, v STRING, PRIMARY KEY (id)) TBLPROPERTIES ({options})")
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a'), (2, 'b')")
    sql("INSERT INTO lake.shop.orders VALUES (1, 'A'), (3, 'c')")
    sql("DELETE FROM lake.shop.orders WHERE id = 1")
    return str(request.param)


@pytest.mark.few(1)
def test_the_changes_of_versions(sql: Sql, orders: str) -> None:
    columns = "_change_type, id, v, _commit_version"
    found = sql(f"SELECT {columns} FROM lake.shop.orders CHANGES FROM VERSION 2 TO VERSION 3")
    assert found == CHANGED[orders]
    assert sql(f"SELECT {columns} FROM lake.shop.orders CHANGES FROM VERSION 3") == CHANGED[orders][:1]
    assert sql(f"SELECT {columns} FROM table_changes('lake.shop.orders', 2, 3) c") == CHANGED[orders]
    assert len(sql("SELECT * FROM lake.shop.orders CHANGES FROM VERSION 1 TO VERSION 1")) == 2
    assert sql("SELECT count(_commit_timestamp) FROM lake.shop.orders CHANGES FROM VERSION 1 WHERE id = 2") == [(1,)]


@pytest.mark.few(1)
def test_changes_are_inserted_where_nothing_may_be_null(sql: Sql, orders: str) -> None:
    """The key of a change was NOT NULL for the plan and nullable for its rows: an internal error of Spark."""
    sql("CREATE TABLE lake.shop.feed (id BIGINT NOT NULL, v STRING, kind STRING NOT NULL)")
    changes = "SELECT * FROM lake.shop.orders CHANGES FROM VERSION 2 TO VERSION 3"
    sql(f"INSERT INTO lake.shop.feed SELECT id, v, _change_type FROM ({changes})")
    sql(f"INSERT INTO lake.shop.feed WITH c AS ({changes}) SELECT id, v, _change_type FROM c WHERE id > 0")
    expected = [(number, v, kind) for kind, number, v, _ in CHANGED[orders]]
    assert sql("SELECT * FROM lake.shop.feed") == sorted(2 * expected, key=repr)


@pytest.mark.few(1)
@pytest.mark.usefixtures("orders")
def test_the_net_changes(sql: Sql) -> None:
    net = "CHANGES FROM VERSION 1 TO VERSION 3 WITH (deduplicationMode = 'netChanges')"
    assert sql(f"SELECT _change_type, id, v FROM lake.shop.orders {net}") == [("insert", 2, "b"), ("insert", 3, "c")]


@pytest.mark.few(1)
@pytest.mark.usefixtures("orders")
def test_versions_that_there_are_not(sql: Sql) -> None:
    for bounds, code in (("9", "no-such-version"), ("3 TO VERSION 1", "bad-versions"), ("'no-tag'", "no-tag")):
        with pytest.raises(AnalysisException, match=code):
            sql(f"SELECT * FROM lake.shop.orders CHANGES FROM VERSION {bounds}")


@pytest.mark.deep
@pytest.mark.few(1)
@pytest.mark.usefixtures("orders")
def test_the_changes_since_a_time(session: SparkSession, sql: Sql) -> None:
    [(moment,)] = sql("SELECT CAST(commit_time AS STRING) FROM lake.shop.orders$snapshots WHERE version = 2")
    query = f"SELECT DISTINCT _commit_version FROM lake.shop.orders CHANGES FROM TIMESTAMP '{moment}'"
    assert sql(query) == [(2,), (3,)]
    assert sql(query.replace(moment, "2999-01-01 00:00:00")) == []
    assert sql(query.replace(moment, "1999-01-01 00:00:00")) == [(1,), (2,), (3,)]


@pytest.mark.parametrize("change", ["RENAME COLUMN v TO w", "DROP COLUMN v"])
@pytest.mark.few(1)
def test_changes_across_a_rename(sql: Sql, change: str) -> None:
    """Delta's error named two schemas as JSON, and options that CHANGES does not have."""
    sql("CREATE TABLE lake.shop.c (id BIGINT PRIMARY KEY, v INT) TBLPROPERTIES ('changelog-producer' = 'lookup')")
    sql("INSERT INTO lake.shop.c VALUES (1, 1)")
    sql(f"ALTER TABLE lake.shop.c {change}")
    sql("INSERT INTO lake.shop.c (id) VALUES (2)")
    for bounds in ("1", "1 TO VERSION 1", "0"):
        with pytest.raises(AnalysisException, match=r"other-columns.*column v of version [01] has another.*netChanges"):
            sql(f"SELECT * FROM lake.shop.c CHANGES FROM VERSION {bounds}")
    assert sql("SELECT id FROM lake.shop.c CHANGES FROM VERSION 3") == [(2,)]
    net = "CHANGES FROM VERSION 1 WITH (deduplicationMode = 'netChanges')"
    assert sql(f"SELECT id FROM lake.shop.c {net}") == [(1,), (2,)]
