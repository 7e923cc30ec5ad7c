"""An INSERT applies the changes of a topic by the key that the topic declares, and by nothing else (decision 129)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from tablestore import KafkaTable, Store
from tests.servers.kafka import KafkaBroker
from tests.spark.sql.conftest import Sql
from tests.spark.sql.test_topics import address
from tests.topics import Topics

COLUMNS = "id BIGINT, seq BIGINT, name STRING"
KEY = ", PRIMARY KEY (id) NOT ENFORCED"
DEBEZIUM = "'connector' = 'kafka', 'value.format' = 'debezium-json'"
UPSERT = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"

Given = dict[str, Any] | None


@pytest.fixture
def topics(store: Store, kafka_broker: KafkaBroker) -> Topics:
    return Topics(store, kafka_broker)


def row(number: int, seq: int | None, name: str | None) -> dict[str, Any]:
    return {"id": number, "seq": seq, "name": name}


def message(op: str, before: Given, after: Given) -> tuple[bytes, bytes]:
    key = {"id": (before or after or {})["id"]}
    return json.dumps(key).encode(), json.dumps({"before": before, "after": after, "op": op}).encode()


def declare(sql: Sql, store: Store, topics: Topics, name: str, columns: str, options: str = DEBEZIUM) -> KafkaTable:
    sql(f"CREATE TABLE lake.shop.{name} ({columns}) WITH ({address(topics)}, {options})")
    table = store.kafka_table(f"shop.{name}")
    return table


def test_changes_without_a_declared_key_are_refused(topics: Topics, store: Store, sql: Sql) -> None:
    """Such an INSERT deleted living rows, kept deleted ones, and lost the order of a key's changes."""
    table = declare(sql, store, topics, "dbz", COLUMNS)
    topics.produce(
        table,
        [
            message("c", None, row(1, 1, "Ann")),
            message("c", None, row(11, 1, "Ann")),
            message("d", row(11, 1, "Ann"), None),
        ],
    )
    sql("CREATE TABLE lake.shop.names (name STRING, id BIGINT, PRIMARY KEY (name))")
    sql("CREATE TABLE lake.shop.users (id BIGINT, seq BIGINT, name STRING, PRIMARY KEY (id))")
    sql(
        "CREATE TABLE lake.shop.sums (name STRING, seq BIGINT, PRIMARY KEY (name)) "
        "TBLPROPERTIES ('merge-engine' = 'aggregation', 'fields.seq.aggregate-function' = 'sum')"
    )
    declare(sql, store, topics, "copies", COLUMNS + KEY, UPSERT)
    for statement in (
        "INSERT INTO lake.shop.names SELECT name, id FROM lake.shop.dbz",
        "INSERT INTO lake.shop.users SELECT * FROM lake.shop.dbz",
        "INSERT INTO lake.shop.users SELECT id % 10 AS id, seq, name FROM lake.shop.dbz",
        "INSERT INTO lake.shop.names SELECT uuid() AS name, id FROM lake.shop.dbz",
        "INSERT INTO lake.shop.sums SELECT name, seq FROM lake.shop.dbz",
        "INSERT INTO lake.shop.copies SELECT * FROM lake.shop.dbz",
    ):
        with pytest.raises(AnalysisException, match=r"changes-needed.*PRIMARY KEY"):
            sql(statement)
    for name in ("names", "users", "sums", "copies"):
        assert sql(f"SELECT * FROM lake.shop.{name}") == []


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [UPSERT, DEBEZIUM])
def test_a_delete_without_a_sequence_is_an_error(topics: Topics, store: Store, sql: Sql, options: str) -> None:
    """It was late, so the row stayed without a word."""
    table = declare(sql, store, topics, "given", COLUMNS + KEY, options)
    sql(f"CREATE TABLE lake.shop.users ({COLUMNS}, PRIMARY KEY (id)) TBLPROPERTIES ('sequence.field' = 'seq')")
    upserts = options == UPSERT

    def put(number: int, seq: int | None, name: str) -> tuple[bytes, bytes | None]:
        value = row(number, seq, name)
        return (f'{{"id":{number}}}'.encode(), json.dumps(value).encode()) if upserts else message("c", None, value)

    insert = "INSERT INTO lake.shop.users SELECT * FROM lake.shop.given"
    topics.produce(table, [put(1, 1, "Ann"), put(2, 1, "Bob"), put(3, 1, "Cy"), put(4, None, "Di")])
    sql(f"{insert} WHERE id < 4")  # makes a delete of the fourth row
    sql(insert)
    assert sql("SELECT id FROM lake.shop.users WHERE seq IS NULL") == [(4,)]
    gone = (b'{"id":4}', None) if upserts else message("d", row(4, None, "Di"), None)
    topics.produce(table, [gone])
    sql(insert)  # whose row has no sequence either
    if not upserts:  # its deletes may have whole rows
        topics.produce(table, [message("d", row(3, 1, "Cy"), None)])
        sql(insert)
        assert sql("SELECT id FROM lake.shop.users") == [(1,), (2,)]
    gone = (b'{"id":2}', None) if upserts else message("d", row(2, None, None), None)
    topics.produce(table, [gone, put(1, 2, "Bea")])
    before = sql("SELECT * FROM lake.shop.users")
    with pytest.raises(PySparkException, match=r"delete-without-sequence.*column seq.*_kind"):
        sql(insert)
    assert sql("SELECT * FROM lake.shop.users") == before
    sql(f"{insert} WHERE _kind = '+{'U' if upserts else 'I'}'")  # as the message says: the rows that are there
    assert (1, 2, "Bea") in sql("SELECT * FROM lake.shop.users")


