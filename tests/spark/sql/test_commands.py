"""The list of known commands: what each becomes, that Java asks for each, and that those of others stay."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablestore.spark
from filestore.errors import Unsupported
from tablestore.spark.sql.commands import COMMANDS
from tablestore.spark.sql.dialect import rewritten
from tablestore.spark.sql.names import Names
from tablestore.spark.sql.procedures import PROCEDURES

NUMBER = "coalesce(CAST(CAST({} AS STRING) AS BIGINT), -1L)"
"""A number by a parameter."""

HERE = Names(frozenset({"lake"}), "lake", "shop")
ELSEWHERE = Names(frozenset({"lake"}), "spark_catalog", "default")

UTC = (
    "coalesce(CAST(TIMESTAMP_NTZ '1970-01-01 00:00:00' + unix_micros(CAST('2026-01-31' AS TIMESTAMP_LTZ)) * "
    "INTERVAL '0.000001' SECOND AS STRING), 'CAST(\\'2026-01-31\\' AS TIMESTAMP_LTZ)')"
)


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("OPTIMIZE t", "compact(table => 'shop.t', full => true)"),
        ("optimize lake.shop.t full;", "compact(table => 'shop.t', full => true)"),
        (
            "OPTIMIZE t WHERE day = DATE'2026-01-31' AND r IS NULL AND n = -1",
            """compact(table => 'shop.t', partition => '{"day": "2026-01-31", "r": null, "n": "-1"}', full => true)""",
        ),
        (
            "OPTIMIZE t WHERE r = 'full' FULL",
            """compact(table => 'shop.t', partition => '{"r": "full"}', full => true)""",
        ),
        ("OPTIMIZE t WHERE r = 'Apply'", """compact(table => 'shop.t', partition => '{"r": "Apply"}', full => true)"""),
        (
            "OPTIMIZE t WHERE `apply` = 1 AND full = '-' FULL",
            """compact(table => 'shop.t', partition => '{"apply": "1", "full": "-"}', full => true)""",
        ),
        (
            "REORG TABLE t WHERE r = 'zorder' AND zorder = 'date' APPLY (PURGE)",
            """compact(table => 'shop.t', partition => '{"r": "zorder", "zorder": "date"}', full => true)""",
        ),
        (
            "OPTIMIZE t WHERE r IS NULL AND full IS NULL FULL",
            """compact(table => 'shop.t', partition => '{"r": null, "full": null}', full => true)""",
        ),
        (
            "OPTIMIZE t WHERE day = :full AND r = 'eu' FULL",
            "compact(table => 'shop.t', partition => coalesce(concat('{', '\"day\": ', concat('\"', replace(replace("
            "CAST(:full AS STRING), '\\\\', '\\\\\\\\'), '\"', '\\\\\"'), '\"'), ', ', '\"r\": ', "
            "'\"eu\"', '}'), 'no row is equal to NULL: write IS NULL'), full => true)",
        ),
        ("OPTIMIZE identifier", "compact(table => 'shop.identifier', full => true)"),
        ("RESTORE table TO VERSION AS OF 3", "rollback(table => 'shop.table', version => 3)"),
        ("RESTORE `table` TO VERSION AS OF 3", "rollback(table => 'shop.table', version => 3)"),
        ("RESTORE TABLE table TO VERSION AS OF 3", "rollback(table => 'shop.table', version => 3)"),
        ("VACUUM `dry` DRY RUN", "vacuum(table => 'shop.dry', dry_run => true)"),
        ("REORG TABLE t APPLY (PURGE)", "compact(table => 'shop.t', full => true)"),
        (
            "REORG TABLE t WHERE a = 1 APPLY (PURGE)",
            """compact(table => 'shop.t', partition => '{"a": "1"}', full => true)""",
        ),
        ("VACUUM t", "vacuum(table => 'shop.t')"),
        ("VACUUM t RETAIN 168 HOURS", "vacuum(table => 'shop.t', retain_hours => 168)"),
        ("VACUUM t RETAIN 0 HOURS DRY RUN", "vacuum(table => 'shop.t', retain_hours => 0, dry_run => true)"),
        ("VACUUM t DRY RUN", "vacuum(table => 'shop.t', dry_run => true)"),
        ("RESTORE TABLE t TO VERSION AS OF 3", "rollback(table => 'shop.t', version => 3)"),
        ("RESTORE t TO VERSION AS OF 'it''s'", "rollback(table => 'shop.t', tag => 'it\\'s')"),
        ("RESTORE TABLE t TO TIMESTAMP AS OF '2026-01-31'", f"rollback(table => 'shop.t', timestamp => {UTC})"),
        ("RESTORE t TO VERSION AS OF :v", "rollback(table => 'shop.t', tag => coalesce(CAST(:v AS STRING), ''))"),
        ("RESTORE t TO VERSION AS OF ?", "rollback(table => 'shop.t', tag => coalesce(CAST(? AS STRING), ''))"),
        (
            "RESTORE t TO TIMESTAMP AS OF :v",
            f"rollback(table => 'shop.t', timestamp => {UTC})".replace("\\'2026-01-31\\'", ":v").replace(
                "'2026-01-31'", ":v"
            ),
        ),
        (
            "VACUUM t RETAIN :h HOURS DRY RUN",
            f"vacuum(table => 'shop.t', retain_hours => {NUMBER.format(':h')}, dry_run => true)",
        ),
        (
            "DESCRIBE HISTORY t LIMIT ?",
            f"describe_history(table => 'shop.t', limit => {NUMBER.format('?')})",
        ),
        ("DESCRIBE HISTORY t LIMIT 5", "describe_history(table => 'shop.t', limit => 5)"),
        ("ANALYZE TABLE t COMPUTE STATISTICS NOSCAN", "analyze(table => 'shop.t')"),
        ("ANALYZE TABLE t PARTITION (a = 1) COMPUTE STATISTICS FOR COLUMNS a, b", "analyze(table => 'shop.t')"),
    ],
)
def test_a_command_is_a_call(statement: str, call: str) -> None:
    assert rewritten(statement, HERE) == f"CALL `lake`.sys.{call}"
    assert rewritten(f"EXPLAIN {statement}", HERE) == f"EXPLAIN CALL `lake`.sys.{call}"
    assert rewritten(f"BEGIN {statement.rstrip(';')}; SELECT 1; END", HERE) == (
        f"BEGIN CALL `lake`.sys.{call}; SELECT 1; END"
    )


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("OPTIMIZE t WHERE a > 1", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a = b", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a = 1 OR a = 2", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a = 1 AND a = 2", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a IS NOT NULL", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a IS 1", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a = :b + 1", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a = : 'b'", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a = 1 AND", "takes values of partition columns"),
        ("OPTIMIZE t WHERE 'a' = 1", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a '=' 1", "takes values of partition columns"),
        ("OPTIMIZE t WHERE a = `null`", "takes values of partition columns"),
        ("OPTIMIZE t 'FULL'", "takes values of partition columns"),
        ("OPTIMIZE t ZORDER BY (a, b)", "leave ZORDER BY out"),
        ("OPTIMIZE t WHERE a = 1 ZORDER BY a", "leave ZORDER BY out"),
        ("VACUUM t RETAIN 1.5 HOURS", "whole number of HOURS"),
        ("VACUUM t LITE", "whole number of HOURS"),
        ("RESTORE t TO 3", "TO VERSION AS OF a number or a tag"),
        ("REORG TABLE t APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))", "no UniForm"),
        ("CREATE TABLE c SHALLOW CLONE t", "shares no files"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS c CLONE t VERSION AS OF 1", "shares no files"),
        ("COPY INTO t FROM '/x' FILEFORMAT = CSV", "INSERT INTO shop.t SELECT"),
        ("LOAD DATA LOCAL INPATH 'x' OVERWRITE INTO TABLE t", "INSERT INTO shop.t SELECT"),
        ("GENERATE symlink_format_manifest FOR TABLE t", r"shop\.t\$files"),
        ("CONVERT TO DELTA t", "a Delta table already"),
        ("FSCK REPAIR TABLE t DRY RUN", "CALL lake.sys.doctor"),
        ("MSCK REPAIR TABLE t", "SHOW PARTITIONS"),
        ("ALTER TABLE t RECOVER PARTITIONS", "SHOW PARTITIONS"),
        ("ALTER TABLE t DROP FEATURE deletionVectors", "its options"),
        ("ANALYZE TABLES COMPUTE STATISTICS", "no statistics to compute"),
        ("UNDROP TABLE t", "cannot come back"),
    ],
)
def test_what_is_not_possible_says_what_to_do(statement: str, sentence: str) -> None:
    with pytest.raises(Unsupported, match=sentence):
        rewritten(statement, HERE)
    assert rewritten(statement, ELSEWHERE) == statement


@pytest.mark.parametrize(
    "statement",
    ["OPTIMIZE delta.`/a/b`", "VACUUM delta.`/a/b` DRY RUN", "CONVERT TO DELTA parquet.`/a/b`",
     "DESCRIBE HISTORY delta.`/a/b`", "RESTORE other.shop.t TO VERSION AS OF 1", "GENERATE x FOR TABLE other.s.t",
     "OPTIMIZE IDENTIFIER('lake.shop.t')", "MSCK REPAIR TABLE IDENTIFIER('spark_catalog.d.x')",
     "DESC HISTORY identifier (:t) LIMIT 1", "VACUUM '/a/b'", "OPTIMIZE '/a/b'", "DESCRIBE HISTORY (SELECT 1)",
     "TABLE t@v1"],
)  # fmt: skip
def test_commands_about_tables_of_others_stay(statement: str) -> None:
    assert rewritten(statement, HERE) == statement
    assert rewritten(statement, ELSEWHERE) == statement


AMONG_OTHERS = replace(HERE, others=frozenset({"spark_catalog", "other", "global_temp"}), views=frozenset({"seen"}))
"""A session with catalogs of others and a temporary view, whose current catalog is ours."""


@pytest.mark.parametrize(
    "statement",
    ["ANALYZE TABLES IN other COMPUTE STATISTICS", "ANALYZE TABLES IN SPARK_CATALOG COMPUTE STATISTICS",
     "ANALYZE TABLES IN global_temp COMPUTE STATISTICS",
     "VACUUM other.t", "ANALYZE TABLE other.t COMPUTE STATISTICS", "VACUUM lake.t",
     "SELECT * FROM other.t@v1", "SELECT * FROM other.t$files", "OPTIMIZE `spark_catalog`.t",
     "ANALYZE TABLE global_temp.v COMPUTE STATISTICS", "ANALYZE TABLE seen COMPUTE STATISTICS", "OPTIMIZE SEEN",
     "SELECT * FROM seen@v1", "VACUUM delta.`rel_folder`", "OPTIMIZE Delta.folder",
     "SELECT * FROM parquet.`folder`@v1", "SELECT * FROM table_changes('other.t', 1)",
     "CREATE TABLE other.t (a INT) WITH ('b' = 'c')", "ALTER TABLE other.t COMPACT"],
)  # fmt: skip
def test_names_of_other_catalogs_of_folders_and_of_temporary_views_stay(statement: str) -> None:
    assert rewritten(statement, AMONG_OTHERS) == statement


def test_a_temporary_view_hides_no_system_table_and_nothing_that_is_created() -> None:
    assert rewritten("SELECT * FROM seen$files", AMONG_OTHERS) == "SELECT * FROM `seen$files`"
    assert rewritten("CREATE TABLE seen (a INT) WITH ('b' = 'c')", AMONG_OTHERS).endswith("TBLPROPERTIES ('b' = 'c')")
    assert rewritten("REFRESH MATERIALIZED VIEW seen", AMONG_OTHERS) == "CALL `lake`.sys.refresh(table => 'shop.seen')"
    assert (
        rewritten("OPTIMIZE shop.seen", AMONG_OTHERS) == "CALL `lake`.sys.compact(table => 'shop.seen', full => true)"
    )


@pytest.mark.parametrize("use", ["USE spark_catalog.default", "SET CATALOG other"])
@pytest.mark.parametrize(
    "statement",
    ["ANALYZE TABLE x COMPUTE STATISTICS", "ANALYZE TABLES COMPUTE STATISTICS",
     "LOAD DATA INPATH 'x' INTO TABLE d.x", "MSCK REPAIR TABLE x",
     "ALTER TABLE d.x RECOVER PARTITIONS"],
)  # fmt: skip
def test_behind_a_use_of_a_script_what_spark_has_is_left_to_it(use: str, statement: str) -> None:
    script = f"BEGIN {use}; {statement}; END"
    assert rewritten(script, AMONG_OTHERS) == script
    ours = rewritten(f"BEGIN {use}; ANALYZE TABLE lake.s.t COMPUTE STATISTICS; END", AMONG_OTHERS)
    assert ours == f"BEGIN {use}; CALL `lake`.sys.analyze(table => 's.t'); END"
    with pytest.raises(Unsupported, match="is behind a USE") as caught:
        rewritten(f"BEGIN {use}; OPTIMIZE t; END", AMONG_OTHERS)
    assert caught.value.code == "script-use"


_JAVA = Path(tablestore.spark.__file__).parent / "jvm/src/tablestore/spark/StatementParser.java"


def _asks() -> re.Pattern[str]:
    """The words by which Java decides whether to ask Python."""
    constant = re.search(r"MAYBE =\s+Pattern\.compile\((.*?)Pattern\.CASE_INSENSITIVE", _JAVA.read_text(), re.S)
    assert constant is not None
    texts = re.findall(r'^[^"/]*"((?:[^"\\]|\\.)*)"', constant[1], re.M)
    return re.compile("".join(texts).replace("\\\\", "\\"), re.IGNORECASE)


def test_java_asks_for_each_command() -> None:
    for row in COMMANDS:
        text = re.sub(r"\[[^][]*\](=\w+)?|\{[^}]*\}|\.\.\.", "x", row.pattern)
        statement = " ".join(word.split("|")[0] for word in text.split())
        assert _asks().search(statement), row.pattern
    assert not _asks().search("SELECT a, b FROM t WHERE optimized = 'x@y.z'")


def test_each_row_names_a_procedure_with_its_arguments() -> None:
    for row in COMMANDS:
        assert bool(row.procedure) != bool(row.instead), row.pattern
        if row.procedure:
            known = {parameter.name for parameter in PROCEDURES[row.procedure].parameters}
            named = set(re.findall(r"\{(\w+)", row.pattern)) | set(re.findall(r"\]=(\w+)", row.pattern))
            assert named | {text.partition(" ")[0] for text in row.fixed} <= known, row.pattern


WORDS = re.findall(
    r"\S+",
    """
