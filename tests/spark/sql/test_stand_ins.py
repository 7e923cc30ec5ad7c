"""What stands for a table in a plan is written by every form of writing, though it may have nulls for the plan."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tablestore import Store
from tests.depth import Depth
from tests.servers.kafka import KafkaBroker
from tests.spark.sql.conftest import Row, Sql
from tests.spark.sql.test_insertions_of_changes import DEBEZIUM, KEY, UPSERT, declare, message
from tests.topics import Topics

COLUMNS = "id BIGINT NOT NULL, n INT NOT NULL, name STRING NOT NULL"
ROWS: list[Row] = [(1, 10, "a"), (2, 20, "b"), (3, 30, "c")]
VALUES = ", ".join(map(repr, ROWS))


@dataclass(frozen=True)
class StandIn:
    """A relation, and its columns under the names `COLUMNS`."""

    relation: str
    columns: str = "id, n, name"

    @property
    def query(self) -> str:
        return f"SELECT {self.columns} FROM {self.relation}"


JOIN = "lake.shop.o JOIN lake.shop.dim FOR SYSTEM_TIME AS OF o.at d ON o.ref = d.id"
STAND_INS = {
    "version": StandIn("lake.shop.plain"),
    "VERSION AS OF": StandIn("lake.shop.plain VERSION AS OF 1"),
    "vectors": StandIn("lake.shop.vectors"),
    "overlay": StandIn("lake.shop.overlay"),
    "fresh": StandIn("lake.shop.eventual WITH ('fresh' = 'true')"),
    "CHANGES": StandIn("lake.shop.plain CHANGES FROM VERSION 1"),
    "net CHANGES": StandIn("lake.shop.vectors CHANGES FROM VERSION 1 WITH (deduplicationMode = 'netChanges')"),
    "table_changes": StandIn("table_changes('lake.shop.plain', 1)"),
    "system table": StandIn(
        "lake.shop.vectors$snapshots WHERE version > 0",
        "version AS id, 10 * CAST(version AS INT) AS n, substr('abc', CAST(version AS INT), 1) AS name",
    ),
    "temporal join": StandIn(JOIN, "d.id, d.n, d.name"),
    "temporal left join": StandIn(JOIN.replace("JOIN", "LEFT JOIN"), "o.ref AS id, o.n, o.name"),
    "topic": StandIn("lake.shop.topic"),
    "keyed topic": StandIn("lake.shop.upserts"),
    "topic of changes": StandIn("lake.shop.dbz"),
    "kinds of a topic": StandIn("lake.shop.dbz WHERE _kind = '+I'"),
    "view of a topic": StandIn("lake.shop.topics"),
}

FOUR = "VALUES (1L, 10, 'a'), (2L, 20, 'b'), (3L, 30, 'c'), (4L, 40, 'd') v(id, n, name)"
EACH = "MERGE INTO {t} t USING ({q}) s ON t.id = s.id "
FORMS = {
    "INSERT": "INSERT INTO {t} {q}",
    "columns": "INSERT INTO {t} (name, id, n) SELECT name, id, n FROM ({q})",
    "BY NAME": "INSERT INTO {t} BY NAME SELECT name, id, n FROM ({q})",
    "OVERWRITE": "INSERT OVERWRITE {t} {q}",
    "MERGE of whole rows": EACH + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "MERGE of columns": EACH
    + "WHEN MATCHED THEN UPDATE SET n = s.n, name = s.name WHEN NOT MATCHED AND s.n > 0 THEN INSERT *",
    "MERGE of casts": EACH + "WHEN MATCHED AND t.id % 5 = 1 THEN UPDATE SET n = s.id * 10 "
    "WHEN NOT MATCHED THEN INSERT (id, n, name) VALUES (s.id, s.id * 10, s.name)",
    "MERGE that inserts": EACH + "WHEN NOT MATCHED THEN INSERT *",
    "GROUP BY": "INSERT INTO {t} SELECT id, max(n), min(name) FROM ({q}) GROUP BY id",
    "group of the key": "INSERT INTO {t} SELECT id, id * 10, any_value(name) FROM ({q}) GROUP BY id",
    "WITH": "INSERT INTO {t} WITH w AS ({q}), v AS (SELECT * FROM w WHERE id > 0) SELECT * FROM v",
    "DISTINCT": "INSERT INTO {t} SELECT DISTINCT * FROM ({q})",
    "window": "INSERT INTO {t} SELECT id, max(n) OVER (PARTITION BY id), first(name) OVER (PARTITION BY id) FROM ({q})",
    "UNION": "INSERT INTO {t} {q} UNION ALL SELECT 3L, 30, 'c' WHERE false",
    "lateral": "INSERT INTO {t} SELECT x, m, name FROM ({q}) a, LATERAL (SELECT a.id AS x, a.n AS m)",
    "join": "INSERT INTO {t} SELECT a.id, a.n, b.name FROM ({q}) a JOIN ({q}) b ON a.id = b.id",
    "outer join": "INSERT INTO {t} SELECT a.id, a.n, b.name FROM ({q}) a LEFT JOIN ({q}) b ON a.id = b.id",
    "casts": "INSERT INTO {t} SELECT CAST(id AS DECIMAL(20, 0)), CAST(n AS STRING)::INT, CAST(name AS VARCHAR(3)) "
    "FROM ({q})",
    "IN": "INSERT INTO {t} SELECT * FROM " + FOUR + " WHERE id IN (SELECT id FROM ({q}))",
    "EXISTS": "INSERT INTO {t} SELECT * FROM " + FOUR + " WHERE EXISTS (SELECT 1 FROM ({q}) q WHERE q.id = v.id)",
    "temporary view": "q: INSERT INTO {t} SELECT * FROM q",
    "writeTo.append": "append",
    "writeTo.overwritePartitions": "overwritePartitions",
    "saveAsTable": "saveAsTable",
    "insertInto": "insertInto",
    "CTAS": "CREATE OR REPLACE TABLE {t} AS {q}",
    "UPDATE": "UPDATE {t} SET name = concat(name, '') WHERE id IN (SELECT id FROM ({q}))",
    "DELETE": "DELETE FROM {t} WHERE id > (SELECT max(id) FROM ({q}))",
}
TARGETS = {
    "keyed": f"({COLUMNS}, PRIMARY KEY (id))",
    "without a key": f"({COLUMNS})",
    "wider": "(id DECIMAL(22, 0) NOT NULL, n BIGINT NOT NULL, name STRING NOT NULL, PRIMARY KEY (id))",
    "narrower": "(id INT NOT NULL, n SMALLINT NOT NULL, name STRING NOT NULL, PRIMARY KEY (id))",
    "nullable": "(id BIGINT, n BIGINT, name STRING)",
    "partitioned": f"({COLUMNS}, PRIMARY KEY (id, name)) PARTITIONED BY (name)",
}

ONCE_WRONG = [
    ("temporal join", "INSERT", "keyed"),
    ("temporal join", "WITH", "partitioned"),
    ("temporal join", "MERGE of whole rows", "keyed"),
    ("CHANGES", "window", "keyed"),
    ("keyed topic", "group of the key", "wider"),
    ("kinds of a topic", "lateral", "keyed"),
]


def prepare(sql: Sql, store: Store, broker: KafkaBroker) -> None:
    none = "TBLPROPERTIES ('log.system' = 'none', 'bucket' = '3')"
    embedded = "TBLPROPERTIES ('log.system' = 'embedded', 'log.changelog-mode' = 'auto', 'bucket' = '3')"
    for name, options in {
        "plain": embedded,
        "vectors": none,
        "overlay": "TBLPROPERTIES ('write-mode' = 'merge-on-read')",
        "eventual": "TBLPROPERTIES ('log.system' = 'embedded', 'log.consistency' = 'eventual')",
        "dim": none,
    }.items():
        sql(f"CREATE TABLE lake.shop.{name} ({COLUMNS}, PRIMARY KEY (id)) {options}")
        sql(f"INSERT INTO lake.shop.{name} VALUES {VALUES}")
        if name != "plain":
            sql(f"INSERT INTO lake.shop.{name} VALUES (4, 40, 'd')")
            sql(f"DELETE FROM lake.shop.{name} WHERE id = 4")
    sql("CREATE TABLE lake.shop.o (ref BIGINT NOT NULL, at TIMESTAMP NOT NULL, n INT NOT NULL, name STRING NOT NULL)")
    sql("INSERT INTO lake.shop.o SELECT id, TIMESTAMP'2099-01-01', n, name FROM lake.shop.plain")
    topics = Topics(store, broker)
    declare(sql, store, topics, "topic", COLUMNS, "'connector' = 'kafka', 'format' = 'json'")
    declare(sql, store, topics, "upserts", COLUMNS + KEY, UPSERT)
    table = declare(sql, store, topics, "dbz", COLUMNS + KEY, DEBEZIUM)
    for name in ("topic", "upserts"):
        sql(f"INSERT INTO lake.shop.{name} VALUES {VALUES}")
    found = [dict(zip(("id", "n", "name"), row, strict=True)) for row in ROWS]
    topics.produce(table, [message("c", None, row) for row in found])
    sql("CREATE VIEW lake.shop.topics AS SELECT * FROM lake.shop.upserts")


def write(session: SparkSession, sql: Sql, form: str, query: str, target: str) -> None:
    how = FORMS[form]
    rows = session.sql(query)
    if how.startswith("q: "):
        rows.createOrReplaceTempView("q")
        sql(how.removeprefix("q: ").format(t=target))
    elif how in ("append", "overwritePartitions"):
        getattr(rows.writeTo(target), how)()
    elif how == "saveAsTable":
        rows.write.mode("append").saveAsTable(target)
    elif how == "insertInto":
        rows.write.insertInto(target)
    else:
        sql(how.format(t=target, q=query))


@pytest.mark.slow
def test_every_stand_in_is_written_by_every_form(
    session: SparkSession, sql: Sql, store: Store, kafka_broker: KafkaBroker, depth: Depth
) -> None:
    """A plan that was made for columns without nulls ended with "unresolved operator 'AppendData"."""
    prepare(sql, store, kafka_broker)
    session.conf.set("spark.sql.planChangeValidation", "true")
    wanted = [(field.name, field.dataType) for field in session.table("lake.shop.plain").schema]
    for name, found in STAND_INS.items():
        assert [(field.name, field.dataType) for field in session.sql(found.query).schema] == wanted, name
    cases = list(itertools.product(STAND_INS, FORMS, TARGETS))
    random.Random(38).shuffle(cases)
    for number, (name, form, kind) in enumerate([*ONCE_WRONG, *depth.sample(cases, 4, deep=8)]):
        target = f"lake.shop.target_{number}"
        sql(f"CREATE TABLE {target} {TARGETS[kind]}")
        if form in ("UPDATE", "DELETE"):
            sql(f"INSERT INTO {target} VALUES {VALUES}")
        write(session, sql, form, STAND_INS[name].query, target)
        assert sql(f"SELECT * FROM {target}") == ROWS, (name, form, kind)
        sql(f"DROP TABLE {target}")


@pytest.mark.deep
def test_a_null_that_should_not_be_there_is_an_error(sql: Sql, store: Store, kafka_broker: KafkaBroker) -> None:
    """A topic's messages may break what its declaration says."""
    topics = Topics(store, kafka_broker)
    table = declare(sql, store, topics, "broken", COLUMNS + KEY, UPSERT)
    topics.produce(table, [(b'{"id":1}', b'{"id":1,"n":10,"name":"a"}'), (b'{"id":2}', b'{"id":2,"n":20}')])
    sql(f"CREATE TABLE lake.shop.kept {TARGETS['keyed']}")
    for form in ("INSERT", "MERGE of whole rows", "group of the key", "WITH", "OVERWRITE"):
        statement = FORMS[form].format(t="lake.shop.kept", q="SELECT * FROM lake.shop.broken")
        with pytest.raises(PySparkException, match="malformed-record"):
            sql(statement)
    assert sql("SELECT * FROM lake.shop.kept") == []


