"""VIRTUAL columns of topics in SQL: a watermark by one, and what a query names by naming one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tablestore import KafkaTable, Store
from tests.depth import Depth
from tests.servers.kafka import KafkaBroker
from tests.spark.sql.conftest import Sql
from tests.spark.sql.test_streams import run
from tests.spark.sql.test_topics import address
from tests.topics import Topics

HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def topics(store: Store, kafka_broker: KafkaBroker) -> Topics:
    return Topics(store, kafka_broker)


@pytest.fixture
def visits(topics: Topics, store: Store, sql: Sql) -> None:
    """A topic with a row in each of three hours, two in the first."""
    shared = f"'connector' = 'kafka', {address(topics)}, 'value.format' = 'json'"
    sql(f"CREATE TABLE lake.shop.writes (id BIGINT, at TIMESTAMP METADATA FROM 'timestamp') WITH ({shared})")
    sql(
        "CREATE TABLE lake.shop.visits (id BIGINT, `offset` BIGINT METADATA VIRTUAL, "
        f"at TIMESTAMP METADATA FROM 'timestamp' VIRTUAL, WATERMARK FOR at AS at - INTERVAL '1' MINUTE) WITH ({shared})"
    )
    for number, minutes in enumerate((1, 59, 60, 121)):
        time = (HOUR - timedelta(hours=3) + timedelta(minutes=minutes)).replace(tzinfo=None)
        sql(f"INSERT INTO lake.shop.writes VALUES ({number}, TIMESTAMP'{time}Z')")
    sql("CREATE TABLE lake.shop.hours (n BIGINT, PRIMARY KEY (n))")


QUERIES = {
    "by its own column": "SELECT count(id) AS n FROM STREAM lake.shop.visits GROUP BY window(at, '1 hour')",
    "by a query within": "SELECT count(*) AS n FROM (SELECT id, at AS time FROM STREAM lake.shop.visits WHERE id >= 0) "
    "GROUP BY window(time, '1 hour')",
    "beside the kinds": "SELECT count(`offset`) AS n FROM STREAM lake.shop.visits WHERE _kind = '+I' "
    "GROUP BY window(at, '1 hour')",
}


@pytest.mark.deep
@pytest.mark.usefixtures("visits")
def test_a_window_by_a_virtual_column_is_emitted(session: SparkSession, sql: Sql, folder: Path, depth: Depth) -> None:
    """It was refused, though it is the time that most topics have: that of the message."""
    for query in depth.sample(QUERIES, len(QUERIES)):
        sql("TRUNCATE TABLE lake.shop.hours")
        run(session.sql(QUERIES[query]), "lake.shop.hours", folder / query)
        assert sql("SELECT * FROM lake.shop.hours") == [(1,), (2,)], "the third hour is not over"
    assert session.readStream.table("lake.shop.visits").columns == ["id"], "it stays hidden"


@pytest.mark.deep
@pytest.mark.usefixtures("visits")
def test_a_query_may_do_without_it(session: SparkSession, sql: Sql, folder: Path) -> None:
    frame = session.readStream.table("lake.shop.visits")
    run(frame.select("id").withColumnRenamed("id", "n"), "lake.shop.hours", folder / "plain")
    assert len(sql("SELECT * FROM lake.shop.hours")) == 4
    own = frame.withWatermark("at", "2 days").groupBy(F.window("at", "1 hour")).count().selectExpr("`count` AS n")
    sql("TRUNCATE TABLE lake.shop.hours")
    run(own, "lake.shop.hours", folder / "own")
    assert sql("SELECT * FROM lake.shop.hours") == [], "the query's own watermark counts"


def test_who_names_a_virtual_column_does_not_name_the_kinds(
    topics: Topics, store: Store, session: SparkSession, sql: Sql, folder: Path
) -> None:
    """Spark adds all hidden columns together: a query that named one of them was taken for one that names ``_kind``."""
    options = f"{address(topics)}, 'connector' = 'kafka', 'value.format' = 'debezium-json'"
    columns = "`offset` BIGINT METADATA VIRTUAL, at TIMESTAMP METADATA FROM 'timestamp' VIRTUAL, WATERMARK FOR at AS at"
    sql(f"CREATE TABLE lake.shop.dbz (id BIGINT, {columns}) WITH ({options})")
    assert isinstance(store.kafka_table("shop.dbz"), KafkaTable)
    for query in ("SELECT id, `offset` FROM lake.shop.dbz", "SELECT max(`offset`) FROM lake.shop.dbz"):
        with pytest.raises(AnalysisException, match="changes-needed"):
            sql(query)
    assert sql("SELECT id, `offset`, _kind FROM lake.shop.dbz") == []
    sql("CREATE TABLE lake.shop.copy (id BIGINT, place BIGINT, PRIMARY KEY (id))")
    stream = session.readStream.table("lake.shop.dbz")
    with pytest.raises((AnalysisException, StreamingQueryException), match="changes-needed"):
        run(stream.selectExpr("id", "`offset` AS place"), "lake.shop.copy", folder / "refused")
    run(stream.selectExpr("id", "`offset` AS place", "_kind"), "lake.shop.copy", folder / "named")


@pytest.mark.deep
@pytest.mark.usefixtures("visits")
def test_two_streams_of_one_topic_have_their_own_columns(session: SparkSession, sql: Sql, folder: Path) -> None:
    one, two = (session.readStream.table("lake.shop.visits").alias(name) for name in "ab")
    joined = one.join(two, F.expr("a.id = b.id AND a.at = b.at AND a.`offset` <= b.`offset`"))
    run(joined.selectExpr("a.id AS n"), "lake.shop.hours", folder / "joined")
    assert len(sql("SELECT * FROM lake.shop.hours")) == 4
    text = (
        "SELECT a.id AS n FROM STREAM lake.shop.visits a JOIN STREAM lake.shop.visits b ON a.id = b.id AND a.at = b.at"
    )
    sql("TRUNCATE TABLE lake.shop.hours")
    run(session.sql(text), "lake.shop.hours", folder / "text")
    assert len(sql("SELECT * FROM lake.shop.hours")) == 4
