"""What people type who know Spark or Delta: names, functions, temporary views, properties and the API of Delta."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tablestore import Store, Table
from tablestore.incoming.moments import parsed_moment
from tablestore.spark.sql.dialect import rewritten
from tablestore.spark.sql.names import Names
from tests.spark.sql.conftest import Sql


def test_functions_with_our_catalog_as_the_current_one(sql: Sql, session: SparkSession) -> None:
    sql("USE lake.shop")
    for statement in ("SELECT abss(1)", "SELECT lake.shop.abss(1)"):
        with pytest.raises(AnalysisException, match="UNRESOLVED_ROUTINE"):
            sql(statement)
    assert sql("SHOW FUNCTIONS LIKE 'abs'") == [("abs",)]
    assert sql("SHOW USER FUNCTIONS") == []
    assert len(session.catalog.listFunctions()) > 100
    assert [session.catalog.functionExists(name) for name in ("abs", "abss")] == [True, False]


def test_what_is_asked_for_in_a_database_that_is_missing_is_missing(sql: Sql, session: SparkSession) -> None:
    sql("USE lake.shop")
    assert [session.catalog.tableExists(name) for name in ("nodb.t", "lake.nodb.t", "t")] == [False] * 3
    sql("DROP TABLE IF EXISTS nodb.t")
    sql("DROP VIEW IF EXISTS nodb.t")
    for statement in ("SELECT * FROM nodb.t", "DROP TABLE nodb.t", "INSERT INTO nodb.t VALUES (1)"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            sql(statement)
    for statement in ("SHOW TABLES IN nodb", "CREATE TABLE nodb.t (a INT)", "CREATE VIEW nodb.v AS SELECT 1 AS a"):
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            sql(statement)


def test_temporary_views_are_listed(sql: Sql, session: SparkSession) -> None:
    sql("CREATE TABLE lake.shop.t (a INT)")
    sql("CREATE VIEW lake.shop.v AS SELECT 1 AS a")
    session.sql("SELECT 1 AS a").createOrReplaceTempView("seen")
    assert sql("SHOW TABLES IN lake.shop") == [("", "seen", True), ("shop", "t", False), ("shop", "v", False)]
    assert sql("SHOW TABLES IN lake.shop LIKE 'S*'") == [("", "seen", True)]
    assert session.sql("SHOW TABLES IN lake.shop LIKE :p", {"p": "s*"}).count() == 1
    sql("USE lake.shop")
    assert sql("SHOW TABLES '*|x'") == sql("SHOW TABLES") == sql("SHOW TABLES IN IDENTIFIER('lake.shop')")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        sql("SHOW VIEWS IN nodb")


def test_regression_every_list_of_tables_has_temporary_views(sql: Sql, session: SparkSession) -> None:
    """SHOW TABLES alone had them, by a rule over its text: listTables, SHOW VIEWS and SHOW TABLE EXTENDED did not."""
    sql("CREATE TABLE lake.shop.t (a INT)")
    sql("CREATE VIEW lake.shop.v AS SELECT 1 AS a")
    session.sql("SELECT 1 AS a").createOrReplaceTempView("seen")
    session.sql("SELECT 1 AS a").createOrReplaceGlobalTempView("everywhere")
    catalog = session._jsparkSession.catalog()  # Spark makes objects of its rows by compiled code, which tests lack

    def listed(tables: Any) -> list[tuple[Any, ...]]:
        rows = DataFrame(tables.toDF(), session).selectExpr("array_join(namespace, '.')", "name", "isTemporary")
        return sorted(tuple(row) for row in rows.collect())

    try:
        sql("USE lake.shop")
        assert listed(catalog.listTables()) == sql("SHOW TABLES")
        assert [row[1] for row in listed(catalog.listTables("lake.shop", "se*|T"))] == ["seen", "t"]
        assert sql("SHOW VIEWS") == [("", "seen", True), ("shop", "v", False)]
        assert sql("SHOW VIEWS LIKE 'S*'") == [("", "seen", True)]
        described = sql("SHOW TABLE EXTENDED LIKE '*'")
        assert [row[:3] for row in described] == sql("SHOW TABLES")
        assert "Type: VIEW" in described[0][3]
        of_all = [("", "seen", True), ("global_temp", "everywhere", True)]
        assert sql("SHOW TABLES IN global_temp") == sql("SHOW VIEWS IN global_temp") == of_all
        assert listed(catalog.listTables("global_temp")) == of_all
        sql("USE spark_catalog.default")
        assert sql("SHOW TABLE EXTENDED LIKE 'seen'")[0][3].split("\n")[1:] == described[0][3].split("\n")[1:]
    finally:
        session.catalog.dropGlobalTempView("everywhere")


def test_a_key_is_named_in_any_case(sql: Sql, store: Store) -> None:
    sql("CREATE TABLE lake.shop.a (Id BIGINT, Day DATE, PRIMARY KEY (ID, DAY)) PARTITIONED BY (day)")
    sql("CREATE TABLE lake.shop.b TBLPROPERTIES ('primary-key' = 'ID') AS SELECT 1 AS Id")
    found = [store.table(f"shop.{name}") for name in "ab"]
    assert [t.definition.primary_key for t in found if isinstance(t, Table)] == [("Id", "Day"), ("Id",)]
    sql("SET spark.sql.caseSensitive = TRUE")
    with pytest.raises(AnalysisException, match=r"ID"):
        sql("CREATE TABLE lake.shop.c TBLPROPERTIES ('primary-key' = 'ID') AS SELECT 1 AS Id")


def test_regression_the_format_is_named_in_any_case(sql: Sql, session: SparkSession, store: Store) -> None:
    """Found by a stranger: USING DELTA, as Delta's own pages write it, was refused as another format."""
    sql("CREATE TABLE lake.shop.a (id INT) USING DELTA")
    sql("CREATE OR REPLACE TABLE lake.shop.b USING Delta AS SELECT 1 AS id")
    rows = session.sql("SELECT 2 AS id")
    rows.write.format("DELTA").mode("append").saveAsTable("lake.shop.b")
    rows.writeTo("lake.shop.c").using("DELTA").create()
    assert [sql(f"SELECT id FROM lake.shop.{name}") for name in "abc"] == [[], [(1,), (2,)], [(2,)]]