@pytest.mark.deep
def test_a_null_key_of_a_topic_is_an_error(sql: Sql, store: Store, kafka_broker: KafkaBroker) -> None:
    """A topic's column may be null where the key of the table that is written may not."""
    topics = Topics(store, kafka_broker)
    nullable = COLUMNS.replace("id BIGINT NOT NULL", "id BIGINT")
    rows: list[dict[str, object]] = [{"id": 1, "n": 10, "name": "a"}, {"id": None, "n": 20, "name": "b"}]
    plain = declare(sql, store, topics, "plain_nulls", nullable, "'connector' = 'kafka', 'format' = 'json'")
    topics.produce(plain, [(None, json.dumps(row).encode()) for row in rows])
    upserts = declare(sql, store, topics, "upsert_nulls", nullable + KEY, UPSERT)
    topics.produce(upserts, [(json.dumps({"id": row["id"]}).encode(), json.dumps(row).encode()) for row in rows])
    assert sql("SELECT id FROM lake.shop.plain_nulls") == [(1,), (None,)]
    sql(f"CREATE TABLE lake.shop.kept {TARGETS['keyed']}")
    for source, form, code in (
        ("plain_nulls", "INSERT", "NOT_NULL_ASSERT_VIOLATION"),
        ("plain_nulls", "MERGE of whole rows", "NOT_NULL_ASSERT_VIOLATION"),
        ("plain_nulls", "MERGE of casts", "NOT_NULL_ASSERT_VIOLATION"),
        ("plain_nulls", "OVERWRITE", "NOT_NULL_ASSERT_VIOLATION"),
        ("upsert_nulls", "INSERT", "malformed-record"),
    ):
        with pytest.raises(PySparkException, match=code):
            sql(FORMS[form].format(t="lake.shop.kept", q=f"SELECT * FROM lake.shop.{source}"))
        assert sql("SELECT * FROM lake.shop.kept") == [], (source, form)