def test_a_cast_to_the_key_that_may_join_two_keys_is_no_copy(topics: Topics, store: Store, sql: Sql) -> None:
    """In the hour that a clock skips, two local times are one: a delete of the one removed the row of the other."""
    table = declare(sql, store, topics, "given", "at TIMESTAMP_NTZ, n INT, PRIMARY KEY (at) NOT ENFORCED", UPSERT)
    sql("CREATE TABLE lake.shop.users (at TIMESTAMP, n INT, PRIMARY KEY (at))")
    sql("SET spark.sql.session.timeZone = Europe/Berlin")

    def put(at: str, n: int | None) -> tuple[bytes, bytes | None]:
        key = {"at": f"2026-03-29 {at}"}
        return json.dumps(key).encode(), None if n is None else json.dumps({**key, "n": n}).encode()

    topics.produce(table, [put("02:30:00", 1), put("03:30:00", 2)])
    topics.produce(table, [put("02:30:00", None)])
    sql("INSERT INTO lake.shop.users SELECT * FROM lake.shop.given")
    assert sql("SELECT n FROM lake.shop.users") == [(2,)]


@pytest.mark.deep
def test_a_key_of_a_narrower_type_is_the_key(topics: Topics, store: Store, sql: Sql) -> None:
    """Values that do not fit end the INSERT, so the others are those of the topic; a delete's nulls are no errors."""
    table = declare(sql, store, topics, "given", COLUMNS + KEY, UPSERT)
    sql("CREATE TABLE lake.shop.users (id INT, seq DECIMAL(20, 0) NOT NULL, name STRING NOT NULL, PRIMARY KEY (id))")

    def put(number: int) -> tuple[bytes, bytes]:
        return f'{{"id":{number}}}'.encode(), json.dumps(row(number, 1, "Ann")).encode()

    insert = "INSERT INTO lake.shop.users SELECT * FROM lake.shop.given"
    topics.produce(table, [put(1), put(2)])
    sql(insert)
    topics.produce(table, [(b'{"id":2}', None)])
    sql(insert)
    assert sql("SELECT id, seq, name FROM lake.shop.users") == [(1, 1, "Ann")]
    topics.produce(table, [put(2**31)])
    with pytest.raises(PySparkException, match="OVERFLOW"):
        sql(insert)


def test_messages_with_nulls_are_checked_where_they_are_written(topics: Topics, store: Store, sql: Sql) -> None:
    """A delete has nulls where its table has none; an INSERT of it, also by WITH, ended with an internal error."""
    table = declare(sql, store, topics, "dbz", "id BIGINT NOT NULL, name STRING NOT NULL")
    topics.produce(table, [message("c", None, {"id": 1, "name": "Ann"}), message("d", {"id": 1}, None)])
    sql("CREATE TABLE lake.shop.messages (id BIGINT NOT NULL, name STRING NOT NULL, kind STRING NOT NULL)")
    chosen = "SELECT id, name, _kind FROM lake.shop.dbz"
    query = f"INSERT INTO lake.shop.messages WITH d AS ({chosen}), e AS (SELECT * FROM d) SELECT * FROM e"
    with pytest.raises(PySparkException, match=r"NOT_NULL_ASSERT_VIOLATION[\s\S]*name"):
        sql(query)
    sql(f"{query} WHERE name IS NOT NULL")
    assert sql("SELECT * FROM lake.shop.messages") == [(1, "Ann", "+I")]
    assert sql(f"{chosen} WHERE name IS NULL") == [(1, None, "-D")]
