"""Which ways of overwriting a table keep it, and which make a new one: the rules in docs/sql.md, row by row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from tablestore import Store, Table
from tests.spark.sql.conftest import Sql

ROWS = "id LONG, day STRING, v INT"
NEW = [(1, "b", 100), (9, "a", 900)]


@pytest.fixture
def orders(sql: Sql, store: Store) -> Table:
    sql(
        "CREATE TABLE lake.shop.orders (id BIGINT, day STRING, v INT, PRIMARY KEY (id, day)) PARTITIONED BY (day) "
        "COMMENT 'ours' TBLPROPERTIES ('bucket' = '2', 'log.system' = 'none')"
    )
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a', 10), (2, 'a', 20), (3, 'b', 30)")
    table = store.table("shop.orders")
    table.create_tag("before")
    return table


def stays(store: Store, before: Table) -> bool:
    """Returns whether the name still stands for the same table, with all that belongs to it."""
    now = store.table("shop.orders")
    assert now.examine().problems == ()
    same = now.definition == before.definition and now.opened.identity == before.opened.identity
    return same and [tag.name for tag in now.tags()] == ["before"]


Overwrite = Callable[[DataFrame], Any]

KEEPING: dict[str, tuple[Overwrite, list[tuple[int, str, int]]]] = {
    "saveAsTable": (lambda df: df.write.mode("overwrite").saveAsTable("lake.shop.orders"), NEW),
    "saveAsTable by name": (
        lambda df: df.select("v", "day", "id").write.mode("overwrite").saveAsTable("lake.shop.orders"),
        NEW,
    ),
    "saveAsTable with format and partitions": (
        lambda df: df.write.format("tablestore").partitionBy("day").mode("overwrite").saveAsTable("lake.shop.orders"),
        NEW,
    ),
    "insertInto": (lambda df: df.write.mode("overwrite").insertInto("lake.shop.orders"), NEW),
    "insertInto with overwrite": (lambda df: df.write.insertInto("lake.shop.orders", overwrite=True), NEW),
    "overwrite": (lambda df: df.writeTo("lake.shop.orders").overwrite(F.lit(True)), NEW),
    "overwrite of a partition": (
        lambda df: df.where("day = 'b'").writeTo("lake.shop.orders").overwrite(F.col("day") == "b"),
        [(1, "a", 10), (1, "b", 100), (2, "a", 20)],
    ),
    "overwritePartitions": (
        lambda df: df.where("day = 'b'").writeTo("lake.shop.orders").overwritePartitions(),
        [(1, "a", 10), (1, "b", 100), (2, "a", 20)],
    ),
    "SQL": (lambda df: run(df, "INSERT OVERWRITE lake.shop.orders SELECT * FROM given"), NEW),
}


def run(df: DataFrame, statement: str) -> None:
    df.createOrReplaceTempView("given")
    df.sparkSession.sql(statement)


@pytest.mark.few(2)
@pytest.mark.parametrize("way", KEEPING)
def test_an_overwrite_keeps_the_table(session: SparkSession, sql: Sql, store: Store, orders: Table, way: str) -> None:
    overwrite, rows = KEEPING[way]
    overwrite(session.createDataFrame(NEW, ROWS))
    assert sql("SELECT id, day, v FROM lake.shop.orders") == sorted(rows)
    assert stays(store, orders)
    sql("INSERT INTO lake.shop.orders VALUES (1, 'b', 101)")
    assert sql("SELECT v FROM lake.shop.orders WHERE id = 1 AND day = 'b'") == [(101,)], "the key still holds"
    assert sql("SELECT count(id) FROM lake.shop.orders VERSION AS OF 1") == [(3,)]


MODE = "partitionOverwriteMode"
OF_PARTITIONS: dict[str, tuple[str, Callable[[DataFrameWriter], Any], bool]] = {
    "saveAsTable by the session": ("dynamic", lambda writer: writer.saveAsTable("lake.shop.orders"), True),
    "saveAsTable by option": ("static", lambda w: w.option(MODE, "Dynamic").saveAsTable("lake.shop.orders"), True),
    "saveAsTable as a whole": ("dynamic", lambda w: w.option(MODE, "static").saveAsTable("lake.shop.orders"), False),
    "insertInto by the session": ("dynamic", lambda writer: writer.insertInto("lake.shop.orders"), True),
    "insertInto by option": ("static", lambda w: w.option(MODE, "dynamic").insertInto("lake.shop.orders"), True),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("way", OF_PARTITIONS)
def test_regression_an_overwrite_replaces_the_partitions_that_the_mode_says(
    session: SparkSession, sql: Sql, store: Store, orders: Table, way: str
) -> None:
    """Found by a stranger: saveAsTable emptied the other partitions, where Delta's keeps them with this setting."""
    mode, save, keeps_others = OF_PARTITIONS[way]
    session.conf.set("spark.sql.sources.partitionOverwriteMode", mode)
    save(session.createDataFrame([(1, "b", 100)], ROWS).write.mode("overwrite"))
    others = [(1, "a", 10), (2, "a", 20)] if keeps_others else []
    assert sql("SELECT id, day, v FROM lake.shop.orders") == sorted([*others, (1, "b", 100)])
    assert stays(store, orders)


