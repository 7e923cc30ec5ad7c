"""`SparkStore.write` and `read`: rows as DataFrames, one commit a write, native scans."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from filestore.delta.log import DeltaLog
from filestore.errors import InvalidRequest, NotFound
from filestore.merge.deduplicate import ORDINAL_COLUMN
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tablestore.spark.batch.columns import conformed
from tablestore.spark.batch.writing import arranged
from tests.depth import sampled
from tests.servers.kafka import KafkaBroker
from tests.tables import in_order
from tests.warehouses import assert_whole, open_in_log, orphans, rows

ORDERS = "id BIGINT, name STRING, amount DOUBLE"


@pytest.fixture
def orders(store: Store) -> Table:
    return store.create_table("shop.orders", ORDERS, primary_key=["id"], options={"bucket": "3"})


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    return in_order(row.asDict(recursive=True) for row in frame.collect())


def agreed(lake: SparkStore, table: Table, **how: Any) -> list[dict[str, Any]]:
    """The table's rows, which all readers and the log agree upon."""
    found = assert_whole(table, **how)
    assert collected(lake.read(table.identifier)) == found
    return found


@pytest.fixture
def untouched(lake: SparkStore, orders: Table) -> Iterator[None]:
    """Whatever the test does changes nothing: no version, no row, no file, no open transaction."""
    lake.write("shop.orders", lake.spark.range(30).selectExpr("id", "'old' name"))
    version, before = orders.filestore.state().version, rows(orders)
    yield
    assert orders.filestore.state().version == version
    assert rows(orders) == before
    assert orphans(orders) == []
    assert open_in_log(orders) == []


# ------------------------------------------------------------------------------------------ writing


def test_upserts_and_deletes(lake: SparkStore, orders: Table) -> None:
    spark = lake.spark
    first = lake.write("shop.orders", spark.range(100).selectExpr("id", "concat('n', id) name", "id / 2 amount"))
    assert first.version == 1
    assert sum(first.log_offsets.values()) == 100
    assert len(orders.files()) == 3, "one file a bucket"
    lake.write("shop.orders", spark.range(90, 110).selectExpr("id", "'new' name"))
    kinds = spark.range(10).selectExpr("id", "IF(id < 5, '-D', '+U') _kind", "'kind' name")
    snapshot = lake.write("shop.orders", kinds)
    assert (snapshot.metrics["rows_deleted"], snapshot.metrics["rows_written"]) == (5, 5)
    found = {row["id"]: row["name"] for row in agreed(lake, orders, leftovers=False)}
    assert sorted(found) == list(range(5, 110))
    assert found[7] == "kind"
    assert found[50] == "n50"
    assert found[95] == "new"


def test_columns_are_matched_by_name(lake: SparkStore, orders: Table) -> None:
    lake.write("shop.orders", lake.spark.sql("SELECT 1.5D amount, 7L id"))
    assert rows(orders) == [{"id": 7, "name": None, "amount": 1.5}]


def test_overwrite_replaces_all_rows(lake: SparkStore, orders: Table) -> None:
    lake.write("shop.orders", lake.spark.range(50).selectExpr("id"))
    lake.write("shop.orders", lake.spark.range(48, 52).selectExpr("id"), overwrite=True)
    assert [row["id"] for row in agreed(lake, orders)] == [48, 49, 50, 51]
    lake.write("shop.orders", lake.spark.range(0).selectExpr("id"), overwrite=True)
    assert agreed(lake, orders) == []


def test_an_empty_frame_makes_no_version(lake: SparkStore, orders: Table) -> None:
    assert lake.write("shop.orders", lake.spark.range(0).selectExpr("id")).version == 0
    assert agreed(lake, orders) == []


def test_of_rows_with_one_key_the_last_wins_whatever_the_shuffle_does(lake: SparkStore, orders: Table) -> None:
    """5 rows a key, spread over the partitions of the frame; the later partition is the later row."""
    many = lake.spark.range(0, 5000, 1, numPartitions=5).selectExpr("id % 1000 id", "cast(id AS STRING) name")
    lake.write("shop.orders", many)
    assert {row["id"]: row["name"] for row in rows(orders)} == {k: str(4000 + k) for k in range(1000)}
    mixed = lake.spark.range(0, 40, 1, numPartitions=4).selectExpr(
        "id % 10 id", "'x' name", "IF(id >= 30 AND id % 2 = 0, '-D', '+U') _kind"
    )
    lake.write("shop.orders", mixed)
    gone = set(range(1000)) - {row["id"] for row in agreed(lake, orders, leftovers=False)}
    assert gone == {0, 2, 4, 6, 8}


