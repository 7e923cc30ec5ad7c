"""The statements that docs/sql.md documents for managed tables, in an order in which they run, with their results.

Every client runs this one list: the Python driver, the shell, and those of the Thrift server and of Spark Connect. What
a statement returns is text: a line for each row (`tests.servers.sql_client.text_of`). In an expected line ``…`` stands
for any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.depth import Depth

__all__ = ["CORE", "STATEMENTS", "Statement", "differences", "statements_in"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and what it does.

    Attributes:
        sql: The statement; its catalog is ``lake``, and its database ``stock``.
        lines: What it returns; None if that is not compared.
        refused: A part of the error's message, if it is refused.
    """

    sql: str
    lines: tuple[str, ...] | None = ()
    refused: str | None = None

    def accepts(self, found: Sequence[str]) -> bool:
        """Whether a client that got these lines has done what the statement says."""
        if self.refused is not None:
            return self.refused in "\n".join(found)
        if self.lines is None:
            return bool(found)
        return len(found) == len(self.lines) and all(map(_matches, self.lines, found))


def _matches(expected: str, found: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("…"))), found) is not None


def statements_in(catalog: str, depth: Depth) -> list[Statement]:
    """Returns the list with another name of the catalog; but for a deep run what the clients may do differently."""

    def renamed(text: str) -> str:
        return re.sub(r"\blake\b", catalog, text)

    return [
        replace(s, sql=renamed(s.sql), lines=None if s.lines is None else tuple(map(renamed, s.lines)))
        for s in (STATEMENTS if depth is Depth.DEEP else CORE)
    ]


def differences(
    catalog: str, run: Callable[[list[str]], list[list[str]]], depth: Depth = Depth.DEEP, *, scripts: bool = True
) -> list[str]:
    """Has a client run the list; returns a text for each statement that did something else than the list says.

    Without ``scripts`` no ``BEGIN … END`` is run.
    """
    statements = [s for s in statements_in(catalog, depth) if scripts or not s.sql.startswith("BEGIN ")]
    found = run([statement.sql for statement in statements])
    assert len(found) == len(statements), found
    return [
        f"{statement.sql}\n    expected: {statement.refused or statement.lines}\n    found:    {tuple(lines)}"
        for statement, lines in zip(statements, found, strict=True)
        if not statement.accepts(lines)
    ]


def does(*statements: str) -> list[Statement]:
    """Statements that return no rows."""
    return [Statement(sql) for sql in statements]


def gives(sql: str, *lines: str) -> list[Statement]:
    return [Statement(sql, lines)]


def shows(sql: str) -> list[Statement]:
    """A statement whose rows depend on more than the statements before it."""
    return [Statement(sql, None)]


def refuses(sql: str, message: str) -> list[Statement]:
    return [Statement(sql, refused=message)]


DATABASES = [
    *does("CREATE DATABASE lake.stock", "CREATE DATABASE IF NOT EXISTS lake.stock"),
    *refuses("CREATE DATABASE lake.stock", "already exists"),
    *refuses("CREATE DATABASE lake.more COMMENT 'x'", "[tablestore: database-property]"),
    *gives("SHOW DATABASES IN lake LIKE 'sto*'", "stock"),
    *does("USE lake.stock"),
    *gives("SELECT current_catalog(), current_database()", "lake | stock"),
]

