"""MERGE of whole rows by the key, which needs no join with the table."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, SparkRuntimeException
from pyspark.sql import SparkSession

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from tablestore import Store
from tablestore.spark.batch.writing import each_once
from tablestore.writing.write import Write
from tests.spark.sql.conftest import Sql

DEFINITION = TableDefinition.of(Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), False)])), ["id"])
WHOLE = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
SPELLED = (
    "WHEN MATCHED THEN UPDATE SET name = s.name, id = s.id, n = s.n WHEN NOT MATCHED THEN INSERT (n, id, name) "
    "VALUES (s.n, s.id, s.name)"
)


@pytest.fixture
def orders(sql: Sql) -> None:
    sql(
        "CREATE TABLE lake.shop.orders (id BIGINT, name STRING, n INT, PRIMARY KEY (id)) TBLPROPERTIES ('bucket' = '2')"
    )
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a', 10), (2, 'b', 20)")


def merge(source: str, actions: str, condition: str = "t.id = s.id") -> str:
    rows = f"(SELECT * FROM VALUES {source} AS s(id, name, n))"
    return f"MERGE INTO lake.shop.orders t USING {rows} s ON {condition} {actions}"


def joins(session: SparkSession, statement: str) -> bool:
    return "Join" in str(session.sql(f"EXPLAIN EXTENDED {statement}").collect()[0][0]).split("== Optimized")[1]


@pytest.mark.few(2)
@pytest.mark.parametrize("actions", [WHOLE, SPELLED])
@pytest.mark.parametrize("condition", ["t.id = s.id", "s.id = t.id"])
@pytest.mark.usefixtures("orders")
def test_whole_rows_are_merged_without_a_join(session: SparkSession, sql: Sql, actions: str, condition: str) -> None:
    statement = merge("(2L, 'B', 21), (3L, 'c', 30)", actions, condition)
    assert not joins(session, statement)
    sql(statement)
    assert sql("SELECT * FROM lake.shop.orders") == [(1, "a", 10), (2, "B", 21), (3, "c", 30)]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("condition", "actions"),
    [
        ("t.n = s.n", WHOLE.replace("UPDATE SET *", "UPDATE SET name = s.name")),
        ("t.id = s.id", WHOLE.replace("SET *", "SET name = s.name")),
        ("t.id = s.id", SPELLED.replace("name = s.name", "name = concat(t.name, s.name)")),
        ("t.id = s.id", WHOLE.replace("MATCHED THEN UPDATE", "MATCHED AND s.n > 1 THEN UPDATE")),
        ("t.id = s.id", f"{WHOLE} WHEN NOT MATCHED BY SOURCE THEN DELETE"),
        ("t.id = s.id + 0", WHOLE),
        ("t.id = s.id AND t.n > 15", WHOLE),
    ],
)
@pytest.mark.usefixtures("orders")
def test_others_read_the_table(session: SparkSession, condition: str, actions: str) -> None:
    assert joins(session, merge("(2L, 'B', 21)", actions, condition))


@pytest.mark.usefixtures("orders")
def test_a_source_that_has_a_key_twice_is_refused(sql: Sql) -> None:
    for source in ("(2L, 'B', 21), (2L, 'C', 22)", "(9L, 'B', 21), (9L, 'C', 22)"):
        with pytest.raises(AnalysisException, match=r"repeated-key.*\{'id': [29]\}"):
            sql(merge(source, WHOLE))
    assert sql("SELECT * FROM lake.shop.orders") == [(1, "a", 10), (2, "b", 20)]


def test_whole_rows_are_merged_into_partitions_that_are_in_the_key(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.days (day DATE, id BIGINT, n INT, PRIMARY KEY (day, id)) PARTITIONED BY (day)")
    sql("INSERT INTO lake.shop.days VALUES (DATE'2026-01-01', 1, 1), (DATE'2026-01-02', 1, 2)")
    source = "(SELECT * FROM VALUES {} AS s(day, id, n))"
    merged = f"MERGE INTO lake.shop.days t USING {source} s ON t.day = s.day AND t.id = s.id {WHOLE}"
    sql(merged.format("(DATE'2026-01-02', 1L, 3), (DATE'2026-01-02', 2L, 4), (DATE'2026-01-03', 1L, 5)"))
    assert sql("SELECT dayofmonth(day), id, n FROM lake.shop.days ORDER BY day, id") == [
        (1, 1, 1), (2, 1, 3), (2, 2, 4), (3, 1, 5),
    ]  # fmt: skip
    with pytest.raises(AnalysisException, match="repeated-key"):
        sql(merged.format("(current_date(), 1L, 3), (current_date(), 1L, 4)"))


@pytest.mark.usefixtures("orders")
def test_a_null_key_is_refused(sql: Sql) -> None:
    with pytest.raises(SparkRuntimeException, match=r"(?s)NULL.*id"):
        sql(merge("(CAST(NULL AS BIGINT), 'B', 21)", WHOLE))
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(2,)]


@pytest.mark.usefixtures("orders")
def test_a_merge_that_only_inserts_rests_on_the_rows_that_it_read(
    sql: Sql, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 4.2 has a plan of its own for it, and it was written as an INSERT: it replaced rows of others."""
    table, prepare = store.table("shop.orders"), Write.prepare
    others = [lambda: table.write([{"id": 9, "name": "theirs", "n": 9}])]

    def interrupted(write: Write) -> object:
        proposal = prepare(write)
        while others:
            others.pop()()
        return proposal

    monkeypatch.setattr(Write, "prepare", interrupted)
    sql(merge("(9L, 'mine', 0)", "WHEN NOT MATCHED THEN INSERT *"))
    assert not others
    assert sql("SELECT name FROM lake.shop.orders WHERE id = 9") == [("theirs",)]