def test_rows_are_numbered_in_their_order_before_the_shuffle(lake: SparkStore, orders: Table) -> None:
    """A shuffle may return rows of one key in any order, although one on a single machine keeps the order."""
    frame = lake.spark.range(0, 40, 1, numPartitions=4).selectExpr("id % 4 id", "cast(id AS STRING) name")
    found = arranged(conformed(frame, orders.definition.schema), orders.definition)
    rows = [dict(zip(found.names, row, strict=True)) for row in found.frame.collect()]
    rows.sort(key=lambda row: row[ORDINAL_COLUMN])
    assert [row["name"] for row in rows] == [str(number) for number in range(40)]


LAYOUTS: dict[str, dict[str, Any]] = {
    "one-key": {"primary_key": ["id"]},
    "composite": {"primary_key": ["part", "id"]},
    "partitioned": {"primary_key": ["part", "id"], "partition_by": ["part"]},
    "append": {"partition_by": ["part"]},
}


@pytest.mark.few(1)
@pytest.mark.parametrize("layout", sampled(LAYOUTS, 2, test=2))
def test_a_task_with_more_rows_than_its_buffer_sorts_them_on_its_disk(
    lake: SparkStore, store: Store, layout: str
) -> None:
    """`tests.tablestore.test_task_sort` sees the runs come and go."""
    keyed = LAYOUTS[layout].get("primary_key", [])
    part = "part STRING" if layout == "append" else "part STRING NOT NULL"
    table = store.create_table(
        "shop.large",
        f"id BIGINT NOT NULL, {part}, n BIGINT",
        options={"bucket": "2", "write-buffer-size": "10 kb"},
        **LAYOUTS[layout],
    )
    expected: dict[Any, int] = {}
    for start in (0, 3000):
        numbers = lake.spark.range(0, 6000, 1, numPartitions=3)
        names = "IF(id % 3 = 0, NULL, concat('n', id % 3))" if layout == "append" else "concat('n', id % 3)"
        kind = "'+I'" if layout == "append" else "IF(id % 11 = 0, '-D', '+U')"
        lake.write(
            "shop.large",
            numbers.selectExpr(f"id * 7919 % 1000 + {start} id", f"{names} part", "id n", f"{kind} _kind"),
        )
        for n in range(6000):
            row = {"id": n * 7919 % 1000 + start, "part": f"n{n % 3}"}
            key = tuple(row[name] for name in keyed) or (start, n)
            expected.pop(key, None)
            if layout == "append" or n % 11:
                expected[key] = n
    found = agreed(lake, table, leftovers=False)
    assert sorted(row["n"] for row in found) == sorted(expected.values())
    if keyed:
        assert {tuple(row[name] for name in keyed): row["n"] for row in found} == expected
    local = Path(lake.spark.conf.get("spark.local.dir") or "")
    assert any(local.iterdir())
    assert not list(local.rglob("tablestore-runs-*")), "what was sorted on disk is gone"


def test_the_sequence_field_orders_the_rows_of_a_key(lake: SparkStore, store: Store) -> None:
    table = store.create_table(
        "shop.seq",
        "id BIGINT, at INT, name STRING",
        primary_key=["id"],
        options={"sequence.field": "at", "bucket": "2"},
    )
    frame = lake.spark.range(0, 300, 1, numPartitions=3).selectExpr(
        "id % 100 id", "cast(pmod(7 * id, 5) AS INT) at", "cast(id AS STRING) name"
    )
    lake.write("shop.seq", frame)
    wins = {}
    for i in range(300):
        if i % 100 not in wins or wins[i % 100][0] <= 7 * i % 5:
            wins[i % 100] = (7 * i % 5, str(i))
    assert {row["id"]: (row["at"], row["name"]) for row in rows(table)} == wins
    lake.write("shop.seq", lake.spark.range(100).selectExpr("id", "2 at", "'late' name"))
    after = {k: (2, "late") if at <= 2 else (at, name) for k, (at, name) in wins.items()}
    assert {row["id"]: (row["at"], row["name"]) for row in agreed(lake, table, leftovers=False)} == after