OPTIMIZE VACUUM RESTORE DESCRIBE DETAIL HISTORY TABLE t lake.s.t other.s.t delta.`/a` WHERE a = 1 'x' ( ) , . @
v1 $ files RETAIN 5 HOURS DRY RUN TO VERSION AS OF LIMIT ANALYZE COMPUTE STATISTICS SHOW EXTENDED LIKE SELECT * FROM
seen other.t spark_catalog.d.x
PARTITION [ ] ; CALL CLONE CREATE REORG APPLY PURGE NULL - + AND ZORDER BY ? : :v IS
""",
)


WORDS_OF_OTHERS = [word for word in WORDS if "lake" not in word]
"""With these no statement is about a table of ours, unless ours is the current catalog."""


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_statements_stay_where_no_catalog_is_ours(statement: str) -> None:
    assert rewritten(statement, Names(frozenset(), "spark_catalog", "default")) == statement


@given(st.lists(st.sampled_from(WORDS_OF_OTHERS), max_size=12).map(" ".join))
def test_statements_without_our_catalog_stay_where_another_is_the_current_one(statement: str) -> None:
    for catalog in ("spark_catalog", "other"):
        assert rewritten(statement, replace(AMONG_OTHERS, catalog=catalog, database="default")) == statement


_COMMANDS_OF_OTHERS = (
    "OPTIMIZE {}", "OPTIMIZE {} WHERE a = 1 FULL", "VACUUM {} DRY RUN", "RESTORE TABLE {} TO VERSION AS OF 3",
    "RESTORE {} TO 3", "DESCRIBE DETAIL EXTENDED {}", "DESC HISTORY {} LIMIT 1", "ANALYZE TABLE {} COMPUTE STATISTICS",
    "REORG TABLE {} APPLY (PURGE)", "CREATE TABLE {} CLONE x", "CREATE TABLE IF NOT EXISTS {} SHALLOW CLONE x",
    "COPY INTO {} FROM x", "LOAD DATA LOCAL INPATH 'x' INTO TABLE {}", "GENERATE x FOR TABLE {}", "SELECT * FROM {}@v1",
    "CONVERT TO DELTA {} NO STATISTICS", "FSCK REPAIR TABLE {} DRY RUN", "MSCK REPAIR TABLE {}", "UNDROP TABLE {}",
    "ALTER TABLE {} COMPACT", "ALTER TABLE {} RECOVER PARTITIONS", "SELECT * FROM {}$files", "DESCRIBE DETAIL {} x",
    "BEGIN VACUUM {}; OPTIMIZE {}; END", "EXPLAIN OPTIMIZE {}",
)  # fmt: skip


@given(
    st.sampled_from(_COMMANDS_OF_OTHERS),
    st.sampled_from(
        [
            "other.t",
            "other.s.t",
            "spark_catalog.t",
            "SPARK_CATALOG.d.x",
            "delta.`a`",
            "parquet.`/a`",
            "`other`.`t`",
            "global_temp.v",
        ]
    ),
)
def test_each_command_about_others_stays_where_ours_is_the_current_catalog(command: str, table: str) -> None:
    statement = command.replace("{}", table)
    assert rewritten(statement, AMONG_OTHERS) == statement


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_what_is_refused_has_a_code(statement: str) -> None:
    try:
        rewritten(statement, HERE)
    except Unsupported as error:
        assert error.code
