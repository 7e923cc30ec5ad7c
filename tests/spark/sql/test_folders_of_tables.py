"""What Delta would write into the folder of a table of ours is refused with a sentence, and leaves nothing there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.sql.conftest import Sql

ROWS = "SELECT 1L AS id, 'z' AS v"

WRITES: Mapping[str, Callable[[SparkSession, str], Any]] = {
    "delete": lambda s, p: DeltaTable.forPath(s, p).delete("id = 1"),
    "update": lambda s, p: DeltaTable.forPath(s, p).update("id = 1", {"v": "'z'"}),
    "merge": lambda s, p: (
        DeltaTable.forPath(s, p)
        .alias("t")
        .merge(s.sql(ROWS).alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    ),
    "optimize": lambda s, p: DeltaTable.forPath(s, p).optimize().executeCompaction(),
    "vacuum": lambda s, p: DeltaTable.forPath(s, p).vacuum(),
    "restore": lambda s, p: DeltaTable.forPath(s, p).restoreToVersion(0),
    "generate": lambda s, p: DeltaTable.forPath(s, p).generate("symlink_format_manifest"),
    "append": lambda s, p: s.sql(ROWS).write.format("delta").mode("append").save(p),
    "overwrite": lambda s, p: s.sql(ROWS).write.format("delta").mode("overwrite").save(p),
    "writeTo": lambda s, p: s.sql(ROWS).writeTo(f"delta.`{p}`").append(),
} | {
    statement.partition("{")[0]: lambda s, p, statement=statement: s.sql(statement.format(t=f"delta.`{p}`"))
    for statement in (
        "DELETE FROM {t} WHERE id = 1",
        "UPDATE {t} SET v = 'z'",
        "MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        f"INSERT INTO {{t}} {ROWS}",
        f"INSERT OVERWRITE {{t}} {ROWS}",
        "ALTER TABLE {t} ADD COLUMN x INT",
        "OPTIMIZE {t}",
        "VACUUM {t}",
        "RESTORE TABLE {t} TO VERSION AS OF 0",
        "REORG TABLE {t} APPLY (PURGE)",
        "TRUNCATE TABLE {t}",
        f"CREATE OR REPLACE TABLE {{t}} USING delta AS {ROWS}",
        "REPLACE TABLE {t} (id BIGINT NOT NULL, v STRING) USING delta",
    )
}
"""What Delta can write by a path."""


@pytest.mark.few(4)
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("write", WRITES)
def test_regression_what_delta_writes_into_a_folder_of_ours_is_refused(
    session: SparkSession, sql: Sql, write: str, keyed: bool
) -> None:
    """It ended in a trace of Java when it committed, and left files in the folder."""
    sql(f"CREATE TABLE lake.shop.t (id BIGINT, v STRING{', PRIMARY KEY (id)' if keyed else ''})")
    sql("INSERT INTO lake.shop.t VALUES (1, 'a')")
    folder = session.sql("DESCRIBE DETAIL lake.shop.t").collect()[0]["location"]
    with pytest.raises(AnalysisException, match=r"\[tablestore: delta-folder\] .* write by the table's name"):
        WRITES[write](session, folder)
    assert sql("SELECT * FROM lake.shop.t") == [(1, "a")]
    assert sql("CALL lake.sys.doctor('shop.t')") == []


def test_what_reads_a_folder_of_ours_and_writes_another_one_goes_on(
    session: SparkSession, sql: Sql, folder: Path
) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, v STRING)")
    sql("INSERT INTO lake.shop.t VALUES (1, 'a')")
    ours = session.sql("DESCRIBE DETAIL lake.shop.t").collect()[0]["location"]
    other = str(folder / "others")
    session.read.format("delta").load(ours).write.format("delta").save(other)
    session.sql("SELECT 2L AS id, 'b' AS v").write.format("delta").mode("append").save(other)
    sql(f"INSERT INTO delta.`{other}` SELECT id + 2, v FROM delta.`{ours}`")
    target, source = DeltaTable.forPath(session, other), DeltaTable.forPath(session, ours)
    rows = source.toDF().selectExpr("id", "'m' AS v").alias("s")
    target.alias("t").merge(rows, "t.id = s.id").whenMatchedUpdateAll().execute()
    assert sql(f"SELECT * FROM delta.`{other}`") == [(1, "m"), (2, "b"), (3, "a")]
    assert (source.history().count(), source.detail().count()) == (2, 1)
    assert len(sql(f"DESCRIBE HISTORY delta.`{ours}`")) == 2