TABLES = [
    *does(
        "CREATE TABLE lake.stock.items (id BIGINT, name STRING COMMENT 'on its label', price DECIMAL(10,2), "
        "PRIMARY KEY (id) NOT ENFORCED) COMMENT 'what is sold' TBLPROPERTIES ('bucket' = '2')",
        "CREATE TABLE IF NOT EXISTS lake.stock.items (x INT)",
        "CREATE TABLE days (day DATE, total DOUBLE) PARTITIONED BY (day)",
        "CREATE TABLE lake.stock.small (k INT PRIMARY KEY RELY, v STRING) DEFAULT COLLATION UTF8_BINARY "
        "WITH ('bucket' = '1')",
        "CREATE TABLE lake.stock.alike LIKE lake.stock.items TBLPROPERTIES ('bucket' = '1')",
        "CREATE TABLE lake.stock.clicks (page STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '10' MINUTES) "
        "WITH ('log.system' = 'embedded')",
    ),
    *gives("SHOW TBLPROPERTIES lake.stock.clicks ('watermark.delay')", "watermark.delay | 10 min"),
    *refuses("CREATE TABLE lake.stock.t (x INT, y AS x * 2)", "[tablestore: computed-column]"),
    *refuses("CREATE TABLE lake.stock.items (x INT)", "already exists"),
    *refuses("CREATE TABLE lake.stock.t (x INT DEFAULT 5)", "column x cannot have a DEFAULT"),
    *refuses("CREATE TABLE lake.stock.t (x VARCHAR(5))", "neither lengths nor collations"),
    *refuses("CREATE TABLE lake.stock.t (x INT) LOCATION '/tmp/x'", "[tablestore: table-location]"),
    *refuses("CREATE TABLE lake.stock.t (x INT) USING csv", "[tablestore: provider]"),
    *refuses("CREATE TABLE lake.stock.t USING parquet AS SELECT 1 AS x", "[tablestore: provider]"),
    *refuses("CREATE EXTERNAL TABLE lake.stock.t (x INT)", "[tablestore: table-location]"),
    *refuses(
        "CREATE TABLE lake.stock.t (x INT) ROW FORMAT DELIMITED FIELDS TERMINATED BY ','",
        "[tablestore: unknown-option]",
    ),
    *refuses("CREATE TABLE lake.stock.t (x INT) TBLPROPERTIES ('option.x' = '1')", "[tablestore: unknown-option]"),
    *refuses("CREATE TABLE lake.stock.t (x INT) STORED AS PARQUET", "leave STORED AS PARQUET out"),
    *refuses("CREATE TABLE lake.stock.t (x INT) ROW FORMAT SERDE 'y'", "leave SERDE y out"),
    *refuses("CREATE TABLE lake.stock.t (x STRING) DEFAULT COLLATION UNICODE_CI", "leave DEFAULT COLLATION"),
    *refuses("CREATE TABLE lake.stock.t (x INT, UNIQUE (x))", "[tablestore: unsupported]"),
    *refuses("CREATE TABLE lake.stock.t (x INT) CLUSTER BY (x)", "[tablestore: unsupported]"),
    *refuses("CREATE TABLE lake.stock.t (x INT) TBLPROPERTIES ('bucketz' = '1')", "bucketz"),
    *gives("SHOW COLUMNS IN lake.stock.alike", "id", "name", "price"),
    *gives("SHOW TBLPROPERTIES lake.stock.items ('bucket')", "bucket | 2"),
    *shows("SHOW TBLPROPERTIES lake.stock.items"),
    *gives(
        "SHOW CREATE TABLE lake.stock.alike",
        "CREATE TABLE lake.stock.alike (",
        "id BIGINT NOT NULL,",
        "name STRING… COMMENT 'on its label',",
        "price DECIMAL(10,2),",
        "CONSTRAINT alike_pk PRIMARY KEY (id) NOT ENFORCED RELY)",
        "USING delta",
        "COMMENT 'what is sold'",
        "TBLPROPERTIES (",
        "'bucket' = '1')",
    ),
    *gives(
        "DESCRIBE lake.stock.items",
        "id | bigint |…",
        "name | string | on its label",
        "price | decimal(10,2) |…",
    ),
    *shows("DESCRIBE EXTENDED lake.stock.items"),
    *does("DROP TABLE lake.stock.alike", "DROP TABLE IF EXISTS lake.stock.alike"),
    *refuses("DROP TABLE lake.stock.alike", "cannot be found"),
]

CHANGED_TABLES = [
    *does(
        "ALTER TABLE lake.stock.small ADD COLUMN note STRING COMMENT 'free' AFTER k",
        "ALTER TABLE lake.stock.small ADD COLUMNS (x INT FIRST, y BIGINT)",
        "ALTER TABLE lake.stock.small RENAME COLUMN y TO z",
        "ALTER TABLE lake.stock.small ALTER COLUMN x TYPE BIGINT",
        "ALTER TABLE lake.stock.small ALTER COLUMN z COMMENT 'last'",
        "ALTER TABLE lake.stock.small ALTER COLUMN v AFTER x",
        "ALTER TABLE lake.stock.small DROP COLUMN note",
        "ALTER TABLE lake.stock.small SET TBLPROPERTIES ('snapshot.num-retained.min' = '3')",
        "COMMENT ON TABLE lake.stock.small IS 'other'",
    ),
    *gives("SHOW COLUMNS IN lake.stock.small", "x", "v", "k", "z"),
    *gives("SHOW TBLPROPERTIES lake.stock.small ('snapshot.num-retained.min')", "snapshot.num-retained.min | 3"),
    *does(
        "ALTER TABLE lake.stock.small UNSET TBLPROPERTIES ('snapshot.num-retained.min')",
        "ALTER TABLE lake.stock.small UNSET TBLPROPERTIES IF EXISTS ('snapshot.num-retained.min', 'none')",
        "ALTER TABLE lake.stock.small UNSET TBLPROPERTIES ('none')",
    ),
    *refuses("ALTER TABLE lake.stock.small UNSET TBLPROPERTIES ('bucket')", "[tablestore: fixed-option]"),
    *does("COMMENT ON TABLE lake.stock.small IS NULL"),
    *gives("SHOW TBLPROPERTIES lake.stock.small", "bucket | 1"),
    *refuses("ALTER TABLE lake.stock.small ALTER COLUMN k TYPE STRING", "k"),
    *refuses("ALTER TABLE lake.stock.small RENAME TO lake.other.small", "other"),
    *refuses("ALTER TABLE lake.stock.small SET LOCATION '/tmp/x'", "[tablestore: table-location]"),
    *refuses("ALTER TABLE lake.stock.small DEFAULT COLLATION UNICODE_CI", "[tablestore: string-type]"),
    *refuses("ALTER TABLE lake.stock.small CLUSTER BY (v)", "leave CLUSTER BY out"),
    *refuses("ALTER TABLE lake.stock.small ALTER COLUMN v SET DEFAULT 'a'", "rows that lack column v have null"),
    *refuses("ALTER TABLE lake.stock.small ADD COLUMN n INT DEFAULT 5", "rows that lack column n have null"),
    *refuses("ALTER TABLE lake.stock.small ADD CONSTRAINT c UNIQUE (v)", "no constraint but the PRIMARY KEY"),
    *refuses("ALTER TABLE lake.stock.small DROP CONSTRAINT IF EXISTS small_pk", "[tablestore: constraint]"),
    *does(
        "ALTER TABLE lake.stock.small DROP CONSTRAINT IF EXISTS none",
        "ALTER TABLE lake.stock.small DEFAULT COLLATION UTF8_BINARY",
    ),
    *does("ALTER TABLE lake.stock.small RENAME TO lake.stock.tiny"),
    *gives("SELECT * FROM lake.stock.tiny"),
    *refuses("SELECT * FROM lake.stock.small", "cannot be found"),
]

