"""Rows in SQL: inserts, overwrites, updates, deletes, merges, and reads of versions and system tables."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tablestore import Store, Table
from tablestore.spark.sql.rows import WRITES
from tests.depth import Depth
from tests.spark.sql.conftest import Sql
from tests.tables import assert_healthy


@pytest.fixture
def orders(sql: Sql, store: Store) -> Iterator[Table]:
    sql("CREATE TABLE lake.shop.orders (id BIGINT PRIMARY KEY, name STRING, v INT) TBLPROPERTIES ('bucket' = '2')")
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a', 10), (2, 'b', 20), (3, NULL, NULL)")
    table = store.table("shop.orders")
    assert isinstance(table, Table)
    yield table
    assert_healthy(table.filestore)


def everything(sql: Sql) -> list[tuple[object, ...]]:
    return sql("SELECT * FROM lake.shop.orders")


def test_inserts(sql: Sql, orders: Table) -> None:
    sql("INSERT INTO lake.shop.orders (v, id) VALUES (40, 4)")
    sql("INSERT INTO lake.shop.orders BY NAME SELECT 'e' AS name, 5L AS id, 50 AS v")
    sql("INSERT INTO lake.shop.orders TABLE lake.shop.orders")
    sql("INSERT INTO lake.shop.orders SELECT id + 10, name, v FROM lake.shop.orders WHERE id < 3")
    assert everything(sql) == [
        (1, "a", 10), (11, "a", 10), (12, "b", 20), (2, "b", 20), (3, None, None), (4, None, 40), (5, "e", 50),
    ]  # fmt: skip
    with pytest.raises(AnalysisException, match="id"):
        sql("INSERT INTO lake.shop.orders (name) VALUES ('no key')")
    with pytest.raises(AnalysisException):
        sql("INSERT INTO lake.shop.orders VALUES (1, 'too few')")
    with pytest.raises(AnalysisException, match=r"(?i)cast"):
        sql("INSERT INTO lake.shop.orders VALUES (DATE'2026-01-01', 'a', 1)")
    assert len(orders.snapshots()) == 6


def test_update(sql: Sql, orders: Table) -> None:
    sql("UPDATE lake.shop.orders SET v = v + 1, name = upper(name) WHERE id < 3")
    sql("UPDATE lake.shop.orders AS o SET o.name = 'none' WHERE name IS NULL")
    sql("UPDATE lake.shop.orders SET v = (SELECT max(v) FROM lake.shop.orders) WHERE v IS NULL")
    assert everything(sql) == [(1, "A", 11), (2, "B", 21), (3, "none", 21)]
    version = orders.filestore.state().version
    with pytest.raises(AnalysisException, match=r"key-change.*a column of the primary key"):
        sql("UPDATE lake.shop.orders SET id = id + 1")
    sql("UPDATE lake.shop.orders SET id = id, v = 0 WHERE id = 1")
    assert orders.filestore.state().version == version + 1
    assert everything(sql)[0] == (1, "A", 0)


def test_delete_and_truncate(sql: Sql, orders: Table) -> None:
    sql("DELETE FROM lake.shop.orders WHERE v = (SELECT max(v) FROM lake.shop.orders)")
    assert everything(sql) == [(1, "a", 10), (3, None, None)]
    sql("DELETE FROM lake.shop.orders WHERE name IS NULL")
    assert everything(sql) == [(1, "a", 10)]
    sql("DELETE FROM lake.shop.orders")
    assert everything(sql) == []
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a', 10)")
    sql("TRUNCATE TABLE lake.shop.orders")
    assert everything(sql) == []


def test_merge(sql: Sql, orders: Table, session: SparkSession) -> None:
    session.sql("SELECT * FROM VALUES (1L, 'x', 0), (2L, 'y', 1), (9L, 'z', 2) AS s(id, name, v)").createTempView("s")
    sql("""
        MERGE INTO lake.shop.orders t USING s ON t.id = s.id
        WHEN MATCHED AND s.v = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET name = s.name || t.name
        WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN UPDATE SET v = -1
    """)
    assert everything(sql) == [(2, "yb", 20), (3, None, -1), (9, "z", 2)]
    with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
        sql("MERGE INTO lake.shop.orders t USING (SELECT 2L AS id FROM range(2)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = 5")  # fmt: skip
    sql("MERGE INTO lake.shop.orders t USING lake.shop.orders s ON t.id = s.id + 1 "
        "WHEN MATCHED THEN UPDATE SET v = s.id")  # fmt: skip
    assert everything(sql) == [(2, "yb", 20), (3, None, 2), (9, "z", 2)]


def test_overwrites(sql: Sql, store: Store, session: SparkSession) -> None:
    sql("CREATE TABLE lake.shop.days (day DATE, n INT) PARTITIONED BY (day)")
    sql("INSERT INTO lake.shop.days VALUES (DATE'2026-01-01', 1), (DATE'2026-01-02', 2), (DATE'2026-01-03', 3)")
    sql("INSERT OVERWRITE lake.shop.days PARTITION (day = DATE'2026-01-02') VALUES (20), (21)")
    assert sql("SELECT n FROM lake.shop.days") == [(1,), (20,), (21,), (3,)]
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    sql("INSERT OVERWRITE lake.shop.days VALUES (DATE'2026-01-01', 10)")
    assert sql("SELECT n FROM lake.shop.days") == [(10,), (20,), (21,), (3,)]
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
    sql("INSERT INTO lake.shop.days PARTITION (day = DATE'2026-01-04') VALUES (4)")
    sql("INSERT INTO lake.shop.days REPLACE WHERE day = DATE'2026-01-03' VALUES (DATE'2026-01-03', 30)")
    assert sql("SELECT n FROM lake.shop.days") == [(10,), (20,), (21,), (30,), (4,)]
    with pytest.raises(AnalysisException, match="whole partitions"):
        sql("INSERT INTO lake.shop.days REPLACE WHERE n > 3 VALUES (DATE'2026-01-03', 30)")
    sql("INSERT OVERWRITE lake.shop.days SELECT day, n + 1 FROM lake.shop.days WHERE n = 4")
    assert sql("SELECT n FROM lake.shop.days") == [(5,)]


@pytest.mark.deep
def test_older_versions(sql: Sql, orders: Table) -> None:
    orders.create_tag("first", 1)
    moment = orders.snapshots()[0].timestamp.isoformat(sep=" ")
    sql("DELETE FROM lake.shop.orders WHERE id > 1")
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(1,)]
    for how in ("VERSION AS OF 1", "VERSION AS OF 'first'", f"TIMESTAMP AS OF '{moment}'"):
        assert sql(f"SELECT count(*) FROM lake.shop.orders {how}") == [(3,)], how
    assert sql("SELECT count(*) FROM lake.shop.orders VERSION AS OF 0") == [(0,)]
    with pytest.raises(AnalysisException, match="no version 99"):
        sql("SELECT * FROM lake.shop.orders VERSION AS OF 99")
    with pytest.raises(AnalysisException, match="nothing"):
        sql("SELECT * FROM lake.shop.orders VERSION AS OF 'nothing'")


@pytest.mark.deep
def test_system_tables(sql: Sql, orders: Table) -> None:
    assert sql("SELECT version, operation FROM lake.shop.`orders$snapshots`") == [(0, "CREATE TABLE"), (1, "WRITE")]
    assert sql("SELECT count(*) FROM lake.shop.`orders$files` VERSION AS OF 0") == [(0,)]
    with pytest.raises(AnalysisException, match="no system table"):
        sql("SELECT * FROM lake.shop.`orders$nothing`")


@pytest.mark.deep
def test_pending_runs_are_read(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.mor (id BIGINT PRIMARY KEY, v INT) TBLPROPERTIES ('write-mode' = 'merge-on-read')")
    sql("INSERT INTO lake.shop.mor VALUES (1, 1), (2, 2)")
    sql("INSERT INTO lake.shop.mor VALUES (2, 20), (3, 30)")
    assert sql("SELECT * FROM lake.shop.mor WHERE v > 1") == [(2, 20), (3, 30)]
    sql("UPDATE lake.shop.mor SET v = v + 1 WHERE id = 2")
    sql("DELETE FROM lake.shop.mor WHERE id = 1")
    assert sql("SELECT v, id FROM lake.shop.mor") == [(21, 2), (30, 3)]
    sql("CALL lake.sys.fold('shop.mor')")
    assert sql("SELECT v, id FROM lake.shop.mor") == [(21, 2), (30, 3)]


@pytest.mark.deep
def test_a_delete_is_no_late_row(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.s (id BIGINT PRIMARY KEY, at BIGINT, v INT) TBLPROPERTIES ('sequence.field' = 'at')")
    sql("INSERT INTO lake.shop.s VALUES (1, 100, 1), (2, 100, 2)")
    sql("DELETE FROM lake.shop.s WHERE id = 1")
    sql("UPDATE lake.shop.s SET v = 20 WHERE id = 2")
    assert sql("SELECT * FROM lake.shop.s") == [(2, 100, 20)]
    sql("MERGE INTO lake.shop.s t USING (SELECT 2L AS id UNION SELECT 3L) s ON t.id = s.id WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (id, at, v) VALUES (s.id, 7, 3)")  # fmt: skip
    assert sql("SELECT * FROM lake.shop.s") == [(3, 7, 3)]
    sql("INSERT INTO lake.shop.s VALUES (1, 99, 0), (2, 101, 5)")
    assert sql("SELECT * FROM lake.shop.s") == [(2, 101, 5), (3, 7, 3)]


ENGINES = [
    ("'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum'", "UPDATE DELETE MERGE"),
    ("'merge-engine' = 'partial-update'", "UPDATE DELETE MERGE"),
    ("'merge-engine' = 'partial-update', 'partial-update.remove-record-on-delete' = 'true'", "UPDATE MERGE"),
    ("'merge-engine' = 'first-row'", "UPDATE DELETE MERGE"),
    ("'ignore-delete' = 'true'", "DELETE MERGE"),
]


@pytest.mark.deep
def test_engines_that_would_do_something_else(sql: Sql) -> None:
    for number, (options, refused) in enumerate(ENGINES):
        name = f"lake.shop.t{number}"
        sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v INT) TBLPROPERTIES ({options})")
        sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
        statements = {
            "UPDATE": f"UPDATE {name} SET v = 5 WHERE id = 1",
            "DELETE": f"DELETE FROM {name} WHERE id = 1",
            "MERGE": f"MERGE INTO {name} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 5",
        }
        for command in refused.split():
            with pytest.raises(AnalysisException, match=f"{command} of {name} is not possible"):
                sql(statements[command])
        assert sql(f"SELECT * FROM {name}") == [(1, 1), (2, 2)]
        if "UPDATE" not in refused:
            sql(statements["UPDATE"])
            assert sql(f"SELECT * FROM {name}") == [(1, 5), (2, 2)]
        if "DELETE" not in refused:
            sql(statements["DELETE"])
            assert sql(f"SELECT * FROM {name}") == [(2, 2)]


def test_rows_without_a_key(store: Store, sql: Sql, others: list[Callable[[], object]]) -> None:
    sql("CREATE TABLE lake.shop.t (a INT)")
    sql("INSERT INTO lake.shop.t VALUES (1), (1), (NULL), (3)")
    sql("UPDATE lake.shop.t SET a = a + 1 WHERE a = 1")
    assert sql("SELECT * FROM lake.shop.t") == [(2,), (2,), (3,), (None,)]
    others.append(lambda: store.table("shop.t").write([{"a": 9}, {"a": 3}]))
    sql("DELETE FROM lake.shop.t WHERE a = 3")
    assert not others
    assert sql("SELECT * FROM lake.shop.t") == [(2,), (2,), (9,), (None,)]
    sql("DELETE FROM lake.shop.t")
    assert sql("SELECT * FROM lake.shop.t") == []


def test_the_plan_is_that_of_delta(session: SparkSession, orders: Table) -> None:
    def plan(df: object) -> str:
        text = df._jdf.queryExecution().executedPlan().toString()  # type: ignore[attr-defined]
        return re.sub(r"#\d+L?", "", text)

    ours = session.sql("SELECT name, v FROM lake.shop.orders WHERE id = 2 AND v > 3")
    theirs = session.read.format("delta").load(orders.location).where("id = 2 AND v > 3").select("name", "v")
    assert plan(ours) == plan(theirs)
    assert "FileScan parquet" in plan(ours)


@pytest.mark.deep
def test_a_dataframe_is_written(session: SparkSession, sql: Sql, orders: Table) -> None:
    df = session.createDataFrame([(7, "g", 70)], "id LONG, name STRING, v INT")
    df.writeTo("lake.shop.orders").append()
    df.withColumn("id", df.id + 1).write.insertInto("lake.shop.orders")
    df.withColumn("id", df.id + 2).write.mode("append").saveAsTable("lake.shop.orders")
    assert [row[0] for row in sql("SELECT id FROM lake.shop.orders WHERE id > 3")] == [7, 8, 9]


@pytest.mark.deep
def test_a_cached_table_is_not_stale(sql: Sql, orders: Table) -> None:
    sql("CACHE TABLE lake.shop.orders")
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(3,)]
    sql("INSERT INTO lake.shop.orders VALUES (4, 'd', 40)")
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(4,)]
    sql("DELETE FROM lake.shop.orders WHERE id < 4")
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(1,)]
    sql("TRUNCATE TABLE lake.shop.orders")
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(0,)]
    sql("UNCACHE TABLE lake.shop.orders")


@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["refreshTable", "REFRESH TABLE"])
def test_a_cached_table_is_read_again_when_it_is_refreshed(
    session: SparkSession, sql: Sql, orders: Table, way: str
) -> None:
    """What others write is not noticed until then. REFRESH TABLE did nothing, and refreshTable ended in None.get."""
    sql("CACHE TABLE lake.shop.orders")
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(3,)]
    orders.write([{"id": 4, "name": "d", "v": 40}])
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(3,)]
    refresh = session.catalog.refreshTable if way == "refreshTable" else lambda name: sql(f"REFRESH TABLE {name}")
    refresh("lake.shop.orders")
    assert sql("SELECT count(*) FROM lake.shop.orders") == [(4,)]
    sql("UNCACHE TABLE lake.shop.orders")
    session.catalog.refreshTable("lake.shop.orders$files")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.catalog.refreshTable("lake.shop.nope")


@pytest.mark.deep
def test_metadata_columns_of_files(sql: Sql, orders: Table) -> None:
    assert all(path.endswith(".parquet") for (path,) in sql("SELECT _metadata.file_path FROM lake.shop.orders"))


@pytest.mark.deep
def test_views_and_ctes(sql: Sql, orders: Table, session: SparkSession) -> None:
    sql("CREATE TEMPORARY VIEW big AS SELECT * FROM lake.shop.orders WHERE v > 15")
    assert sql("WITH x AS (SELECT * FROM big) SELECT a.id FROM x a JOIN big b ON a.id = b.id") == [(2,)]
    sql("INSERT INTO lake.shop.orders SELECT id + 100, name, v FROM big")
    assert sql("SELECT id FROM big") == [(102,), (2,)]


@pytest.mark.deep
def test_procedures(sql: Sql, orders: Table) -> None:
    sql("DELETE FROM lake.shop.orders WHERE id = 1")
    assert sql("CALL lake.sys.create_tag('shop.orders', 'before', 1)") == [("before", 1)]
    assert sql("CALL lake.sys.rollback(table => 'shop.orders', tag => 'before')") == [(4, "ROLLBACK")]
    assert len(everything(sql)) == 3
    sql("CALL lake.sys.delete_tag(tag => 'before', table => 'shop.orders')")
    assert orders.tags() == []
    sql("INSERT INTO lake.shop.orders SELECT id + 100, 'x', 1 FROM range(20)")
    assert sql("CALL lake.sys.compact(table => 'shop.orders', full => true)") == [(7, "COMPACT")]
    assert sql("CALL lake.sys.compact('shop.orders')") == []
    assert sql("CALL lake.sys.doctor('shop.orders')") == []
    assert sql("CALL lake.sys.remove_orphans('shop.orders')") == []
    assert sql("CALL lake.sys.expire_snapshots('shop.orders', dry_run => true)")[0][1] == 0
    with pytest.raises(AnalysisException, match="no procedure 'nothing'"):
        sql("CALL lake.sys.nothing('shop.orders')")
    with pytest.raises(AnalysisException, match="nothing"):
        sql("CALL lake.sys.compact('shop.nothing')")
    with pytest.raises(AnalysisException):
        sql("CALL lake.sys.compact()")
    with pytest.raises(AnalysisException, match="give version, timestamp or tag"):
        sql("CALL lake.sys.rollback('shop.orders')")


@pytest.mark.timeout(3600)
def test_no_concurrent_update_is_lost(session: SparkSession, sql: Sql, orders: Table, depth: Depth) -> None:
    """Statements that lose are planned again over the newest version, or are an explicit conflict."""
    clients, each = (6, depth.times(2, deep=50)) if depth is Depth.DEEP else (3, 2)
    conflicts: list[PySparkException] = []
    errors: list[PySparkException] = []

    def increment() -> None:
        for _ in range(each):
            try:
                session.sql("UPDATE lake.shop.orders SET v = v + 1 WHERE id = 1")
            except PySparkException as error:
                (conflicts if "read-changed" in str(error) else errors).append(error)

    threads = [threading.Thread(target=increment) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [str(error) for error in errors]
    assert sql("SELECT v FROM lake.shop.orders WHERE id = 1") == [(10 + clients * each - len(conflicts),)]
    assert len(conflicts) < clients * each / 2


def test_a_statement_that_fails_changes_nothing(sql: Sql, orders: Table) -> None:
    version = orders.filestore.state().version
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        sql("UPDATE lake.shop.orders SET v = CAST(1 div (v - 20) AS INT)")
    with pytest.raises(Exception, match=r"(?i)null"):
        sql("INSERT INTO lake.shop.orders VALUES (NULL, 'x', 1)")
    assert orders.filestore.state().version == version


def test_statements_with_parameters(session: SparkSession, sql: Sql, orders: Table) -> None:
    """Delta's parser forgets them."""
    session.sql("UPDATE lake.shop.orders SET v = :v WHERE id = :id", args={"v": 77, "id": 1})
    session.sql("INSERT INTO lake.shop.orders (id, v) VALUES (?, ?)", args=[500, None])
    found = session.sql("SELECT id, v FROM lake.shop.orders WHERE id IN (:a, :b) ORDER BY id", args={"a": 1, "b": 500})
    assert [tuple(row) for row in found.collect()] == [(1, 77), (500, None)]
    assert session.sql("SELECT * FROM lake.shop.orders$snapshots WHERE version = :v", args={"v": 0}).count() == 1
    assert sql("EXECUTE IMMEDIATE 'SELECT v FROM lake.shop.orders WHERE id = ?' USING 1") == [(77,)]
    with pytest.raises(AnalysisException, match="UNBOUND_SQL_PARAMETER"):
        session.sql("SELECT :other", args={"v": 1})