def test_regression_a_name_where_no_database_is_the_current_one(sql: Sql, session: SparkSession) -> None:
    """Found by a stranger in foreachBatch, whose session has no current database: the sentence ended with a blank."""
    session.conf.set("spark.sql.defaultCatalog", "lake")
    with pytest.raises(AnalysisException, match=r"there is none: write lake\.database\.name, or USE a database first"):
        sql("SELECT * FROM t")


def test_regression_the_api_of_delta_is_refused_by_any_name_and_before_it_creates(
    sql: Sql, session: SparkSession, store: Store
) -> None:
    """Found by a stranger: a name without a catalog was "not a Delta table", said after the table had been replaced."""
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    sql("INSERT INTO lake.shop.t VALUES (1)")
    sql("USE lake.shop")
    for name in ("t", "shop.t", "lake.shop.t"):
        with pytest.raises(AnalysisException, match=r"write df\.mergeInto\(\"lake\.shop\.t\""):
            DeltaTable.forName(session, name)
    for name in ("t", "shop.t"):
        with pytest.raises(AnalysisException, match="CREATE OR REPLACE TABLE in SQL"):
            DeltaTable.createOrReplace(session).tableName(name).addColumn("x", "INT").execute()
    with pytest.raises(AnalysisException, match=r"lake\.shop\.u is not in it"):
        DeltaTable.createIfNotExists(session).tableName("u").addColumn("x", "INT").execute()
    assert sql("SELECT id FROM t") == [(1,)]
    assert store.list_tables("shop") == ["t"]