INSERTS = [
    *does(
        "INSERT INTO lake.stock.items VALUES (1, 'pen', 1.5), (2, 'ink', 7), (3, 'old', 1)",
        "INSERT INTO lake.stock.items BY NAME SELECT 2L AS id, 8.25 AS price, 'ink' AS name",
        "INSERT INTO lake.stock.items (name, id) VALUES ('cap', 4)",
    ),
    *gives(
        "SELECT * FROM lake.stock.items ORDER BY id",
        "1 | pen | 1.50",
        "2 | ink | 8.25",
        "3 | old | 1.00",
        "4 | cap | NULL",
    ),
    *refuses("INSERT INTO lake.stock.items VALUES (1, 'pen')", "INSERT_COLUMN_ARITY_MISMATCH"),
    *refuses(
        "INSERT INTO lake.stock.items (id) WITH ('bucket' = '2') VALUES (1)",
        "a write of rows has no option bucket; it has mergeSchema",
    ),
    *does(
        "INSERT INTO lake.stock.days VALUES (DATE'2026-01-01', 1.0), (DATE'2026-01-02', 2.0)",
        "INSERT INTO lake.stock.days PARTITION (day = DATE'2026-01-03') VALUES (3.0)",
    ),
    *gives("SHOW PARTITIONS lake.stock.days", "day=2026-01-01", "day=2026-01-02", "day=2026-01-03"),
    *does("INSERT OVERWRITE lake.stock.days PARTITION (day = DATE'2026-01-02') VALUES (20.0)"),
    *gives("SELECT * FROM lake.stock.days ORDER BY day", "2026-01-01 | 1.0", "2026-01-02 | 20.0", "2026-01-03 | 3.0"),
    *does("INSERT INTO lake.stock.days REPLACE WHERE day = DATE'2026-01-03' VALUES (DATE'2026-01-03', 4.0)"),
    *refuses("INSERT INTO lake.stock.days REPLACE WHERE total > 1 VALUES (DATE'2026-01-03', 4.0)", "whole partitions"),
    *gives(
        "SET spark.sql.sources.partitionOverwriteMode = dynamic", "spark.sql.sources.partitionOverwriteMode | dynamic"
    ),
    *does("INSERT OVERWRITE lake.stock.days VALUES (DATE'2026-01-01', 10.0)"),
    *gives(
        "SET spark.sql.sources.partitionOverwriteMode = static", "spark.sql.sources.partitionOverwriteMode | static"
    ),
    *gives("SELECT * FROM lake.stock.days ORDER BY day", "2026-01-01 | 10.0", "2026-01-02 | 20.0", "2026-01-03 | 4.0"),
    *does("ALTER TABLE lake.stock.days DROP PARTITION (day = DATE'2026-01-01')"),
    *refuses("ALTER TABLE lake.stock.days ADD PARTITION (day = DATE'2026-01-01')", "tablestore"),
    *does("INSERT OVERWRITE lake.stock.days SELECT day, total + 1 FROM lake.stock.days"),
    *gives("SELECT * FROM lake.stock.days ORDER BY day", "2026-01-02 | 21.0", "2026-01-03 | 5.0"),
]

PARTITIONS = [
    *does(
        "CREATE TABLE lake.stock.places (n INT, land STRING, town STRING) PARTITIONED BY (land, town)",
        "INSERT INTO lake.stock.places VALUES (1, 'at', 'x'), (2, 'at', 'y'), (3, 'be', 'x'), (4, 'be', null), "
        "(5, 'ch', 'x')",
        "TRUNCATE TABLE lake.stock.places PARTITION (land = 'ch')",
        "TRUNCATE TABLE lake.stock.places PARTITION (land = 'de')",
    ),
    *refuses("TRUNCATE TABLE lake.stock.places PARTITION (land = 'de', town = 'x')", "PARTITIONS_NOT_FOUND"),
    *gives("SHOW PARTITIONS lake.stock.places PARTITION (town = 'x')", "land=at/town=x", "land=be/town=x"),
    *does("ALTER TABLE lake.stock.places DROP PARTITION (land = 'at', town = 'y'), PARTITION (LAND = 'be')"),
    *gives("SELECT * FROM lake.stock.places", "1 | at | x"),
    *refuses("ALTER TABLE lake.stock.places DROP PARTITION (land = 'de')", "[tablestore: partition-not-found]"),
    *refuses("ALTER TABLE lake.stock.places DROP PARTITION (n = 1)", "PARTITIONS_NOT_FOUND"),
    *gives("SET spark.sql.caseSensitive = true", "spark.sql.caseSensitive | true"),
    *refuses("ALTER TABLE lake.stock.places DROP PARTITION (LAND = 'at')", "PARTITIONS_NOT_FOUND"),
    *gives("SET spark.sql.caseSensitive = false", "spark.sql.caseSensitive | false"),
    *does("CREATE TEMPORARY VIEW places AS SELECT 1 AS x"),
    *gives("SHOW TABLES IN lake.stock LIKE 'places'", "stock | places | false", "…places | true"),
    *gives("SHOW VIEWS IN lake.stock LIKE 'places'", "…places | true"),
    *refuses("ALTER TABLE places DROP PARTITION (land = 'de')", "is a view"),
    *does("DROP VIEW places"),
    *refuses("ALTER TABLE lake.stock.places DROP PARTITION (land = 'at') PURGE", "[tablestore: purge-partition]"),
    *refuses(
        "ALTER TABLE lake.stock.places PARTITION (land = 'at', town = 'x') "
        "RENAME TO PARTITION (land = 'at', town = 'z')",
        "[tablestore: rename-partition]",
    ),
    *does("ALTER TABLE lake.stock.places DROP IF EXISTS PARTITION (land = 'de')"),
    *gives("SELECT operation FROM lake.stock.places$snapshots WHERE version > 2", "DROP PARTITION"),
]

