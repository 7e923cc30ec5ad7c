"""write-mode = merge-on-read in Spark: written in tasks, read natively with what is pending, streamed."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from filestore.operations.fold import fold_table
from tablestore import Store
from tablestore.spark import SparkStore
from tests.depth import sampled
from tests.tables import in_order
from tests.warehouses import assert_whole, rows

LATER = {"write-mode": "merge-on-read", "bucket": "3"}
ENGINES = {
    "last": {},
    "summed": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "log.system": "none"},
    "newest": {"sequence.field": "n", "log.system": "none"},
}


@pytest.mark.parametrize("engine", sampled(ENGINES, 3, test=3))
def test_spark_reads_what_is_pending_as_our_scan_does(lake: SparkStore, store: Store, engine: str) -> None:
    table = store.create_table(
        "shop.t",
        "id BIGINT, day DATE, n INT, t STRING NOT NULL",
        primary_key=["id", "day"],
        partition_by=["day"],
        options=LATER | ENGINES[engine],
    )
    frame = lake.spark.range(3000).selectExpr(
        "id % 400 AS id",
        "CAST(date_add(DATE'2024-01-01', CAST(id % 2 AS INT)) AS DATE) AS day",
        "IF(id % 7 = 0, NULL, CAST(id AS INT)) AS n",
        "concat('t', id % 11) AS t",
    )
    for part in ("id < 300", "id >= 200", "id % 3 = 0"):
        lake.write("shop.t", frame.where(part).coalesce(1))
        if part == "id < 300":
            fold_table(table.filestore, full=True)
    lake.write("shop.t", frame.where("id < 20").selectExpr("id", "day", "n", "t", "'+U' AS _kind").coalesce(1))
    wanted = rows(table)
    assert in_order(row.asDict() for row in lake.read("shop.t").collect()) == wanted
    some = lake.read("shop.t").where("n > 100 AND day = DATE'2024-01-01'").select("t", "id")
    assert in_order(row.asDict() for row in some.collect()) == in_order(
        {"t": r["t"], "id": r["id"]} for r in wanted if (r["n"] or 0) > 100 and str(r["day"]) == "2024-01-01"
    )
    fold_table(table.filestore, full=True)
    assert in_order(row.asDict() for row in lake.read("shop.t").collect()) == wanted == assert_whole(table)


@pytest.mark.deep
@pytest.mark.parametrize("engine", sampled(reversed(ENGINES), 3, test=3))
def test_changes_between_versions_with_pending_runs(lake: SparkStore, store: Store, engine: str) -> None:
    """In tasks, one for each slot that differs; before + changes = after, for versions folded and not."""
    options = LATER | ENGINES[engine]
    table = store.create_table("shop.t", "id BIGINT, n INT, t STRING", primary_key=["id"], options=options)
    frame = lake.spark.range(900).selectExpr("id % 300 AS id", "CAST(id % 7 AS INT) AS n", "concat('t', id % 11) AS t")
    for part in ("id < 200", "id >= 100"):
        lake.write("shop.t", frame.where(part).coalesce(1))
    fold_table(table.filestore, full=True)
    lake.write("shop.t", frame.where("id < 50").selectExpr("id", "n + 1 AS n", "t").coalesce(1))
    for before, after in ((1, 2), (2, 3), (1, 4), (4, 2), (0, 4)):
        held = Counter(repr(sorted(row.items())) for row in rows(table, before))
        changes = lake.read("shop.t$changes", from_version=before, to_version=after)
        for change in (row.asDict() for row in changes.collect()):
            kind = change.pop("rowkind")
            held[repr(sorted(change.items()))] += 1 if kind in ("+I", "+U") else -1
        wanted = Counter(repr(sorted(row.items())) for row in rows(table, after))
        assert {row: n for row, n in held.items() if n} == wanted, (before, after)
    assert lake.read("shop.t$changes", from_version=2, to_version=3).count() == 0
    assert lake.read("shop.t$buckets").selectExpr("sum(pending_record_count)").first()[0] > 0  # type: ignore[index]


def test_columns_are_pruned_and_filters_pushed_while_runs_are_pending(lake: SparkStore, store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT, n INT, t STRING", primary_key=["id"], options=LATER)
    for start in (0, 50):
        lake.write("shop.t", lake.spark.range(100).selectExpr(f"id + {start} AS id", "CAST(id AS INT) n", "'x' AS t"))
    assert table.filestore.state().pending
    with redirect_stdout(io.StringIO()) as printed:
        lake.read("shop.t").where("n > 90").select("id").explain()
    plan = printed.getvalue()
    assert "IsNotNull(n), GreaterThan(n,90)]" in plan
    assert "ReadSchema: struct<id:bigint,n:int" in plan
    assert "t:string" not in plan


@pytest.mark.deep
def test_spark_reads_runs_from_before_a_column_was_widened(lake: SparkStore, store: Store) -> None:
    columns = "id BIGINT, n TINYINT, d DECIMAL(5,2)"
    table = store.create_table("shop.t", columns, primary_key=["id"], options=LATER)
    for start in (0, 50):
        numbers = lake.spark.range(start, start + 100)
        lake.write(
            "shop.t", numbers.selectExpr("id", "CAST(id % 100 AS TINYINT) AS n", "CAST(id AS DECIMAL(5,2)) AS d")
        )
    table.alter("ALTER COLUMN n TYPE BIGINT", "ALTER COLUMN d TYPE DECIMAL(20,4)")
    lake.write("shop.t", lake.spark.range(5).selectExpr("id", "1L << 40 AS n", "CAST(id AS DECIMAL(20,4)) AS d"))
    assert table.filestore.state().pending
    assert in_order(row.asDict() for row in lake.read("shop.t").collect()) == rows(table)
    some = lake.read("shop.t").where("n >= 98 AND d < 120").select("id")
    assert sorted(row.id for row in some.collect()) == [0, 1, 2, 3, 4, 98, 99]


@pytest.mark.deep
def test_a_stream_begins_with_what_is_pending_and_goes_on_in_the_log(
    lake: SparkStore, store: Store, folder: Path
) -> None:
    table = store.create_table("shop.t", "id BIGINT, n INT", primary_key=["id"], options=LATER)
    copy = store.create_table("shop.copy", "id BIGINT, n INT", primary_key=["id"], options=LATER)
    for start in (0, 30, 60):
        rising = lake.spark.range(50).selectExpr(f"id + {start} AS id", f"CAST({start} AS INT) AS n")
        lake.write("shop.t", rising)
        changes = lake.read_stream("shop.t", max_rows_per_batch=40)
        query = lake.write_stream(
            "shop.copy", changes, checkpoint=str(folder / "checkpoint"), trigger={"availableNow": True}
        )
        query.awaitTermination()
        if start == 30:
            fold_table(table.filestore, full=True)
    assert rows(copy) == rows(table)
    assert len(rows(copy)) == 110
