"""Text that a statement writes into columns of other types: cast as Delta casts it, or an error and nothing written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tablestore import Store
from tests.depth import Depth
from tests.spark.sql.conftest import Sql

VALUES = {
    "TINYINT": ("12", "1000"),
    "SMALLINT": ("-300", "70000"),
    "INT": (" 7", "7.5"),
    "BIGINT": ("9000000000", "many"),
    "FLOAT": ("1.5", "1,5"),
    "DOUBLE": ("1e300", ""),
    "DECIMAL(5,2)": ("1.25", "12345.6"),
    "BOOLEAN": ("true", "perhaps"),
    "DATE": ("2026-01-31", "2026-02-30"),
    "TIMESTAMP": ("2026-01-31 10:00:00", "10 o'clock"),
    "TIMESTAMP_NTZ": ("2026-01-31 10:00:00", "tomorrow"),
    "BINARY": ("text", None),
    "STRUCT<d: DATE, n: INT>": ("named_struct('d', '2026-01-31', 'n', '1')", "named_struct('d', 'x', 'n', '1')"),
    "ARRAY<DATE>": ("array('2026-01-31', NULL)", "array('x')"),
    "MAP<STRING, DATE>": ("map('k', '2026-01-31')", "map('k', 'x')"),
}
"""For each type a text that is one of its values, and one that is none."""


def _written(text: str) -> str:
    return text if text.startswith(("named_struct", "array", "map")) else '"' + text + '"'


def test_text_of_each_type(sql: Sql, session: SparkSession, depth: Depth) -> None:
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(VALUES))
    sql(f"CREATE TABLE lake.shop.texts (id INT PRIMARY KEY, {columns})")
    good = ", ".join(_written(text) for text, _ in VALUES.values())
    cast = ", ".join(f"CAST({_written(text)} AS {kind})" for kind, (text, _) in VALUES.items())
    sql(f"INSERT INTO lake.shop.texts VALUES ('1', {good})")
    sql(f"INSERT INTO lake.shop.texts SELECT 2, {cast}")
    names = ", ".join(f"c{i}" for i in range(len(VALUES)))
    [first, second] = session.sql(f"SELECT {names} FROM lake.shop.texts ORDER BY id").collect()
    assert first == second
    bad = [(i, wrong) for i, (_, wrong) in enumerate(VALUES.values()) if wrong is not None]
    for i, wrong in depth.sample(bad, 4):
        with pytest.raises(PySparkException, match=r"CAST_INVALID_INPUT|NUMERIC_VALUE_OUT_OF_RANGE|CAST_OVERFLOW"):
            sql(f"INSERT INTO lake.shop.texts (id, c{i}) VALUES (3, {_written(wrong)})")
    assert sql("SELECT id FROM lake.shop.texts") == [(1,), (2,)]


def test_text_in_each_statement(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.days (id BIGINT PRIMARY KEY, day DATE)")
    sql("INSERT INTO lake.shop.days (day, id) VALUES ('2026-01-01', 1), ('2026-01-02', 2)")
    sql("INSERT INTO lake.shop.days BY NAME SELECT '2026-01-03' AS day, '3' AS id")
    sql("UPDATE lake.shop.days AS d SET d.day = '2026-02-01' WHERE d.id = 1")
    sql("UPDATE lake.shop.days SET day = concat(year(day), '-12-31') WHERE id = 2")
    source = "(SELECT * FROM VALUES ('3', '2026-03-03'), ('4', '2026-04-04') AS s(id, day))"
    sql(
        f"MERGE INTO lake.shop.days t USING {source} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET day = s.day WHEN NOT MATCHED THEN INSERT (id, day) VALUES (s.id, s.day)"
    )
    sql("MERGE INTO lake.shop.days t USING (SELECT '5' AS id, '2026-05-05' AS day) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    sql("CREATE TABLE lake.shop.numbers (n INT)")
    sql(
        "FROM (SELECT '1' AS n, '2026-02-01' AS day) INSERT INTO lake.shop.days SELECT n, day "
        "INSERT INTO lake.shop.numbers SELECT n"
    )
    assert sql("SELECT * FROM lake.shop.numbers") == [(1,)]
    assert sql("SELECT id, CAST(day AS STRING) FROM lake.shop.days") == [
        (1, "2026-02-01"), (2, "2026-12-31"), (3, "2026-03-03"), (4, "2026-04-04"), (5, "2026-05-05"),
    ]  # fmt: skip
    for statement in (
        "UPDATE lake.shop.days SET day = 'never'",
        "MERGE INTO lake.shop.days t USING (SELECT 9 AS id, 'never' AS day) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *",
    ):
        with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
            sql(statement)
    assert len(sql("SELECT * FROM lake.shop.days")) == 5
    for statement in (
        "UPDATE lake.shop.days SET nosuch = '1'",
        "UPDATE lake.shop.days SET day = '2026-01-01' WHERE nosuch = 1",
        "MERGE INTO lake.shop.days t USING (SELECT 9 AS id) s ON t.nosuch = s.id WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(AnalysisException, match=r"UNRESOLVED_COLUMN.*nosuch"):
            sql(statement)
    sql("SET spark.sql.storeAssignmentPolicy = STRICT")
    for statement in (
        "INSERT INTO lake.shop.days VALUES (1, '2026-01-01')",
        "UPDATE lake.shop.days SET day = '2026-01-01'",
    ):
        with pytest.raises(AnalysisException, match="CANNOT_SAFELY_CAST"):
            sql(statement)


WAYS: dict[str, Callable[[DataFrame], object]] = {
    "append": lambda rows: rows.writeTo("lake.shop.parts").append(),
    "overwritePartitions": lambda rows: rows.writeTo("lake.shop.parts").overwritePartitions(),
    "saveAsTable": lambda rows: rows.write.mode("append").saveAsTable("lake.shop.parts"),
    "overwrite": lambda rows: rows.write.mode("overwrite").saveAsTable("lake.shop.parts"),
    "insertInto": lambda rows: rows.write.insertInto("lake.shop.parts"),
}


def test_text_of_data_frames_and_partitions(sql: Sql, session: SparkSession, store: Store, depth: Depth) -> None:
    sql("CREATE TABLE lake.shop.parts (n INT, day DATE) PARTITIONED BY (day)")
    sql("INSERT INTO lake.shop.parts PARTITION (day = '2026-01-01') VALUES ('1')")
    sql("INSERT INTO lake.shop.parts PARTITION (day) VALUES ('2', '2026-01-02')")
    assert sql("SELECT n, CAST(day AS STRING) FROM lake.shop.parts") == [(1, "2026-01-01"), (2, "2026-01-02")]
    for way in depth.sample(list(WAYS), 3):
        WAYS[way](session.sql("SELECT '3' AS n, '2026-01-03' AS day"))
        assert (3, "2026-01-03") in sql("SELECT n, CAST(day AS STRING) FROM lake.shop.parts"), way
        rows = len(sql("SELECT * FROM lake.shop.parts"))
        with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
            WAYS[way](session.sql("SELECT '3' AS n, 'never' AS day"))
        assert len(sql("SELECT * FROM lake.shop.parts")) == rows, way