def test_regression_the_history_has_the_columns_of_delta(sql: Sql, session: SparkSession) -> None:
    """Scripts that select operationParameters, as of Delta's tables, ended with an unresolved column."""
    sql("CREATE TABLE lake.shop.t (day DATE, id INT) PARTITIONED BY (day)")
    sql("INSERT INTO lake.shop.t VALUES (DATE'2026-01-01', 1), (DATE'2026-01-02', 2)")
    sql("INSERT OVERWRITE lake.shop.t PARTITION (day = DATE'2026-01-01') VALUES (3)")
    ours = session.sql("DESCRIBE HISTORY lake.shop.t")
    path = session.sql("DESCRIBE DETAIL lake.shop.t").collect()[0]["location"]
    delta = session.sql(f"DESCRIBE HISTORY delta.`{path}`")
    assert ours.columns == [*delta.columns, "commit_id"]
    types = [(field.name, field.dataType) for field in ours.drop("commit_id").schema]
    assert types == [(field.name, field.dataType) for field in delta.schema]
    assert ours.drop("commit_id").collect() == delta.collect()
    newest = ours.select("version", "timestamp", "operation", "operationParameters").first()
    assert newest is not None
    assert (newest.version, newest.operation) == (2, "OVERWRITE")
    assert "2026-01-01" in newest.operationParameters["partitions"]


def test_options_of_delta_say_what_has_their_place(sql: Sql, session: SparkSession) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    reads = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    with pytest.raises(AnalysisException, match=r"table_changes\('database\.table', first, last\)"):
        reads.table("lake.shop.t")
    for option, sentence in (("startingVersion", "with the changes after version n"), ("ignoreChanges", "in _kind")):
        with pytest.raises(AnalysisException, match=sentence):
            session.readStream.option(option, "1").table("lake.shop.t").writeStream.format("noop").start()
    rows = session.sql("SELECT 1L AS id")
    for option, sentence in (
        ("optimizeWrite", "target-file-size"),
        ("userMetadata", "create_tag"),
        ("x", "checkpoint"),
    ):
        with pytest.raises(AnalysisException, match=rf"no option {option.lower()}; it has mergeSchema.*{sentence}"):
            rows.write.mode("append").option(option, "true").saveAsTable("lake.shop.t")


def test_properties_and_clauses_of_delta_say_what_has_their_place(sql: Sql, session: SparkSession) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    for statement, sentence in (
        (
            "CREATE TABLE lake.shop.u (a INT) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
            "CHANGES FROM VERSION",
        ),
        ("ALTER TABLE lake.shop.t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", "changelog-producer"),
        (
            "ALTER TABLE lake.shop.t SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
            "follow from the table's own options",
        ),
        ("CREATE TABLE lake.shop.u (a INT) CLUSTER BY (a)", "leave CLUSTER BY out"),
        ("ALTER TABLE lake.shop.t CLUSTER BY (id)", "leave CLUSTER BY out"),
    ):
        with pytest.raises(AnalysisException, match=sentence):
            sql(statement)
    rows: DataFrame = session.sql("SELECT 1L AS id")
    with pytest.raises(AnalysisException, match="leave CLUSTER BY out"):
        rows.write.clusterBy("id").saveAsTable("lake.shop.u")
    with pytest.raises(AnalysisException, match=r"overwrite\(condition\)"):
        rows.write.mode("overwrite").option("replaceWhere", "id = 1").saveAsTable("lake.shop.t")
    with pytest.raises(AnalysisException, match="REPLACE WHERE"):
        rows.writeTo("lake.shop.t").option("replaceWhere", "id = 1").append()
    with pytest.raises(AnalysisException, match=r"write df\.mergeInto"):
        DeltaTable.forName(session, "lake.shop.t")


def test_reorg_purges_and_vacuum_keeps_the_hours_that_it_names(sql: Sql, store: Store) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY) WITH ('snapshot.num-retained.min' = '1', "
        "'snapshot.time-retained' = '0 ms', 'bucket' = '1')")  # fmt: skip
    sql("INSERT INTO lake.shop.t SELECT id FROM range(100)")
    sql("DELETE FROM lake.shop.t WHERE id < 10")
    files = "SELECT record_count, live_record_count FROM lake.shop.t$files"
    assert sql(files) == [(100, 90)]
    sql("REORG TABLE lake.shop.t APPLY (PURGE)")
    assert sql(files) == [(90, 90)]
    assert sql("VACUUM lake.shop.t RETAIN 5 HOURS") == []
    listed = sql("VACUUM lake.shop.t DRY RUN")
    assert {kind for _, kind in listed} == {"expired"}
    assert sql("VACUUM lake.shop.t RETAIN 0 HOURS") == listed
    assert len(sql("SELECT * FROM lake.shop.t")) == 90
    for call in (
        "VACUUM lake.shop.t RETAIN 999999999999999 HOURS",
        "CALL lake.sys.vacuum('shop.t', retain_hours => -5)",
        "CALL lake.sys.remove_orphans('shop.t', older_than_hours => -1)",
    ):
        with pytest.raises(AnalysisException, match="bad-hours"):
            sql(call)
    assert len(store.table("shop.t").snapshots()) == 2, "the expiry itself is a version"


