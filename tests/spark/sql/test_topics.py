"""Kafka tables in SQL: one surface over managed tables and topics."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tablestore import KafkaTable, Store
from tests.servers.kafka import KafkaBroker
from tests.spark.sql.conftest import Sql
from tests.topics import Topics

NOW = {"availableNow": True}


@pytest.fixture
def topics(store: Store, kafka_broker: KafkaBroker) -> Topics:
    return Topics(store, kafka_broker)


def address(topics: Topics) -> str:
    """The options that name a topic of its own."""
    servers = topics.broker.bootstrap
    return f"'topic' = 't-{uuid.uuid4()}', 'topic.partitions' = '3', 'properties.bootstrap.servers' = '{servers}'"


@pytest.fixture
def visits(topics: Topics, store: Store, sql: Sql) -> KafkaTable:
    """A keyed topic, declared in SQL."""
    sql(
        "CREATE TABLE lake.shop.visits (id BIGINT, page STRING, at TIMESTAMP METADATA FROM 'timestamp', "
        "`offset` BIGINT METADATA VIRTUAL COMMENT 'where it is', PRIMARY KEY (id) NOT ENFORCED) "
        f"WITH ('connector' = 'upsert-kafka', {address(topics)}, 'key.format' = 'json', 'value.format' = 'json')"
    )
    table = store.kafka_table("shop.visits")
    return table


def test_a_keyed_topic_reads_like_a_table(topics: Topics, visits: KafkaTable, session: SparkSession, sql: Sql) -> None:
    sql("INSERT INTO lake.shop.visits (id, page) VALUES (1, 'home'), (2, 'cart'), (1, 'shop')")
    topics.produce(visits, [(b'{"id":3}', b'{"id":3,"page":"theirs"}'), (b'{"id":2}', None)])
    assert sql("SELECT id, page FROM lake.shop.visits") == [(1, "shop"), (3, "theirs")]
    assert sql("SELECT count(*) FROM lake.shop.visits WHERE `offset` >= 0 AND at > TIMESTAMP'2020-01-01'") == [(2,)]
    frame = session.table("lake.shop.visits")
    assert frame.columns == ["id", "page", "at"]
    assert sorted(frame.select("id", "offset", "_kind").columns) == ["_kind", "id", "offset"]
    assert {row[1] for row in frame.select("id", "_kind").collect()} == {"+U"}
    assert len(topics.records(visits, 5)) == 5


def test_rows_flow_from_a_topic_to_a_table_and_back(
    topics: Topics, visits: KafkaTable, session: SparkSession, sql: Sql, folder: Path
) -> None:
    sql("CREATE TABLE lake.shop.pages (id BIGINT, page STRING, PRIMARY KEY (id)) WITH ('log.system' = 'embedded')")
    sql("INSERT INTO lake.shop.visits (id, page) VALUES (1, 'home'), (2, 'cart')")
    topics.produce(visits, [(b'{"id":2}', None)])
    source = session.readStream.option("scan.startup.mode", "earliest-offset").table("lake.shop.visits")
    query = source.select("id", "page", "_kind").writeStream.option("checkpointLocation", str(folder / "in"))
    query.trigger(**NOW).toTable("lake.shop.pages").awaitTermination()
    assert sql("SELECT * FROM lake.shop.pages") == [(1, "home")]
    sql("UPDATE lake.shop.pages SET page = 'shop' WHERE id = 1")
    back = session.readStream.table("lake.shop.pages").selectExpr("id + 10 AS id", "page", "_kind")
    query = back.writeStream.option("checkpointLocation", str(folder / "out"))
    query.trigger(**NOW).toTable("lake.shop.visits").awaitTermination()
    assert sql("SELECT id, page FROM lake.shop.visits") == [(1, "home"), (11, "shop")]


@pytest.mark.deep
def test_messages_without_a_key(topics: Topics, session: SparkSession, sql: Sql) -> None:
    sql(
        "CREATE TABLE lake.shop.events (name STRING, n INT) TBLPROPERTIES ('connector' = 'kafka', "
        f"{address(topics)}, 'format' = 'json')"
    )
    sql("INSERT INTO lake.shop.events VALUES ('a', 1), ('a', 1)")
    assert sql("SELECT *, _kind FROM lake.shop.events") == [("a", 1, "+I"), ("a", 1, "+I")]
    session.range(3).selectExpr("'b' AS name", "CAST(id AS INT) AS n").writeTo("lake.shop.events").append()
    assert sql("SELECT name, sum(n) FROM lake.shop.events GROUP BY name") == [("a", 2), ("b", 3)]


@pytest.mark.deep
@pytest.mark.usefixtures("visits")
def test_a_dataframe_is_not_saved_over_a_topic(session: SparkSession, store: Store) -> None:
    rows = session.createDataFrame([(1, "x")], "id LONG, page STRING")
    with pytest.raises(AnalysisException, match="Kafka topic"):
        rows.write.mode("overwrite").saveAsTable("lake.shop.visits")
    assert isinstance(store.kafka_table("shop.visits"), KafkaTable)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE lake.shop.visits (id, page) VALUES (1, 'x')",
        "TRUNCATE TABLE lake.shop.visits",
        "UPDATE lake.shop.visits SET page = 'x'",
        "DELETE FROM lake.shop.visits WHERE id = 1",
        "MERGE INTO lake.shop.visits t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE lake.shop.visits ADD COLUMN more STRING",
        "SELECT * FROM lake.shop.visits VERSION AS OF 0",
        "SELECT * FROM lake.shop.visits$files",
        "CALL lake.sys.compact('shop.visits')",
        "DESCRIBE DETAIL lake.shop.visits",
        "DESCRIBE DETAIL EXTENDED lake.shop.visits",
        "OPTIMIZE lake.shop.visits",
        "VACUUM lake.shop.visits",
        "CREATE TABLE lake.shop.other LIKE lake.shop.visits",
        "SELECT * FROM VALUES (1, now()) s (k, ts) JOIN lake.shop.visits FOR SYSTEM_TIME AS OF s.ts v ON v.id = k",
    ],
)
@pytest.mark.usefixtures("visits")
def test_what_a_topic_cannot_do(sql: Sql, statement: str) -> None:
    with pytest.raises(AnalysisException, match=r"Kafka topic|is the topic"):
        sql(statement)
    assert sql("SELECT * FROM lake.shop.visits") == []


@pytest.mark.usefixtures("visits")
def test_it_is_described_without_its_secrets(sql: Sql) -> None:
    shown = {str(row[0]): row[1] for row in sql("DESCRIBE EXTENDED lake.shop.visits")}
    assert shown["offset"] == "bigint"
    assert json.dumps(shown["Table Properties"]).count("connector=upsert-kafka") == 1
    assert ("shop", "visits", False) in sql("SHOW TABLES IN lake.shop")
    sql("DROP TABLE lake.shop.visits")
    assert sql("SHOW TABLES IN lake.shop") == []
