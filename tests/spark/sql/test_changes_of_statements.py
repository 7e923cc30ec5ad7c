"""What statements leave in the change data feed, as Delta reads it in Spark.

tests/tablestore/writing/test_changes_of_statements.py has the property.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from filestore.model.snapshot import Operation
from tablestore import Store, Table
from tests.changes import assert_exact, by_deltalake
from tests.depth import sampled
from tests.spark.batch.test_change_feed import by_spark
from tests.spark.sql.conftest import Sql
from tests.tables import assert_healthy

TABLES: Mapping[str, str] = {
    "at once": "",
    "by sequence": ", 'sequence.field' = 'n'",
    "without a log": ", 'log.system' = 'none'",
    "later": ", 'write-mode' = 'merge-on-read'",
}
STATEMENTS = (
    "UPDATE lake.shop.t SET v = v + 1 WHERE id = 1",
    "DELETE FROM lake.shop.t WHERE v = 20",
    "MERGE INTO lake.shop.t USING (SELECT * FROM VALUES (3L, 31), (4L, 0), (9L, 90) AS s(id, v)) AS s ON t.id = s.id "
    "WHEN MATCHED AND s.v = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
    "WHEN NOT MATCHED THEN INSERT (id, v, name, n) VALUES (s.id, s.v, 'new', 0)",
    "MERGE INTO lake.shop.t USING "
    "(SELECT * FROM VALUES (5L, 51, 'whole', 1), (6L, 60, 'whole', 1) AS s(id, v, name, n)) "
    "AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "INSERT INTO lake.shop.t SELECT id, v + 100, name, n FROM lake.shop.t WHERE id = 5",
)


@pytest.mark.parametrize("kind", sampled(TABLES, 4, test=4))
def test_statements_have_whole_rows_before_and_after(sql: Sql, store: Store, session: SparkSession, kind: str) -> None:
    """Of an INT NOT NULL the feed had a 0 that never was; with a STRING NOT NULL it could not be read."""
    sql(
        "CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, v INT NOT NULL, name STRING NOT NULL, n INT) "
        f"TBLPROPERTIES ('changelog-producer' = 'input'{TABLES[kind]})"
    )
    sql("INSERT INTO lake.shop.t SELECT id, CAST(id * 10 AS INT), 'old', 1 FROM range(1, 6)")
    for statement in STATEMENTS:
        sql(statement)
    table = store.table("shop.t")
    assert isinstance(table, Table)
    table.compact(full=True)
    assert sql("SELECT id, v FROM lake.shop.t") == [(1, 11), (3, 31), (5, 151), (6, 60), (9, 90)]
    found = by_spark(session, table.filestore)
    assert_exact(table.filestore, found)
    assert by_deltalake(table.filestore) == found
    kinds = "sum(IF(_change_type IN ('insert', 'update_postimage'), v, -v))"
    assert sql(f"SELECT {kinds} FROM lake.shop.t CHANGES FROM VERSION 1") == [(11 + 31 + 151 + 60 + 90,)]
    merged = [one for one in table.snapshots() if one.operation in (Operation.WRITE, Operation.FOLD)]
    assert len(merged) >= len(STATEMENTS)
    assert_healthy(table.filestore)