def test_a_table_without_a_key_is_appended_to(lake: SparkStore, store: Store) -> None:
    table = store.create_table("shop.events", "id BIGINT, name STRING", options={"bucket": "2"})
    for _ in range(2):
        lake.write("shop.events", lake.spark.range(10).selectExpr("id", "'a' name"))
    assert len(agreed(lake, table)) == 20


@pytest.mark.few(1)
@pytest.mark.parametrize("key", [("day", "id"), ()], ids=["keyed", "append"])
def test_partitions(lake: SparkStore, store: Store, key: tuple[str, ...]) -> None:
    table = store.create_table(
        "shop.parts",
        "id BIGINT, day DATE, region STRING, name STRING",
        primary_key=[*key, "region"] if key else [],
        partition_by=["day", "region"],
        options={"bucket": "2"},
    )
    frame = lake.spark.range(200).selectExpr(
        "id",
        "date_add(DATE'2026-01-01', cast(id % 7 AS INT)) day",
        "IF(id % 3 = 0, 'süd/west=1 %', 'o') region",
        "'a' name",
    )
    lake.write("shop.parts", frame)
    lake.write("shop.parts", frame.limit(50).withColumn("name", F.lit("b")))
    found = agreed(lake, table, leftovers=False)
    assert len(found) == (200 if key else 250)
    assert sum(row["name"] == "b" for row in found) == 50
    pruned = lake.read("shop.parts").where("day = DATE'2026-01-03' AND region = 'o'")
    assert len(collected(pruned)) == sum(row["day"].day == 3 and row["region"] == "o" for row in found)
    if key:
        lake.write("shop.parts", frame.withColumn("_kind", F.lit("-D")))
        assert agreed(lake, table, leftovers=False) == []


def test_null_partitions_of_an_append_table(lake: SparkStore, store: Store) -> None:
    table = store.create_table("shop.parts", "id BIGINT, day DATE", partition_by=["day"], options={"bucket": "2"})
    lake.write("shop.parts", lake.spark.range(10).selectExpr("id", "IF(id < 4, NULL, DATE'2026-01-01') day"))
    assert sum(row["day"] is None for row in agreed(lake, table)) == 4


def test_the_sessions_time_zone_changes_nothing(lake: SparkStore, store: Store) -> None:
    table = store.create_table(
        "shop.times",
        "at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, id BIGINT",
        primary_key=["at", "id"],
        partition_by=["at"],
    )
    lake.spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        frame = lake.spark.sql(
            "SELECT 1L id, TIMESTAMP'2026-03-08 02:30:00.123456Z' at, TIMESTAMP_NTZ'2026-03-08 02:30:00' local, "
            "DATE'1582-10-10' day"
        )
        lake.write("shop.times", frame)
        lake.write("shop.times", frame)
        assert lake.read("shop.times").where("at = TIMESTAMP'2026-03-08 02:30:00.123456Z'").count() == 1
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", "UTC")
    [row] = assert_whole(table, leftovers=False)
    assert row["at"].astimezone(UTC).isoformat() == "2026-03-08T02:30:00.123456+00:00"
    assert row["local"].isoformat() == "2026-03-08T02:30:00"
    assert row["day"].isoformat() == "1582-10-10"


def test_keys_of_strings_and_binaries_meet_themselves_again(lake: SparkStore, store: Store) -> None:
    table = store.create_table(
        "shop.keys",
        "name STRING, code BINARY, price DECIMAL(30,4), v INT",
        primary_key=["name", "code", "price"],
        options={"bucket": "4"},
    )
    frame = lake.spark.range(400).selectExpr(
        "concat(repeat('é', cast(id % 6 AS INT)), id % 50) name",
        "cast(concat('', id % 7) AS BINARY) code",
        "cast(id - 200 AS DECIMAL(30,4)) / 16 price",
        "1 v",
    )
    lake.write("shop.keys", frame)
    table.write(table.scan().to_arrow().set_column(3, "v", pa.array([2] * 400, pa.int32())))
    lake.write("shop.keys", frame.selectExpr("name", "code", "price", "v + 2 v").limit(100))
    found = agreed(lake, table, leftovers=False)
    assert sorted(row["v"] for row in found) == [2] * 300 + [3] * 100