def test_a_mode_against_the_session_s_is_refused_where_a_table_would_be_emptied(
    session: SparkSession, sql: Sql, orders: Table
) -> None:
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    rows = session.createDataFrame([(1, "b", 100)], ROWS)
    with pytest.raises(AnalysisException, match="partitionOverwriteMode says static"):
        rows.write.mode("overwrite").option(MODE, "static").insertInto("lake.shop.orders")
    with pytest.raises(AnalysisException, match="partitionOverwriteMode=dynamic replaces"):
        rows.writeTo("lake.shop.orders").option(MODE, "dynamic").overwrite(F.col("day") == "a")
    assert len(sql("SELECT id FROM lake.shop.orders")) == 3


@pytest.mark.deep
def test_save_keeps_the_table(session: SparkSession, sql: Sql, store: Store, orders: Table) -> None:
    rows = session.createDataFrame(NEW, ROWS)
    rows.write.format("tablestore").option("catalog", store.target).mode("overwrite").save("shop.orders")
    assert sql("SELECT id, day, v FROM lake.shop.orders") == sorted(NEW)
    assert stays(store, orders)


REPLACING: dict[str, tuple[Overwrite, tuple[str, ...]]] = {
    "replace": (lambda df: df.writeTo("lake.shop.orders").replace(), ()),
    "createOrReplace": (lambda df: df.writeTo("lake.shop.orders").using("tablestore").createOrReplace(), ()),
    "createOrReplace with a key": (
        lambda df: df.writeTo("lake.shop.orders").tableProperty("primary-key", "id").createOrReplace(),
        ("id",),
    ),
    "CREATE OR REPLACE": (lambda df: run(df, "CREATE OR REPLACE TABLE lake.shop.orders AS SELECT * FROM given"), ()),
    "REPLACE with a key": (
        lambda df: run(
            df, "REPLACE TABLE lake.shop.orders TBLPROPERTIES ('primary-key' = 'id') AS SELECT * FROM given"
        ),
        ("id",),
    ),
}


