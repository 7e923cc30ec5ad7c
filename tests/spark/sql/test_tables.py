"""Databases and tables in SQL: what is created, altered, described and dropped."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.spark.sql.conftest import Sql

CREATE = """
    CREATE TABLE lake.shop.orders (
        id BIGINT, day DATE, name STRING NOT NULL COMMENT 'its name', amount DECIMAL(10,2), tags ARRAY<STRING>,
        PRIMARY KEY (id, day) NOT ENFORCED
    ) PARTITIONED BY (day) COMMENT 'what was bought' TBLPROPERTIES ('bucket' = '2', 'log.system' = 'none')
"""

REFUSED = [
    ("CREATE TABLE lake.shop.t (a INT DEFAULT 5)", "DEFAULT"),
    ("CREATE TABLE lake.shop.t (a INT, b INT GENERATED ALWAYS AS (a + 1))", "GENERATED"),
    ("CREATE TABLE lake.shop.t (a BIGINT GENERATED ALWAYS AS IDENTITY)", "IDENTITY"),
    ("CREATE TABLE lake.shop.t (a INT, CHECK (a > 0))", "only its PRIMARY KEY"),
    ("CREATE TABLE lake.shop.t (a INT UNIQUE)", "only its PRIMARY KEY"),
    ("CREATE TABLE lake.shop.t (a INT) LOCATION '/tmp/elsewhere'", "leave LOCATION out"),
    ("CREATE TABLE lake.shop.t (a INT) USING csv", "leave USING csv out"),
    ("CREATE TABLE lake.shop.t (a INT) CLUSTER BY (a)", "leave CLUSTER BY out"),
    ("CREATE TABLE lake.shop.t (a INT) CLUSTERED BY (a) INTO 4 BUCKETS", "the option bucket says"),
    ("CREATE TABLE lake.shop.t (a DATE) PARTITIONED BY (years(a))", "PARTITIONED BY takes columns"),
    ("CREATE TABLE lake.shop.t (a INT) TBLPROPERTIES ('bucketz' = '1')", "bucketz"),
    ("CREATE TABLE lake.shop.t (a INT, PRIMARY KEY (b))", "b"),
    ("CREATE TABLE lake.shop.t (a MAP<STRING, INT>, PRIMARY KEY (a))", "a"),
    ("CREATE TABLE lake.shop.t (a STRING COLLATE UNICODE_CI)", "(?i)collat"),
    ("CREATE TABLE lake.shop.t (a INTERVAL DAY)", "(?i)interval"),
    ("CREATE TABLE lake.none.t (a INT)", "cannot be found"),
    ("CREATE TABLE lake.a.b.t (a INT)", "in one database"),
    ("CREATE TABLE lake.shop.`t$x` (a INT)", "no system table"),
    ("CREATE TEMPORARY TABLE lake.shop.t (a INT)", "(?i)temporary"),
    ("CREATE TABLE lake.shop.t (a VARCHAR(5))", "neither lengths nor collations"),
    ("CREATE TABLE lake.shop.t (a ARRAY<STRUCT<b: CHAR(5)>>)", "(?i)char"),
]

UNCHANGEABLE = [
    "ADD COLUMN id INT",
    "ADD COLUMN c CHAR(5)",
    "ADD COLUMN c STRING COLLATE UNICODE_CI",
    "ADD COLUMN n INT DEFAULT 5",
    "ADD COLUMN n INT NOT NULL DEFAULT 5",
    "ALTER COLUMN amount SET DEFAULT 1",
    "ALTER COLUMN amount TYPE STRING",
    "ALTER COLUMN amount SET NOT NULL",
    "DROP COLUMN id",
    "DROP COLUMN nothing",
    "RENAME TO lake.other.orders",
    "RENAME TO spark_catalog.shop.orders",
    "RENAME TO `a-b`",
    "SET LOCATION '/tmp/x'",
    "ADD CONSTRAINT c CHECK (id > 0)",
    "CLUSTER BY (name)",
    "SET TBLPROPERTIES ('merge-engine' = 'first-row')",
    "SET SERDE 'x'",
]


def managed(store: Store, name: str) -> Table:
    table = store.table(name)
    assert isinstance(table, Table)
    return table


def test_a_table_has_what_the_statement_says(sql: Sql, store: Store) -> None:
    sql(CREATE)
    definition = managed(store, "shop.orders").definition
    assert definition.primary_key == ("id", "day")
    assert definition.partition_by == ("day",)
    assert definition.comment == "what was bought"
    assert definition.options["bucket"] == 2
    assert definition.schema.to_sql() == (
        "`id` BIGINT NOT NULL, `day` DATE NOT NULL, `name` STRING NOT NULL COMMENT 'its name', `amount` DECIMAL(10,2), "
        "`tags` ARRAY<STRING>"
    )


def test_databases(sql: Sql, store: Store) -> None:
    sql("CREATE DATABASE lake.more")
    sql("CREATE DATABASE IF NOT EXISTS lake.more")
    assert sql("SHOW DATABASES IN lake") == [("more",), ("shop",)]
    assert store.list_databases() == ["more", "shop"]
    with pytest.raises(AnalysisException, match=r"more.* already exists"):
        sql("CREATE DATABASE lake.more")
    sql("CREATE TABLE lake.more.t (a INT)")
    with pytest.raises(AnalysisException, match="contains objects"):
        sql("DROP DATABASE lake.more")
    sql("DROP DATABASE lake.more CASCADE")
    sql("DROP DATABASE IF EXISTS lake.more")
    with pytest.raises(AnalysisException, match="cannot be found"):
        sql("DROP DATABASE lake.more")
    for kept in ("COMMENT 'x'", "LOCATION '/tmp/x'", "WITH DBPROPERTIES (a = 'b')"):
        with pytest.raises(AnalysisException, match="a name and nothing else"):
            sql(f"CREATE DATABASE lake.more {kept}")
    assert store.list_databases() == ["shop"]


def test_tables_are_listed_and_dropped(sql: Sql, store: Store) -> None:
    sql("CREATE TABLE lake.shop.a (x INT)")
    sql("CREATE TABLE IF NOT EXISTS lake.shop.a (y STRING)")
    with pytest.raises(AnalysisException, match=r"a.* already exists"):
        sql("CREATE TABLE lake.shop.a (y STRING)")
    assert [row[1] for row in sql("SHOW TABLES IN lake.shop")] == ["a"]
    assert [row[0] for row in sql("SHOW COLUMNS IN lake.shop.a")] == ["x"]
    sql("DROP TABLE lake.shop.a")
    sql("DROP TABLE IF EXISTS lake.shop.a")
    with pytest.raises(AnalysisException, match="cannot be found"):
        sql("DROP TABLE lake.shop.a")
    assert store.list_tables("shop") == []


def test_what_a_table_cannot_have_is_refused(sql: Sql, store: Store) -> None:
    for statement, message in REFUSED:
        with pytest.raises((AnalysisException, ParseException), match=message):
            sql(statement)
        assert store.list_tables("shop") == [], statement


def test_options_clause(sql: Sql, store: Store) -> None:
    sql("CREATE TABLE lake.shop.t (a INT) OPTIONS ('bucket' = '3')")
    assert managed(store, "shop.t").definition.options["bucket"] == 3


def test_columns_and_options_change(sql: Sql, store: Store) -> None:
    sql(CREATE)
    sql("ALTER TABLE lake.shop.orders ADD COLUMN note STRING COMMENT 'free' AFTER name")
    sql("ALTER TABLE lake.shop.orders ADD COLUMNS (x INT FIRST, y BIGINT)")
    sql("ALTER TABLE lake.shop.orders RENAME COLUMN y TO z")
    sql("ALTER TABLE lake.shop.orders ALTER COLUMN x TYPE BIGINT")
    sql("ALTER TABLE lake.shop.orders ALTER COLUMN name DROP NOT NULL")
    sql("ALTER TABLE lake.shop.orders ALTER COLUMN z COMMENT 'last'")
    sql("ALTER TABLE lake.shop.orders ALTER COLUMN tags AFTER id")
    sql("ALTER TABLE lake.shop.orders SET TBLPROPERTIES ('snapshot.num-retained.min' = '3')")
    sql("COMMENT ON TABLE lake.shop.orders IS 'other'")
    definition = managed(store, "shop.orders").definition
    assert definition.schema.to_sql() == (
        "`x` BIGINT, `id` BIGINT NOT NULL, `tags` ARRAY<STRING>, `day` DATE NOT NULL, "
        "`name` STRING COMMENT 'its name', `note` STRING COMMENT 'free', "
        "`amount` DECIMAL(10,2), `z` BIGINT COMMENT 'last'"
    )
    assert definition.comment == "other"
    assert definition.options["snapshot.num-retained.min"] == 3
    sql("ALTER TABLE lake.shop.orders UNSET TBLPROPERTIES ('snapshot.num-retained.min')")
    sql("ALTER TABLE lake.shop.orders DROP COLUMN z")
    sql("ALTER TABLE lake.shop.orders DROP COLUMN IF EXISTS z")
    assert "z" not in managed(store, "shop.orders").definition.schema


def test_what_cannot_change_is_refused_and_changes_nothing(sql: Sql, store: Store) -> None:
    sql(CREATE)
    before = managed(store, "shop.orders").definition
    for change in UNCHANGEABLE:
        with pytest.raises((AnalysisException, ParseException)):
            sql(f"ALTER TABLE lake.shop.orders {change}")
        assert managed(store, "shop.orders").definition == before, change
    assert store.list_tables("shop") == ["orders"]


def test_a_table_is_described(sql: Sql, session: SparkSession) -> None:
    sql(CREATE)
    shown = sql("SHOW CREATE TABLE lake.shop.orders")[0][0]
    for part in ("PRIMARY KEY (id, day)", "PARTITIONED BY (day)", "'bucket' = '2'", "COMMENT 'what was bought'"):
        assert part in shown
    described = sql("DESCRIBE lake.shop.orders")
    assert ("name", "string", "its name") in described
    assert ("bucket", "2") in sql("SHOW TBLPROPERTIES lake.shop.orders")
    assert session.table("lake.shop.orders").schema["name"].nullable is False


def test_what_show_create_table_prints_makes_the_same_table(sql: Sql, store: Store) -> None:
    sql(CREATE)
    shown = sql("SHOW CREATE TABLE lake.shop.orders")[0][0]
    sql(shown.replace("lake.shop.orders", "lake.shop.again").replace("orders_pk", "again_pk"))
    one, other = managed(store, "shop.orders").definition, managed(store, "shop.again").definition
    assert one == other


def test_a_table_from_a_query(sql: Sql, store: Store) -> None:
    sql("CREATE TABLE lake.shop.t TBLPROPERTIES ('bucket' = '1') AS SELECT id, id % 2 AS odd FROM range(4)")
    assert sql("SELECT * FROM lake.shop.t") == [(0, 0), (1, 1), (2, 0), (3, 1)]
    with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO|Division by zero"):
        sql("CREATE TABLE lake.shop.broken AS SELECT 1 / (id - 2) AS x FROM range(4)")
    assert store.list_tables("shop") == ["t"]


def test_a_store_runs_statements_of_its_session(session: SparkSession, store: Store) -> None:
    lake = SparkStore(session, store)
    lake.sql("CREATE TABLE lake.shop.t (id BIGINT, PRIMARY KEY (id))")
    lake.write("shop.t", lake.sql("SELECT 7L AS id"))
    assert [row.id for row in lake.sql("SELECT * FROM lake.shop.t").collect()] == [7]


@pytest.mark.deep
def test_a_table_like_another_one(store: Store, sql: Sql) -> None:
    sql(
        "CREATE TABLE lake.shop.a (id BIGINT, day DATE, v STRING COMMENT 'c', PRIMARY KEY (id, day)) "
        "PARTITIONED BY (day) COMMENT 'first' TBLPROPERTIES ('bucket' = '3', 'log.system' = 'embedded')"
    )
    sql("INSERT INTO lake.shop.a VALUES (1, DATE'2026-01-01', 'x')")
    sql("CREATE TABLE lake.shop.b LIKE lake.shop.a TBLPROPERTIES ('bucket' = '2')")
    assert sql("SELECT * FROM lake.shop.b") == []
    made, model = (store.table(f"shop.{name}").definition for name in "ba")
    assert (made.schema, made.primary_key, made.partition_by) == (model.schema, model.primary_key, model.partition_by)
    assert made.options["bucket"] == 2
    assert made.options["log.system"] == "embedded"
    sql("CREATE TABLE IF NOT EXISTS lake.shop.b LIKE lake.shop.a")


def test_two_catalogs_side_by_side(sql: Sql, session: SparkSession, folder: object) -> None:
    session.conf.set("spark.sql.catalog.other", "tablestore.spark.TablestoreCatalog")
    session.conf.set("spark.sql.catalog.other.uri", f"{folder}/other")
    sql("CREATE DATABASE other.shop")
    for name, factor in (("lake", 1), ("other", 10)):
        sql(f"CREATE TABLE {name}.shop.t (id BIGINT PRIMARY KEY, v BIGINT)")
        sql(f"INSERT INTO {name}.shop.t SELECT id, id * {factor} FROM range(3)")
    assert sql("SELECT a.id, b.v - a.v FROM lake.shop.t a JOIN other.shop.t b ON a.id = b.id") == [
        (0, 0), (1, 9), (2, 18),
    ]  # fmt: skip


def test_settings_of_a_catalog(session: SparkSession) -> None:
    session.conf.set("spark.sql.catalog.nowhere", "tablestore.spark.TablestoreCatalog")
    with pytest.raises(AnalysisException, match=r"set spark.sql.catalog.nowhere.uri to a warehouse"):
        session.sql("SHOW DATABASES IN nowhere")
    session.conf.set("spark.sql.catalog.open", "tablestore.spark.TablestoreCatalog")
    session.conf.set("spark.sql.catalog.open.token", "very secret")
    with pytest.raises(AnalysisException, match=r"set spark.sql.catalog.open.token-file") as raised:
        session.sql("SHOW DATABASES IN open")
    assert "very secret" not in str(raised.value)
    session.conf.set("spark.sql.catalog.wrong", "tablestore.spark.TablestoreCatalog")
    session.conf.set("spark.sql.catalog.wrong.url", "/tmp")
    with pytest.raises(AnalysisException, match=r"there is no setting spark.sql.catalog.wrong.url"):
        session.sql("SHOW DATABASES IN wrong")


# ------------------------------------------------------------------------------------------ programs of others


def test_the_database_default_is_always_there(sql: Sql, store: Store) -> None:
    """Clients of JDBC and Thrift begin each session with ``USE default``."""
    sql("USE lake")
    sql("USE default")
    assert sql("SELECT current_catalog(), current_database()") == [("lake", "default")]
    assert sql("SHOW TABLES") == sql("SHOW VIEWS") == []
    assert store.list_databases() == ["shop"]  # nothing is stored for it
    with pytest.raises(AnalysisException, match="cannot be found"):
        sql("SELECT * FROM t")
    sql("DROP DATABASE default")
    sql("CREATE TABLE t AS SELECT 1 AS a")
    sql("CREATE TABLE IF NOT EXISTS lake.default.u (a INT)")
    sql("CREATE VIEW v AS SELECT a + 1 AS b FROM t")
    assert sql("SELECT b FROM lake.default.v") == [(2,)]
    assert store.list_databases() == ["default", "shop"]
    sql("DROP DATABASE default CASCADE")
    assert store.list_databases() == ["shop"]
    assert sql("SHOW TABLES IN default") == []


def test_a_view_may_be_the_first_in_the_database_default(sql: Sql, store: Store) -> None:
    sql("CREATE VIEW lake.default.v AS SELECT 1 AS a")
    assert store.list_views("default") == ["v"]


def test_programs_see_tables_and_views_with_their_format(sql: Sql, store: Store) -> None:
    """dbt learns what there is from this statement; it allows merges by the word delta."""
    sql("CREATE TABLE lake.shop.t COMMENT 'one' TBLPROPERTIES ('primary-key' = 'a', 'bucket' = '1') AS SELECT 1 AS a")
    sql("CREATE TABLE lake.shop.days (day DATE, n ARRAY<INT>) USING delta PARTITIONED BY (day)")
    sql("CREATE VIEW lake.shop.v COMMENT 'two' AS SELECT a, 'x' AS b FROM lake.shop.t")
    shown = sql("/* a program */ SHOW TABLE EXTENDED IN lake.shop LIKE '*'")
    assert [row[:3] for row in shown] == [("shop", name, False) for name in ("days", "t", "v")]
    assert shown[0][3] == (
        "Catalog: lake\nNamespace: shop\nTable: days\nType: MANAGED\nProvider: delta\nTable Properties: []\n"
        "Partition Provider: Catalog\nPartition Columns: [`day`]\nSchema: root\n |-- day: date (nullable = true)\n"
        " |-- n: array (nullable = true)\n |    |-- element: integer (containsNull = true)\n\n"
    )
    assert "Type: MANAGED\nComment: one\nProvider: delta\nTable Properties: [bucket=1]\nSchema" in shown[1][3]
    assert "Type: VIEW\nComment: two\n" in shown[2][3]
    assert shown[2][3].endswith(
        "Schema: root\n |-- a: integer (nullable = false)\n |-- b: string (nullable = false)\n\n"
    )
    assert [row[1] for row in sql("SHOW TABLE EXTENDED IN lake.shop LIKE 'D*|V'")] == ["days", "v"]
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        sql("SHOW TABLE EXTENDED IN lake.none LIKE '*'")
    assert ("Provider", "delta", "") in sql("DESCRIBE EXTENDED lake.shop.t")
    [(statement,)] = sql("SHOW CREATE TABLE lake.shop.t")
    sql("DROP TABLE lake.shop.t")
    sql(statement)
    assert ("Provider", "delta", "") in sql("DESCRIBE EXTENDED lake.shop.t")