def test_columns_with_odd_names(lake: SparkStore, store: Store) -> None:
    table = store.create_table(
        "shop.odd",
        pa.schema([("a.b", pa.int64()), ("we`ird", pa.string()), ("größe", pa.int32())]),
        primary_key=["a.b", "we`ird"],
        options={"bucket": "2"},
    )
    frame = lake.spark.range(20).selectExpr("id AS `a.b`", "'x' AS `we``ird`", "1 AS `größe`")
    lake.write("shop.odd", frame)
    lake.write("shop.odd", frame.withColumn("größe", F.lit(2)))
    assert {row["größe"] for row in agreed(lake, table, leftovers=False)} == {2}


@pytest.mark.deep
def test_with_a_kafka_log(lake: SparkStore, store: Store, kafka_broker: KafkaBroker) -> None:
    from tests.integration.foreign import ForeignConsumer

    options = {"bucket": "2", "log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap}
    table = store.create_table("shop.orders", ORDERS, primary_key=["id"], options=options)
    with ForeignConsumer(table) as foreign:
        lake.write("shop.orders", lake.spark.range(1000).selectExpr("id", "'a' name"))
        lake.write("shop.orders", lake.spark.range(900, 1100).selectExpr("id", "'b' name"))
        lake.write("shop.orders", lake.spark.range(10).selectExpr("id"), overwrite=True)
        foreign.catch_up()
    assert len(agreed(lake, table)) == 10


# ------------------------------------------------------------------------------------------ refusals

BAD = {
    "unknown-column": "SELECT 1L id, 'x' nmae",
    "missing-column": "SELECT 'x' name",
    "duplicate-column": "SELECT 1L id, 'x' name, 'y' name",
    "null-key": "SELECT IF(id = 7, NULL, id) id, 'x' name FROM range(1000)",
    "bad-row-kind": "SELECT id, IF(id = 7, '+X', '+I') _kind FROM range(1000)",
}


@pytest.mark.few(2)
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("code", "query"), BAD.items(), ids=BAD)
def test_rows_that_do_not_fit_change_nothing(lake: SparkStore, code: str, query: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        lake.write("shop.orders", lake.spark.sql(query))
    assert caught.value.code == code


def test_bad_rows_of_a_partitioned_table_leave_no_file_of_the_good_ones(lake: SparkStore, store: Store) -> None:
    """A task has many slots: those that were done before the bad row are undone."""
    table = store.create_table(
        "shop.parts", "id BIGINT, day INT, v STRING NOT NULL", primary_key=["id", "day"], partition_by=["day"]
    )
    frame = lake.spark.range(100).selectExpr("id", "cast(id % 20 AS INT) day", "IF(id = 99, NULL, 'x') v")
    with pytest.raises(InvalidRequest) as caught:
        lake.write("shop.parts", frame)
    assert caught.value.code == "null-value"
    assert orphans(table) == []
    assert open_in_log(table) == []
    assert table.filestore.state().version == 0
    lake.write("shop.parts", frame.where("id < 40"))
    lake.write("shop.parts", frame.where("id < 39").selectExpr("id", "day", "'-D' _kind"))
    assert rows(table) == [{"id": 39, "day": 19, "v": "x"}], "a delete may lack a column that is NOT NULL"
    with pytest.raises(InvalidRequest) as caught:
        lake.write("shop.parts", frame.where("id < 2").selectExpr("id", "day", "IF(id = 1, '+I', '-D') _kind"))
    assert caught.value.code == "null-value"


@pytest.mark.usefixtures("untouched")
def test_a_frame_that_fails_is_the_callers_own_error(lake: SparkStore) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="no more"):
        lake.write(
            "shop.orders", lake.spark.range(1000).selectExpr("id", "IF(id = 7, raise_error('no more'), 'x') name")
        )


def test_tables_that_do_not_exist(lake: SparkStore) -> None:
    with pytest.raises(NotFound):
        lake.read("shop.nothing")
    with pytest.raises(NotFound):
        lake.write("shop.nothing", lake.spark.range(1))


# ------------------------------------------------------------------------------------------ reading


