"""Other Delta readers read the right rows, whatever the values (FORMAT.md, goal 1)."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from filestore.errors import InvalidRequest
from filestore.model.files import Partition
from filestore.rows.partitions import partition_column, partition_values
from filestore.table import FileStore
from tests.tables import (
    assert_healthy,
    create,
    define,
    in_order,
    paths,
    read,
    read_deltalake,
    read_polars,
    reopen,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = datetime.UTC
day, moment = datetime.date, datetime.datetime
PARTITIONS: list[dict[str, Any]] = [
    {
        **{"p": "a b/c%2F=:é\u2028\"\\'", "d": Decimal("0.00000000"), "b": True, "i": -(2**31), "e": day(1, 1, 1)},
        **{"t": moment(1, 1, 1, tzinfo=UTC), "n": moment(999, 1, 2, 3, 4, 5)},
    },
    {"p": None, "d": None, "b": None, "i": None, "e": None, "t": None, "n": None},
    {
        **{"p": "__HIVE_DEFAULT_PARTITION__", "d": Decimal("-0.00000001"), "b": False, "i": 0, "e": day(9999, 12, 31)},
        **{"t": moment(1969, 12, 31, 23, 59, 59, 999999, UTC), "n": moment(2020, 1, 1)},
    },
    {
        **{"p": "..", "d": Decimal("123456789012.12345678"), "b": False, "i": 2**31 - 1, "e": day(2020, 12, 31)},
        **{"t": moment(2020, 1, 1, tzinfo=UTC), "n": moment.max},
    },
    {
        **{"p": "\U0001f600" * 150, "d": Decimal(1), "b": True, "i": 7, "e": day(2020, 1, 1)},
        **{"t": moment(2020, 1, 1, tzinfo=UTC), "n": moment(2020, 1, 1)},
    },
]
PARTITION_COLUMNS = "p STRING, d DECIMAL(20,8), b BOOLEAN, i INT, e DATE, t TIMESTAMP, n TIMESTAMP_NTZ"


@pytest.fixture
def partitioned(folder: Path) -> tuple[FileStore, list[dict[str, Any]]]:
    """Creates an append table with each odd value, and nulls, as a partition; a second file adds rows to each."""
    names = [column.split()[0] for column in PARTITION_COLUMNS.split(", ")]
    store = create(folder / "t", define(f"k BIGINT, {PARTITION_COLUMNS}, v INT", (), names, checkpoint_interval=2))
    rows = [{"k": n, **values, "v": n} for n, values in enumerate(PARTITIONS)]
    write(store, rows)
    more = [{**row, "k": row["k"] + 100} for row in rows]
    write(store, more)
    return store, rows + more


def test_odd_partition_values(partitioned: tuple[FileStore, list[dict[str, Any]]]) -> None:
    store, rows = partitioned
    assert read(store) == in_order(rows)
    assert read_polars(store.location) == in_order(rows)
    assert read_deltalake(store.location) == in_order(rows)
    assert reopen(store).state() == store.delta_log.checkpoint(2)
    assert_healthy(store)


@pytest.mark.slow
def test_filters_on_odd_partition_values(partitioned: tuple[FileStore, list[dict[str, Any]]]) -> None:
    store, _ = partitioned
    for number, values in enumerate(PARTITIONS):
        for name, value in values.items():
            same = pl.col(name).is_null() if value is None else pl.col(name) == value
            expected = sorted(k for n, v in enumerate(PARTITIONS) if v[name] == value for k in (n, n + 100))
            found = pl.scan_delta(store.location).filter(same).select("k").collect()["k"].sort().to_list()
            assert found == expected, (number, name)


@pytest.mark.parametrize("value", ["x y", "é", "a/b", "a%", "=", "x"])
def test_dead_rows_in_odd_partitions(folder: Path, value: str) -> None:
    store = create(folder / "t", define("id BIGINT, p STRING, v INT", ["id", "p"], ["p"], bucket=2))
    write(store, [{"id": n, "p": value, "v": 0} for n in range(20)])
    write(store, [{"id": n, "p": value, "v": 1} for n in range(0, 20, 3)])
    expected = in_order({"id": n, "p": value, "v": int(n % 3 == 0)} for n in range(20))
    assert read(store) == read_polars(store.location) == read_deltalake(store.location) == expected


def test_paths_need_no_encoding(partitioned: tuple[FileStore, list[dict[str, Any]]]) -> None:
    for path in paths(partitioned[0].state()):
        assert path.isascii()
        assert not set(path) & set("%= :\\\"'")
        assert max(map(len, path.split("/"))) < 255


def test_an_empty_string_is_no_partition(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, p STRING", ["id", "p"], ["p"]))
    with pytest.raises(InvalidRequest) as caught:
        write(store, [{"id": 1, "p": ""}])
    assert caught.value.code == "empty-partition-value"


def test_partition_values_come_back() -> None:
    kinds = define(PARTITION_COLUMNS + ", v INT").schema.to_arrow()
    for values in PARTITIONS:
        columns = {name: pa.array([value], kinds.field(name).type) for name, value in values.items()}
        texts: Partition = partition_values(pa.table(columns), list(values))
        assert {n: partition_column(text, kinds.field(n).type, 1)[0].as_py() for n, text in texts} == values


ALL_TYPES = (
    "k BIGINT, bo BOOLEAN, ti TINYINT, sm SMALLINT, it INT, fl FLOAT, db DOUBLE, d1 DECIMAL(9,2), d2 DECIMAL(38,10), "
    "st STRING, bi BINARY, da DATE, ts TIMESTAMP, nt TIMESTAMP_NTZ, ar ARRAY<INT>, ma MAP<STRING, INT>, "
    "sr STRUCT<k: INT, b: STRING>"
)
ROWS: list[dict[str, Any]] = [
    {
        **{"k": 1, "bo": True, "ti": 127, "sm": -32768, "it": 2**31 - 1, "fl": 0.1, "db": float("inf")},
        **{"d1": Decimal("-0.01"), "d2": Decimal("12345678901234567890.0123456789"), "st": "x" * 200},
        **{"bi": b"\xff\x00", "da": day(1582, 10, 4), "ts": moment(1900, 1, 1, 0, 0, 0, 1, UTC)},
        **{"nt": moment(2024, 2, 29, 23, 59, 59, 999999), "ar": [1, None], "ma": [("a", None)]},
        **{"sr": {"k": 1, "b": None}},
    },
    {"k": 2, "st": "", "bi": b"", "ar": [], "ma": [], "sr": {"k": None, "b": ""}},
    {"k": 3},
    {
        **{"k": 4, "st": "\U0010ffff" * 70, "db": float("nan"), "fl": -0.0, "it": -5},
        **{"ts": moment(2024, 1, 1, tzinfo=UTC), "d1": Decimal("9999999.99")},
    },
]


@pytest.fixture
def all_types(folder: Path) -> FileStore:
    store = create(folder / "t", define(ALL_TYPES, ["k"], checkpoint_interval=3, file_compression="snappy"))
    write(store, [*ROWS, {"k": 5, "st": "will die"}])
    write(store, [{"k": 5, "_kind": "-D"}, {"k": 3}])
    write(store, [])
    return store


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr({name: normal(row.get(name)) for name in ROWS[0]}) for row in rows)


def normal(value: Any) -> Any:
    """Writes a value in one way, whichever reader returned it."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return sorted((item["key"], item["value"]) for item in value)
    if isinstance(value, dict):
        return sorted(value.items())
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone(UTC).isoformat() if isinstance(value, moment) and value.tzinfo else value