def test_a_partitioned_write_has_no_tasks_without_rows(session: SparkSession, sql: Sql, store: Store) -> None:
    sql("CREATE TABLE lake.shop.by_day (day DATE, n INT) PARTITIONED BY (day)")
    session.conf.set("spark.sql.shuffle.partitions", "64")
    try:
        sql("INSERT INTO lake.shop.by_day VALUES (DATE'2026-01-01', 1), (DATE'2026-01-02', 2), (NULL, 3)")
    finally:
        session.conf.unset("spark.sql.shuffle.partitions")
    jobs = session._jsc.sc().statusStore().jobsList(None)
    newest = max((jobs.apply(number) for number in range(jobs.size())), key=lambda job: int(job.jobId()))
    assert newest.numCompletedTasks() + newest.numSkippedTasks() < 8
    assert len(store.table("shop.by_day").files()) == 3


def test_unknown_names(sql: Sql) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM lake.shop.nothing")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("INSERT INTO lake.shop.nothing VALUES (1)")


def test_partitions(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.days (day DATE, who STRING, n INT) PARTITIONED BY (day, who)")
    sql("""
        INSERT INTO lake.shop.days VALUES
            (DATE'2026-01-01', 'a', 1), (DATE'2026-01-02', 'a', 2), (DATE'2026-01-02', 'o''x', 3), (NULL, 'a', 4)
    """)
    assert sql("SHOW PARTITIONS lake.shop.days") == [
        ("day=2026-01-01/who=a",), ("day=2026-01-02/who=a",), ("day=2026-01-02/who=o%27x",), ("day=null/who=a",),
    ]  # fmt: skip
    assert len(sql("SHOW PARTITIONS lake.shop.days PARTITION (day = '2026-01-02')")) == 2
    sql("ALTER TABLE lake.shop.days DROP PARTITION (day = DATE'2026-01-02', who = 'o''x')")
    assert sql("SELECT n FROM lake.shop.days") == [(1,), (2,), (4,)]
    sql("TRUNCATE TABLE lake.shop.days PARTITION (day = DATE'2026-01-02', who = 'a')")
    assert sql("SELECT n FROM lake.shop.days") == [(1,), (4,)]
    sql("ALTER TABLE lake.shop.days DROP IF EXISTS PARTITION (day = DATE'2030-01-01', who = 'a')")
    with pytest.raises(AnalysisException):
        sql("ALTER TABLE lake.shop.days DROP PARTITION (day = DATE'2030-01-01', who = 'a')")
    with pytest.raises(AnalysisException, match="as soon as it has rows"):
        sql("ALTER TABLE lake.shop.days ADD PARTITION (day = DATE'2030-01-01', who = 'a')")


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What others do, one at a time, right before a statement that is planned already writes its rows."""
    waiting: list[Callable[[], object]] = []
    write = WRITES["write"]

    def late(*arguments: Any) -> Any:
        if waiting:
            waiting.pop(0)()
        return write(*arguments)

    monkeypatch.setitem(WRITES, "write", late)
    return waiting


@pytest.mark.deep
def test_a_merge_of_whole_rows_of_the_table_itself_sees_those_of_others(
    sql: Sql, orders: Table, others: list[Callable[[], object]]
) -> None:
    """It needs no join with the table, but its source is the table, so what others change counts."""
    others.append(lambda: orders.write([{"id": 1, "name": "z", "v": 1000}]))
    sql(
        "MERGE INTO lake.shop.orders t USING (SELECT id, name, v + 1 AS v FROM lake.shop.orders) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert not others
    assert everything(sql) == [(1, "z", 1001), (2, "b", 21), (3, None, None)]


@pytest.mark.deep
def test_a_statement_that_reads_all_rows_sees_those_of_others(
    sql: Sql, orders: Table, others: list[Callable[[], object]]
) -> None:
    """It is planned again even if others have changed no key that it writes."""
    others.append(lambda: orders.write([{"id": 99, "name": "z", "v": 1000}]))
    sql("UPDATE lake.shop.orders SET v = (SELECT max(v) FROM lake.shop.orders) WHERE id = 1")
    assert not others
    assert everything(sql) == [(1, "a", 1000), (2, "b", 20), (3, None, None), (99, "z", 1000)]
    others.append(lambda: orders.write([{"id": 99, "_kind": "-D"}, {"id": 4, "name": "d", "v": 4, "_kind": "+I"}]))
    sql(
        "MERGE INTO lake.shop.orders t USING lake.shop.orders s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = t.v + 1"
    )
    assert everything(sql) == [(1, "a", 1001), (2, "b", 21), (3, None, None), (4, "d", 5)]


@pytest.mark.deep
def test_an_update_of_other_keys_is_not_planned_again(
    sql: Sql, orders: Table, others: list[Callable[[], object]]
) -> None:
    others.append(lambda: orders.write([{"id": 3, "name": "c", "v": 30}]))
    sql("UPDATE lake.shop.orders SET v = v + 1 WHERE id < 3")
    assert everything(sql) == [(1, "a", 11), (2, "b", 21), (3, "c", 30)]
    assert orders.filestore.state().version == 3


@pytest.mark.deep
def test_a_row_that_meets_the_condition_meanwhile_is_updated_or_left_as_a_whole(
    sql: Sql, orders: Table, others: list[Callable[[], object]]
) -> None:
    others.append(lambda: orders.write([{"id": 2, "name": "B", "v": 21}]))
    sql("UPDATE lake.shop.orders SET v = v * 2 WHERE name = 'b'")
    assert everything(sql) == [(1, "a", 10), (2, "B", 21), (3, None, None)]
    others += [
        lambda: orders.write([{"id": 1, "name": "a", "v": 11}]),
        lambda: orders.write([{"id": 1, "_kind": "-D"}]),
    ]
    sql("DELETE FROM lake.shop.orders WHERE id = 1 AND v > 5")
    assert everything(sql) == [(2, "B", 21), (3, None, None)]


@pytest.mark.deep
def test_an_overwrite_of_a_table_by_itself_loses_no_row_of_others(
    sql: Sql, orders: Table, others: list[Callable[[], object]]
) -> None:
    others.append(lambda: orders.write([{"id": 4, "name": "d", "v": 40}]))
    sql("INSERT OVERWRITE lake.shop.orders SELECT id, name, v + 1 FROM lake.shop.orders")
    assert everything(sql) == [(1, "a", 11), (2, "b", 21), (3, None, None), (4, "d", 41)]


def test_columns_that_change_meanwhile_are_a_conflict(
    sql: Sql, orders: Table, others: list[Callable[[], object]]
) -> None:
    others.append(lambda: (orders.alter("ADD COLUMN more INT"), orders.write([{"id": 1, "name": "x"}])))
    with pytest.raises(AnalysisException, match="read-changed"):
        sql("UPDATE lake.shop.orders SET v = 0 WHERE id = 1")
    assert sql("SELECT * FROM lake.shop.orders WHERE id = 1") == [(1, "x", None, None)]


@pytest.mark.deep
def test_a_version_that_a_statement_names_stays_that_version(
    sql: Sql, orders: Table, others: list[Callable[[], object]]
) -> None:
    sql("DELETE FROM lake.shop.orders WHERE id > 1")
    sql("INSERT INTO lake.shop.orders VALUES (7, 'g', 70)")
    others.append(lambda: orders.write([{"id": 8, "name": "h", "v": 80}]))
    sql("""
        MERGE INTO lake.shop.orders t USING (SELECT * FROM lake.shop.orders VERSION AS OF 1) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET v = -1 WHEN NOT MATCHED THEN INSERT *
    """)
    assert [row[0] for row in everything(sql)] == [1, 2, 3, 7, 8]
    sql("INSERT OVERWRITE lake.shop.orders SELECT * FROM lake.shop.orders VERSION AS OF 1")
    assert everything(sql) == [(1, "a", 10), (2, "b", 20), (3, None, None)]


@pytest.mark.deep
def test_a_merge_that_only_inserts_replaces_no_row_of_others(
    sql: Sql, orders: Table, others: list[Callable[[], object]]
) -> None:
    others.append(lambda: orders.write([{"id": 9, "name": "theirs", "v": 9}]))
    sql("MERGE INTO lake.shop.orders t USING (SELECT 9L AS id, 'mine' AS name, 0 AS v) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    assert sql("SELECT name FROM lake.shop.orders WHERE id = 9") == [("theirs",)]


@pytest.mark.few(2)
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    "statement",
    [
        "MERGE INTO lake.shop.mor t USING (SELECT 9L AS id, 0 AS v) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
        "INSERT INTO lake.shop.mor SELECT 9L, count(*) FROM lake.shop.mor HAVING max(id) < 9",
        "INSERT OVERWRITE lake.shop.mor SELECT * FROM lake.shop.mor",
    ],
)
def test_what_a_write_reads_of_a_merge_on_read_table_is_pinned(
    sql: Sql, store: Store, others: list[Callable[[], object]], statement: str, *, folded: bool
) -> None:
    """Its plan stays as it is, which was taken for a plan that reads nothing: rows of others were lost."""
    sql("CREATE TABLE lake.shop.mor (id BIGINT PRIMARY KEY, v INT) TBLPROPERTIES ('write-mode' = 'merge-on-read')")
    sql("INSERT INTO lake.shop.mor VALUES (1, 1), (2, 2)")
    table = store.table("shop.mor")
    if folded:
        table.compact(full=True)
    others.append(lambda: table.write([{"id": 9, "v": 99}]))
    with suppress(AnalysisException):  # an overlay cannot become one of another version: read-changed
        sql(statement)
    assert not others
    assert sql("SELECT * FROM lake.shop.mor ORDER BY id") == [(1, 1), (2, 2), (9, 99)]


@pytest.mark.deep
def test_pending_runs_that_others_fold_are_a_conflict(
    sql: Sql, store: Store, others: list[Callable[[], object]]
) -> None:
    """The plan reads the overlay of its version, which cannot become one of another version."""
    sql("CREATE TABLE lake.shop.mor (id BIGINT PRIMARY KEY, v INT) TBLPROPERTIES ('write-mode' = 'merge-on-read')")
    sql("INSERT INTO lake.shop.mor VALUES (1, 1), (2, 2)")
    table = store.table("shop.mor")
    others.append(lambda: (table.write([{"id": 1, "v": 10}]), table.compact(full=True)))
    with pytest.raises(AnalysisException, match="read-changed"):
        sql("UPDATE lake.shop.mor SET v = v + 1 WHERE id = 1")
    assert sql("SELECT v FROM lake.shop.mor ORDER BY id") == [(10,), (2,)]


def test_options_that_would_do_nothing_are_refused(session: SparkSession, sql: Sql, orders: Table) -> None:
    rows = session.table("lake.shop.orders")
    with pytest.raises(AnalysisException, match="unknown-option"):
        rows.write.mode("overwrite").option("replaceWhere", "id = 1").insertInto("lake.shop.orders")
    with pytest.raises(AnalysisException, match="unknown-option"):
        session.read.option("readChangeFeed", "true").table("lake.shop.orders").collect()
    assert session.read.option("versionAsOf", 0).table("lake.shop.orders").count() == 0
    assert len(everything(sql)) == 3


def test_odd_names(sql: Sql, store: Store) -> None:
    sql("CREATE TABLE lake.shop.odd (`order-id` BIGINT, `a.b` STRING, `c``d` INT, PRIMARY KEY (`order-id`, `a.b`)) "
        "PARTITIONED BY (`a.b`)")  # fmt: skip
    sql("INSERT INTO lake.shop.odd VALUES (1, 'x', 10), (2, 'y', 20)")
    sql("UPDATE lake.shop.odd SET `c``d` = 11 WHERE `order-id` = 1")
    sql("DELETE FROM lake.shop.odd WHERE `a.b` = 'y'")
    assert sql("SELECT `c``d`, `a.b` FROM lake.shop.odd") == [(11, "x")]
    assert sql("SHOW PARTITIONS lake.shop.odd") == [("a.b=x",)]
    sql("DROP TABLE lake.shop.ODD")
    assert "odd" not in store.list_tables("shop")
