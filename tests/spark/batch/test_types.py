"""Every column type, from Spark to the table and back, by batch, by stream, and by readers that know nothing of us."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.warehouses import rows, to_arrow

COLUMNS = (
    "k BIGINT, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f32 FLOAT, f64 DOUBLE, d9 DECIMAL(9,2), "
    "d38 DECIMAL(38,18), s STRING, bin BINARY, day DATE, at TIMESTAMP, ntz TIMESTAMP_NTZ, arr ARRAY<INT>, "
    "st STRUCT<x: INT, y: STRING>, m MAP<STRING, BIGINT>, "
    "deep ARRAY<STRUCT<k: STRING, m: MAP<STRING, ARRAY<DECIMAL(10,3)>>>>"
)


def value(k: int, **others: Any) -> dict[str, Any]:
    return {"k": k, **others}


ROWS = [
    value(0),
    value(
        1,
        b=True,
        i8=-128,
        i16=-(2**15),
        i32=-(2**31),
        i64=-(2**63),
        f32=-math.inf,
        f64=5e-324,
        d9=Decimal("-9999999.99"),
        d38=Decimal("-99999999999999999999.999999999999999999"),
        s="",
        bin=b"",
        day=date(1, 1, 1),
        at=datetime(1, 1, 1, tzinfo=UTC),
        ntz=datetime(1, 1, 1),
        arr=[],
        st={"x": None, "y": None},
        m=[],
        deep=[],
    ),
    value(
        2,
        b=False,
        i8=127,
        i16=2**15 - 1,
        i32=2**31 - 1,
        i64=2**63 - 1,
        f32=1.5,
        f64=1.7976931348623157e308,
        d9=Decimal("0.01"),
        d38=Decimal("0.000000000000000001"),
        s='quote " backslash \\ newline \n tab \t nul \x00 snow ☃ 🎿 \u2028',
        bin=bytes(range(256)),
        day=date(9999, 12, 31),
        at=datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        ntz=datetime(9999, 12, 31, 23, 59, 59, 999999),
        arr=[1, None, -1],
        st={"x": 7, "y": "ü"},
        m=[("a", 1), ("b", None), ("", -1)],
        deep=[
            {"k": "x", "m": [("p", [Decimal("1.250"), None]), ("q", None)]},
            None,
            {"k": None, "m": None},
        ],
    ),
    value(3, f32=math.nan, f64=math.nan, day=date(1582, 10, 10), at=datetime(1900, 1, 1, tzinfo=UTC)),
    value(4, f32=-0.0, f64=-0.0, ntz=datetime(1969, 12, 31, 23, 59, 59, 999999), d9=Decimal(0)),
]


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("shop.types", COLUMNS, primary_key=["k"], options={"bucket": "2"})


def shown(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as text, so that NaN is itself and -0.0 is not 0.0."""
    return sorted(repr({name: row[name] for name in row if name != "_kind"}) for row in rows)


def arrow(frame: DataFrame, schema: pa.Schema) -> list[dict[str, Any]]:
    """A frame's rows by way of Arrow, as Python would have them from the table."""
    return frame.toArrow().cast(schema).to_pylist()


def all_nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_nullable(True) for f in schema])


def test_every_type_survives_the_way_through_spark(lake: SparkStore, store: Store, table: Table) -> None:
    given = to_arrow(table, ROWS)
    expected = shown(given.to_pylist())
    lake.write("shop.types", lake.spark.createDataFrame(given))
    schema = all_nullable(table.schema)
    assert shown(table.scan().to_arrow().to_pylist()) == expected
    native = lake.read("shop.types")
    assert native.schema.simpleString().replace("struct<", "", 1).startswith("k:bigint,b:boolean,i8:tinyint")
    assert shown(arrow(native, schema)) == expected
    through_python = lake.spark.read.format("tablestore").option("catalog", store.target).load("shop.types")
    assert shown(arrow(through_python, schema)) == expected
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table.location)).execute("SELECT * FROM t")
    assert shown(pa.table(found.read_all()).cast(schema).to_pylist()) == expected
    assert pl.scan_delta(table.location).collect().height == len(ROWS)
    # and once more, as updates of rows that are there
    lake.write("shop.types", native)
    assert shown(table.scan().to_arrow().to_pylist()) == expected
    assert shown([row for batch in table.follow(version=0, stop=2) for row in batch.to_pylist()]) == sorted(
        expected * 2
    )


