"""Scans without Delta's planning: the same rows, of the same version, from fewer files."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tablestore import Store
from tablestore.spark import SparkStore
from tests.depth import Depth
from tests.spark.sql.conftest import Sql

OURS = "VersionFiles("
DELETED = "__delta_internal_is_row_deleted"


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def files_of(frame: DataFrame) -> int:
    """How many files its scan reads."""
    frame.collect()
    metrics = frame._jdf.queryExecution().executedPlan().collectLeaves().head().metrics()
    return int(metrics.apply("numFiles").value())


@pytest.fixture
def orders(sql: Sql) -> None:
    sql(
        "CREATE TABLE lake.shop.orders (id BIGINT, v STRING, d DOUBLE, PRIMARY KEY (id)) "
        "TBLPROPERTIES ('bucket' = '4', 'log.system' = 'none')"
    )
    sql("INSERT INTO lake.shop.orders SELECT id, concat('v', id), id / 4 FROM range(100)")


@pytest.mark.usefixtures("orders")
def test_a_version_is_scanned_directly_with_vectors_and_without(session: SparkSession, sql: Sql, store: Store) -> None:
    everything = session.table("lake.shop.orders")
    assert OURS in plan_of(everything)
    assert everything.count() == 100
    assert files_of(session.sql("SELECT * FROM lake.shop.orders WHERE id = 7")) == 1
    assert sql("SELECT * FROM lake.shop.orders WHERE id = 7") == [(7, "v7", 1.75)]
    sql("DELETE FROM lake.shop.orders WHERE id = 7")  # now there is a vector
    with_vector = session.table("lake.shop.orders")
    assert (OURS in plan_of(with_vector), DELETED in plan_of(with_vector)) == (True, True)
    assert with_vector.count() == 99
    assert with_vector.columns == ["id", "v", "d"]
    assert files_of(session.sql("SELECT * FROM lake.shop.orders WHERE id = 8")) == 1
    assert sql("SELECT * FROM lake.shop.orders WHERE id IN (7, 8)") == [(8, "v8", 2.0)]
    sql("CALL lake.sys.compact('shop.orders', true)")
    assert OURS in plan_of(session.table("lake.shop.orders"))
    assert DELETED not in plan_of(session.table("lake.shop.orders"))
    assert sql("SELECT count(v) FROM lake.shop.orders VERSION AS OF 1") == [(100,)]
    assert sql("SELECT count(v) FROM lake.shop.orders VERSION AS OF 2") == [(99,)]


@pytest.mark.usefixtures("orders")
def test_what_a_session_keeps_in_memory_is_scanned_directly_too(session: SparkSession, lake: SparkStore) -> None:
    """Spark plans it in a clone of the session."""
    for frame in (session.table("lake.shop.orders").where("d > 20"), lake.read("shop.orders").where("d < 3")):
        kept = frame.persist()
        try:
            assert OURS in str(kept._jdf.queryExecution().withCachedData().toString())
            assert kept.count() == {True: 19, False: 12}[kept.first().d > 20]  # type: ignore[union-attr]
        finally:
            kept.unpersist()


@pytest.mark.deep
@pytest.mark.usefixtures("orders")
def test_metadata_of_files_with_vectors(session: SparkSession, sql: Sql) -> None:
    sql("DELETE FROM lake.shop.orders WHERE id % 2 = 0")
    named = "SELECT id, _metadata.file_name AS name, _metadata.row_index AS place FROM lake.shop.orders"
    found = session.sql(named)
    assert OURS in plan_of(found)
    rows = found.collect()
    assert sorted(row.id for row in rows) == list(range(1, 100, 2))
    assert len({(row.name, row.place) for row in rows}) == 50
    assert len({row.name for row in rows}) == 4
    assert max(row.place for row in rows) > 13  # places count the deleted rows, too
    assert sql("SELECT count(*) FROM lake.shop.orders WHERE _metadata.file_size > 0 AND d < 5") == [(10,)]


@pytest.mark.deep
@pytest.mark.usefixtures("orders")
def test_delta_plans_queries_of_a_session_that_reads_vectors_otherwise(session: SparkSession, sql: Sql) -> None:
    sql("DELETE FROM lake.shop.orders WHERE id = 7")
    session.conf.set("spark.databricks.delta.deletionVectors.useMetadataRowIndex", "false")
    rows = session.table("lake.shop.orders")
    assert OURS not in plan_of(rows)
    assert rows.count() == 99


@pytest.mark.usefixtures("orders")
def test_a_frame_that_is_used_again_reads_the_newest_version(session: SparkSession, sql: Sql) -> None:
    rows, pinned = session.table("lake.shop.orders"), session.sql("SELECT * FROM lake.shop.orders VERSION AS OF 1")
    assert (len(rows.where("id >= 50").collect()), len(pinned.collect())) == (50, 100)
    sql("INSERT INTO lake.shop.orders SELECT id, 'new', 0 FROM range(100, 150)")
    assert (len(rows.where("id >= 50").collect()), len(pinned.where("id >= 50").collect())) == (100, 50)
    sql("UPDATE lake.shop.orders SET v = 'changed' WHERE id = 120")
    assert [row.v for row in rows.where("id = 120").collect()] == ["changed"]
    assert len(pinned.where("v = 'changed'").collect()) == 0


@pytest.mark.usefixtures("orders")
def test_both_sides_of_a_join_are_one_version(session: SparkSession, sql: Sql, store: Store) -> None:
    joined = session.sql(
        "SELECT a.id FROM lake.shop.orders a JOIN lake.shop.orders b ON a.id = b.id WHERE b.id IN "
        "(SELECT max(id) FROM lake.shop.orders WHERE d >= 0)"
    )
    plan = plan_of(joined)
    assert set(re.findall(r"Tablestore\[version (\d+)", plan)) <= {"1"}
    assert [tuple(row) for row in joined.collect()] == [(99,)]


@pytest.mark.deep  # tests/spark/sql/test_rows.py refreshes one
@pytest.mark.usefixtures("orders")
def test_a_cached_table_is_renewed_by_a_write(session: SparkSession, sql: Sql) -> None:
    sql("CACHE TABLE lake.shop.orders")
    assert sql("SELECT count(v) FROM lake.shop.orders") == [(100,)]
    sql("DELETE FROM lake.shop.orders WHERE id < 10")
    assert sql("SELECT count(v) FROM lake.shop.orders") == [(90,)]
    sql("CALL lake.sys.compact('shop.orders', true)")
    sql("INSERT INTO lake.shop.orders VALUES (1, 'one', 1.0)")
    assert sql("SELECT count(v) FROM lake.shop.orders") == [(91,)]
    sql("UNCACHE TABLE lake.shop.orders")


@pytest.mark.usefixtures("orders")
def test_columns_that_changed_are_read_by_delta_or_as_null(session: SparkSession, sql: Sql) -> None:
    before = session.table("lake.shop.orders")
    sql("ALTER TABLE lake.shop.orders ADD COLUMN more STRING")
    sql("ALTER TABLE lake.shop.orders SET TBLPROPERTIES ('schema.evolution-mode' = 'metadata')")
    assert OURS in plan_of(session.table("lake.shop.orders"))
    assert sql("SELECT id, more FROM lake.shop.orders WHERE id = 3") == [(3, None)]
    assert len(before.collect()) == 100
    sql("ALTER TABLE lake.shop.orders RENAME COLUMN more TO other")
    assert OURS not in plan_of(session.table("lake.shop.orders"))
    assert sql("SELECT id, other FROM lake.shop.orders WHERE id = 3") == [(3, None)]


def test_partitions_are_pruned(session: SparkSession, sql: Sql) -> None:
    sql(
        "CREATE TABLE lake.shop.days (day DATE, at TIMESTAMP, n INT, id BIGINT, PRIMARY KEY (day, id)) "
        "PARTITIONED BY (day) TBLPROPERTIES ('log.system' = 'none')"
    )
    sql(
        "INSERT INTO lake.shop.days SELECT date_add(DATE'2026-01-01', CAST(id % 5 AS INT)), "
        "timestamp_seconds(1767225600 + id), CAST(id AS INT), id FROM range(50)"
    )
    one = session.sql("SELECT n FROM lake.shop.days WHERE day = DATE'2026-01-03'")
    assert OURS in plan_of(one)
    assert files_of(one) == 1
    assert len(one.collect()) == 10
    for condition in (
        "year(day) = 2026 AND day > DATE'2026-01-04'",
        "day IN (DATE'2026-01-05')",
        "day <=> '2026-01-05'",
    ):
        assert sql(f"SELECT count(id + 0) FROM lake.shop.days WHERE {condition}") == [(10,)]
    assert sql("SELECT count(n) FROM lake.shop.days WHERE at < TIMESTAMP'2026-01-01 00:00:07+00:00'") == [(7,)]
    assert sql("SELECT day, count(n) FROM lake.shop.days WHERE day IS NULL GROUP BY day") == []
    joined = "SELECT count(n) FROM lake.shop.days d JOIN (SELECT DATE'2026-01-02' AS day) s ON d.day = s.day"
    assert sql(joined) == [(10,)]


@pytest.mark.deep
def test_the_path_of_a_partition_has_its_rows_alone(session: SparkSession, store: Store, sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.days (day DATE, id BIGINT, PRIMARY KEY (day, id)) PARTITIONED BY (day)")
    sql("INSERT INTO lake.shop.days VALUES (DATE'2026-01-01', 1), (DATE'2026-01-02', 2)")
    assert sql("SELECT count(id + 0) FROM lake.shop.days") == [(2,)]
    location = store.table("shop.days").location
    assert [row.id for row in session.read.format("delta").load(f"{location}/day=2026-01-02").collect()] == [2]


def test_a_column_with_the_name_of_one_of_metadata(session: SparkSession, sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT, file_name STRING, file_size BIGINT, PRIMARY KEY (id))")
    sql("INSERT INTO lake.shop.t VALUES (1, 'a', 1), (2, 'b', 2)")
    [(name,)] = sql("SELECT DISTINCT _metadata.file_name FROM lake.shop.t")
    assert sql(f"SELECT id FROM lake.shop.t WHERE _metadata.file_name = '{name}'") == [(1,), (2,)]
    assert sql("SELECT id FROM lake.shop.t WHERE _metadata.file_size > 2 AND file_size = 2") == [(2,)]


def test_frames_of_two_versions_are_joined_at_one(session: SparkSession, sql: Sql, orders: None) -> None:
    before = session.table("lake.shop.orders")
    sql("INSERT INTO lake.shop.orders SELECT id, 'new', 0 FROM range(100, 110)")
    after = session.table("lake.shop.orders").select("id", "d")
    joined = before.select("id", "v").join(after, "id")
    assert joined.count() == 110


def test_the_python_reader_uses_it_too(lake: SparkStore, store: Store, session: SparkSession) -> None:
    store.create_table("shop.t", "id BIGINT, v STRING", primary_key=["id"])
    lake.write("shop.t", lake.spark.sql("SELECT id, 'x' AS v FROM range(10)"))
    rows = lake.read("shop.t")
    assert OURS in plan_of(rows)
    assert rows.count() == 10
    lake.write("shop.t", lake.spark.sql("SELECT id, 'y' AS v FROM range(5)"))
    assert sorted(row.v for row in rows.select("v").collect()) == ["x"] * 5 + ["y"] * 5
    assert DELETED in plan_of(lake.read("shop.t"))
    store.drop_table("shop.t")


VALUES = {
    "i": ["0", "7", "-3", "2147483647", "NULL"],
    "s": ["'a'", "'b'", "''", "'é'", "NULL"],
    "b": ["true", "false", "NULL"],
    "day": ["DATE'2026-01-01'", "DATE'1969-12-31'", "NULL"],
    "at": ["TIMESTAMP'2026-01-01 12:00:00'", "TIMESTAMP'1960-01-01 00:00:00.000001'", "NULL"],
    "n": ["1.50", "-2.00", "NULL"],
    "f": ["CAST('NaN' AS DOUBLE)", "0.5D", "-0.0D", "NULL"],
}


def conditions() -> st.SearchStrategy[str]:
    def of(column: str) -> st.SearchStrategy[str]:
        value = st.sampled_from(VALUES[column])
        compared = st.builds(
            lambda o, v: f"{column} {o} {v}", st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>"]), value
        )
        flipped = st.builds(lambda o, v: f"{v} {o} {column}", st.sampled_from(["=", "<", "<="]), value)
        listed = st.builds(lambda vs: f"{column} IN ({', '.join(vs)})", st.lists(value, min_size=1, max_size=3))
        return st.one_of(compared, flipped, listed, st.just(f"{column} IS NULL"), st.just(f"{column} IS NOT NULL"))

    one = st.sampled_from(sorted(VALUES)).flatmap(of)
    return st.lists(one, min_size=1, max_size=3).map(" AND ".join) | st.lists(one, min_size=2, max_size=2).map(
        " OR ".join
    )


def test_any_condition_finds_what_delta_finds(
    spark: SparkSession, session: SparkSession, sql: Sql, store: Store, depth: Depth
) -> None:
    """Another session reads the same path, and knows of no catalog, so Delta plans its queries."""
    sql(
        "CREATE TABLE lake.shop.v (id BIGINT, i INT, s STRING, b BOOLEAN, day DATE, at TIMESTAMP, n DECIMAL(10, 2), "
        "f DOUBLE, PRIMARY KEY (id)) TBLPROPERTIES ('bucket' = '3', 'log.system' = 'none')"
    )
    rows = [
        [values[(number * (place + 1)) % len(values)] for place, values in enumerate(VALUES.values())]
        for number in range(60)
    ]
    listed = ", ".join(f"({number}, {', '.join(row)})" for number, row in enumerate(rows))
    sql(f"INSERT INTO lake.shop.v VALUES {listed}")
    path = store.table("shop.v").location

    def check(condition: str) -> None:
        theirs = spark.sql(f"SELECT id FROM delta.`{path}` WHERE {condition}").collect()
        assert sql(f"SELECT id FROM lake.shop.v WHERE {condition}") == sorted((tuple(row) for row in theirs), key=repr)

    some = settings(max_examples=depth.times(4, deep=12), deadline=None)
    assert OURS in plan_of(session.table("lake.shop.v"))
    assert OURS not in plan_of(spark.sql(f"SELECT * FROM delta.`{path}`"))
    some(given(conditions())(check))()
    sql("DELETE FROM lake.shop.v WHERE id % 7 = 0")
    sql("INSERT INTO lake.shop.v SELECT id + 1, i, s, b, day, at, n, f FROM lake.shop.v WHERE id % 5 = 0")
    assert DELETED in plan_of(session.table("lake.shop.v"))
    some(given(conditions())(check))()
