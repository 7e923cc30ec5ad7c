"""Changed columns in Spark: delta-spark reads both modes, and writers and streams that are open continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from filestore.model.changes import AddColumn, DropColumn, MoveColumn, RenameColumn, SetNullable, WidenColumn
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.depth import sampled
from tests.tables import assert_healthy
from tests.warehouses import changes, replay, rows, to_arrow

COLUMNS = """id BIGINT, day STRING, a INT, t TINYINT, f FLOAT, d DECIMAL(9,2), e DECIMAL(20,3), name STRING NOT NULL,
    s STRUCT<x: INT, l: ARRAY<STRUCT<y: INT>>>, gone INT"""
CHANGES = (
    WidenColumn("a", "BIGINT"),
    WidenColumn("t", "INT"),
    WidenColumn("f", "DOUBLE"),
    WidenColumn("d", "DECIMAL(12,4)"),
    WidenColumn("e", "DECIMAL(30,5)"),
    RenameColumn("name", "title"),
    SetNullable("title"),
    RenameColumn("s", "name"),
    DropColumn("gone"),
    AddColumn("gone", "STRING", first=True),
    AddColumn("more", "STRUCT<z: INT>"),
    MoveColumn("id"),
)


def old_rows(ids: range) -> list[dict[str, Any]]:
    return [
        {"id": i, "day": "xy"[i % 2], "a": i, "t": i % 100, "f": i / 2, "d": i, "e": i, "name": f"n{i}", "gone": i}
        | {"s": {"x": i, "l": [{"y": i}, None]}}
        for i in ids
    ]


def comparable(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: row["id"])


@pytest.mark.parametrize("mode", sampled(["metadata", "rewrite"], 2, test=2))
def test_delta_reads_what_we_read(lake: SparkStore, store: Store, mode: str) -> None:
    table = store.create_table(
        "shop.t",
        COLUMNS,
        primary_key=["day", "id"],
        partition_by=["day"],
        options={"schema.evolution-mode": mode, "bucket": "2"},
    )
    table.write(to_arrow(table, old_rows(range(300))))
    lake.write("shop.t", lake.spark.createDataFrame([], "id BIGINT, day STRING, name STRING"))
    before = table.filestore.state().version
    table.alter(*CHANGES)
    frame = lake.spark.range(200, 400).selectExpr(
        *("id", "IF(id % 2 = 0, 'x', 'y') AS day", "id + 5000000000 AS a", "CAST(70000 AS INT) AS t", "id * 0.1D AS f"),
        *("CAST(id + 0.1234 AS DECIMAL(12,4)) AS d", "'new' AS title", "'g' AS gone"),
        *("named_struct('z', CAST(id AS INT)) AS more", "named_struct('x', 7) AS name"),
    )
    lake.write("shop.t", frame)
    found = lake.read("shop.t")
    assert found.columns == list(table.definition.schema.names)
    assert comparable(found) == sorted(rows(table), key=lambda row: row["id"])
    for condition in (
        "a > 5000000000",
        "t = 7",
        "d < 3.5",
        "f = 0.5",
        "title = 'n8'",
        "gone IS NULL",
        "e = 9",
        "day = 'x'",
    ):
        ours = table.scan(["id"], condition).to_arrow()["id"].to_pylist()
        assert sorted(row.id for row in found.where(condition).select("id").collect()) == sorted(ours), condition
        assert ours, condition
    older = lake.read("shop.t", version=before)
    assert "title" not in older.columns
    assert older.count() == 300
    assert_healthy(table.filestore)
    by_key = {(row["day"], row["id"]): row for row in rows(table)}
    assert {(r["day"], r["id"]): r for r in replay(changes(table, version=0), ["day", "id"])} == by_key


def collected(lake: SparkStore, name: str, checkpoint: Path) -> list[dict[str, Any]]:
    """Returns what a query emits now; a restarted query continues where it stopped."""
    found: list[dict[str, Any]] = []

    def take(frame: DataFrame, _: int) -> None:
        found.extend(row.asDict() for row in frame.collect())

    stream = lake.read_stream(name).writeStream.foreachBatch(take)
    stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return found


def put(table: Table, *listed: dict[str, Any]) -> None:
    table.write(to_arrow(table, listed))


@pytest.mark.deep
@pytest.mark.parametrize("mode", sampled(["rewrite", "metadata"], 2, test=2))
def test_a_restarted_stream_goes_on_with_the_new_columns(
    lake: SparkStore, store: Store, folder: Path, mode: str
) -> None:
    table = store.create_table(
        "shop.t", "id BIGINT, a INT, b STRING", primary_key=["id"], options={"schema.evolution-mode": mode}
    )
    put(table, {"id": 1, "a": 1, "b": "x"})
    assert collected(lake, "shop.t", folder) == [{"id": 1, "a": 1, "b": "x", "_kind": "+I"}]
    put(table, {"id": 2, "a": 2, "b": "before"})
    table.alter(RenameColumn("b", "c"), AddColumn("b", "INT"), WidenColumn("a", "BIGINT"))
    put(table, {"id": 3, "a": 2**40, "b": 3, "c": "after"})
    table.write(to_arrow(table, [{"id": 9, "c": "over"}]), overwrite=True)
    found = collected(lake, "shop.t", folder)
    assert {"id": 2, "a": 2, "c": "before", "b": None, "_kind": "+I"} in found
    assert {"id": 3, "a": 2**40, "c": "after", "b": 3, "_kind": "+I"} in found
    assert {(row["_kind"], row["id"], row["c"]) for row in found[2:]} == {
        ("-D", 1, "x"),
        ("-D", 2, "before"),
        ("-D", 3, "after"),
        ("+I", 9, "over"),
    }


@pytest.mark.deep
def test_a_planned_stream_keeps_its_columns(lake: SparkStore, store: Store, folder: Path) -> None:
    table = store.create_table("shop.t", "id BIGINT, a INT, b STRING", primary_key=["id"])
    put(table, {"id": 1, "a": 1, "b": "x"})
    stream, batch = lake.read_stream("shop.t"), lake.spark.read.format("tablestore")
    rows_of = batch.option("catalog", store.target).load("shop.t")
    found: list[dict[str, Any]] = []
    table.alter(RenameColumn("b", "c"), AddColumn("b", "INT"), DropColumn("a"))
    put(table, {"id": 2, "b": 3, "c": "after"})
    query = stream.writeStream.foreachBatch(lambda frame, _: found.extend(row.asDict() for row in frame.collect()))
    query.option("checkpointLocation", str(folder)).trigger(availableNow=True).start().awaitTermination()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 1, "a": None, "b": "x", "_kind": "+I"},
        {"id": 2, "a": None, "b": "after", "_kind": "+I"},
    ]
    assert comparable(rows_of) == [{"id": 1, "a": None, "b": "x"}, {"id": 2, "a": None, "b": "after"}]


@pytest.mark.deep
def test_a_kept_writer_knows_new_columns(lake: SparkStore, store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT, a INT", primary_key=["id"])
    lake.write("shop.t", lake.spark.sql("SELECT 1L AS id, 1 AS a"))
    table.alter(AddColumn("b", "STRING", first=True), DropColumn("a"))
    lake.write("shop.t", lake.spark.sql("SELECT 2L AS id, 'b' AS b"))
    lake.spark.sql("SELECT 3L AS id, 'c' AS b").write.format("tablestore").mode("append").option(
        "catalog", store.target
    ).save("shop.t")
    assert rows(table) == [{"b": "b", "id": 2}, {"b": "c", "id": 3}, {"b": None, "id": 1}]
    assert replay(changes(table, version=0), ["id"]) == rows(table)
    assert pa.schema(table.schema).names == ["b", "id"]


MERGING = {"last": {}, "summed": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}}


@pytest.mark.deep
@pytest.mark.parametrize("engine", sampled(MERGING, 2, test=2))
def test_runs_of_former_columns_are_scanned_natively(lake: SparkStore, store: Store, engine: str) -> None:
    options = {"schema.evolution-mode": "metadata", "write-mode": "merge-on-read", "log.system": "none", "bucket": "2"}
    columns = "id BIGINT, a INT, b STRING, d DECIMAL(9,2), s STRUCT<x: INT>"
    table = store.create_table("shop.t", columns, primary_key=["id"], options=options | MERGING[engine])
    row = {"b": "'b' || id", "d": "CAST(id AS DECIMAL(9,2))", "s": "named_struct('x', CAST(id AS INT))"}
    old = [f"{text} AS {name}" for name, text in row.items()]
    lake.write("shop.t", lake.spark.range(200).selectExpr("id", "1 AS a", *old))
    table.compact(full=True)
    lake.write("shop.t", lake.spark.range(100, 300).selectExpr("id", "2 AS a", *old))
    table.alter(
        *(RenameColumn("b", "c"), RenameColumn("d", "b"), DropColumn("s"), AddColumn("d", "STRING", first=True)),
        *(WidenColumn("a", "BIGINT"), WidenColumn("b", "DECIMAL(12,4)")),
    )
    new = ["id", "5000000000 AS a", "'new' AS c", "CAST(id + 0.1234 AS DECIMAL(12,4)) AS b", "'d' AS d"]
    lake.write("shop.t", lake.spark.range(250, 350).selectExpr(*new))
    assert len(set(table.filestore.state().pending.slots)) == 2
    found = lake.read("shop.t")
    assert found.columns == ["d", "id", "a", "c", "b"]
    assert comparable(found) == sorted(rows(table), key=lambda row: row["id"])
    for condition in ("c = 'b150'", "a >= 5000000000", "d IS NULL AND b > 120.5", "b = 260.1234"):
        ours = table.scan(["id"], condition).to_arrow()["id"].to_pylist()
        assert sorted(r.id for r in found.where(condition).select("id").collect()) == sorted(ours) != [], condition
    table.compact(full=True)
    assert comparable(lake.read("shop.t")) == sorted(rows(table), key=lambda row: row["id"])
    assert_healthy(table.filestore)


@pytest.mark.parametrize("mode", sampled(["metadata", "rewrite"], 2, test=2))
def test_changes_of_changed_tables(lake: SparkStore, store: Store, mode: str) -> None:
    """delta-spark reads the change feed since the change; system tables show all versions with the present columns."""
    options = {"schema.evolution-mode": mode, "changelog-producer": "lookup"}
    table = store.create_table("shop.t", "id BIGINT, a INT, b STRING", primary_key=["id"], options=options)
    put(table, {"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"})
    altered = table.alter(RenameColumn("b", "c"), AddColumn("b", "INT"), WidenColumn("a", "BIGINT")).version
    put(table, {"id": 1, "a": 2**40, "c": "z", "b": 5, "_kind": "+U"}, {"id": 2, "_kind": "-D"})
    feed = lake.spark.read.format("delta").options(readChangeFeed="true", startingVersion=str(altered))
    reported = feed.load(table.location).select("_change_type", "id", "a", "c", "b").collect()
    assert sorted(map(tuple, reported), key=repr) == [
        ("delete", 2, 2, "y", None),
        ("update_postimage", 1, 2**40, "z", 5),
        ("update_preimage", 1, 1, "x", None),
    ]
    for name in ("changes", "audit_log"):  # the log has complete changes if `changelog-producer` is lookup
        found = lake.read(f"shop.t${name}", from_version=1).select("rowkind", "id", "c")
        assert sorted(row.rowkind for row in found.collect()) == ["+U", "-D", "-U"]
        assert ("+U", 1, "z") in [tuple(row) for row in found.collect()]