ROWS = [
    *does(
        "UPDATE lake.stock.items SET name = upper(name), price = price + 1 WHERE id = 1",
        "DELETE FROM lake.stock.items WHERE name = 'old'",
        "MERGE INTO lake.stock.items t USING (SELECT * FROM VALUES (2, 'INK', 9.5), (5, 'pad', 2.5) "
        "AS s(id, name, price)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name "
        "WHEN NOT MATCHED THEN INSERT *",
    ),
    *gives(
        "SELECT * FROM lake.stock.items ORDER BY id",
        "1 | PEN | 2.50",
        "2 | INK | 8.25",
        "4 | cap | NULL",
        "5 | pad | 2.50",
    ),
    *does(
        "MERGE INTO lake.stock.items t USING (SELECT 4L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN UPDATE SET price = 3",
        "UPDATE lake.stock.items SET price = (SELECT max(price) FROM lake.stock.items) WHERE id = 1",
        "UPDATE lake.stock.days SET total = total * 2 WHERE day < DATE'2026-01-03'",
        "DELETE FROM lake.stock.days WHERE total < 10",
    ),
    *gives("SELECT * FROM lake.stock.items ORDER BY id", "1 | PEN | 8.25", "2 | INK | 8.25", "5 | pad | 3.00"),
    *gives("SELECT * FROM lake.stock.days", "2026-01-02 | 42.0"),
    *does(
        "DECLARE VARIABLE word STRING DEFAULT 'mug'",
        "DECLARE VARIABLE wanted INT DEFAULT 5",
        "UPDATE lake.stock.items SET name = upper(word), price = session.wanted WHERE id = wanted",
    ),
    *gives("SELECT name, price FROM lake.stock.items WHERE id = wanted", "MUG | 5.00"),
    *refuses("UPDATE lake.stock.items SET wanted = 1", "wanted"),
    *does(
        "DECLARE VARIABLE name STRING DEFAULT 'none'",
        "UPDATE lake.stock.items SET name = transform(array(word), x -> concat(x, name, wanted))[0] WHERE id = wanted",
    ),
    *gives("SELECT i.name FROM lake.stock.items i WHERE id = wanted", "mugMUG5"),
    *does(
        "DROP TEMPORARY VARIABLE name",
        "UPDATE lake.stock.items SET name = 'pad', price = 3 WHERE id = 5",
        "DROP TEMPORARY VARIABLE word",
        "DROP TEMPORARY VARIABLE wanted",
    ),
    *refuses("UPDATE lake.stock.items SET id = id + 1", "primary key"),
    *refuses(
        "MERGE INTO lake.stock.items t USING (SELECT * FROM VALUES (1L, 'a', 1.0), (1L, 'b', 1.0) "
        "AS s(id, name, price)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "repeated-key",
    ),
    *refuses("INSERT INTO lake.stock.items VALUES (NULL, 'x', 1)", "id"),
    *does("CREATE TABLE lake.stock.merged (k INT PRIMARY KEY, v INT) WITH ('merge-engine' = 'partial-update')"),
    *refuses(
        "MERGE INTO lake.stock.merged t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 3",
        "merges what is written with the stored row",
    ),
    *refuses("DELETE FROM lake.stock.merged WHERE k = 1", "by which a delete does not remove the row"),
]

QUERIES = [
    *does(
        "CREATE TABLE lake.stock.totals TBLPROPERTIES ('primary-key' = 'day') AS "
        "SELECT day, total FROM lake.stock.days",
        "CREATE OR REPLACE TABLE lake.stock.totals AS SELECT day, total / 2 AS half FROM lake.stock.totals",
    ),
    *gives("SELECT * FROM lake.stock.totals", "2026-01-02 | 21.0"),
    *refuses("CREATE TABLE lake.stock.broken AS SELECT 1 / (id - 2) AS x FROM range(4)", "DIVIDE_BY_ZERO"),
    *refuses("CREATE TABLE lake.stock.totals AS SELECT 1 AS x", "already exists"),
    *does(
        "CREATE OR REPLACE TABLE lake.stock.totals (a STRING, PRIMARY KEY (a)) COMMENT 'empty'",
        "REPLACE TABLE lake.stock.totals AS SELECT 1 AS x",
    ),
    *gives("SELECT * FROM lake.stock.totals", "1"),
    *gives("SHOW TABLES IN lake.stock LIKE 't*'", "…tiny…", "…totals…"),
    *does("DROP TABLE lake.stock.totals"),
]