@pytest.mark.deep
def test_every_type_survives_a_stream(lake: SparkStore, store: Store, table: Table, folder: Path) -> None:
    """Rows of the snapshot and changes of the log, nulls included; deletes have their key only."""
    copy = store.create_table("shop.copy", COLUMNS, primary_key=["k"])
    given = to_arrow(table, ROWS)
    table.write(given)

    def run() -> None:
        stream = lake.write_stream(
            "shop.copy", lake.read_stream("shop.types"), checkpoint=str(folder / "c"), trigger={"availableNow": True}
        )
        stream.awaitTermination()

    run()
    assert shown(copy.scan().to_arrow().to_pylist()) == shown(given.to_pylist())
    table.write(pa.table({"k": [0, 3], "_kind": ["-D", "-D"]}))
    table.write(given.slice(1, 3).set_column(10, "s", pa.array(["changed"] * 3)))
    run()
    assert shown(copy.scan().to_arrow().to_pylist()) == shown(table.scan().to_arrow().to_pylist())


@pytest.mark.deep
def test_columns_that_are_not_null_stay_so(lake: SparkStore, store: Store) -> None:
    """Spark compares schemas strictly, nullability included."""
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("v", pa.string(), nullable=False),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
        ]
    )
    table = store.create_table("shop.strict", schema, primary_key=["k"])
    table.write(pa.table({"k": [1], "v": ["a"], "tags": [["x", "y"]]}))
    source = lake.spark.read.format("tablestore").option("catalog", store.target)
    for frame in (
        lake.read("shop.strict"),
        source.load("shop.strict"),
        source.option("changes", "true").load("shop.strict"),
    ):
        [row] = frame.select("k", "v", "tags").collect()
        assert row.asDict() == {"k": 1, "v": "a", "tags": ["x", "y"]}
    lake.write("shop.strict", lake.spark.sql("SELECT 2L k, 'b' v, array('z') tags"))
    lake.write("shop.strict", lake.spark.sql("SELECT 1L k, '-D' _kind, '' v, array('z') tags"))
    assert table.scan().to_arrow().to_pylist() == [{"k": 2, "v": "b", "tags": ["z"]}]


def test_null_structs_with_fields_that_are_not_null(lake: SparkStore, store: Store) -> None:
    """Arrow cannot cast such a column, so its changes could not be looked up or read."""
    columns = (
        "k BIGINT, s STRUCT<a: INT NOT NULL>, l ARRAY<STRUCT<a: INT NOT NULL>>, m MAP<STRING, STRUCT<a: INT NOT NULL>>"
    )
    options = {"changelog-producer": "lookup", "log.system": "embedded"}
    table = store.create_table("shop.nulls", columns, primary_key=["k"], options=options)
    row = "SELECT {}L k, {} s, array({}) l, map('x', {}) m"
    point, null = "named_struct('a', 1)", "CAST(NULL AS STRUCT<a: INT>)"
    lake.write("shop.nulls", lake.spark.sql(row.format(1, *[null] * 3) + " UNION ALL " + row.format(2, *[point] * 3)))
    lake.write("shop.nulls", lake.spark.sql(row.format(1, *[point] * 3) + " UNION ALL " + row.format(2, *[null] * 3)))
    expected = [
        {"k": 1, "s": {"a": 1}, "l": [{"a": 1}], "m": [("x", {"a": 1})]},
        {"k": 2, "s": None, "l": [None], "m": [("x", None)]},
    ]
    assert rows(table) == expected
    assert table.get([{"k": 1}, {"k": 2}]).to_pylist() == expected
    through_python = lake.spark.read.format("tablestore").option("catalog", store.target).load("shop.nulls")
    for frame in (lake.read("shop.nulls"), through_python):
        assert [r.s is None for r in frame.orderBy("k").collect()] == [False, True]
    changes = lake.read("shop.nulls$changes", from_version=1).collect()
    assert sorted((r.rowkind, r.k, r.s is None) for r in changes) == [
        ("+U", 1, False), ("+U", 2, True), ("-U", 1, True), ("-U", 2, False)
    ]  # fmt: skip
