"""With a catalog of ours current, statements on tables and files of others run as without our extension."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.sql.conftest import Sql

STATEMENTS = {
    "UPDATE": "UPDATE {t} SET day = DATE'2026-02-01' WHERE id = 1",
    "UPDATE of all": "UPDATE {t} SET day = DATE'2026-02-01'",
    "UPDATE of text": "UPDATE {t} SET day = '2026-02-01' WHERE id = 1",
    "MERGE": "MERGE INTO {t} t USING (SELECT 1 AS id, DATE'2026-02-01' AS day) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET t.day = s.day",
    "MERGE of fields": "MERGE INTO {t} t USING (SELECT 1L AS id, DATE'2026-02-01' AS day) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET t.s.a = 7L, day = s.day",
    "MERGE of all": "MERGE INTO {t} t USING (SELECT 1 AS id, DATE'2026-02-01' AS day, named_struct('a', 1) AS s) s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
}

FAULTS_OF_DELTA = {("MERGE of fields", "keyed"): "DELTA_MERGE_UNEXPECTED_ASSIGNMENT_KEY"}
"""What Delta alone does not do either: set a field through a view."""


@pytest.mark.slow
@pytest.mark.few(3)
@pytest.mark.parametrize("target", ["keyed", "spark_catalog.default.others", "delta.`{path}`"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_changes_of_delta_tables(sql: Sql, session: SparkSession, folder: Path, target: str, statement: str) -> None:
    """They were taken for tables of the current catalog: not found, or held until the analyzer gave up."""
    path = folder / "others"
    sql("CREATE TABLE lake.shop.keyed (id BIGINT PRIMARY KEY, day DATE)")
    columns = "id BIGINT, day DATE, s STRUCT<a: INT>"
    sql(f"CREATE TABLE spark_catalog.default.others ({columns}) USING delta LOCATION '{path}'")
    try:
        sql("INSERT INTO spark_catalog.default.others VALUES (1, DATE'2026-01-01', named_struct('a', 1))")
        session.table("spark_catalog.default.others").createOrReplaceTempView("keyed")
        sql("USE lake.shop")
        text = STATEMENTS[statement].format(t=target.format(path=path))
        if (fault := FAULTS_OF_DELTA.get((statement, target))) is not None:
            with pytest.raises(AnalysisException, match=fault):
                sql(text)
            return
        sql(text)
        assert sql("SELECT id, CAST(day AS STRING) FROM spark_catalog.default.others") == [(1, "2026-02-01")]
    finally:
        session.sql("DROP TABLE spark_catalog.default.others")


def test_files_are_read_and_written(sql: Sql, session: SparkSession, folder: Path) -> None:
    """Their names were taken for names of tables of ours that are spelled badly."""
    sql("USE lake.shop")
    files = {name: f"{name}.`{folder / 'a.b' / name}`" for name in ("delta", "parquet", "json", "csv")}
    for name in files:
        session.range(2).write.format(name).option("header", True).save(str(folder / "a.b" / name))
    for name in ("delta", "parquet", "json"):
        assert sql(f"SELECT * FROM {files[name]}") == [(0,), (1,)], name
    assert sql(f"SELECT * FROM {files['csv']} WITH ('header' = 'true')") == [("0",), ("1",)]
    delta = files["delta"]
    sql(f"INSERT INTO {delta} VALUES (2)")
    session.range(3, 4).writeTo(delta).append()
    sql(f"DELETE FROM {delta} WHERE id = 0")
    sql(f"ALTER TABLE {delta} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    assert sql(f"SELECT * FROM {delta}") == [(1,), (2,), (3,)]
    assert sql(f"SELECT * FROM {delta} VERSION AS OF 0") == [(0,), (1,)]
    assert session.catalog.tableExists(delta)
    sql(f"CREATE VIEW lake.shop.v AS SELECT * FROM {delta} UNION ALL SELECT * FROM {files['parquet']}")
    assert len(sql("SELECT * FROM lake.shop.v")) == 5
    sql(f"DROP TABLE IF EXISTS {delta.replace('a.b', 'none')}")
    for statement in (f"SELECT * FROM parquet.`{folder}/none`", f"SELECT * FROM csv.`{folder}/no$files`"):
        with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
            sql(statement)


def test_regression_tables_in_folders_are_made_by_delta(sql: Sql, session: SparkSession, folder: Path) -> None:
    """Their paths were taken for names of new tables of ours that are spelled badly."""
    sql("USE lake.shop")
    made, rows, framed, saved = (f"delta.`{folder / name}`" for name in ("made", "rows", "framed", "saved"))
    for statement in (
        f"CREATE TABLE {made} (id INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        f"CREATE TABLE IF NOT EXISTS {made} (other INT) USING delta",
        f"CREATE TABLE {rows} USING delta AS SELECT 1 AS id",
        f"CREATE OR REPLACE TABLE {rows} USING delta AS SELECT 2 AS id",
        f"REPLACE TABLE {rows} USING delta AS SELECT id + 1 AS id FROM {rows}",
        f"INSERT INTO {made} VALUES (1)",
    ):
        sql(statement)
    session.range(1).writeTo(framed).using("delta").create()
    session.range(1).write.format("delta").saveAsTable(saved)
    assert [sql(f"SELECT * FROM {t}") for t in (made, rows, framed, saved)] == [[(1,)], [(3,)], [(0,)], [(0,)]]
    with pytest.raises(AnalysisException, match="CHANGE_DATA_CAPTURE"):  # which Delta's catalog lacks, too
        sql(f"SELECT id FROM {made} CHANGES FROM VERSION 1")
    sql(f"CACHE TABLE {made}")
    sql(f"REFRESH TABLE {made}")
    assert sql("SHOW TABLES") == []


def test_regression_a_path_is_of_files_behind_the_name_of_a_format_only(sql: Sql) -> None:
    """Any name with a slash was looked up in the session's catalog."""
    for statement in ("CREATE TABLE lake.shop.`a/b` (id INT)", "CREATE TABLE lake.shop.`a/b` AS SELECT 1 AS id"):
        with pytest.raises(AnalysisException, match="bad-name"):
            sql(statement)
    sql("DROP TABLE IF EXISTS lake.shop.`a/b`")
    for statement in ("SELECT * FROM lake.shop.`a/b`", "DROP TABLE lake.shop.`a/b`"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            sql(statement)