VIEWS = [
    *does(
        "CREATE VIEW lake.stock.cheap (number COMMENT 'of the item', price) COMMENT 'for many' AS "
        "SELECT id, price FROM lake.stock.items WHERE price < 5",
        "CREATE VIEW IF NOT EXISTS cheap AS SELECT 1 AS x",
    ),
    *gives("SELECT number, price FROM lake.stock.cheap", "5 | 3.00"),
    *refuses("SELECT * FROM cheap WITH ('fresh' = 'true')", "a read of a view has no option fresh"),
    *gives("DESCRIBE lake.stock.cheap", "number | bigint | of the item", "price | decimal(10,2) | NULL"),
    *shows("SHOW CREATE TABLE lake.stock.cheap"),
    *refuses("CREATE VIEW lake.stock.cheap AS SELECT 1 AS x", "already exists"),
    *refuses("INSERT INTO lake.stock.cheap VALUES (9, 9)", "is a view"),
    *does(
        "CREATE OR REPLACE VIEW lake.stock.cheap AS SELECT name FROM lake.stock.items WHERE price < 5",
        "ALTER VIEW lake.stock.cheap AS SELECT upper(name) AS name FROM lake.stock.items WHERE price < 5",
        "ALTER VIEW lake.stock.cheap SET TBLPROPERTIES ('team' = 'sales')",
    ),
    *gives("SHOW TBLPROPERTIES lake.stock.cheap ('team')", "team | sales"),
    *does(
        "ALTER VIEW lake.stock.cheap UNSET TBLPROPERTIES ('team')",
        "ALTER VIEW lake.stock.cheap RENAME TO lake.stock.bargains",
    ),
    *gives("SHOW VIEWS IN lake.stock", "stock | bargains | false"),
    *gives("SELECT * FROM lake.stock.bargains", "PAD"),
    *does("DROP VIEW lake.stock.bargains", "DROP VIEW IF EXISTS lake.stock.bargains"),
]

