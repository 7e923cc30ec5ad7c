"""`WATERMARK FOR` (Flink's DDL): a stream of the table has a watermark without saying so."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tablestore import Store
from tests.servers.kafka import KafkaBroker
from tests.spark.sql.conftest import Row, Sql
from tests.spark.sql.test_streams import run
from tests.spark.sql.test_topics import address
from tests.topics import Topics

COLUMNS = "id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '10' MINUTES"


@pytest.fixture
def hours(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.hours (hour TIMESTAMP, n BIGINT, PRIMARY KEY (hour))")


@pytest.fixture
def visits(sql: Sql, hours: None) -> None:
    sql(f"CREATE TABLE lake.shop.visits ({COLUMNS}) WITH ('log.system' = 'embedded')")


def count_hours(session: SparkSession, folder: Path) -> None:
    """Writes what is final of a count by hours."""
    rows = session.readStream.table("lake.shop.visits").groupBy(F.window("at", "1 hour")).count()
    counts = rows.selectExpr("window.start AS hour", "`count` AS n")
    run(counts, "lake.shop.hours", folder / "checkpoint")


def at(hour: int) -> datetime:
    return datetime(2026, 1, 1, hour)


def counted(sql: Sql) -> list[Row]:
    return sql("SELECT hour, n FROM lake.shop.hours")


@pytest.mark.deep
@pytest.mark.usefixtures("visits")
def test_a_window_is_emitted_once_the_watermark_has_passed_it(session: SparkSession, sql: Sql, folder: Path) -> None:
    sql("INSERT INTO lake.shop.visits VALUES (1, TIMESTAMP'2026-01-01 10:01:00'), (2, TIMESTAMP'2026-01-01 11:09:00')")
    count_hours(session, folder)
    assert counted(sql) == []  # 11:09 less ten minutes is within the first hour
    sql("INSERT INTO lake.shop.visits VALUES (3, TIMESTAMP'2026-01-01 10:59:00'), (4, TIMESTAMP'2026-01-01 11:10:00')")
    count_hours(session, folder)
    assert counted(sql) == [(at(10), 2)]
    sql("INSERT INTO lake.shop.visits VALUES (5, TIMESTAMP'2026-01-01 10:30:00'), (6, TIMESTAMP'2026-01-01 12:10:00')")
    count_hours(session, folder)
    assert counted(sql) == [(at(10), 2), (at(11), 2)]  # the row of 10:30 was late
    assert sql("SELECT count(*) FROM lake.shop.visits") == [(6,)]


@pytest.mark.deep
@pytest.mark.usefixtures("visits")
def test_a_watermark_of_the_query_replaces_that_of_the_table(session: SparkSession, sql: Sql, folder: Path) -> None:
    sql("INSERT INTO lake.shop.visits VALUES (1, TIMESTAMP'2026-01-01 10:01:00'), (2, TIMESTAMP'2026-01-01 11:01:00')")
    stream = session.readStream.table("lake.shop.visits").where("id > 0").withWatermark("at", "1 minute")
    counts = stream.groupBy(F.window("at", "1 hour")).count().selectExpr("window.start AS hour", "`count` AS n")
    run(counts, "lake.shop.hours", folder / "checkpoint")
    assert counted(sql) == [(at(10), 1)]


@pytest.mark.deep
@pytest.mark.usefixtures("visits")
def test_a_stream_of_changes_has_it_too(session: SparkSession, sql: Sql, folder: Path) -> None:
    sql("CREATE TABLE lake.shop.copy (id BIGINT, at TIMESTAMP, PRIMARY KEY (id))")
    sql("INSERT INTO lake.shop.visits VALUES (1, TIMESTAMP'2026-01-01 10:01:00')")
    changes = session.sql("SELECT *, _kind FROM STREAM lake.shop.visits")
    run(changes, "lake.shop.copy", folder / "checkpoint")
    assert sql("SELECT id FROM lake.shop.copy") == [(1,)]


@pytest.mark.usefixtures("visits")
def test_what_a_table_says_of_its_watermark(store: Store, sql: Sql) -> None:
    assert ("watermark", "at - 600000 ms") in sql("DESCRIBE DETAIL EXTENDED lake.shop.visits")
    sql("ALTER TABLE lake.shop.visits SET TBLPROPERTIES ('watermark.delay' = '1 s')")
    assert ("watermark", "at - 1000 ms") in sql("DESCRIBE DETAIL EXTENDED lake.shop.visits")
    for statement in ("DROP COLUMN at", "RENAME COLUMN at TO time"):
        with pytest.raises(AnalysisException, match="column-in-use"):
            sql(f"ALTER TABLE lake.shop.visits {statement}")
    sql("ALTER TABLE lake.shop.visits UNSET TBLPROPERTIES ('watermark.column', 'watermark.delay')")
    assert ("watermark", None) in sql("DESCRIBE DETAIL EXTENDED lake.shop.visits")
    assert store.table("shop.visits").definition.watermark is None


@pytest.mark.parametrize(
    "columns",
    [
        "id BIGINT, WATERMARK FOR at AS at",
        "at DATE, WATERMARK FOR at AS at",
        "at TIMESTAMP, WATERMARK FOR at AS now()",
        "at TIMESTAMP, WATERMARK FOR at AS at, WATERMARK FOR at AS at",
    ],
)
def test_what_cannot_be_a_watermark_makes_no_table(store: Store, sql: Sql, columns: str) -> None:
    with pytest.raises(AnalysisException, match="bad-watermark"):
        sql(f"CREATE TABLE lake.shop.visits ({columns})")
    assert store.list_tables("shop") == []


@pytest.mark.deep
@pytest.mark.usefixtures("hours")
def test_a_topic_has_a_watermark_by_the_time_of_its_messages(
    store: Store, kafka_broker: KafkaBroker, session: SparkSession, sql: Sql, folder: Path
) -> None:
    topics = Topics(store, kafka_broker)
    sql(
        "CREATE TABLE lake.shop.visits (id BIGINT, at TIMESTAMP METADATA FROM 'timestamp', "
        f"WATERMARK FOR at AS at) WITH ('connector' = 'kafka', {address(topics)}, 'value.format' = 'json')"
    )
    times = ("2026-01-01 10:01:00", "2026-01-01 10:02:00", "2026-01-01 11:00:00")
    for number, time in enumerate(times):
        sql(f"INSERT INTO lake.shop.visits VALUES ({number}, TIMESTAMP'{time}')")
    count_hours(session, folder)
    assert counted(sql) == [(at(10), 2)]
