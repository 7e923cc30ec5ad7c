"""Values in PARTITION (…) that are not of the types of their columns are refused by name, whatever Spark would do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.sql.conftest import Sql


@pytest.fixture
def days(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.days (day DATE, hour INT, total DOUBLE) PARTITIONED BY (day, hour)")
    sql("INSERT INTO lake.shop.days VALUES (DATE'2026-01-01', 1, 1), (NULL, 2, 2)")


@pytest.mark.usefixtures("days")
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_value_that_is_none_of_its_type_is_refused(session: SparkSession, sql: Sql, ansi: str) -> None:
    session.conf.set("spark.sql.ansi.enabled", ansi)
    for statement in ("ALTER TABLE {} DROP", "TRUNCATE TABLE {}", "SHOW PARTITIONS {}", "ALTER TABLE {} ADD"):
        for values, sentence in (
            ("DAY = 'notadate', hour = 1", "day of lake.shop.days is DATE, and 'notadate' .* such as DATE'"),
            ("day = DATE'2026-01-01', hour = 'x'", "hour of lake.shop.days is INT, and 'x' .* such as 1;"),
        ):
            with pytest.raises(AnalysisException, match=rf"\[tablestore: bad-partition-value\] .* {sentence}"):
                sql(f"{statement.format('lake.shop.days')} PARTITION ({values})")
    for statement in ("ALTER TABLE lake.shop.days DROP", "TRUNCATE TABLE lake.shop.days"):
        with pytest.raises(AnalysisException, match="bad-partition-value"):
            sql(f"{statement} PARTITION (day = 'notadate')")
    assert len(sql("SELECT * FROM lake.shop.days")) == 2, "that is not the partition of null"


TIMES = {
    "'2026-01-31 12:00:00'": 1,
    "TIMESTAMP'2026-01-31 12:00:00'": 1,
    "TIMESTAMP_LTZ'2026-01-31 12:00:00'": 1,
    "'2026-01-31 17:00:00Z'": 1,
    "'2026-01-31T12:00:00-05:00'": 1,
    "'2026-01-31 17:00:00'": 2,
}


def test_regression_times_of_partitions_are_of_the_session_s_zone(session: SparkSession, sql: Sql) -> None:
    """OPTIMIZE WHERE, PARTITION and compact read them in UTC: they chose another partition, or none."""
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    sql("CREATE TABLE lake.shop.t (at TIMESTAMP, id INT) PARTITIONED BY (at)")
    sql("INSERT INTO lake.shop.t SELECT TIMESTAMP'2026-01-31 12:00:00', 1")
    sql("INSERT INTO lake.shop.t SELECT TIMESTAMP'2026-01-31 17:00:00', id FROM VALUES (2), (2) AS r(id)")
    for text, rows in TIMES.items():
        shown = dict(sql(f"DESCRIBE DETAIL lake.shop.t PARTITION (at = {text})"))
        assert shown["num-rows"] == str(rows), text
    moment = datetime(2026, 1, 31, 17, tzinfo=UTC)
    shown = dict(session.sql("DESCRIBE DETAIL lake.shop.t PARTITION (at = :at)", {"at": moment}).collect())
    assert shown["num-rows"] == "1"
    for text in ("'noon'", "'2026-02-30'"):
        with pytest.raises(AnalysisException, match="bad-partition-value"):
            sql(f"OPTIMIZE lake.shop.t WHERE at = {text}")
    for n in range(2):
        sql(f"INSERT INTO lake.shop.t SELECT TIMESTAMP'2026-01-31 12:00:00', {n}")
    assert len(sql("OPTIMIZE lake.shop.t WHERE at = '2026-01-31 12:00:00'")) == 1
    for n in range(2):
        sql(f"INSERT INTO lake.shop.t SELECT TIMESTAMP'2026-01-31 12:00:00', {n}")
    assert len(sql("CALL lake.sys.compact('shop.t', true, 'at=2026-01-31 12:00:00')")) == 1


@pytest.mark.usefixtures("days")
def test_null_is_a_value(sql: Sql) -> None:
    sql("ALTER TABLE lake.shop.days DROP PARTITION (day = NULL)")
    assert sql("SELECT hour FROM lake.shop.days") == [(1,)]