MATERIALIZED = [
    *does(
        "CREATE TABLE lake.stock.sales (id BIGINT PRIMARY KEY, item BIGINT, count INT)",
        "CREATE TABLE lake.stock.things (id BIGINT PRIMARY KEY, name STRING)",
        "INSERT INTO lake.stock.sales VALUES (1, 10, 2), (2, 11, 1)",
        "INSERT INTO lake.stock.things VALUES (10, 'pen')",
    ),
    *gives(
        "CREATE MATERIALIZED VIEW lake.stock.named COMMENT 'with names' TBLPROPERTIES ('log.system' = 'none') AS "
        "SELECT s.id, t.name, s.count FROM sales s LEFT JOIN things t ON s.item = t.id",
        "stock.named | 1 | stock.sales 1, stock.things 1 | true",
    ),
    *gives("SELECT * FROM lake.stock.named ORDER BY id", "1 | pen | 2", "2 | NULL | 1"),
    *refuses(
        "CREATE MATERIALIZED VIEW lake.stock.named AS SELECT s.id FROM sales s JOIN things t ON item = t.id", "exists"
    ),
    *does(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS lake.stock.named AS "
        "SELECT s.id FROM lake.stock.sales s JOIN lake.stock.things t ON s.item = t.id",
        "INSERT INTO lake.stock.things VALUES (11, 'cup')",
    ),
    *gives("REFRESH MATERIALIZED VIEW lake.stock.named", "stock.named | 2 | stock.sales 1, stock.things 2 | false"),
    *gives("REFRESH MATERIALIZED VIEW named"),
    *gives("SELECT * FROM lake.stock.named ORDER BY id", "1 | pen | 2", "2 | cup | 1"),
    *gives("CALL lake.sys.doctor('stock.named')"),
    *gives(
        "CREATE MATERIALIZED VIEW lake.stock.counts PRIMARY KEY (item) AS "
        "SELECT item, sum(count) AS n FROM sales GROUP BY item",
        "stock.counts | 1 | stock.sales 1 | true",
    ),
    *gives(
        "EXPLAIN REFRESH MATERIALIZED VIEW lake.stock.counts",
        "stock.counts is refreshed incrementally, without Spark",
        "read the changed rows of stock.sales",
        "find the rows of both versions that depend on them",
        "find their groups (item), and compute these again from all their rows",
        "compare them by key (item) with the stored rows, and write those that differ",
    ),
    *does("INSERT INTO lake.stock.sales VALUES (3, 10, 5)"),
    *gives("REFRESH MATERIALIZED VIEW lake.stock.counts", "stock.counts | 2 | stock.sales 2 | false"),
    *gives("SELECT * FROM lake.stock.counts ORDER BY item", "10 | 7", "11 | 1"),
    *gives("CALL lake.sys.doctor('stock.counts')"),
    *gives(
        "EXPLAIN CREATE MATERIALIZED VIEW lake.stock.v AS SELECT DISTINCT item FROM sales",
        "stock.v is refreshed as a whole, without Spark: the group item may be null, and a key may not: add WHERE item "
        "IS NOT NULL, or give PRIMARY KEY if there are no nulls",
        "compute all rows",
        "replace the stored ones",
    ),
    *refuses(
        "CREATE MATERIALIZED VIEW lake.stock.v TBLPROPERTIES ('view.incremental' = 'required') AS "
        "SELECT DISTINCT item FROM sales",
        "[tablestore: view-not-incremental]",
    ),
    *refuses("CREATE MATERIALIZED VIEW lake.stock.v AS SELECT id, rand() AS r FROM sales", "[tablestore: view-query]"),
    *does("DROP MATERIALIZED VIEW lake.stock.counts"),
    *refuses("INSERT INTO lake.stock.named VALUES (5, 'x', 1)", "[tablestore: maintained-view]"),
    *refuses("DELETE FROM lake.stock.named WHERE id = 1", "[tablestore: maintained-view]"),
    *refuses("REFRESH MATERIALIZED VIEW lake.stock.sales", "[tablestore: no-view]"),
    *refuses("CREATE MATERIALIZED VIEW lake.stock.v AS SELECT count(*) FROM sales", "[tablestore: view-query]"),
    *refuses("CREATE OR REPLACE MATERIALIZED VIEW lake.stock.named AS SELECT 1", "cannot be replaced"),
    *does("DROP MATERIALIZED VIEW lake.stock.named", "DROP MATERIALIZED VIEW IF EXISTS lake.stock.named"),
    *does(
        "CREATE TABLE lake.stock.visits (item BIGINT, at TIMESTAMP)",
        "INSERT INTO lake.stock.visits VALUES (10, now()), (10, TIMESTAMP'2020-01-01 00:00:00Z'), (12, null)",
    ),
    *gives(
        "CREATE MATERIALIZED VIEW lake.stock.seen AS SELECT v.item, t.name FROM visits AS v "
        "LEFT JOIN things FOR SYSTEM_TIME AS OF current_timestamp() AS t ON v.item = t.id",
        "stock.seen | 1 | stock.visits 1, stock.things 2 | true",
    ),
    *gives(
        "CREATE MATERIALIZED VIEW lake.stock.seen_then AS SELECT v.item, t.name FROM lake.stock.visits AS v "
        "JOIN lake.stock.things FOR SYSTEM_TIME AS OF v.at AS t ON v.item = t.id",
        "stock.seen_then | 1 | stock.visits 1, stock.things 2 | true",
    ),
    *gives("SELECT * FROM lake.stock.seen_then", "10 | pen"),
    *does(
        "INSERT INTO lake.stock.things VALUES (10, 'pencil')",
        "INSERT INTO lake.stock.visits VALUES (10, null)",
    ),
    *gives("REFRESH MATERIALIZED VIEW lake.stock.seen", "stock.seen | 2 | stock.visits 2, stock.things 3 | false"),
    *gives("SELECT * FROM lake.stock.seen ORDER BY item, name", "10 | pen", "10 | pen", "10 | pencil", "12 | NULL"),
    *gives("CALL lake.sys.doctor('stock.seen')"),
    *gives(
        "EXPLAIN REFRESH MATERIALIZED VIEW lake.stock.seen_then",
        "stock.seen_then is refreshed incrementally, without Spark, and only gets inserts",
        "read the rows that were inserted into stock.visits",
        "look them up in stock.things (inner, item = id), in the version of the time at of each",
        "add the results, which later changes of stock.things do not change",
    ),
    *gives(
        "EXPLAIN CREATE MATERIALIZED VIEW lake.stock.v AS SELECT v.item, t.name FROM visits v JOIN things t "
        "ON v.item = t.id",
        "stock.v is refreshed as a whole, without Spark: stock.visits has no primary key",
        "compute all rows",
        "replace the stored ones",
    ),
    *refuses(
        "CREATE MATERIALIZED VIEW lake.stock.v AS SELECT s.id FROM sales s "
        "JOIN things FOR SYSTEM_TIME AS OF current_timestamp() t ON s.item = t.id",
        "[tablestore: bad-join]",
    ),
    *refuses("DELETE FROM lake.stock.seen", "[tablestore: maintained-view]"),
    *does("DELETE FROM lake.stock.visits WHERE item = 12"),
    *refuses("REFRESH MATERIALIZED VIEW lake.stock.seen", "[tablestore: events-changed]"),
    *gives("REFRESH MATERIALIZED VIEW lake.stock.seen FULL", "stock.seen | 3 | stock.visits 3, stock.things 3 | true"),
    *gives("SELECT * FROM lake.stock.seen", "10 | pencil", "10 | pencil", "10 | pencil"),
    *gives("REFRESH MATERIALIZED VIEW lake.stock.seen"),
    *does("DROP MATERIALIZED VIEW lake.stock.seen", "DROP MATERIALIZED VIEW lake.stock.seen_then"),
]

