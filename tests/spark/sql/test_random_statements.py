"""Random statements do to our tables what they do to a plain Delta table with the same rows: delta-spark is the judge.

Readers of Delta that know nothing of Tablestore see the same rows in the table's folder.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from tablestore import Store
from tests.depth import Depth, sampled
from tests.spark.sql.conftest import Sql
from tests.spark.sql.plain_readers import assert_all_readers_see, seen_by_polars
from tests.spark.sql.random_statements import COLUMNS, rows, statement, values
from tests.tables import assert_healthy

TABLES = {
    "keyed": f"({COLUMNS}, PRIMARY KEY (id)) TBLPROPERTIES ('bucket' = '2')",
    "later": f"({COLUMNS}, PRIMARY KEY (id)) TBLPROPERTIES ('write-mode' = 'merge-on-read')",
    "partitioned": f"({COLUMNS}, PRIMARY KEY (p, id)) PARTITIONED BY (p)",
    "without a key": f"({COLUMNS})",
}
KINDS = ("update", "update", "delete", "merge", "merge", "merge", "inserts")


@pytest.mark.parametrize("name", sampled(TABLES, len(TABLES), test=len(TABLES)))
def test_statements_do_what_they_do_to_a_delta_table(
    sql: Sql, store: Store, folder: Path, name: str, depth: Depth
) -> None:
    chance = random.Random(random.randrange(1 << 30))
    sql(f"CREATE TABLE lake.shop.t {TABLES[name]}")
    sql(f"INSERT INTO lake.shop.t VALUES {values(rows(chance, range(10)))}")
    theirs = f"delta.`{folder}/theirs`"
    sql(f"CREATE TABLE {theirs} USING delta AS SELECT * FROM lake.shop.t")
    table = store.table("shop.t")
    for number in range(depth.times(2, deep=20)):
        text = statement(chance, KINDS)
        for target in ("lake.shop.t", theirs):
            try:
                sql(text.replace("{t}", target))
            except AnalysisException as error:
                raise AssertionError(f"statement {number} on {target}: {text}") from error
        expected = sql(f"SELECT * FROM {theirs}")
        assert sql("SELECT * FROM lake.shop.t") == expected, f"after statement {number}: {text}"
        if not table.definition.merges_on_read:
            assert seen_by_polars(table) == expected, f"seen by polars after statement {number}: {text}"
    assert_healthy(table.filestore)
    assert_all_readers_see(sql, table, expected)