def test_restore_takes_times_of_the_session(sql: Sql, session: SparkSession) -> None:
    sql("SET spark.sql.session.timeZone = America/New_York")
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    sql("INSERT INTO lake.shop.t VALUES (1)")
    [(first,)] = sql("SELECT CAST(commit_time AS STRING) FROM lake.shop.t$snapshots WHERE version = 1")
    sql("INSERT INTO lake.shop.t VALUES (2)")
    digits = "".join(c for c in first if c.isdigit()).ljust(17, "0")
    assert sql(f"SELECT * FROM lake.shop.t@{digits}") == [(1,)]
    sql(f"RESTORE TABLE lake.shop.t TO TIMESTAMP AS OF '{first}'")
    assert sql("SELECT * FROM lake.shop.t") == [(1,)]
    [detail] = session.sql("DESCRIBE DETAIL lake.shop.t").select("numFiles", "partitionColumns", "format").collect()
    assert (detail.format, detail.partitionColumns) == ("delta", [])


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC"])
def test_restore_means_the_moment_that_spark_reads_in_a_text(session: SparkSession, zone: str) -> None:
    """Also in the hour that a change of the clocks skips, and in the one that it repeats."""
    session.conf.set("spark.sql.session.timeZone", zone)
    ours = Names(frozenset({"lake"}), "lake", "shop")
    texts = (
        "2026-03-29 02:30:00", "2026-03-29 03:30:00", "2026-03-29 04:30:00.5", "2026-10-25 02:30:00",
        "2026-10-25 01:30:00Z", "2026-03-08 02:30:00", "2026-11-01 01:30:00-05:00", "2026-01-31", "1890-01-01 00:00:00",
    )  # fmt: skip
    for text in texts:
        call = rewritten(f"RESTORE t TO TIMESTAMP AS OF '{text}'", ours)
        [given] = re.findall(r"timestamp => (.*)\)$", call)
        row = session.sql(f"SELECT {given}, unix_micros(CAST('{text}' AS TIMESTAMP))").first()
        assert row is not None
        assert parsed_moment(row[0]) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row[1]), text


@pytest.mark.slow
def test_values_of_commands_may_be_parameters(sql: Sql, session: SparkSession) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    sql("INSERT INTO lake.shop.t VALUES (1)")
    [(first,)] = sql("SELECT commit_time FROM lake.shop.t$snapshots WHERE version = 1")
    sql("CALL lake.sys.create_tag('shop.t', 'it.s')")
    sql("INSERT INTO lake.shop.t VALUES (2)")
    for how, given in (
        ("VERSION AS OF :v", {"v": 1}),
        ("VERSION AS OF :v", {"v": "1"}),
        ("VERSION AS OF ?", ["it.s"]),
        ("TIMESTAMP AS OF ?", [first.isoformat(" ")]),
        ("TIMESTAMP AS OF :v", {"v": first}),
    ):
        session.sql(f"RESTORE TABLE lake.shop.t TO {how}", given)
        assert sql("SELECT * FROM lake.shop.t") == [(1,)], how
        sql("INSERT INTO lake.shop.t VALUES (2)")
    assert session.sql("DESCRIBE HISTORY lake.shop.t LIMIT :n", {"n": 3}).count() == 3
    for statement, refused in (
        ("VACUUM lake.shop.t RETAIN ? HOURS", "bad-hours"),
        ("DESCRIBE HISTORY lake.shop.t LIMIT ?", "bad-limit"),
        ("RESTORE TABLE lake.shop.t TO VERSION AS OF ?", "no-such"),
    ):
        with pytest.raises(AnalysisException, match=refused):  # null is not what is left out
            session.sql(statement, [None])
    sql("EXECUTE IMMEDIATE 'RESTORE TABLE lake.shop.t TO VERSION AS OF :v' USING 1 AS v")
    assert sql("SELECT * FROM lake.shop.t") == [(1,)]