VERSIONS = [
    *does(
        "CREATE TABLE lake.stock.t (id BIGINT PRIMARY KEY, v STRING) "
        "WITH ('bucket' = '1', 'log.system' = 'embedded', 'changelog-producer' = 'lookup')"
    ),
    *does(
        "INSERT INTO lake.stock.t VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO lake.stock.t VALUES (1, 'A'), (3, 'c')",
        "DELETE FROM lake.stock.t WHERE id = 2",
    ),
    *gives("SELECT * FROM lake.stock.t VERSION AS OF 1 ORDER BY id", "1 | a", "2 | b"),
    *gives("CALL lake.sys.create_tag('stock.t', 'second', 2)", "second | 2"),
    *gives("SELECT count(v) AS n FROM lake.stock.t VERSION AS OF 'second'", "3"),
    *gives("SELECT count(v) FROM lake.stock.t TIMESTAMP AS OF current_timestamp()", "2"),
    *gives(
        "SELECT n, d.v FROM VALUES (1, 1), (2, 9) AS s (n, id) LEFT JOIN lake.stock.t FOR SYSTEM_TIME AS OF "
        "current_timestamp() AS d ON s.id = d.id ORDER BY n",
        "1 | A",
        "2 | NULL",
    ),
    *gives(
        "SELECT version, t.v FROM lake.stock.t$snapshots AS s LEFT JOIN lake.stock.t FOR SYSTEM_TIME AS OF "
        "s.commit_time AS t ON t.id = 1 AND t.v <> 'a' WHERE version < 3 ORDER BY version",
        "0 | NULL",
        "1 | NULL",
        "2 | A",
    ),
    *refuses(
        "SELECT * FROM lake.stock.t$snapshots AS s RIGHT JOIN lake.stock.t FOR SYSTEM_TIME AS OF s.commit_time AS t "
        "ON t.id = s.version",
        "[tablestore: temporal-join]",
    ),
    *refuses("SELECT * FROM lake.stock.t TIMESTAMP AS OF '2999-01-01 00:00:00'", "[tablestore: no-such-version]"),
    *gives(
        "SELECT version, operation FROM lake.stock.t$snapshots WHERE version < 3 ORDER BY version DESC LIMIT 2",
        "2 | …",
        "1 | …",
    ),
    *gives("SELECT tag_name FROM lake.stock.t$tags", "second"),
    *gives("SELECT x.v FROM lake.stock.t /*+ OPTIONS('fresh' = 'true') */ AS x WHERE x.id = 3", "c"),
    *refuses("SELECT * FROM lake.stock.t WITH ('fresh' = 'yes')", "fresh='yes' is neither true nor false"),
    *refuses("SELECT * FROM lake.stock.t WITH ('log.scan' = 'latest')", "an option of a stream: FROM STREAM"),
    *gives(
        "SELECT _change_type, id, v, _commit_version FROM lake.stock.t CHANGES FROM VERSION 2 TO VERSION 3 "
        "ORDER BY id, _change_type",
        "update_postimage | 1 | A | 2",
        "update_preimage | 1 | a | 2",
        "delete | 2 | b | 3",
        "insert | 3 | c | 2",
    ),
    *gives(
        "SELECT _change_type, id FROM lake.stock.t CHANGES FROM VERSION 1 TO VERSION 2 "
        "WITH (deduplicationMode = 'netChanges') ORDER BY id",
        "insert | 1",
        "insert | 2",
        "insert | 3",
    ),
    *gives("SELECT count(id) FROM lake.stock.t CHANGES FROM TIMESTAMP '1999-01-01 00:00:00'", "6"),
    *gives(
        "DESCRIBE HISTORY lake.stock.t",
        "4 | … | TAG | …",
        "3 | … | WRITE | …",
        "2 | … | WRITE | …",
        "1 | … | WRITE | …",
        "0 | … | CREATE TABLE | …",
    ),
    *gives("DESCRIBE HISTORY lake.stock.t LIMIT 1", "4 | … | TAG | …"),
    *gives("SELECT * FROM lake.stock.t@v1 ORDER BY id", "1 | a", "2 | b"),
    *refuses("SELECT * FROM lake.stock.t@20010101000000000", "[tablestore: no-such-version]"),
    *gives("DESCRIBE DETAIL lake.stock.t", "delta | … | lake.stock.t | NULL | …"),
    *shows("DESCRIBE DETAIL EXTENDED lake.stock.t"),
    *refuses("SELECT * FROM lake.stock.t VERSION AS OF 99", "[tablestore: "),
    *refuses("SELECT * FROM lake.stock.t CHANGES FROM VERSION 99", "no-such-version"),
    *refuses("SELECT * FROM lake.stock.t$nothing", "no system table"),
]

