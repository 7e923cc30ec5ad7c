"""Spark finds NaN and -0.0 by any condition, and changes the rows with them (FORMAT.md sections 7 and 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from tablestore import Store
from tests.depth import Depth
from tests.filestore.special_floats import COLUMNS, CONDITIONS, Condition, Row, edition_1, layout, named
from tests.model.model import tiny_row_groups
from tests.spark.sql.conftest import Sql

NAN = float("nan")
FLOATS = (None, NAN, -0.0, 0.0, 1.0, 5.0)
Find = Callable[[str], str]
Case = tuple[str, Condition]


@pytest.fixture
def rows(store: Store) -> Iterator[list[Row]]:
    with tiny_row_groups():
        made, group = layout(FLOATS)
        columns = "id BIGINT, p INT, d DOUBLE, f FLOAT, s STRUCT<x: DOUBLE, y: FLOAT>, a ARRAY<DOUBLE>"
        options = {"row-group.rows": str(group), "log.system": "none"}
        table = store.create_table("shop.t", columns, partition_by=["p"], options=options)
        table.write(made)
        yield made


def test_every_condition_finds_its_rows(
    spark: SparkSession, session: SparkSession, store: Store, rows: list[Row], depth: Depth
) -> None:
    """By our catalog, and by Delta's reader and Parquet's in a session that knows of none."""
    table = store.table("shop.t")
    files = [f"{table.location}/{file.path}" for file in table.files()]
    spark.read.parquet(*files).createOrReplaceTempView("special_floats")
    cases = depth.sample([(column, condition) for condition in CONDITIONS for column in COLUMNS], 6, deep=2)
    for known, source in ((session, "lake.shop.t"), (spark, f"delta.`{table.location}`"), (spark, "special_floats")):
        for start in range(0, len(cases), 12):
            check(known, source, cases[start : start + 12], rows)


def check(session: SparkSession, source: str, cases: list[Case], rows: list[Row]) -> None:
    """Runs conditions as the parts of one query, each with its own scan."""
    wheres = [condition.sql.format(column) for column, condition in cases]
    parts = [f"SELECT {number} AS part, id FROM {source} WHERE {where}" for number, where in enumerate(wheres)]
    found: dict[int, list[int]] = {}
    for row in session.sql(" UNION ALL ".join(parts)).collect():
        found.setdefault(row.part, []).append(row.id)
    for number, (column, condition) in enumerate(cases):
        expected = named(rows, column, condition)
        assert sorted(found.get(number, [])) == expected, f"{source}: {wheres[number]}"


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id)"], ids=["append", "upsert"])
def test_update_delete_and_merge_reach_a_nan(sql: Sql, key: str) -> None:
    sql(f"CREATE TABLE lake.shop.n (id BIGINT, x DOUBLE, v INT{key})")
    sql("INSERT INTO lake.shop.n VALUES (1, CAST('NaN' AS DOUBLE), 0), (2, 1.0, 0)")
    for where in ("x > 3", "x <> 1", "x = CAST('NaN' AS DOUBLE)", "NOT (x <= 3)", "isnan(x)"):
        assert sql(f"SELECT id FROM lake.shop.n WHERE {where}") == [(1,)], where
    sql("UPDATE lake.shop.n SET v = 1 WHERE x > 3")
    assert sql("SELECT id, v FROM lake.shop.n") == [(1, 1), (2, 0)]
    sql(
        "MERGE INTO lake.shop.n t USING (SELECT CAST('NaN' AS DOUBLE) AS y) s ON t.x = s.y AND t.x > 3 "
        "WHEN MATCHED THEN UPDATE SET v = 2"
    )
    assert sql("SELECT id, v FROM lake.shop.n") == [(1, 2), (2, 0)]
    sql("DELETE FROM lake.shop.n WHERE x <> 1")
    assert sql("SELECT id, v FROM lake.shop.n") == [(2, 0)]


@pytest.mark.deep
def test_a_zero_with_a_sign_is_reached(sql: Sql) -> None:
    """Parquet's readers look 0.0 up in a dictionary by its bits, and skip the row group."""
    sql("CREATE TABLE lake.shop.z (id BIGINT, x DOUBLE)")
    sql("INSERT INTO lake.shop.z SELECT id, -0.0D FROM range(10)")
    for where in ("x = 0", "x >= 0", "x IN (0.0D, 3.0D)", "x <=> 0.0D", "x BETWEEN 0 AND 1"):
        assert sql(f"SELECT count(id) FROM lake.shop.z WHERE {where}") == [(10,)], where
    sql("DELETE FROM lake.shop.z WHERE x = 0")
    assert sql("SELECT count(id) FROM lake.shop.z") == [(0,)]


