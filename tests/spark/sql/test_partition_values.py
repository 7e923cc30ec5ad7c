"""Values in PARTITION (…) that are not of the types of their columns are refused by name, whatever Spark would do."""

from __future__ import annotations

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


@pytest.mark.usefixtures("days")
def test_null_is_a_value(sql: Sql) -> None:
    sql("ALTER TABLE lake.shop.days DROP PARTITION (day = NULL)")
    assert sql("SELECT hour FROM lake.shop.days") == [(1,)]