PROCEDURES = [
    *does("TRUNCATE TABLE lake.stock.t"),
    *gives("SELECT * FROM lake.stock.t"),
    *gives("CALL lake.sys.rollback(table => 'stock.t', tag => 'second')", "6 | ROLLBACK"),
    *gives("SELECT * FROM lake.stock.t ORDER BY id", "1 | A", "2 | b", "3 | c"),
    *gives("CALL lake.sys.delete_tag('stock.t', 'second')", "second"),
    *shows("ALTER TABLE lake.stock.t COMPACT"),
    *shows("RESTORE TABLE lake.stock.t TO VERSION AS OF 6"),
    *shows("OPTIMIZE lake.stock.t"),
    *gives("REORG TABLE lake.stock.t APPLY (PURGE)"),  # OPTIMIZE left no deleted rows
    *gives("VACUUM lake.stock.t RETAIN 168 HOURS DRY RUN"),
    *gives("ANALYZE TABLE lake.stock.t COMPUTE STATISTICS", "… | 3 | …"),
    *refuses("OPTIMIZE lake.stock.t ZORDER BY (v)", "[tablestore: other-command]"),
    *refuses("COPY INTO lake.stock.t FROM '/tmp' FILEFORMAT = CSV", "[tablestore: other-command]"),
    *gives("CALL lake.sys.compact('stock.t')"),
    *does("INSERT INTO lake.stock.days VALUES (DATE'2026-01-01', 0.5)"),
    *does("INSERT INTO lake.stock.days VALUES (DATE'2026-01-01', 1.5)"),
    *shows("ALTER TABLE lake.stock.days PARTITION (day = DATE'2026-01-01') COMPACT"),
    *gives("CALL lake.sys.compact('stock.days', partition => 'day=2026-01-01', full => true)"),
    *gives(
        "DESCRIBE DETAIL lake.stock.days PARTITION (day = '2026-01-01')",
        "name | stock.days",
        "partition | day=2026-01-01",
        "file.path | …/day-2026-01-01",
        "last-modified | …",
        "num-files | 1",
        "num-rows | 2",
        "size-in-bytes | …",
        "num-pending-files | 0",
    ),
    *refuses("DESCRIBE DETAIL lake.stock.days PARTITION (day = '2027-01-01')", "partition-not-found"),
    *refuses("ALTER TABLE lake.stock.t PARTITION (day = '2027-01-01') COMPACT", "not-partitioned"),
    *gives("CALL lake.sys.fold('stock.t')"),
    *gives("CALL lake.sys.expire_snapshots('stock.t', dry_run => true)", "0 | 0 | 0"),
    *gives("CALL lake.sys.remove_orphans('stock.t')"),
    *does("ALTER TABLE lake.stock.days SET TBLPROPERTIES ('partition.expiration-time' = '36500 d')"),
    *gives("CALL lake.sys.expire_partitions('stock.days')"),
    *refuses("CALL lake.sys.reset_consumer('stock.t', 'nobody')", "[tablestore: no-such-consumer]"),
    *gives("CALL lake.sys.list_streams()"),
    *refuses("INSERT INTO lake.stock.items SELECT * FROM STREAM lake.stock.items", "[tablestore: no-checkpoint]"),
    *refuses(
        "INSERT OVERWRITE lake.stock.days SELECT day, 1 FROM STREAM lake.stock.days", "[tablestore: no-checkpoint]"
    ),
    *refuses("CALL lake.sys.stop_stream('none')", "[tablestore: no-stream]"),
    *refuses("CALL lake.sys.nothing()", "nothing"),
    *gives("CALL lake.sys.doctor('stock.t')"),
    *gives("CALL lake.sys.doctor('lake.stock.items')"),
    *gives("CALL lake.sys.doctor('items')"),
    *refuses("CALL lake.sys.doctor('spark_catalog.stock.items')", "[tablestore: other-catalog]"),
    *gives(
        "BEGIN ALTER TABLE lake.stock.days COMPACT; CREATE TABLE made (a INT) WITH ('bucket' = '1'); "
        "INSERT INTO made VALUES (1); SELECT operation FROM made$snapshots ORDER BY version; END",
        "CREATE TABLE",
        "WRITE",
    ),
    *shows("EXPLAIN CREATE TABLE lake.stock.other (a INT) WITH ('bucket' = '1')"),
    *shows("EXPLAIN SELECT * FROM lake.stock.days$files"),
    *gives("CALL lake.sys.doctor(table => 'stock.days')"),
    *gives(
        "DESCRIBE PROCEDURE lake.sys.fold",
        "Procedure:   fold",
        "Description: Merges pending runs (write-mode = merge-on-read). fold(table STRING) returns version BIGINT, "
        "operation STRING",
    ),
]

END = [
    *refuses("DROP DATABASE lake.stock", "contains objects"),
    *does("USE spark_catalog.default", "DROP DATABASE lake.stock CASCADE", "DROP DATABASE IF EXISTS lake.stock"),
    *refuses("DROP DATABASE lake.stock", "cannot be found"),
]

STATEMENTS: Sequence[Statement] = [
    *DATABASES, *TABLES, *CHANGED_TABLES, *INSERTS, *PARTITIONS, *ROWS, *QUERIES, *VIEWS, *MATERIALIZED, *VERSIONS,
    *PROCEDURES, *END,
]  # fmt: skip

CORE: Sequence[Statement] = [
    *DATABASES,
    *does("CREATE TABLE lake.stock.items (id BIGINT, name STRING, PRIMARY KEY (id)) TBLPROPERTIES ('bucket' = '1')"),
    *gives("DESCRIBE lake.stock.items", "id | bigint |…", "name | string |…"),
    *does(
        "INSERT INTO lake.stock.items VALUES (1, 'pen'), (2, 'ink')",
        "MERGE INTO lake.stock.items t USING (SELECT 2L AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = NULL",
    ),
    *gives("SELECT * FROM lake.stock.items ORDER BY id", "1 | pen", "2 | NULL"),
    *gives(
        "SELECT version, i.name FROM lake.stock.items$snapshots AS s JOIN lake.stock.items FOR SYSTEM_TIME AS OF "
        "s.commit_time AS i ON i.id = 2 ORDER BY version",
        "1 | ink",
        "2 | NULL",
    ),
    *refuses("INSERT INTO lake.stock.items VALUES (NULL, 'x')", "id"),
    *gives("CALL lake.sys.doctor('stock.items')"),
    *END,
]
"""What other clients than the driver run but for a deep run: each kind of answer, and what writes.

The driver runs the whole list, and a client changes only how statements reach Spark, and how answers come back.
"""