SAVES: dict[str, Overwrite] = {
    "refused before it is planned": lambda df: df.write.mode("append").partitionBy("v").saveAsTable("lake.shop.orders"),
    "refused": lambda df: df.select("id").write.mode("overwrite").saveAsTable("lake.shop.orders"),
    "done": lambda df: df.write.mode("overwrite").saveAsTable("lake.shop.orders"),
    "without effect": lambda df: df.write.mode("ignore").saveAsTable("lake.shop.orders"),
    "by another writer": lambda df: df.writeTo("lake.shop.orders").overwrite(F.lit(True)),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("saved", SAVES)
def test_a_save_has_no_effect_on_a_replacement(
    session: SparkSession, sql: Sql, store: Store, orders: Table, saved: str
) -> None:
    """A thread knew that saveAsTable had loaded the table, also if that failed, so the next statement kept the key."""
    rows = session.createDataFrame(NEW, ROWS)
    before, name = rows.writeTo("lake.shop.orders"), "lake.shop.orders"
    for replace in (before.createOrReplace, lambda: rows.writeTo(name).using("tablestore").createOrReplace()):
        sql(f"CREATE OR REPLACE TABLE {name} ({ROWS}, PRIMARY KEY (id, day)) PARTITIONED BY (day)")
        with contextlib.suppress(PySparkException):
            SAVES[saved](rows)
        replace()
        assert store.table("shop.orders").definition.primary_key == ()
        assert sql("SELECT id, day, v FROM lake.shop.orders") == sorted(NEW)
    assert store.table("shop.orders").opened.identity != orders.opened.identity


@pytest.mark.few(1)
@pytest.mark.parametrize("way", REPLACING)
def test_a_replacement_has_only_what_it_says(
    session: SparkSession, sql: Sql, store: Store, orders: Table, way: str
) -> None:
    replace, key = REPLACING[way]
    replace(session.createDataFrame(NEW, ROWS))
    now = store.table("shop.orders")
    assert (now.definition.primary_key, now.definition.partition_by, now.definition.comment) == (key, (), None)
    assert now.opened.identity != orders.opened.identity
    assert sql("SELECT id, day, v FROM lake.shop.orders") == sorted(NEW)


Writer = DataFrameWriter
REFUSED: dict[str, tuple[str, Callable[[DataFrame], Writer], str]] = {
    "overwriteSchema": (
        "id, day, v",
        lambda df: df.write.option("overwriteSchema", "true"),
        r"overwrite-schema\] saveAsTable with overwriteSchema would make another table of shop.orders: leave the "
        r"option out to replace its rows. For a new table in its place, with its key write "
        r"df.writeTo\(…\).tableProperty\('primary-key', 'id, day'\).createOrReplace\(\)",
    ),
    "a new column": ("id, day, v, 1 AS x", lambda df: df.write, r"other-definition\].*has column 'x'.*createOrReplace"),
    "a column less": ("id, day", lambda df: df.write, r"other-definition\].*lacks column 'v'"),
    "other partitions": (
        "id, day, v",
        lambda df: df.write.partitionBy("v"),
        r"other-definition\].*partitionBy says v, and those of the table are day",
    ),
    "a comment": ("id, day, v", lambda df: df.write.option("comment", "x"), r"other-definition\].*COMMENT ON TABLE"),
    "a path": ("id, day, v", lambda df: df.write.option("path", "/tmp/x"), "table-location"),
    "another format": ("id, day, v", lambda df: df.write.format("csv"), "provider"),
    "an option of tables": ("id, day, v", lambda df: df.write.option("bucket", "4"), "unknown-option"),
    "an option that says nothing": (
        "id, day, v",
        lambda df: df.write.option("partitionOverwriteMode", "both"),
        "bad-option-value",
    ),
    "a condition by option": ("id, day, v", lambda df: df.write.option("replaceWhere", "day = 'a'"), "unknown-option"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("what", REFUSED)
def test_what_would_change_the_table_is_refused(
    session: SparkSession, sql: Sql, store: Store, orders: Table, what: str
) -> None:
    columns, writer, words = REFUSED[what]
    rows = session.createDataFrame(NEW, ROWS).selectExpr(*columns.split(", "))
    with pytest.raises(AnalysisException, match=words):
        writer(rows).mode("overwrite").saveAsTable("lake.shop.orders")
    assert stays(store, orders)
    assert len(sql("SELECT id FROM lake.shop.orders")) == 3


def test_names_differ_in_capitals_as_the_session_says(session: SparkSession, sql: Sql, orders: Table) -> None:
    rows = session.createDataFrame(NEW, "ID LONG, Day STRING, V INT")
    rows.write.mode("overwrite").saveAsTable("lake.shop.orders")
    assert sql("SELECT id, day, v FROM lake.shop.orders") == sorted(NEW)
    session.conf.set("spark.sql.caseSensitive", "true")
    with pytest.raises(AnalysisException, match="has column 'ID', which the table has not"):
        rows.write.mode("overwrite").saveAsTable("lake.shop.orders")


def test_a_table_is_saved_over_by_what_reads_it(session: SparkSession, sql: Sql, store: Store, orders: Table) -> None:
    rows = session.table("lake.shop.orders").where("v > 10").withColumn("v", F.col("v") + 1)
    session.sql("USE lake.shop")
    rows.write.mode("overwrite").saveAsTable("orders")
    assert sql("SELECT id, day, v FROM lake.shop.orders") == [(2, "a", 21), (3, "b", 31)]
    assert stays(store, orders)


def test_a_table_that_is_not_there_is_made(session: SparkSession, sql: Sql, store: Store) -> None:
    rows = session.createDataFrame(NEW, ROWS)
    for mode in ("overwrite", "ignore"):
        rows.write.mode(mode).saveAsTable("lake.shop.made")
        assert sql("SELECT id, day, v FROM lake.shop.made") == sorted(NEW)
    with pytest.raises(AnalysisException, match="already exists"):
        rows.write.saveAsTable("lake.shop.made")
    sql("CREATE VIEW lake.shop.seen AS SELECT 1 AS x")
    with pytest.raises(AnalysisException, match="is a view, and not a table"):
        rows.write.mode("overwrite").saveAsTable("lake.shop.seen")


def test_the_result_of_a_view_is_not_saved_over(session: SparkSession, sql: Sql, orders: Table) -> None:
    sql("CREATE MATERIALIZED VIEW lake.shop.sums AS SELECT day, sum(v) AS v FROM lake.shop.orders GROUP BY day")
    rows = session.createDataFrame([("a", 1)], "day STRING, v LONG")
    with pytest.raises(AnalysisException, match="view"):
        rows.write.mode("overwrite").saveAsTable("lake.shop.sums")
    assert sql("SELECT day, v FROM lake.shop.sums") == [("a", 30), ("b", 30)]