PLACES = [("2026-01-01", None), ("2026-01-01", 'x"\\'), ("2026-01-02", "eu")]


def test_partitions_are_named_in_any_case_by_null_and_by_parameters(sql: Sql, session: SparkSession) -> None:
    sql("CREATE TABLE lake.shop.p (id INT, day DATE, r STRING) PARTITIONED BY (day, r)")
    for number in range(3):
        for day, r in PLACES:
            session.sql("INSERT INTO lake.shop.p SELECT :n, :d, :r", {"n": number, "d": day, "r": r})

    def files() -> list[int]:
        found = "SELECT count(*) FROM lake.shop.p$files WHERE partition['day'] = :d AND partition['r'] <=> :r"
        return [row[0] for d, r in PLACES for row in session.sql(found, {"d": d, "r": r}).collect()]

    assert files() == [3, 3, 3]
    sql("OPTIMIZE lake.shop.p WHERE DAY = '2026-01-01' AND R IS NULL")
    assert files() == [1, 3, 3]
    session.sql("OPTIMIZE lake.shop.p WHERE r = :r AND Day = :d", {"r": PLACES[1][1], "d": date(2026, 1, 1)})
    assert files() == [1, 1, 3]
    session.sql("ALTER TABLE lake.shop.p PARTITION (DAY = ?, r = ?) COMPACT", ["2026-01-02", "eu"])
    assert files() == [1, 1, 1]
    for condition, given in (("R = NULL", None), ("r = ?", [None]), ("r = :r AND day = '2026-01-01'", {"r": None})):
        with pytest.raises(AnalysisException, match="IS NULL"):  # nothing is equal to NULL
            session.sql(f"OPTIMIZE lake.shop.p WHERE {condition}", given)
    for key, given in (("R = NULL", None), ("r = ?", [None])):
        rows = session.sql(f"DESCRIBE DETAIL lake.shop.p PARTITION (day = '2026-01-01', {key})", given).collect()
        assert ("num-rows", "3") in {tuple(row) for row in rows}
    with pytest.raises(AnalysisException, match=r"bad-partition\].*twice"):
        sql("OPTIMIZE lake.shop.p WHERE DAY = '2026-01-01' AND day = '2026-01-02'")
    session.sql("OPTIMIZE lake.shop.p WHERE r = ?", ["a\tb\nc"])  # no such partition
    sql("SET spark.sql.caseSensitive = TRUE")
    with pytest.raises(AnalysisException, match="unknown-partition-column"):
        sql("OPTIMIZE lake.shop.p WHERE DAY = '2026-01-01'")


@pytest.mark.parametrize(("ansi", "sentence"), [("true", "CAST_INVALID_INPUT"), ("false", r"'noon\\*'.* is no time")])
def test_restore_to_what_is_no_time_says_so(sql: Sql, ansi: str, sentence: str) -> None:
    sql(f"SET spark.sql.ansi.enabled = {ansi}")
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    with pytest.raises(Exception, match=sentence):
        sql("RESTORE TABLE lake.shop.t TO TIMESTAMP AS OF 'noon'")


def test_java_names_the_catalogs_of_others_and_temporary_views(sql: Sql, session: SparkSession) -> None:
    session.conf.set("spark.sql.catalog.other", "a.catalog.of.others")
    session.conf.set("spark.sql.catalog.other.an.option", "lake")
    session.sql("SELECT 1 AS a").createOrReplaceTempView("seen")
    sql("CREATE DATABASE IF NOT EXISTS lake.shop")
    sql("USE lake.shop")
    parser = session._jsparkSession.sessionState().sqlParser()
    for statement, node in (
        ("ANALYZE TABLE t COMPUTE STATISTICS", "Call"),
        ("ANALYZE TABLE seen COMPUTE STATISTICS", "AnalyzeTable"),
        ("ANALYZE TABLE other.t COMPUTE STATISTICS", "AnalyzeTable"),
    ):
        assert parser.parsePlan(statement).nodeName() == node, statement