@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
def test_a_lower_sequence_is_refused_and_not_dropped(sql: Sql, mode: str) -> None:
    sql("CREATE TABLE lake.shop.orders (id BIGINT, name STRING, n INT, PRIMARY KEY (id)) "
        f"WITH ('sequence.field' = 'n', 'write-mode' = '{mode}', 'log.system' = 'none')")  # fmt: skip
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a', 10)")
    with pytest.raises(AnalysisException, match="late-rows"):
        sql(merge("(1L, 'old', 5)", WHOLE))
    with pytest.raises(AnalysisException, match="repeated-key"):  # the condition does not name the key
        sql(merge("(1L, 'old', 5)", "WHEN NOT MATCHED THEN INSERT *", "t.n = s.n"))
    assert sql("SELECT * FROM lake.shop.orders") == [(1, "a", 10)]


@pytest.mark.deep
@pytest.mark.usefixtures("orders")
def test_a_source_that_is_the_table_itself(sql: Sql) -> None:
    sql(
        "MERGE INTO lake.shop.orders t USING (SELECT id, name, n + 1 AS n FROM lake.shop.orders) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert sql("SELECT * FROM lake.shop.orders") == [(1, "a", 11), (2, "b", 21)]


@pytest.mark.parametrize("batches", [[[1, 2, 2]], [[1, 2], [2, 3]], [[1], [], [1]]])
def test_repeated_keys_are_found_at_the_seams_of_batches(batches: list[list[int]]) -> None:
    rows = [pa.record_batch({"id": pa.array(ids, pa.int64())}) for ids in batches]
    with pytest.raises(InvalidRequest, match=r"\{'id': [12]\}"):
        list(each_once(rows, DEFINITION))


def test_keys_that_are_there_once_are_left_as_they_are() -> None:
    rows = [pa.record_batch({"id": pa.array(ids, pa.int64())}) for ids in ([], [1, 2], [3], [4, 9])]
    assert [batch.to_pydict()["id"] for batch in each_once(rows, DEFINITION)] == [[1, 2], [3], [4, 9]]


def test_columns_are_added_by_a_merge_and_an_insert_that_say_so(sql: Sql, store: Store) -> None:
    sql("CREATE TABLE lake.shop.e (id BIGINT, n INT, PRIMARY KEY (id))")
    sql("INSERT INTO lake.shop.e VALUES (1, 1), (2, 2)")
    source = "(SELECT * FROM VALUES (1L, 10, 'x'), (3L, 30, 'y') AS s(id, n, extra))"
    merge = (
        f"INTO lake.shop.e t USING {source} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    sql(f"MERGE {merge}")  # without the words a column that the table lacks is left out, as Spark does
    assert sql("SELECT * FROM lake.shop.e") == [(1, 10), (2, 2), (3, 30)]
    sql(f"MERGE WITH SCHEMA EVOLUTION {merge}")
    assert sql("SELECT * FROM lake.shop.e") == [(1, 10, "x"), (2, 2, None), (3, 30, "y")]
    sql("INSERT WITH SCHEMA EVOLUTION INTO lake.shop.e BY NAME SELECT 4L AS id, 40 AS n, 'z' AS extra, 7L AS more")
    assert (4, 40, "z", 7) in sql("SELECT * FROM lake.shop.e")
    with pytest.raises(AnalysisException, match="FAILED_EVOLUTION"):
        sql(
            "MERGE WITH SCHEMA EVOLUTION INTO lake.shop.e t USING (SELECT 'a' AS id, 5 AS n) s ON t.n = s.n "
            "WHEN MATCHED THEN UPDATE SET *"
        )
    assert store.table("shop.e").schema.names == ["id", "n", "extra", "more"]
    assert store.table("shop.e").examine().problems == ()