def test_all_types(all_types: FileStore) -> None:
    expected = comparable(to_python(ROWS))
    assert comparable(to_python(read(all_types))) == expected
    assert comparable(to_python(read_deltalake(all_types.location))) == expected
    frame = pl.scan_delta(all_types.location).drop("ma").collect()  # polars returns maps as lists of structs or dicts
    without = [{n: v for n, v in row.items() if n != "ma"} for row in to_python(ROWS)]
    assert comparable(frame.to_dicts()) == comparable(without)
    assert_healthy(all_types)
    assert reopen(all_types).state() == all_types.delta_log.checkpoint(3)


def to_python(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Converts structs, maps and lists so that tuples and objects compare as equal."""

    def plain(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            return dict(value)
        return value

    return [{name: plain(row.get(name)) for name in ROWS[0]} for row in rows]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda table, row: deltalake.write_deltalake(table, row, mode="append"),
        lambda table, row: deltalake.write_deltalake(table, row, mode="overwrite"),
        lambda table, _: table.optimize.compact(),
        lambda table, _: table.vacuum(0, dry_run=False, enforce_retention_duration=False),
        lambda table, _: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
        lambda table, _: table.delete("k = 1"),
        lambda table, _: table.update(updates={"v": "3"}),
        lambda table, _: table.restore(1),
        lambda table, _: table.alter.add_columns([deltalake.Field("x", deltalake.schema.PrimitiveType("integer"))]),
    ],
)
def test_foreign_writers_are_refused_by_delta_rs(folder: Path, attempt: Any) -> None:
    store = create(folder / "t", define("k BIGINT, v INT", ["k"]))
    for n in range(3):
        write(store, [{"k": 1, "v": n}])  # so that there are files for VACUUM to remove
    (Path(store.location) / "bucket-00000" / "orphan.parquet").write_bytes(b"")
    row = pa.table({"k": pa.array([9], pa.int64()), "v": pa.array([9], pa.int32())})
    before = sorted(Path(store.location).rglob("*"))
    with pytest.raises(DeltaError, match=r"tablestore\.primaryKey"):
        attempt(deltalake.DeltaTable(store.location), row)
    assert sorted(Path(store.location).rglob("*")) == before


def test_delta_spark_reads_all_types(all_types: FileStore, spark: SparkSession) -> None:
    frame = spark.read.format("delta").load(all_types.location)
    found = [row.asDict(recursive=True) for row in frame.collect()]
    for row in found:
        if row["ts"] is not None:
            row["ts"] = row["ts"].replace(tzinfo=None)
    expected = [dict(row) for row in to_python(ROWS)]
    for row in expected:
        if row["ts"] is not None:
            row["ts"] = row["ts"].replace(tzinfo=None)
    assert comparable(found) == comparable(expected)


def test_delta_spark_reads_odd_partitions(
    partitioned: tuple[FileStore, list[dict[str, Any]]], spark: SparkSession
) -> None:
    store, rows = partitioned
    frame = spark.read.format("delta").load(store.location)
    # Spark hands years before 1900 to Python through local clocks: compare them as text
    texts = frame.selectExpr("k", "p", "d", "CAST(t AS STRING) t", "CAST(n AS STRING) n", "e", "b", "i", "v")
    found = {row.k: row.asDict() for row in texts.collect()}
    assert len(found) == len(rows)
    for row in rows:
        for name in ("p", "d", "e", "b", "i", "v"):
            assert found[row["k"]][name] == row[name], (row["k"], name)
        for name in ("t", "n"):
            expected = None if row[name] is None else row[name].replace(tzinfo=None).isoformat(sep=" ")
            assert found[row["k"]][name] == expected
    assert frame.filter("p = '..'").count() == 2
    assert frame.filter("p IS NULL").count() == 2
    assert frame.filter("e = DATE'9999-12-31'").count() == 2


def bounded(n: int) -> dict[str, Any]:
    """Writes a file of one row, which is both of its bounds."""
    return {
        **{"k": n, "de": Decimal(n) + Decimal("0.001"), "st": "ab" * 40 + str(n), "fl": 0.1 + n, "db": 0.1 + n},
        **{"ts": moment(2024, 1, 1, 0, 0, n, 123456, UTC), "nt": moment(1960, 1, 1, 0, 0, n, 999999)},
        **{"da": day(1960, 1, 1 + n), "ti": n},
    }


BOUNDED = (
    "k BIGINT, ts TIMESTAMP, nt TIMESTAMP_NTZ, de DECIMAL(15,3), st STRING, fl FLOAT, da DATE, db DOUBLE, ti TINYINT"
)


@pytest.mark.deep
def test_delta_spark_skips_no_file_that_holds_a_row(folder: Path, spark: SparkSession) -> None:
    """Statistics are exact to the microsecond and to the last digit, so that equality with a bound finds its row."""
    store = create(folder / "t", define(BOUNDED, ["k"]))
    for n in range(3):
        write(store, [bounded(n)])
    frame = spark.read.format("delta").load(store.location)
    for n in range(3):
        for condition in (
            f"k = {n}",
            f"ts = TIMESTAMP'2024-01-01 00:00:0{n}.123456Z'",
            f"ts >= TIMESTAMP'2024-01-01 00:00:0{n}.123456Z' AND ts < TIMESTAMP'2024-01-01 00:00:0{n}.123457Z'",
            f"nt = TIMESTAMP_NTZ'1960-01-01 00:00:0{n}.999999'",
            f"de = {n}.001",
            f"st = '{'ab' * 40}{n}'",
            f"fl = CAST({0.1 + n} AS FLOAT)",
            f"da = DATE'1960-01-0{1 + n}'",
            f"db = {0.1 + n}D",
        ):
            assert [row.k for row in frame.filter(condition).collect()] == [n], condition


@pytest.mark.slow
def test_filters_at_the_bounds_in_polars_and_delta_rs(folder: Path) -> None:
    store = create(folder / "t", define(BOUNDED, ["k"]))
    rows = [bounded(n) for n in range(3)]
    for row in rows:
        write(store, [row])
    for row in rows:
        for name, value in row.items():
            if name == "fl":
                continue  # polars widens the column and not the literal
            found = pl.scan_delta(store.location).filter(pl.col(name) == pl.lit(value)).collect()["k"].to_list()
            assert found == [row["k"]], name
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(store.location))
        for condition in (
            f"st = '{row['st']}'",
            f"ts = TIMESTAMP '{row['ts'].isoformat()}'",
            f"da = DATE '{row['da']}'",
            f"de = {row['de']}",
            f"db = {row['db']}",
        ):
            assert pa.table(query.execute(f"SELECT k FROM t WHERE {condition}").read_all()).to_pylist() == [
                {"k": row["k"]}
            ]


def test_foreign_writers_are_refused_by_delta_spark(all_types: FileStore, spark: SparkSession) -> None:
    where = f"delta.`{all_types.location}`"
    for statement in (
        f"INSERT INTO {where} (k) VALUES (9)",
        f"OPTIMIZE {where}",
        f"DELETE FROM {where}",
        f"VACUUM {where}",
    ):
        with pytest.raises(Exception, match=r"delta-folder"):
            spark.sql(statement.format(where))
    assert all_types.delta_log.versions() == [0, 1, 2, 3]


@pytest.mark.deep
def test_delta_spark_travels_in_time_and_reads_checkpoints(folder: Path, spark: SparkSession) -> None:
    store = create(folder / "t", define("k BIGINT, v INT", ["k"], checkpoint_interval=2))
    for n in range(5):
        write(store, [{"k": 0, "v": n}, {"k": n, "v": n}])
    for version in range(6):
        frame = spark.read.format("delta").option("versionAsOf", version).load(store.location)
        assert in_order(row.asDict() for row in frame.collect()) == read(store, version)
    time = store.snapshot(3).timestamp.strftime("%Y-%m-%d %H:%M:%S.%f")
    frame = spark.read.format("delta").option("timestampAsOf", time).load(store.location)
    assert in_order(row.asDict() for row in frame.collect()) == read(
        store, store.version_at(store.state(3).timestamp_ms)
    )