@pytest.mark.deep
def test_time_travel(lake: SparkStore, orders: Table) -> None:
    stamps = [lake.write("shop.orders", lake.spark.range(i, i + 1)).timestamp for i in range(3)]
    for i, stamp in enumerate(stamps):
        assert lake.read("shop.orders", version=i + 1).count() == i + 1
        assert lake.read("shop.orders", timestamp=stamp).count() == i + 1
        assert lake.read("shop.orders", timestamp=stamp - timedelta(microseconds=1)).count() == i
    delta = lake.spark.read.format("delta").option("timestampAsOf", stamps[1].isoformat()).load(orders.location)
    assert delta.count() == 2, "Delta's own time travel agrees"
    with pytest.raises(InvalidRequest):
        lake.read("shop.orders", version=1, timestamp=stamps[0])
    with pytest.raises(NotFound):
        lake.read("shop.orders", timestamp=stamps[0] - timedelta(days=9))


def test_a_version_that_is_not_there_is_an_error_of_ours(lake: SparkStore, orders: Table) -> None:
    for version in (-1, 1, 99):
        with pytest.raises(NotFound) as caught:
            lake.read("shop.orders", version=version)
        assert caught.value.code == "no-such-version"


def test_only_one_of_version_timestamp_and_fresh(lake: SparkStore, orders: Table) -> None:
    moment = orders.snapshots(1)[0].timestamp
    for how in ({"timestamp": moment}, {"version": 0}):
        with pytest.raises(InvalidRequest) as caught:
            lake.read("shop.orders", fresh=True, **how)
        assert caught.value.code == "bad-time-travel"
    assert lake.read("shop.orders", fresh=True).count() == 0


def test_a_writer_that_is_known_reads_no_state_anew(
    lake: SparkStore, orders: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write once replayed the whole table, though its writer was kept."""
    one = lake.spark.range(1).selectExpr("id")
    lake.write("shop.orders", one)
    replays: list[int | None] = []
    replay = DeltaLog._replay
    monkeypatch.setattr(DeltaLog, "_replay", lambda log, version: (replays.append(version), replay(log, version))[1])
    assert lake.write("shop.orders", one).version == 2
    assert replays == []


def test_a_writer_that_is_known_notices_another_table_of_that_name(
    lake: SparkStore, store: Store, orders: Table
) -> None:
    one = lake.spark.range(1).selectExpr("id")
    lake.write("shop.orders", one)
    store.drop_table("shop.orders")
    with pytest.raises(NotFound):
        lake.write("shop.orders", one)
    again = store.create_table("shop.orders", "id BIGINT", primary_key=["id"])
    assert lake.write("shop.orders", one).version == 1
    assert len(assert_whole(again)) == 1


def test_catalyst_prunes_columns_and_pushes_filters_into_a_native_scan(lake: SparkStore, orders: Table) -> None:
    lake.write("shop.orders", lake.spark.range(100).selectExpr("id", "'a' name", "1D amount"))
    lake.write("shop.orders", lake.spark.range(5).selectExpr("id", "'b' name"))
    plan = plan_of(lake.read("shop.orders").where("id > 50").select("name"))
    assert "parquet" in plan.lower()
    assert "GreaterThan(id,50)" in plan
    assert "amount" not in plan
    for foreign in ("Python", "ArrowEval", "MapInArrow", "RDD"):
        assert foreign not in plan
    count = plan_of(lake.read("shop.orders").groupBy().count())
    assert "Python" not in count


def plan_of(frame: DataFrame) -> str:
    return frame._sc._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "formatted")


@pytest.mark.deep
def test_a_frame_that_was_read_before_a_write_is_the_same_table(
    spark: SparkSession, lake: SparkStore, orders: Table
) -> None:
    """Joining the old and the new state of a table in one query."""
    lake.write("shop.orders", spark.range(10).selectExpr("id", "'a' name"))
    lake.write("shop.orders", spark.range(5, 15).selectExpr("id", "'b' name"))
    old, new = lake.read("shop.orders", version=1), lake.read("shop.orders")
    changed = new.join(old, "id", "left").where(old.name.isNull() | (old.name != new.name))
    assert changed.count() == 10


@pytest.mark.deep
def test_a_table_is_written_from_itself(lake: SparkStore, orders: Table) -> None:
    lake.write("shop.orders", lake.spark.range(100).selectExpr("id", "'a' name", "1D amount"))
    lake.write("shop.orders", lake.read("shop.orders").withColumn("amount", F.col("amount") + F.col("id")))
    assert sum(row["amount"] for row in agreed(lake, orders, leftovers=False)) == 100 + sum(range(100))