@pytest.mark.deep
@pytest.mark.parametrize("change", ["", "vectors", "columns", "runs"])
def test_our_reads_find_what_files_of_edition_1_hide(
    spark: SparkSession, session: SparkSession, sql: Sql, store: Store, change: str
) -> None:
    options = {"log.system": "none", "write-mode": "merge-on-read" if change == "runs" else "merge-on-write"}
    table = store.create_table("shop.old", "id BIGINT, x DOUBLE, v INT", primary_key=["id"], options=options)
    if change == "columns":
        sql("ALTER TABLE lake.shop.old RENAME COLUMN x TO y")
        sql("ALTER TABLE lake.shop.old RENAME COLUMN y TO x")
    with edition_1():
        store.table("shop.old").write([{"id": n, "x": x, "v": 0} for n, x in enumerate([NAN, 1.0, 1.0, 1.0])])
    if change == "vectors":
        sql("DELETE FROM lake.shop.old WHERE id = 3")
    if change == "runs":
        sql("INSERT INTO lake.shop.old VALUES (3, 1.0, 1)")
        assert store.table("shop.old").filestore.state().pending
    delta = f"delta.`{table.location}`"
    assert spark.sql(f"SELECT id FROM {delta} WHERE x > 3").collect() == [], "what others read is repaired below"
    assert sql("SELECT id FROM lake.shop.old WHERE x > 3") == [(0,)]
    sql("DELETE FROM lake.shop.old WHERE x <> 1")
    assert sql("SELECT id FROM lake.shop.old WHERE x > 3 OR id = 0") == []
    if not change:  # the file is in the table again
        store.table("shop.old").rollback(1)
        assert sql("SELECT id FROM lake.shop.old WHERE x > 3") == [(0,)]
        sql("CALL lake.sys.compact('shop.old', true)")
        assert [row.id for row in spark.sql(f"SELECT id FROM {delta} WHERE x > 3").collect()] == [0]


def test_changes_in_files_of_edition_1_are_found(session: SparkSession, sql: Sql, store: Store) -> None:
    """Nobody knows of the files of a change feed whether a row group of them hides a NaN or -0.0."""
    options = {"log.system": "none", "changelog-producer": "lookup"}
    table = store.create_table("shop.fed", "id BIGINT, x DOUBLE", primary_key=["id"], options=options)
    table.write([{"id": n, "x": 1.0} for n in range(3)])
    with edition_1():
        store.table("shop.fed").write([{"id": n, "x": x} for n, x in enumerate([NAN, -0.0, 2.0])])
    of_sql = "SELECT id FROM table_changes('lake.shop.fed', 2) WHERE {} ORDER BY id"
    of_delta = f"SELECT id FROM table_changes_by_path('{table.location}', 2) WHERE {{}} ORDER BY id"
    for query in (of_sql, of_delta):
        assert sql(query.format("x > 3.5")) == [(0,)]
        assert sql(query.format("x = 0")) == [(1,)]
        assert sql(query.format("x <> 1 AND _change_type = 'update_postimage'")) == [(0,), (1,), (2,)]
    found = {finding.path: finding for finding in store.table("shop.fed").examine().problems}
    assert {finding.code for finding in found.values()} == {"hidden-value"}
    assert any(path.startswith("_change_data/") for path in found)


def test_a_frame_from_before_a_column_was_added_finds_a_nan(session: SparkSession, sql: Sql, store: Store) -> None:
    table = store.create_table("shop.wide", "id BIGINT, x DOUBLE", options={"log.system": "none"})
    with edition_1():
        table.write([{"id": n, "x": x} for n, x in enumerate([NAN, 1.0, 1.0])])
    before = session.table("lake.shop.wide").where("x > 3")
    sql("ALTER TABLE lake.shop.wide ADD COLUMN y INT")
    both = session.table("lake.shop.wide").where("x > 3").select("id").unionAll(before.select("id"))
    assert [row.id for row in both.collect()] == [0, 0]
