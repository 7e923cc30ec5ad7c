"""A topic whose messages are changes is a changelog wherever SQL reads it (FLIP-149): a query names its kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from tablestore import KafkaTable, Store
from tests.servers.kafka import KafkaBroker
from tests.spark.sql.conftest import Sql
from tests.spark.sql.test_topics import address
from tests.topics import Topics

NEEDED = "changes-needed"
KEYED = "CREATE TABLE lake.shop.{} (id BIGINT NOT NULL, name STRING NOT NULL, active BOOLEAN, PRIMARY KEY (id))"


@pytest.fixture
def topics(store: Store, kafka_broker: KafkaBroker) -> Topics:
    return Topics(store, kafka_broker)


def debezium(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> tuple[bytes, bytes]:
    key = {"id": (before or after or {})["id"]}
    return json.dumps(key).encode(), json.dumps({"before": before, "after": after, "op": op}).encode()


def user(number: int, name: str, active: bool = True) -> dict[str, Any]:
    return {"id": number, "name": name, "active": active}


def refused(sql: Sql, statement: str) -> None:
    with pytest.raises(AnalysisException, match=NEEDED):
        sql(statement)


def declare(sql: Sql, store: Store, topics: Topics, name: str, columns: str, options: str) -> KafkaTable:
    sql(f"CREATE TABLE lake.shop.{name} ({columns}) WITH ({address(topics)}, {options})")
    table = store.kafka_table(f"shop.{name}")
    return table


def test_batches_of_a_changelog(topics: Topics, store: Store, session: SparkSession, sql: Sql) -> None:
    options = "'connector' = 'kafka', 'value.format' = 'debezium-json'"
    users = "id BIGINT, name STRING, active BOOLEAN"
    plain = declare(sql, store, topics, "dbz", users, options)
    keyed = declare(sql, store, topics, "dbz_keyed", f"{users}, PRIMARY KEY (id) NOT ENFORCED", options)
    first = [
        debezium("c", None, user(1, "Ann")),
        debezium("c", None, user(2, "Bob")),
        debezium("c", None, user(3, "Cy")),
    ]
    later = [
        debezium("u", user(2, "Bob"), user(2, "Bea", active=False)),
        debezium("d", {"id": 3, "name": None, "active": None}, None),  # PostgreSQL sends only the key
        debezium("u", user(1, "Ann"), user(9, "Ann")),  # another key
    ]
    for name in ("users", "active", "listed", "names"):
        sql(KEYED.format(name))
    insertions = [
        "INSERT INTO lake.shop.users SELECT * FROM lake.shop.dbz_keyed",
        "INSERT INTO lake.shop.active SELECT * FROM lake.shop.dbz_keyed u WHERE u.active",
        "INSERT INTO lake.shop.listed (name, active, id) SELECT name, active, id FROM lake.shop.dbz_keyed WHERE active",
        "INSERT INTO lake.shop.names BY NAME "
        "SELECT id, upper(name) AS name, true AS active FROM (SELECT * FROM lake.shop.dbz_keyed)",
    ]
    for messages in (first, later):
        for table in (plain, keyed):
            topics.produce(table, messages)
        for statement in insertions:
            sql(statement)
    now = [(2, "Bea", False), (9, "Ann", True)]
    assert sql("SELECT * FROM lake.shop.users") == now
    assert sql("SELECT * FROM lake.shop.active") == now[1:]
    assert sql("SELECT * FROM lake.shop.listed") == now[1:]
    assert sql("SELECT id, name FROM lake.shop.names") == [(2, "BEA"), (9, "ANN")]
    assert sql("SELECT * FROM lake.shop.dbz_keyed") == now
    session.table("lake.shop.dbz_keyed").writeTo("lake.shop.users").append()
    assert sql("SELECT * FROM lake.shop.users") == now
    sql("CREATE TABLE lake.shop.made TBLPROPERTIES ('primary-key' = 'id') AS SELECT * FROM lake.shop.dbz_keyed")
    assert sql("SELECT * FROM lake.shop.made") == now

    assert len(sql("SELECT *, _kind FROM lake.shop.dbz")) == 8
    assert session.table("lake.shop.dbz").select("id", "_kind").count() == 8
    assert sql("SELECT count(*) FROM lake.shop.dbz WHERE _kind <> '-U'") == [(6,)]
    sql("CREATE TABLE lake.shop.unkeyed (id BIGINT, name STRING, active BOOLEAN)")
    for statement in (
        "SELECT * FROM lake.shop.dbz",
        "SELECT count(*) FROM lake.shop.dbz",
        "SELECT 1 WHERE EXISTS (SELECT id FROM lake.shop.dbz)",
        "SELECT a.id FROM lake.shop.dbz a JOIN lake.shop.dbz b ON a.id = b.id AND b._kind = '+I'",
        "WITH d AS (SELECT * FROM lake.shop.dbz) SELECT max(id) FROM d",
        "INSERT INTO lake.shop.unkeyed SELECT * FROM lake.shop.dbz",
        "INSERT INTO lake.shop.users SELECT * FROM lake.shop.dbz",
        "INSERT INTO lake.shop.users SELECT max(id), name, true FROM lake.shop.dbz GROUP BY name",
        "INSERT OVERWRITE lake.shop.users SELECT * FROM lake.shop.dbz",
        "CREATE TABLE lake.shop.other AS SELECT * FROM lake.shop.dbz",
        "MERGE INTO lake.shop.users t USING lake.shop.dbz s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    ):
        refused(sql, statement)
    assert sql("SELECT * FROM lake.shop.users") == now
    assert sql("SHOW TABLES IN lake.shop LIKE 'other'") == []


WORDS = "word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED"
COUNTED = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"


def test_a_stream_of_a_changelog_without_its_kinds_is_refused(
    topics: Topics, store: Store, sql: Sql, folder: Path
) -> None:
    declare(sql, store, topics, "words", WORDS, COUNTED)
    declare(sql, store, topics, "dbz", "id BIGINT, n BIGINT", "'connector' = 'kafka', 'value.format' = 'debezium-json'")
    sql("CREATE TABLE lake.shop.copy (word STRING, n BIGINT, PRIMARY KEY (word))")
    for source in ("words", "dbz"):
        for mode, query in (
            ("append", f"SELECT '' AS word, n FROM STREAM lake.shop.{source}"),
            ("update", f"SELECT sum(n) AS n FROM STREAM lake.shop.{source}"),
        ):
            given = f"'checkpoint' = '{folder}/c', 'trigger' = 'available-now', 'output_mode' = '{mode}'"
            with pytest.raises((AnalysisException, StreamingQueryException), match=NEEDED):
                sql(f"INSERT INTO lake.shop.copy WITH ({given}) {query}")


@pytest.mark.deep
def test_streams_of_a_changelog(topics: Topics, store: Store, session: SparkSession, sql: Sql, folder: Path) -> None:
    """FLIP-149: a sum over a table of upserts has the last value of each key, and words are counted as often as now."""
    declare(sql, store, topics, "words", WORDS, COUNTED)
    sql("CREATE TABLE lake.shop.copy (word STRING, n BIGINT, PRIMARY KEY (word))")
    sql("CREATE TABLE lake.shop.sums (one INT, n BIGINT, PRIMARY KEY (one))")
    sql("CREATE TABLE lake.shop.frequencies (n BIGINT, words BIGINT, PRIMARY KEY (n))")
    sql("INSERT INTO lake.shop.words VALUES ('a', 2)")

    def start(target: str, query: str, **options: str) -> None:
        given = {"checkpoint": str(folder / target), "trigger": "available-now", **options}
        named = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
        sql(f"INSERT INTO lake.shop.{target} WITH ({named}) {query}")

    sign = "sum(CASE WHEN _kind IN ('+I', '+U') THEN {0} ELSE -{0} END)"
    state = f"FROM STREAM lake.shop.words WITH ('mode' = 'changelog', 'state' = '{folder}/state-{{}}')"

    def run() -> None:
        start("copy", "SELECT *, _kind FROM STREAM lake.shop.words")
        start("sums", f"SELECT 1 AS one, {sign.format('n')} AS n {state.format('s')}", output_mode="update")
        start(
            "frequencies",
            f"SELECT n, {sign.format('1')} AS words {state.format('f')} GROUP BY n",
            output_mode="update",
        )

    topics.produce(
        store.kafka_table("shop.words"),
        [(b'{"word":"b"}', b'{"word":"b","n":4}'), (b'{"word":"c"}', b'{"word":"c","n":1}')],
    )
    run()
    assert sql("SELECT n FROM lake.shop.sums") == [(7,)] == sql("SELECT sum(n) FROM lake.shop.words")
    sql("INSERT INTO lake.shop.words VALUES ('a', 4)")
    topics.produce(store.kafka_table("shop.words"), [(b'{"word":"c"}', None), (b'{"word":"b"}', b'{"word":"b","n":5}')])
    run()
    assert sql("SELECT * FROM lake.shop.copy") == [("a", 4), ("b", 5)] == sql("SELECT * FROM lake.shop.words")
    assert sql("SELECT n FROM lake.shop.sums") == [(9,)]
    frequencies = "SELECT n, words FROM lake.shop.frequencies WHERE words > 0"
    assert sql(frequencies) == [(4, 1), (5, 1)] == sql("SELECT n, count(*) FROM lake.shop.words GROUP BY n")


@pytest.mark.deep
@pytest.mark.parametrize("columns", [3, 101])
def test_deletes_have_no_values_where_spark_makes_code_for_expressions(
    topics: Topics, store: Store, session: SparkSession, sql: Sql, columns: int
) -> None:
    """It computes what several conditions have in common first, also of rows that are left out.

    That is so above 100 columns, and with fewer ones without code for whole stages. Values that stood for none made
    conditions fail: '' is no INT.
    """
    types = ("BIGINT", "STRING", "DECIMAL(9, 2)", "STRUCT<x: INT>")
    names = {f"c{n}": types[n % len(types)] for n in range(columns)}
    text = ", ".join(f"{name} {kind} NOT NULL" for name, kind in names.items())
    options = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
    wide = declare(sql, store, topics, "wide", f"id BIGINT, {text}, PRIMARY KEY (id) NOT ENFORCED", options)
    sql(f"CREATE TABLE lake.shop.copy (id BIGINT, {text}, PRIMARY KEY (id))")
    values = {"BIGINT": 7, "STRING": "7", "DECIMAL(9, 2)": 7.25, "STRUCT<x: INT>": {"x": 7}}
    row = {name: values[kind] for name, kind in names.items()}
    keys = [json.dumps({"id": number}).encode() for number in range(3)]
    topics.produce(wide, [(key, json.dumps(json.loads(key) | row).encode()) for key in keys])
    where = "100 / c0 > 0 AND 100 / c0 < 100 AND CAST(c1 AS INT) > 1 AND CAST(c1 AS INT) < 9 AND c2 BETWEEN 1 AND 9"
    where += " AND c3.x > 1 AND c3.x < 9" if columns > 3 else ""
    where += " AND year(CAST(concat('200', c1, '-01-01') AS DATE)) > 2000"
    for setting in ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"):
        session.conf.unset(setting)
    if columns < 100:
        session.conf.set("spark.sql.codegen.wholeStage", "false")
    for gone in ((), (1,), (1, 2)):
        topics.produce(wide, [(keys[number], None) for number in gone])
        rest = [(number,) for number in range(3) if number not in gone]
        assert sql(f"SELECT id FROM lake.shop.wide WHERE {where}") == rest
        sql(f"INSERT INTO lake.shop.copy SELECT * FROM lake.shop.wide WHERE {where}")
        assert sql("SELECT id FROM lake.shop.copy") == rest
