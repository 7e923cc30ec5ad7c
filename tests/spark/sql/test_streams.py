"""Streaming queries by names of tables: ``readStream.table``, ``toTable``, ``FROM STREAM``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tablestore import Store
from tests.spark.sql.conftest import Sql

NOW = {"availableNow": True}


def run(frame: DataFrame, table: str, checkpoint: Path, *, mode: str = "append") -> None:
    stream = frame.writeStream.option("checkpointLocation", str(checkpoint)).outputMode(mode).trigger(**NOW)
    stream.toTable(table).awaitTermination()


@pytest.fixture
def orders(store: Store, sql: Sql) -> None:
    for name in ("orders", "copy"):
        options = "TBLPROPERTIES ('log.system' = 'embedded')"
        sql(f"CREATE TABLE lake.shop.{name} (id BIGINT, v STRING, PRIMARY KEY (id)) {options}")


@pytest.mark.deep
@pytest.mark.usefixtures("orders")
def test_a_copy_follows_its_table(session: SparkSession, sql: Sql, folder: Path) -> None:
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a'), (2, 'b')")
    changes = session.readStream.table("lake.shop.orders").select("*", "_kind")
    run(changes, "lake.shop.copy", folder / "checkpoint")
    assert sql("SELECT * FROM lake.shop.copy") == [(1, "a"), (2, "b")]
    sql("UPDATE lake.shop.orders SET v = 'A' WHERE id = 1")
    sql("DELETE FROM lake.shop.orders WHERE id = 2")
    run(changes, "lake.shop.copy", folder / "checkpoint")
    assert sql("SELECT * FROM lake.shop.copy") == [(1, "A")]


@pytest.mark.deep
@pytest.mark.usefixtures("orders")
def test_without_the_kind_only_inserts_can_come(session: SparkSession, sql: Sql, folder: Path) -> None:
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a')")
    rows = session.readStream.table("lake.shop.orders")
    assert rows.columns == ["id", "v"]
    run(rows, "lake.shop.copy", folder / "checkpoint")
    sql("DELETE FROM lake.shop.orders WHERE id = 1")
    with pytest.raises(StreamingQueryException, match="_kind"):
        run(rows, "lake.shop.copy", folder / "checkpoint")
    assert sql("SELECT * FROM lake.shop.copy") == [(1, "a")]


@pytest.mark.deep  # test_sink.py and test_write_stream.py repeat batches
@pytest.mark.usefixtures("orders")
def test_a_repeated_batch_is_no_commit(session: SparkSession, store: Store, sql: Sql, folder: Path) -> None:
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a')")
    rows, checkpoint = session.readStream.table("lake.shop.orders"), folder / "checkpoint"
    run(rows, "lake.shop.copy", checkpoint)
    version = store.table("shop.copy").snapshots(1)[0].version
    for file in checkpoint.glob("commits/*0"):  # as if the query had died right behind its commit
        file.unlink()
    for file in checkpoint.glob("commits/.*0.crc"):
        file.unlink()
    run(rows, "lake.shop.copy", checkpoint)
    assert store.table("shop.copy").snapshots(1)[0].version == version
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    assert store.table("shop.copy").filestore.state().app_versions[f"spark.{query}"] == 0


@pytest.mark.deep
@pytest.mark.usefixtures("orders")
def test_sql_reads_streams_and_joins_them(session: SparkSession, sql: Sql, folder: Path) -> None:
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a'), (2, 'b')")
    sql("CREATE TABLE lake.shop.names (v STRING, name STRING, PRIMARY KEY (v))")
    sql("INSERT INTO lake.shop.names VALUES ('a', 'Ann')")
    sql("CREATE TABLE lake.shop.named (id BIGINT, name STRING, PRIMARY KEY (id))")
    joined = session.sql(
        "SELECT o.id, n.name, o._kind FROM STREAM lake.shop.orders WITH ('scan' = 'full') o "
        "JOIN lake.shop.names n ON o.v = n.v"
    )
    run(joined, "lake.shop.named", folder / "checkpoint")
    assert sql("SELECT * FROM lake.shop.named") == [(1, "Ann")]


@pytest.mark.deep
@pytest.mark.usefixtures("orders")
def test_an_aggregation_replaces_groups_or_the_whole(session: SparkSession, sql: Sql, folder: Path) -> None:
    sql("CREATE TABLE lake.shop.counts (v STRING, n BIGINT, PRIMARY KEY (v))")
    sql("CREATE TABLE lake.shop.totals (v STRING, n BIGINT)")
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a'), (2, 'b')")
    counts = session.readStream.table("lake.shop.orders").groupBy("v").count().withColumnRenamed("count", "n")
    for wanted, more in (([("a", 1), ("b", 1)], "(3, 'a')"), ([("a", 2), ("b", 1)], "(4, 'c')")):
        run(counts, "lake.shop.counts", folder / "counts", mode="update")
        run(counts, "lake.shop.totals", folder / "totals", mode="complete")
        assert sql("SELECT * FROM lake.shop.counts") == wanted
        assert sql("SELECT * FROM lake.shop.totals") == wanted
        sql(f"INSERT INTO lake.shop.orders VALUES {more}")


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"fresh": "true"}, "unknown-option"), ({"scan": "yesterday"}, "bad-scan-mode"), ({"tag": "t"}, "t")],
)
@pytest.mark.usefixtures("orders")
def test_options_that_do_not_fit_are_refused_at_the_start(
    session: SparkSession, folder: Path, options: dict[str, Any], reason: str
) -> None:
    rows = session.readStream.options(**options).table("lake.shop.orders")
    with pytest.raises((AnalysisException, StreamingQueryException), match=reason):
        run(rows, "lake.shop.copy", folder / "checkpoint")


@pytest.mark.usefixtures("orders")
def test_updates_need_a_key(session: SparkSession, sql: Sql, folder: Path) -> None:
    sql("CREATE TABLE lake.shop.totals (v STRING, n BIGINT)")
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a')")
    counts = session.readStream.table("lake.shop.orders").groupBy("v").count().withColumnRenamed("count", "n")
    with pytest.raises(StreamingQueryException, match="output-mode"):
        run(counts, "lake.shop.totals", folder / "totals", mode="update")
    assert sql("SELECT * FROM lake.shop.totals") == []


@pytest.mark.usefixtures("orders")
def test_a_stream_into_a_table_that_there_is_not(sql: Sql, folder: Path) -> None:
    with pytest.raises(AnalysisException, match="cpoy"):
        sql(f"INSERT INTO lake.shop.cpoy WITH ('checkpoint' = '{folder}/c') SELECT * FROM STREAM lake.shop.orders")
    assert ("shop", "cpoy", False) not in sql("SHOW TABLES IN lake.shop")


@pytest.mark.usefixtures("orders")
def test_rows_of_a_batch_have_no_kind(sql: Sql) -> None:
    with pytest.raises(AnalysisException, match="no-kind"):
        sql("SELECT id, _kind FROM lake.shop.orders")


@pytest.mark.usefixtures("orders")
def test_a_stream_is_started_in_sql(session: SparkSession, sql: Sql, folder: Path) -> None:
    sql("INSERT INTO lake.shop.orders VALUES (1, 'it''s'), (2, 'b')")
    options = f"'checkpoint' = '{folder}/checkpoint', 'trigger' = 'available-now'"
    copy = (
        f"INSERT INTO lake.shop.copy WITH ({options}) SELECT *, _kind FROM STREAM lake.shop.orders WHERE id <> 3 -- ''"
    )
    sql(copy)
    assert sql("SELECT * FROM lake.shop.copy") == [(1, "it's"), (2, "b")]
    sql("INSERT INTO lake.shop.orders VALUES (3, 'c''')")
    sql("DELETE FROM lake.shop.orders WHERE id = 1")
    sql(copy)
    assert sql("SELECT * FROM lake.shop.copy") == [(2, "b")]


@pytest.mark.deep
@pytest.mark.usefixtures("orders")
def test_a_list_of_columns_and_options_of_the_log(sql: Sql, folder: Path) -> None:
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a')")
    options = "'checkpoint' = '{0}/{1}', 'trigger' = 'available-now'"
    named = options.format(folder, "named")
    sql(f"INSERT INTO lake.shop.copy (v, id) WITH ({named}) SELECT upper(v), id, _kind FROM STREAM lake.shop.orders")
    assert sql("SELECT * FROM lake.shop.copy") == [(1, "A")]
    sql(
        f"INSERT INTO lake.shop.copy /*+ OPTIONS({options.format(folder, 'hint')}) */ "
        "SELECT *, _kind FROM STREAM lake.shop.orders /*+ OPTIONS('log.scan' = 'latest') */"
    )
    sql(
        f"INSERT INTO lake.shop.copy BY NAME WITH ({options.format(folder, 'all')}) SELECT v, id + 1 AS id FROM STREAM "
        "lake.shop.orders WITH ('log.scan' = 'from-timestamp', 'log.scan.timestamp-millis' = '0')"
    )
    assert sql("SELECT * FROM lake.shop.copy") == [(1, "A"), (2, "a")]


@pytest.mark.parametrize(
    ("into", "options", "query", "code"),
    [
        ("", "'trigger' = 'soon'", "*, _kind FROM STREAM lake.shop.orders", "bad-trigger"),
        ("", "'trigger' = '-5 seconds'", "*, _kind FROM STREAM lake.shop.orders", "bad-trigger"),
        ("", "'output_mode' = 'often'", "*, _kind FROM STREAM lake.shop.orders", "output-mode"),
        ("(id)", "'trigger' = '1 second'", "* FROM STREAM lake.shop.orders", "column-count"),
        ("", "'trigger' = '1 second'", "version AS id FROM STREAM lake.shop.orders$snapshots", "system-table"),
        (
            "",
            "'trigger' = '1 second'",
            "* FROM STREAM lake.shop.orders WITH ('scan' = 'full', 'log.scan' = 'full')",
            "twice",
        ),
        (
            "",
            "'trigger' = '1 second'",
            f"* FROM STREAM lake.shop.orders WITH ('log.scan.timestamp-millis' = '{10**20}')",
            "beyond the year 9999",
        ),
    ],
)
@pytest.mark.usefixtures("orders")
def test_a_stream_that_cannot_start(sql: Sql, folder: Path, into: str, options: str, query: str, code: str) -> None:
    with pytest.raises(AnalysisException, match=code):
        sql(f"INSERT INTO lake.shop.copy {into} WITH ('checkpoint' = '{folder}/c', {options}) SELECT {query}")
    assert sql("CALL lake.sys.list_streams()") == []


@pytest.mark.usefixtures("orders")
def test_a_name_of_a_system_table_in_a_program(session: SparkSession, sql: Sql, folder: Path) -> None:
    assert session.table("lake.shop.orders$snapshots").count() == 1
    session.range(2).write.format("delta").save(f"{folder}/a$b/c d$e f")
    assert session.table(f"delta.`{folder}/a$b/c d$e f`").count() == 2
    rows = session.readStream.table("lake.shop.orders$snapshots").selectExpr("version AS id")
    with pytest.raises(AnalysisException, match="is a system table, which has no changes"):
        run(rows, "lake.shop.copy", folder / "checkpoint")


@pytest.mark.usefixtures("orders")
def test_streams_are_listed_and_stopped(session: SparkSession, sql: Sql, folder: Path) -> None:
    query = "SELECT *, _kind FROM STREAM lake.shop.orders"
    call = f"CALL lake.sys.start_stream('shop.copy', '{query}', '{folder}/checkpoint', name => 'copying')"
    [(query_id, name)] = sql(call)
    assert name == "copying"
    assert [row[:2] for row in sql("CALL lake.sys.list_streams()")] == [(query_id, "copying")]
    with pytest.raises(AnalysisException, match="stream-exists"):
        sql(call)
    with pytest.raises(AnalysisException, match="bad-checkpoint"):
        sql(call.replace(f"{folder}/checkpoint", " "))
    assert sql("CALL lake.sys.stop_stream('copying')") == [(query_id, "copying")]
    assert sql("CALL lake.sys.list_streams()") == []
    with pytest.raises(AnalysisException, match="no-stream"):
        sql("CALL lake.sys.stop_stream('copying')")
    with pytest.raises(AnalysisException, match="no-stream"):
        sql(call.replace("*, _kind FROM STREAM", "* FROM"))


@pytest.mark.usefixtures("orders")
def test_a_stream_without_a_checkpoint_says_what_to_write(sql: Sql) -> None:
    for create in ("CREATE TABLE", "CREATE OR REPLACE TABLE"):
        with pytest.raises(AnalysisException, match=r"\[tablestore: no-checkpoint\] .* create shop.x with its columns"):
            sql(f"{create} lake.shop.x AS SELECT * FROM STREAM lake.shop.orders")
    assert sql("SHOW TABLES IN lake.shop LIKE 'x'") == []
    with pytest.raises(AnalysisException, match=r"INSERT INTO … WITH \('checkpoint'.* or CALL lake\.sys\.start_stream"):
        sql("SELECT id FROM STREAM lake.shop.orders WHERE id > 1")


@pytest.mark.usefixtures("orders")
def test_a_view_of_a_stream(sql: Sql, folder: Path) -> None:
    """Spark 4.2 runs CREATE VIEW of a stream twice: it said that the view exists, and had just created it."""
    with pytest.raises(AnalysisException, match=r"\[tablestore: stream-view\] .* CREATE OR REPLACE VIEW shop.v AS"):
        sql("CREATE VIEW lake.shop.v AS SELECT *, _kind FROM STREAM lake.shop.orders")
    assert sql("SHOW VIEWS IN lake.shop") == []
    for clause in ("VIEW IF NOT EXISTS", "OR REPLACE VIEW"):
        sql(f"CREATE {clause} lake.shop.v AS SELECT *, _kind FROM STREAM lake.shop.orders")
    sql("INSERT INTO lake.shop.orders VALUES (1, 'a')")
    options = f"'checkpoint' = '{folder}/view', 'trigger' = 'available-now'"
    sql(f"INSERT INTO lake.shop.copy WITH ({options}) SELECT * FROM lake.shop.v")
    assert sql("SELECT * FROM lake.shop.copy") == [(1, "a")]
