"""Statements of ours that become statements of Spark; those of others stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest, Unsupported
from tablestore.spark.sql import suffixes
from tablestore.spark.sql.dialect import rewritten
from tablestore.spark.sql.names import Names, argument_table, literal

ELSEWHERE = Names(frozenset({"lake", "my lake"}), "spark_catalog", "default")
HERE = Names(frozenset({"lake"}), "lake", "shop")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM lake.shop.t$files f -- t$x", "SELECT * FROM lake.shop.`t$files` f -- t$x"),
        (
            "SELECT 't$files', `t$files` FROM lake.s.a$snapshots, lake.s.b$tags",
            "SELECT 't$files', `t$files` FROM lake.s.`a$snapshots`, lake.s.`b$tags`",
        ),
        ("SELECT * FROM a$snapshots, other.s.b$tags", "SELECT * FROM a$snapshots, other.s.b$tags"),
        ("SET spark.x.excludedRules=a.B$C, lake.s.D$E", "SET spark.x.excludedRules=a.B$C, lake.s.D$E"),
        (
            "SELECT a$files.path, lake.s.a$files.*, s.a$files.b, b$files.path, o.a$files.x, 'a$files.' "
            "FROM lake.s.a$files",
            "SELECT `a$files`.path, lake.s.`a$files`.*, s.`a$files`.b, b$files.path, o.a$files.x, 'a$files.' "
            "FROM lake.s.`a$files`",
        ),
        (
            "SELECT 1 FROM (lake.s.a$x JOIN lake.s.b$y ON a$x.v = b$y.v), lake.s.c$z WHERE f(a.b, lake.s.t$x) IN "
            "(1, lake.s.t$y)",
            "SELECT 1 FROM (lake.s.`a$x` JOIN lake.s.`b$y` ON `a$x`.v = `b$y`.v), lake.s.`c$z` "
            "WHERE f(a.b, lake.s.t$x) IN (1, lake.s.t$y)",
        ),
        ("SET VAR x = (SELECT count(*) FROM lake.s.t$x)", "SET VAR x = (SELECT count(*) FROM lake.s.`t$x`)"),
        (
            "BEGIN DECLARE x INT; SET x = (SELECT count(*) FROM lake.s.t$x); END",
            "BEGIN DECLARE x INT; SET x = (SELECT count(*) FROM lake.s.`t$x`); END",
        ),
        ("SET (x, y) = (SELECT a, b FROM lake.s.t@v1)", "SET (x, y) = (SELECT a, b FROM lake.s.t VERSION AS OF 1)"),
        ("SET a.b=(FROM lake.s.t$x)", "SET a.b=(FROM lake.s.t$x)"),
        ("DROP TABLE IF EXISTS lake.s.t$x", "DROP TABLE IF EXISTS lake.s.`t$x`"),
        (
            "SELECT f(x, lake.s.y@v1), (lake.s.y@v1) FROM a, lake.s.b@v2, "
            "(lake.s.c@v3, lake.s.d@v4), f(1, lake.s.e@v5)",
            "SELECT f(x, lake.s.y@v1), (lake.s.y@v1) FROM a, lake.s.b VERSION AS OF 2, (lake.s.c VERSION AS OF 3, "
            "lake.s.d VERSION AS OF 4), f(1, lake.s.e@v5)",
        ),
        ("SELECT lake.s.a$files FROM x", "SELECT lake.s.a$files FROM x"),
        (
            "SELECT * FROM lake.s.t@v3 AS a JOIN lake.s.u@20260131120000500 b, t@v1, o.s.t@v1 -- lake.s.t@v1",
            "SELECT * FROM lake.s.t VERSION AS OF 3 AS a JOIN lake.s.u TIMESTAMP AS OF '2026-01-31 12:00:00.500' b, "
            "t@v1, o.s.t@v1 -- lake.s.t@v1",
        ),
        ("SELECT 'lake.s.t@v3', a@v1 FROM lake.s.t@v", "SELECT 'lake.s.t@v3', a@v1 FROM lake.s.t@v"),
        (
            "SELECT * FROM table_changes('lake.shop.t', 2, 5) c JOIN TABLE_CHANGES ( 'lake.s.`u`' , '2026-01-01' ) d",
            "SELECT * FROM `lake`.`shop`.`t` CHANGES FROM VERSION 2 TO VERSION 5 c "
            "JOIN `lake`.`s`.`u` CHANGES FROM TIMESTAMP '2026-01-01' d",
        ),
        ("SELECT * FROM table_changes('other.t', 2)", "SELECT * FROM table_changes('other.t', 2)"),
        ("SELECT * FROM table_changes(x, 2)", "SELECT * FROM table_changes(x, 2)"),
        (
            "SELECT * FROM table_changes('lake.s.t', TIMESTAMP '2026-01-01', TIMESTAMP_NTZ'2026-01-02')",
            "SELECT * FROM `lake`.`s`.`t` CHANGES FROM TIMESTAMP TIMESTAMP '2026-01-01' TO TIMESTAMP "
            "TIMESTAMP_NTZ'2026-01-02'",
        ),
        ("SELECT * FROM table_changes('lake.s.t', 2L)", "SELECT * FROM `lake`.`s`.`t` CHANGES FROM VERSION 2"),
        ("SELECT table_changes FROM t", "SELECT table_changes FROM t"),
        ("SELECT * FROM events_${env}, lake.s.t$x1", "SELECT * FROM events_${env}, lake.s.`t$x1`"),
        ("ALTER TABLE lake.s.t RENAME COLUMN note TO compact", "ALTER TABLE lake.s.t RENAME COLUMN note TO compact"),
        ("ALTER TABLE lake.s.t SET TBLPROPERTIES ('compact')", "ALTER TABLE lake.s.t SET TBLPROPERTIES ('compact')"),
        ("ALTER TABLE lake.s.t COMPACT ;", "CALL `lake`.sys.compact(table => 's.t', full => true)"),
        ("DESCRIBE HISTORY lake.s.t;", "CALL `lake`.sys.describe_history(table => 's.t')"),
        ("select $1 from t where a = $b", "select $1 from t where a = $b"),
        ("ALTER TABLE lake.shop.t COMPACT", "CALL `lake`.sys.compact(table => 'shop.t', full => true)"),
        ("alter table `my lake`.shop.`o'x` compact", "CALL `my lake`.sys.compact(table => 'shop.o\\'x', full => true)"),
        (
            "ALTER TABLE lake.shop.t PARTITION (day = DATE '2026-01-31', `n o` = -1, r = NULL, q = 'a, b') COMPACT",
            "CALL `lake`.sys.compact(table => 'shop.t', "
            'partition => \'{"day": "2026-01-31", "n o": "-1", "r": null, "q": "a, b"}\', full => true)',
        ),
        (
            "DESCRIBE DETAIL EXTENDED lake.shop.t PARTITION (day='x''y')",
            "CALL `lake`.sys.describe_detail(table => 'shop.t', partition => '{\"day\": \"x\\'y\"}')",
        ),
        ("ALTER TABLE lake.s.t PARTITION (d > 1) COMPACT", "ALTER TABLE lake.s.t PARTITION (d > 1) COMPACT"),
        ("ALTER TABLE lake.s.t PARTITION () COMPACT", "ALTER TABLE lake.s.t PARTITION () COMPACT"),
        ("REFRESH MATERIALIZED VIEW lake.shop.v;", "CALL `lake`.sys.refresh(table => 'shop.v')"),
        ("refresh materialized view lake.shop.v full", "CALL `lake`.sys.refresh(table => 'shop.v', rebuild => true)"),
        ("REFRESH MATERIALIZED VIEW lake.shop.full", "CALL `lake`.sys.refresh(table => 'shop.full')"),
        ("REFRESH MATERIALIZED VIEW other.shop.v", "REFRESH MATERIALIZED VIEW other.shop.v"),
        ("REFRESH TABLE lake.shop.v", "REFRESH TABLE lake.shop.v"),
        (
            "drop materialized view if exists lake.shop.v",
            "CALL `lake`.sys.drop_materialized_view(table => 'shop.v', if_exists => true)",
        ),
        ("DROP MATERIALIZED VIEW lake.shop.v", "CALL `lake`.sys.drop_materialized_view(table => 'shop.v')"),
        (
            "CREATE MATERIALIZED VIEW lake.shop.v PRIMARY KEY (a, `b c`) AS SELECT 1",
            "CALL `lake`.sys.create_materialized_view(table => 'shop.v', query => 'SELECT 1', "
            """primary_key => '["a", "b c"]')""",
        ),
        (
            "EXPLAIN CREATE MATERIALIZED VIEW lake.shop.v AS SELECT 1",
            "CALL `lake`.sys.explain_materialized_view(table => 'shop.v', query => 'SELECT 1')",
        ),
        (
            "EXPLAIN\nREFRESH MATERIALIZED VIEW lake.shop.v",
            "CALL `lake`.sys.explain_materialized_view(table => 'shop.v')",
        ),
        ("EXPLAIN REFRESH MATERIALIZED VIEW other.shop.v", "EXPLAIN REFRESH MATERIALIZED VIEW other.shop.v"),
        ("EXPLAIN SELECT 1", "EXPLAIN SELECT 1"),
        ("DROP VIEW lake.shop.v", "DROP VIEW lake.shop.v"),
        (
            "CREATE MATERIALIZED VIEW IF NOT EXISTS lake.shop.v COMMENT 'it''s' TBLPROPERTIES ('bucket' = '2') AS\n"
            "SELECT a.x FROM shop.a JOIN shop.b ON a.y = b.z ;",
            "CALL `lake`.sys.create_materialized_view(table => 'shop.v', "
            "query => 'SELECT a.x FROM shop.a JOIN shop.b ON a.y = b.z', comment => 'it\\'s', "
            'options => \'{"bucket": "2"}\', if_not_exists => true)',
        ),
        ("CREATE MATERIALIZED VIEW other.s.v AS SELECT 1", "CREATE MATERIALIZED VIEW other.s.v AS SELECT 1"),
        ("ALTER TABLE other.shop.t COMPACT", "ALTER TABLE other.shop.t COMPACT"),
        ("ALTER TABLE shop.t COMPACT", "ALTER TABLE shop.t COMPACT"),
        ("ALTER TABLE lake.shop.t ADD COLUMN compact INT", "ALTER TABLE lake.shop.t ADD COLUMN compact INT"),
        ("DESCRIBE DETAIL lake.shop.t", "CALL `lake`.sys.describe_as_delta(table => 'shop.t')"),
        ("desc detail extended lake.shop.t", "CALL `lake`.sys.describe_detail(table => 'shop.t')"),
        ("DESCRIBE HISTORY lake.shop.t", "CALL `lake`.sys.describe_history(table => 'shop.t')"),
        ("DESCRIBE HISTORY delta.`/tmp/x`", "DESCRIBE HISTORY delta.`/tmp/x`"),
        ("DESCRIBE EXTENDED lake.shop.t", "DESCRIBE EXTENDED lake.shop.t"),
        ("/* a */ DESCRIBE DETAIL lake.shop.t", "CALL `lake`.sys.describe_as_delta(table => 'shop.t')"),
        (
            "CREATE TABLE lake.shop.t (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ('bucket' = '4')",
            "CREATE TABLE lake.shop.t (a INT, PRIMARY KEY (a) NOT ENFORCED) TBLPROPERTIES ('bucket' = '4')",
        ),
        (
            "CREATE TABLE IF NOT EXISTS lake.shop.t WITH ('bucket' = '4') AS WITH x AS (SELECT 1) TABLE x",
            "CREATE TABLE IF NOT EXISTS lake.shop.t TBLPROPERTIES ('bucket' = '4') AS WITH x AS (SELECT 1) TABLE x",
        ),
        (
            "CREATE TABLE lake.shop.t AS WITH (SELECT 1) SELECT 2",
            "CREATE TABLE lake.shop.t AS WITH (SELECT 1) SELECT 2",
        ),
        ("CREATE TABLE other.t (a INT) WITH ('b' = 'c')", "CREATE TABLE other.t (a INT) WITH ('b' = 'c')"),
        (
            "CREATE TABLE lake.s.t (a INT, at TIMESTAMP METADATA FROM 'timestamp') COMMENT 'x' WITH ('b' = 'c')",
            "CREATE TABLE lake.s.t  COMMENT 'x' TBLPROPERTIES "
            "('tablestore.columns' = 'a INT, at TIMESTAMP METADATA FROM \\'timestamp\\'', 'b' = 'c')",
        ),
        (
            "CREATE TABLE lake.s.t (o BIGINT METADATA VIRTUAL, a STRUCT<metadata: INT>)",
            "CREATE TABLE lake.s.t  TBLPROPERTIES "
            "('tablestore.columns' = 'o BIGINT METADATA VIRTUAL, a STRUCT<metadata: INT>')",
        ),
        (
            "CREATE TABLE lake.s.t (metadata INT COMMENT 'METADATA')",
            "CREATE TABLE lake.s.t (metadata INT COMMENT 'METADATA')",
        ),
        (
            "CREATE TABLE lake.s.t (a INT, WATERMARK FOR at AS at - INTERVAL '5' SECOND, at TIMESTAMP) "
            "USING delta COMMENT 'x'",
            "CREATE TABLE lake.s.t (a INT, at TIMESTAMP) USING delta TBLPROPERTIES "
            "('watermark.column' = 'at', 'watermark.delay' = '5 s') COMMENT 'x'",
        ),
        (
            "CREATE TABLE lake.s.t (`at` TIMESTAMP, watermark for `at` as at) PARTITIONED BY (d) WITH ('a' = 'b')",
            "CREATE TABLE lake.s.t (`at` TIMESTAMP) PARTITIONED BY (d) "
            "TBLPROPERTIES ('watermark.column' = 'at', 'a' = 'b')",
        ),
        (
            "CREATE TABLE lake.s.t (WATERMARK FOR at AS at - interval 1.5 minutes, "
            "at TIMESTAMP METADATA FROM 'timestamp')",
            "CREATE TABLE lake.s.t  TBLPROPERTIES ('watermark.column' = 'at', 'watermark.delay' = '90 s', "
            "'tablestore.columns' = 'at TIMESTAMP METADATA FROM \\'timestamp\\'')",
        ),
        (
            "CREATE TABLE lake.s.t (watermark INT, `for` INT, s STRUCT<watermark: INT, at: INT>)",
            "CREATE TABLE lake.s.t (watermark INT, `for` INT, s STRUCT<watermark: INT, at: INT>)",
        ),
        (
            "INSERT INTO lake.s.t WITH ('checkpoint' = '/c''p', 'trigger' = '1 s') SELECT * FROM STREAM lake.a.b$tags;",
            "CALL `lake`.sys.start_stream(table => 's.t', query => 'SELECT * FROM STREAM lake.a.`b$tags`', "
            "checkpoint => '/c\\'p', trigger => '1 s')",
        ),
        (
            "INSERT INTO lake.s.t WITH ('checkpoint' = '/a)b', 'trigger' = '1 s') SELECT 1",
            "CALL `lake`.sys.start_stream(table => 's.t', query => 'SELECT 1', checkpoint => '/a)b', trigger => '1 s')",
        ),
        (
            "CREATE TABLE lake.s.t (a INT COMMENT '(', b DECIMAL(3, 1), WATERMARK FOR at AS at, at TIMESTAMP)",
            "CREATE TABLE lake.s.t (a INT COMMENT '(', b DECIMAL(3, 1), at TIMESTAMP) "
            "TBLPROPERTIES ('watermark.column' = 'at')",
        ),
        ("INSERT INTO lake.s.t WITH ('a' = 'b') SELECT 1", "INSERT INTO lake.s.t WITH ('a' = 'b') SELECT 1"),
        (
            "INSERT INTO TABLE lake.s.t (a, `b c`) WITH ('checkpoint' = 'c') SELECT 1, 2 FROM STREAM o",
            "CALL `lake`.sys.start_stream(table => 's.t', query => 'SELECT 1, 2 FROM STREAM o', checkpoint => 'c', "
            """columns => '["a", "b c"]')""",
        ),
        (
            "INSERT INTO lake.s.t BY NAME WITH ('checkpoint' = 'c') SELECT 1",
            "CALL `lake`.sys.start_stream(table => 's.t', query => 'SELECT 1', checkpoint => 'c')",
        ),
        (
            "INSERT INTO lake.s.t WITH ('checkpoint' = 'c')",
            "CALL `lake`.sys.start_stream(table => 's.t', query => '', checkpoint => 'c')",
        ),
        (
            "INSERT INTO lake.s.t PARTITION (p = 1) (a, b) WITH ('a' = 'b') VALUES (1, 2);",
            "INSERT INTO lake.s.t WITH ('a' = 'b') PARTITION (p = 1) (a, b) VALUES (1, 2);",
        ),
        (
            "INSERT OVERWRITE lake.s.t BY NAME WITH ('a' = 'b') SELECT 1",
            "INSERT OVERWRITE lake.s.t WITH ('a' = 'b') BY NAME SELECT 1",
        ),
        ("INSERT INTO lake.s.t (SELECT a FROM b)", "INSERT INTO lake.s.t (SELECT a FROM b)"),
        ("INSERT INTO lake.s.t BY", "INSERT INTO lake.s.t BY"),
        (
            "INSERT INTO lake.s.t /*+ OPTIONS('checkpoint' = 'c') */ SELECT 1",
            "CALL `lake`.sys.start_stream(table => 's.t', query => 'SELECT 1', checkpoint => 'c')",
        ),
        (
            "SELECT '/*+ OPTIONS(1) */' /* a */ FROM lake.s.t /*+ options ( 'a' = '*' ) */ AS x -- /*+ OPTIONS(1) */",
            "SELECT '/*+ OPTIONS(1) */' /* a */ FROM lake.s.t WITH ( 'a' = '*' ) AS x -- /*+ OPTIONS(1) */",
        ),
        ("SELECT * FROM o.s.t /*+ OPTIONS('a' = 'b') */", "SELECT * FROM o.s.t /*+ OPTIONS('a' = 'b') */"),
        (
            "EXPLAIN\nextended\n ALTER TABLE lake.s.t COMPACT;",
            "EXPLAIN\nextended\n CALL `lake`.sys.compact(table => 's.t', full => true)",
        ),
        (
            "EXPLAIN CREATE TABLE lake.s.t (a INT) WITH ('bucket' = '4')",
            "EXPLAIN CREATE TABLE lake.s.t (a INT) TBLPROPERTIES ('bucket' = '4')",
        ),
        ("EXPLAIN SELECT * FROM lake.s.t$files", "EXPLAIN SELECT * FROM lake.s.`t$files`"),
        (
            "BEGIN ALTER TABLE lake.s.t COMPACT; IF x THEN DESCRIBE DETAIL lake.s.t; END IF; TABLE lake.s.t$tags; "
            "EXPLAIN SELECT 1 FROM lake.s.t$tags; CREATE TABLE lake.s.u (a INT) WITH ('bucket' = '4'); END",
            "BEGIN CALL `lake`.sys.compact(table => 's.t', full => true); IF x THEN CALL `lake`.sys.describe_as_delta("
            "table => 's.t'); END IF; TABLE lake.s.`t$tags`; EXPLAIN SELECT 1 FROM lake.s.`t$tags`; "
            "CREATE TABLE lake.s.u (a INT) TBLPROPERTIES ('bucket' = '4'); END",
        ),
        (
            "EXPLAIN /* c */ COST ALTER TABLE lake.s.t COMPACT",
            "EXPLAIN /* c */ COST CALL `lake`.sys.compact(table => 's.t', full => true)",
        ),
        (
            "EXPLAIN EXTENDED REFRESH MATERIALIZED VIEW lake.s.v;",
            "CALL `lake`.sys.explain_materialized_view(table => 's.v')",
        ),
        (
            "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION ALTER TABLE lake.s.t COMPACT; SELECT ';'; -- it's\n END",
            "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION CALL `lake`.sys.compact(table => 's.t', full => true); "
            "SELECT ';'; -- it's\n END",
        ),
        (
            "BEGIN CREATE MATERIALIZED VIEW lake.s.v AS SELECT 1 FROM lake.s.o JOIN lake.s.d FOR SYSTEM_TIME AS OF "
            "o.at; SELECT 1 FROM lake.s.o JOIN lake.s.d FOR SYSTEM_TIME AS OF o.at; END",
            "BEGIN CALL `lake`.sys.create_materialized_view(table => 's.v', query => 'SELECT 1 FROM lake.s.o JOIN "
            "lake.s.d FOR SYSTEM_TIME AS OF o.at'); "
            "SELECT 1 FROM lake.s.o JOIN lake.s.d WITH ('system_time' = 'o.at'); END",
        ),
        (
            "BEGIN SELECT 1 FROM STREAM o; SELECT 1 FROM o JOIN lake.s.d FOR SYSTEM_TIME AS OF now(); END",
            "BEGIN SELECT 1 FROM STREAM o; SELECT 1 FROM o JOIN lake.s.d FOR SYSTEM_TIME AS OF now(); END",
        ),
        ("SELECT /*+ OPTIONS('a') */ * FROM o.s.t", "SELECT /*+ OPTIONS('a') */ * FROM o.s.t"),
        (
            "SELECT * FROM lake.s.t /*+ OPTIONS('a') x */ AS t /* (b) */",
            "SELECT * FROM lake.s.t /*+ OPTIONS('a') x */ AS t /* (b) */",
        ),
        (
            "INSERT INTO lake.s.t (`from`) WITH (checkpoint = 'c', 'name' ',', trigger = '=') SELECT 1",
            "CALL `lake`.sys.start_stream(table => 's.t', query => 'SELECT 1', checkpoint => 'c', name => ',', "
            """trigger => '=', columns => '["from"]')""",
        ),
        (
            "CREATE MATERIALIZED VIEW lake.s.v TBLPROPERTIES (log.system = none, 'a' = -1) AS SELECT 1",
            "CALL `lake`.sys.create_materialized_view(table => 's.v', query => 'SELECT 1', "
            """options => '{"log.system": "none", "a": "-1"}')""",
        ),
        ("BEGIN SELECT CASE WHEN a THEN b ELSE c END; END", "BEGIN SELECT CASE WHEN a THEN b ELSE c END; END"),
        (
            "INSERT INTO o.s.t WITH ('checkpoint' = 'b') SELECT 1",
            "INSERT INTO o.s.t WITH ('checkpoint' = 'b') SELECT 1",
        ),
        ("INSERT INTO lake.s.t WITH x AS (SELECT 1) TABLE x", "INSERT INTO lake.s.t WITH x AS (SELECT 1) TABLE x"),
        ("SELECT 'never closed", "SELECT 'never closed"),
        ("CREATE TABLE lake.s.t (WATERMARK", "CREATE TABLE lake.s.t (WATERMARK"),
        ("CREATE TABLE lake.s.t (a INT, WATERMARK FOR at", "CREATE TABLE lake.s.t (a INT, WATERMARK FOR at"),
        ("", ""),
    ],
)
def test_in_another_catalog(statement: str, expected: str) -> None:
    assert rewritten(statement, ELSEWHERE) == expected


def test_in_a_database_of_ours() -> None:
    assert rewritten("ALTER TABLE t COMPACT", HERE) == "CALL `lake`.sys.compact(table => 'shop.t', full => true)"
    assert rewritten("ALTER TABLE more.t COMPACT", HERE) == "CALL `lake`.sys.compact(table => 'more.t', full => true)"
    assert rewritten("DESCRIBE DETAIL t", HERE) == "CALL `lake`.sys.describe_as_delta(table => 'shop.t')"
    assert rewritten("SELECT * FROM t$files", HERE) == "SELECT * FROM `t$files`"


@pytest.mark.parametrize("rest", ["PARTITION (p > 1)", "PARTITION (p)", "PARTITION p = 1", "AS JSON"])
def test_a_description_of_anything_else_is_refused(rest: str) -> None:
    with pytest.raises(Unsupported, match="a PARTITION"):
        rewritten(f"DESCRIBE DETAIL lake.a.t {rest}", HERE)
    with pytest.raises(Unsupported, match="takes a table and a LIMIT, and nothing else"):
        rewritten("DESCRIBE HISTORY lake.a.t PARTITION (p = 1)", HERE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("", " ORDER BY a LIMIT 1"),
        ("EXPLAIN ", ""),
        ("INSERT INTO x ", ""),
        ("INSERT OVERWRITE TABLE x ", ""),
        ("SELECT 1 UNION ALL ", " UNION SELECT 2"),
        ("SELECT * FROM (", ")"),
        ("BEGIN ", "; END"),
    ],
)
def test_a_table_as_a_query_has_options(before: str, after: str) -> None:
    found = rewritten(f"{before}TABLE t /*+ OPTIONS('fresh' = 'true') */{after}", HERE)
    assert found == f"{before}SELECT * FROM t WITH ('fresh' = 'true'){after}"


def test_full_names_may_stand_behind_use_in_a_script() -> None:
    script = "BEGIN SELECT 1 FROM a /*+ OPTIONS('fresh' = 'true') */; USE lake.o; ALTER TABLE lake.s.t COMPACT; END"
    assert rewritten(script, HERE) == (
        "BEGIN SELECT 1 FROM a WITH ('fresh' = 'true'); USE lake.o; CALL `lake`.sys.compact(table => 's.t', "
        "full => true); END"
    )


def test_a_materialized_view_in_a_database_of_ours() -> None:
    begin = "CALL `lake`.sys.create_materialized_view(table => 'shop.v', query => "
    assert rewritten("CREATE MATERIALIZED VIEW v AS SELECT 1", HERE) == f"{begin}'SELECT 1', database => 'shop')"
    assert rewritten("REFRESH MATERIALIZED VIEW v", HERE) == "CALL `lake`.sys.refresh(table => 'shop.v')"


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("CREATE OR REPLACE MATERIALIZED VIEW lake.s.v AS SELECT 1", "cannot be replaced"),
        ("CREATE MATERIALIZED VIEW lake.s.v (a, b) AS SELECT 1", "names no columns"),
        ("CREATE MATERIALIZED VIEW lake.s.v PRIMARY KEY AS SELECT 1", "no clause 'PRIMARY KEY'"),
        ("CREATE MATERIALIZED VIEW lake.s.v PRIMARY KEY (a b) AS SELECT 1", "takes names of columns"),
        ("EXPLAIN CREATE MATERIALIZED VIEW lake.s.v (a, b) AS SELECT 1", "names no columns"),
        ("CREATE MATERIALIZED VIEW lake.s.v PARTITIONED BY (a) AS SELECT 1", "no clause 'PARTITIONED BY'"),
        ("CREATE MATERIALIZED VIEW lake.s.v", "lacks AS and a query"),
        ("CREATE MATERIALIZED VIEW lake.s.v AS", "lacks AS and a query"),
        ("CREATE MATERIALIZED VIEW lake.s.v COMMENT 'a' 'b' AS SELECT 1", "takes one text"),
        ("REFRESH MATERIALIZED VIEW lake.s.v ASYNC", "takes a name and perhaps FULL, not 'ASYNC'"),
        ("REFRESH MATERIALIZED VIEW lake.s.v FULL ASYNC", "not 'ASYNC'"),
        ("EXPLAIN REFRESH MATERIALIZED VIEW lake.s.v FULL", "takes a name and nothing else"),
        ("DROP MATERIALIZED VIEW lake.s.v CASCADE", "takes a name and nothing else"),
    ],
)
def test_a_clause_of_a_materialized_view_is_done_or_refused(statement: str, sentence: str) -> None:
    with pytest.raises((InvalidRequest, Unsupported), match=sentence):
        rewritten(statement, ELSEWHERE)


@pytest.mark.parametrize(
    ("statement", "code", "sentence"),
    [
        ("INSERT INTO lake.s.t WITH ('trigger' = '1 s') SELECT 1", "no-checkpoint", "write INSERT INTO s.t WITH"),
        ("INSERT INTO lake.s.t WITH ('checkpoint' = 'c', 'trig' = '1') SELECT 1", "unknown-option", "no option trig"),
        ("INSERT INTO lake.s.t WITH ('checkpoint' = 'c', 'trigger') SELECT 1", "bad-options", "trigger is no option"),
        ("INSERT INTO t WITH ('name' = 'a', 'name' = 'b') SELECT 1", "bad-options", "name is given twice"),
        ("BEGIN USE lake.o; ALTER TABLE t COMPACT; END", "script-use", "ALTER TABLE t COMPACT is behind a USE"),
        (
            "BEGIN IF a THEN SET CATALOG o; END IF; SELECT * FROM table_changes('t', 1); END",
            "script-use",
            "write them with catalog and database",
        ),
        (
            "INSERT INTO lake.s.t WITH ('checkpoint' = ?) SELECT 1",
            "bad-options",
            "a parameter here, .* write the value",
        ),
        ("INSERT INTO lake.s.t WITH ('checkpoint' = :c) SELECT 1", "bad-options", "a parameter here"),
        ("INSERT OVERWRITE lake.s.t WITH ('checkpoint' = 'c') SELECT 1", "output-mode", "starts no stream"),
        ("INSERT INTO lake.s.t PARTITION (a = 1) WITH ('checkpoint' = 'c') SELECT 1", "stream-partition", "PARTITION"),
        ("SELECT /*+ OPTIONS('a' = 'b') */ * FROM lake.s.t", "options-hint", "not behind SELECT"),
        ("SELECT * FROM shop.t AS x /*+ OPTIONS('a' = 'b') */", "options-hint", "not behind x"),
        ("DELETE FROM t /*+ OPTIONS('a' = 'b') */ WHERE a = 1", "options-hint", "not behind DELETE FROM t"),
        ("MERGE INTO lake.s.t /*+ OPTIONS('a' = 'b') */ USING s ON a = b", "options-hint", "not behind MERGE INTO t"),
        ("MERGE WITH SCHEMA EVOLUTION INTO t /*+ OPTIONS('a') */ USING s", "options-hint", "not behind MERGE INTO t"),
        ("UPDATE t /*+ OPTIONS('a' = 'b') */ SET a = 1", "options-hint", "of a table that a query reads"),
        ("ALTER TABLE t /*+ OPTIONS('a' = 'b') */ ADD COLUMN b INT", "options-hint", "not behind ALTER TABLE t"),
        ("SELECT * FROM f(TABLE t /*+ OPTIONS('a' = 'b') */)", "options-hint", "not behind TABLE t"),
    ],
)
def test_options_of_a_statement_are_used_or_refused(statement: str, code: str, sentence: str) -> None:
    with pytest.raises((InvalidRequest, Unsupported), match=sentence) as raised:
        rewritten(statement, HERE)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("text", "current", "table"),
    [
        ("shop.t", ("lake", "x"), "shop.t"),
        ("lake.shop.t", ("other", "x"), "shop.t"),
        ("`lake`.`shop`.`t`", ("other", "x"), "shop.t"),
        ("t", ("lake", "shop"), "shop.t"),
        ("t", ("other", "shop"), "t"),
        ("t", ("lake", ""), "t"),
    ],
)
def test_the_table_of_a_procedure_is_in_the_current_database(text: str, current: tuple[str, str], table: str) -> None:
    assert argument_table(text, "lake", current) == table


def test_the_table_of_a_procedure_is_not_in_another_catalog() -> None:
    with pytest.raises(InvalidRequest, match=r"'other.shop.t' is of the catalog other") as raised:
        argument_table("other.shop.t", "lake", ("lake", "shop"))
    assert raised.value.code == "other-catalog"


WORDS = [*"`'\"\\.()-/*; \n", "CREATE", "TABLE", "ALTER", "a", "WITH", "AS", "COMPACT", "DETAIL"]


@given(st.sampled_from(["SELECT", "SHOW", "MERGE", "EXPLAIN"]), st.lists(st.sampled_from(WORDS), max_size=12))
def test_what_it_does_not_know_stays(verb: str, parts: list[str]) -> None:
    statement = f"{verb} {' '.join(parts)}"
    assert rewritten(statement, ELSEWHERE) == statement


@pytest.mark.parametrize("bounds", ["2, '2026-01-01'", "2 + 1", "-1", ":a", "?, 2", "now()"])
def test_the_bounds_of_changes_are_literals_of_one_kind(bounds: str) -> None:
    with pytest.raises(Unsupported, match="two versions or two times"):
        rewritten(f"SELECT * FROM table_changes('lake.shop.t', {bounds})", ELSEWHERE)


@pytest.mark.parametrize(
    ("columns", "code", "sentence"),
    [
        ("at TIMESTAMP, WATERMARK FOR at AS ago", "bad-watermark", "WATERMARK FOR at AS ago"),
        ("at TIMESTAMP, WATERMARK FOR at AS at + INTERVAL '5' SECOND", "bad-watermark", "at + INTERVAL '5' SECOND"),
        ("at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' MONTH", "bad-watermark", "'5' MONTH"),
        ("at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 'five' DAY", "bad-watermark", "'five' DAY"),
        ("at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '-5' DAY", "bad-watermark", "'-5' DAY"),
        ("at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '0.0001' SECOND", "bad-watermark", "'0.0001' SECOND"),
        ("at TIMESTAMP, WATERMARK FOR s.at AS s.at", "bad-watermark", "s.at"),
        ("WATERMARK FOR a AS a, WATERMARK FOR b AS b, a TIMESTAMP", "bad-watermark", "one WATERMARK"),
        ("a INT, cost AS a * 2", "computed-column", "column cost"),
        ("cost AS (a * 2), a INT", "computed-column", "view"),
    ],
)
def test_what_cannot_be_a_column_is_refused(columns: str, code: str, sentence: str) -> None:
    with pytest.raises((InvalidRequest, Unsupported)) as raised:
        rewritten(f"CREATE TABLE lake.s.t ({columns})", HERE)
    assert raised.value.code == code
    assert sentence in raised.value.message


TIMES = (
    "o.ts", "ts", "`t s`", "lake.s.o.ts", "timestamp", "o.date", "CAST(o.ts AS TIMESTAMP)", "(o.ts - INTERVAL 1 DAY)",
    "date_trunc('DAY', o.ts)", "o.`select`", "o.s.ts",
)  # fmt: skip


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("clause", ["FOR SYSTEM_TIME AS OF", "for system_time as of", "SYSTEM_TIME AS OF"])
@pytest.mark.parametrize(("names", "dimension"), [(ELSEWHERE, "lake.shop.d"), (HERE, "shop.d"), (HERE, "`d`")])
def test_a_time_that_names_a_column_is_an_option_of_its_table(
    names: Names, dimension: str, clause: str, time: str
) -> None:
    statement = f"SELECT * FROM o LEFT JOIN {dimension} {clause} {time} AS d ON o.k = d.id"
    option = time.replace("'", r"\'")
    wanted = f"SELECT * FROM o LEFT JOIN {dimension} WITH ('system_time' = '{option}') AS d ON o.k = d.id"
    assert rewritten(statement, names) == wanted
    assert rewritten(f"EXPLAIN EXTENDED {statement}", names) == f"EXPLAIN EXTENDED {wanted}"
    assert rewritten(f"CREATE TABLE lake.s.t {statement}", names) == f"CREATE TABLE lake.s.t {wanted}"
    assert rewritten(statement.replace(" AS d", " d"), names) == wanted.replace(" AS d", " d")
    assert rewritten(statement.replace(" AS d", ""), names) == wanted.replace(" AS d", "")


def test_several_tables_and_their_options() -> None:
    statement = (
        "SELECT * FROM (s JOIN shop.a FOR SYSTEM_TIME AS OF s.ts USING (id)) JOIN b FOR SYSTEM_TIME AS OF s.ts "
        "WITH ('expired' = 'oldest') ON b.id = s.k JOIN other.x.y FOR SYSTEM_TIME AS OF s.ts"
    )
    assert rewritten(statement, HERE) == (
        "SELECT * FROM (s JOIN shop.a WITH ('system_time' = 's.ts') USING (id)) JOIN b WITH ('system_time' = 's.ts', "
        "'expired' = 'oldest') ON b.id = s.k JOIN other.x.y FOR SYSTEM_TIME AS OF s.ts"
    )


NOW = "FOR SYSTEM_TIME AS OF current_timestamp()"


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("STREAM lake.s.o o", True),
        ("STREAM default.o AS o", True),
        ("stream(lake.s.o) o", True),
        ("(SELECT * FROM STREAM o) o", True),
        ("stream", False),
        ("`stream` s", False),
        ("stream LEFT", False),
        ("(SELECT id, stream s FROM x)", False),
    ],
)
def test_the_time_of_a_query_of_a_stream_is_that_of_each_micro_batch(source: str, reads: bool) -> None:
    query = f"SELECT * FROM {source} JOIN lake.s.d {{}} AS d ON true"
    option = "WITH ('system_time' = 'current_timestamp()')"
    assert rewritten(query.format(NOW), ELSEWHERE) == query.format(option if reads else NOW)


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT * FROM STREAM o WHERE k IN (SELECT id FROM lake.s.d {NOW})",
        f"SELECT * FROM lake.s.d {NOW} AS d JOIN STREAM o ON d.id = o.k",
        f"SELECT * FROM STREAM o JOIN (SELECT id, count(*) FROM lake.s.d {NOW} GROUP BY id) d ON d.id = o.k",
        f"SELECT * FROM STREAM o LEFT SEMI JOIN lake.s.d {NOW} AS d ON d.id = o.k",
        f"SELECT * FROM STREAM o FULL OUTER JOIN lake.s.d {NOW} AS d ON d.id = o.k",
    ],
)
def test_other_times_of_a_query_of_a_stream_are_those_of_its_start(query: str) -> None:
    assert rewritten(query, ELSEWHERE) == query


def test_a_stream_may_have_times_of_its_rows() -> None:
    query = "SELECT o.id FROM STREAM lake.s.o o JOIN lake.s.d FOR SYSTEM_TIME AS OF o.ts d ON d.id = o.k"
    found = rewritten(f"INSERT INTO lake.shop.t WITH ('checkpoint' = 'c') {query}", ELSEWHERE)
    assert r"lake.s.d WITH (\'system_time\' = \'o.ts\') d ON d.id = o.k" in found
    assert found.startswith("CALL `lake`.sys.start_stream(table => 'shop.t', query => 'SELECT o.id FROM STREAM")


@pytest.mark.parametrize("time", ["(o.ts + :later)", "(o.ts + ?)", "date_add(o.ts, :days)"])
def test_a_time_with_a_parameter_is_refused(time: str) -> None:
    with pytest.raises(Unsupported, match="has a parameter in its time") as caught:
        rewritten(f"SELECT * FROM o JOIN lake.shop.d FOR SYSTEM_TIME AS OF {time} AS d ON o.k = d.id", ELSEWHERE)
    assert caught.value.code == "temporal-join"
    newest = f"SELECT * FROM lake.shop.d FOR SYSTEM_TIME AS OF {time.replace('o.ts', 'now()')}"
    assert rewritten(newest, ELSEWHERE) == newest


def test_a_parameter_as_the_time() -> None:
    joined = "SELECT * FROM {} o JOIN lake.shop.d FOR SYSTEM_TIME AS OF :t AS d ON o.k = d.id"
    assert rewritten(joined.format("x"), ELSEWHERE) == joined.format("x")
    with pytest.raises(Unsupported, match=":t has a parameter in its time"):
        rewritten(joined.format("STREAM x"), ELSEWHERE)


@pytest.mark.parametrize("time", ["o.ts + INTERVAL 1 DAY", "o.m['ts']", "o.ts::TIMESTAMP"])
def test_a_time_without_a_clear_end_is_refused(time: str) -> None:
    with pytest.raises(Unsupported, match="parentheses") as caught:
        rewritten(f"SELECT * FROM o JOIN lake.shop.d FOR SYSTEM_TIME AS OF {time} AS d ON o.k = d.id", ELSEWHERE)
    assert caught.value.code == "temporal-join"


@pytest.mark.parametrize(
    "query",
    [
        "D AS (SELECT 1)",
        "x AS (SELECT 1), d (a, b) AS (SELECT 1, 2)",
        "d (SELECT 1)",
        "x (SELECT 1), `d` (a) (SELECT 1)",
        "RECURSIVE d AS (SELECT 1)",
        "RECURSIVE d (a) MAX RECURSION LEVEL 5 AS (SELECT 1)",
        "recursive AS (SELECT 1), d AS (SELECT 1)",
    ],
)
def test_a_query_of_with_has_no_versions(query: str) -> None:
    joined = "SELECT * FROM o JOIN {} FOR SYSTEM_TIME AS OF o.ts AS e ON o.k = e.id"
    with pytest.raises(Unsupported, match="d is a query of WITH here") as caught:
        rewritten(f"WITH {query} {joined.format('d')}", HERE)
    assert caught.value.code == "temporal-join"
    assert "'system_time'" in rewritten(f"WITH {query} {joined.format('shop.d')}", HERE), "that is no name of WITH"


def test_other_parts_of_a_statement_may_have_the_name_of_the_table() -> None:
    joined = "SELECT sum(k) OVER d FROM o JOIN d FOR SYSTEM_TIME AS OF o.ts AS e ON o.k = e.id WINDOW d AS (ORDER BY k)"
    assert "'system_time'" in rewritten(joined, HERE)


@pytest.mark.parametrize("column", ["materialized", "o.materialized", "materialized view"])
def test_a_column_may_be_called_materialized(column: str) -> None:
    statement = f"SELECT {column} FROM o JOIN d FOR SYSTEM_TIME AS OF o.ts AS e ON o.k = e.id"
    assert "'system_time'" in rewritten(statement, HERE)


@pytest.mark.parametrize("begin", ["", "EXPLAIN ", "EXPLAIN EXTENDED "])
@pytest.mark.parametrize("end", [";", " ; ;", " -- end"])
def test_a_temporal_join_may_end_with_a_semicolon(begin: str, end: str) -> None:
    statement = f"{begin}SELECT * FROM o JOIN d {{}} AS e ON o.k = e.id{end}"
    found = rewritten(statement.format("FOR SYSTEM_TIME AS OF o.ts"), HERE)
    assert found == statement.format("WITH ('system_time' = 'o.ts')")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO lake.shop.d FOR SYSTEM_TIME AS OF o.ts SELECT 1",
        "SELECT * FROM STREAM lake.shop.d FOR SYSTEM_TIME AS OF ts",
        "MERGE INTO t USING lake.shop.d FOR SYSTEM_TIME AS OF t.ts ON t.id = d.id WHEN MATCHED THEN DELETE",
    ],
)
def test_where_no_query_reads_a_table_the_clause_stays(statement: str) -> None:
    assert rewritten(statement, ELSEWHERE) == statement


@pytest.mark.parametrize("begin", ["", "EXPLAIN "])
def test_the_query_of_a_materialized_view_stays(begin: str) -> None:
    statement = f"{begin}CREATE MATERIALIZED VIEW lake.s.v AS SELECT o.k FROM o JOIN d FOR SYSTEM_TIME AS OF o.ts"
    assert "SYSTEM_TIME AS OF o.ts" in rewritten(statement, HERE)


@pytest.mark.parametrize(
    "time",
    [
        "current_timestamp()", "now()", "localtimestamp", "TIMESTAMP '2026-01-31'",
        "'2026-01-31'", "(now())", "date_sub(now(), 1)",
        "timestampadd(HOUR, -1, now())", "CAST('2026-01-31' AS TIMESTAMP)", "(SELECT max(ts) FROM lake.s.o)",
    ],
)  # fmt: skip
def test_one_time_for_the_statement_is_left_to_spark(time: str) -> None:
    statement = f"SELECT * FROM o JOIN lake.shop.d FOR SYSTEM_TIME AS OF {time} AS d ON o.k = d.id"
    assert rewritten(statement, ELSEWHERE) == statement
    stream = rewritten(f"INSERT INTO lake.shop.t WITH ('checkpoint' = 'c') {statement}", ELSEWHERE)
    assert literal(f"lake.shop.d WITH ('system_time' = {literal(time)}) AS d ON").strip("'") in stream


@pytest.mark.parametrize("end", ["", " )", " 'x", " (o.ts"])
def test_a_clause_that_does_not_end_is_left_to_spark(end: str) -> None:
    statement = f"SELECT * FROM o JOIN lake.shop.d FOR SYSTEM_TIME AS OF{end}"
    assert rewritten(statement, ELSEWHERE) == statement


@pytest.mark.parametrize("table", ["other.shop.d", "shop.d", "d"])
def test_times_of_tables_of_others_are_left_to_spark(table: str) -> None:
    statement = f"SELECT system_time AS of FROM o JOIN {table} FOR SYSTEM_TIME AS OF o.ts AS d ON o.k = d.id"
    assert rewritten(statement, ELSEWHERE) == statement


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE lake.s.t (x INT) USING parquet",
        "CREATE OR REPLACE TABLE lake.s.t USING ORC AS SELECT 1 AS x",
        "CREATE TABLE IF NOT EXISTS lake.s.t LIKE lake.s.o USING parquet",
    ],
)
def test_another_format_is_refused(statement: str) -> None:
    with pytest.raises(Unsupported, match=r"leave USING (parquet|ORC) out"):
        rewritten(statement, ELSEWHERE)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE lake.s.t (x INT) USING Delta",
        "CREATE TABLE other.s.t (x INT) USING parquet",
        "CREATE TABLE lake.s.t AS SELECT * FROM a JOIN b USING (id)",
    ],
)
def test_using_is_no_other_format(statement: str) -> None:
    assert rewritten(statement, ELSEWHERE) == statement


class CountedTokens(list[Any]):
    """Tokens that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        CountedTokens.looks += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("begin", ["SELECT * FROM t WHERE a IN (", "SELECT * FROM (", "SELECT f("])
def test_a_list_of_names_with_a_sign_takes_time_by_its_length(begin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An IN of 8,000 names with ``$`` took 84 s, since each looked at all tokens before it."""
    tokenize = sqlglot.tokenize
    monkeypatch.setattr(suffixes.sqlglot, "tokenize", lambda *args, **named: CountedTokens(tokenize(*args, **named)))

    def looks(names: int) -> int:
        CountedTokens.looks = 0
        suffixes.system_tables(f"{begin}{', '.join(f'n{i}$files' for i in range(names))})", HERE)
        return CountedTokens.looks

    assert looks(400) < 5 * looks(100)
