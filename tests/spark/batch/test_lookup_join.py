"""`SparkStore.lookup_join`: what Spark's own join gives, one version for all tasks of a query or micro-batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.errors import InvalidRequest, NotFound
from tablestore import Store, Table
from tablestore.reading import keyed_rows
from tablestore.spark import SparkStore, error_of
from tests.integration.test_eventual_log import between
from tests.tables import in_order
from tests.tablestore.lookup.oracle import begins
from tests.waiting import until
from tests.warehouses import to_arrow

pytestmark = pytest.mark.slow

Row = dict[str, Any]
NOW = {"availableNow": True}
METRIC = "lookup shop.dim"


@pytest.fixture(params=["by key", pytest.param("in memory", marks=pytest.mark.deep)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by key":
        monkeypatch.setattr(keyed_rows, "SMALL_BYTES", -1)


@pytest.fixture
def dim(store: Store) -> Table:
    table = store.create_table(
        "shop.dim", "id BIGINT, name STRING, size INT", primary_key=["id"], options={"bucket": "2"}
    )
    put(table, "a")
    return table


def put(table: Table, name: str, ids: range = range(0, 20, 2)) -> int:
    return table.write(pa.table({"id": ids, "name": [f"{name}{n}" for n in ids], "size": [n % 3 for n in ids]})).version


def collected(df: DataFrame) -> list[Row]:
    return in_order(row.asDict() for row in df.collect())


@pytest.mark.usefixtures("way")
def test_a_batch_is_what_spark_joins(lake: SparkStore, dim: Table) -> None:
    put(dim, "b", range(0, 10))
    df = lake.spark.range(60, numPartitions=3).selectExpr(
        "id AS n", "IF(id % 7 = 0, NULL, id % 25) AS k", "id % 3 AS s"
    )
    right = lake.read("shop.dim")
    for kind in ("left", "inner"):
        found = lake.lookup_join(df, "shop.dim", {"k": "id"}, kind=kind)
        assert found.columns == ["n", "k", "s", "name", "size"]
        own = df.join(right, df["k"] == right["id"], kind).select("n", "k", "s", "name", "size")
        assert collected(found) == collected(own)
    found = lake.lookup_join(df, "shop.dim", {"s": "size"}, kind="inner", columns=["id"], prefix="dim_")
    own = df.join(right, df["s"] == right["size"]).select("n", "k", "s", right["id"].alias("dim_id"))
    assert collected(found) == collected(own)
    only = lake.lookup_join(df, "shop.dim", {"k": "id"}, kind="inner", columns=[])
    assert collected(only) == collected(df.join(right, df["k"] == right["id"], "left_semi"))
    assert lake.lookup_join(df.limit(0), "shop.dim", {"k": "id"}).collect() == []


def test_a_frame_reads_the_version_of_the_time_when_it_is_made(lake: SparkStore, dim: Table) -> None:
    first = lake.lookup_join(lake.spark.range(1), "shop.dim", columns=["name"])
    put(dim, "b")
    second = lake.lookup_join(lake.spark.range(1), "shop.dim", columns=["name"])
    assert collected(first) == [{"id": 0, "name": "a0"}]
    assert collected(second) == [{"id": 0, "name": "b0"}]


def test_rows_meet_the_version_of_their_time(lake: SparkStore, dim: Table) -> None:
    put(dim, "b")
    times, step = begins(dim), timedelta(microseconds=1)
    rows = [(1, times[1]), (2, times[2] - step), (3, times[2]), (4, times[1] - step), (5, None)]
    df = lake.spark.createDataFrame([(n, 2, at) for n, at in rows], "n INT, id BIGINT, ts TIMESTAMP").repartition(2)
    found = lake.lookup_join(df, "shop.dim", at="ts", columns=["name"]).select("n", "name").sort("n")
    assert [row.name for row in found.collect()] == ["a2", "a2", "b2", None, None]


def test_what_does_not_fit_is_refused_before_anything_runs(lake: SparkStore, dim: Table) -> None:
    df = lake.spark.range(3)
    for how, code in (
        ({"on": "nope"}, "unknown-column"),
        ({"columns": ["id"]}, "bad-lookup"),
        ({"at": "id"}, "bad-lookup"),
        ({"at": "ts", "fresh": True}, "bad-time-travel"),
    ):
        with pytest.raises((InvalidRequest, NotFound)) as caught:
            lake.lookup_join(df, "shop.dim", **how)
        assert caught.value.code == code
    with pytest.raises(InvalidRequest) as caught:
        lake.lookup_join(df.selectExpr("map(1, 2) AS id"), "shop.dim")
    assert caught.value.code == "bad-value"


def test_an_error_of_a_task_is_ours(lake: SparkStore, dim: Table) -> None:
    df = lake.spark.sql("SELECT 'x' AS id")
    with pytest.raises(PySparkException) as caught:
        lake.lookup_join(df, "shop.dim").collect()
    error = error_of(caught.value)
    assert error is not None
    assert error.code == "bad-value"


# ------------------------------------------------------------------------------------------------ one version for all


def gate(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Lets the first partition's first attempt through, and all others only once the test has changed the table."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            (folder / "begun").touch()
        else:
            until((folder / "changed").exists, what="a change of the table")
        yield from batches

    return run


def failing_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fails behind the join in the first attempt of the first partition."""
    context = TaskContext.get()
    assert context is not None
    rows = list(batches)
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails")
    yield from rows


# ------------------------------------------------------------------------------------------------ streams


class Query:
    """A streaming query over a table of keys, joined by look-up; it collects its batches."""

    def __init__(self, lake: SparkStore, store: Store, folder: Path, **how: Any) -> None:
        self.keys = store.create_table("shop.keys", "n BIGINT, id BIGINT", primary_key=["n"])
        self.stream = lake.read_stream("shop.keys").select("n", "id")
        self.joined = lake.lookup_join(self.stream, "shop.dim", **how)
        self.checkpoint = str(folder / "checkpoint")
        self.batches: list[list[Row]] = []
        self.fails = False

    def run(self, *ids: int) -> list[int | None]:
        """Adds keys, runs a batch with them, and returns the versions that its progress names."""
        self.keys.write(pa.table({"n": [100 * len(self.batches) + at for at, _ in enumerate(ids)], "id": ids}))
        writer = self.joined.writeStream.foreachBatch(self._take).option("checkpointLocation", self.checkpoint)
        query = writer.trigger(**NOW).start()
        query.awaitTermination()
        return [row.version for p in query.recentProgress if (row := p.observedMetrics.get(METRIC)) is not None]

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = sorted((row.asDict() for row in frame.collect()), key=lambda row: row["n"])
        if self.fails:
            raise RuntimeError("the sink fails")
        self.batches.append(rows)

    def names(self) -> list[list[str | None]]:
        return [[row["name"] for row in batch] for batch in self.batches]


@pytest.mark.deep
def test_each_micro_batch_reads_the_newest_version_and_says_which(
    lake: SparkStore, store: Store, dim: Table, folder: Path
) -> None:
    query = Query(lake, store, folder, columns=["name"])
    assert query.run(2, 3) == [1]
    newest = put(dim, "b")
    assert query.run(2, 4) == [newest], "a restart from the checkpoint reads the newest version, too"
    assert query.names() == [["a2", None], ["b2", "b4"]]
    query.fails = True
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.run(6)
    query.fails = False
    newest = put(dim, "c")
    assert query.run(8) == [newest, newest], "a batch that is repeated reads the version of the time when it is"
    assert query.names()[2:] == [["c6"], ["c8"]]


@pytest.mark.deep
def test_all_tasks_and_attempts_of_a_micro_batch_read_one_version(
    lake: SparkStore, store: Store, dim: Table, folder: Path
) -> None:
    query = Query(lake, store, folder, columns=["name"])
    gated = query.stream.repartition(2, "id").mapInArrow(gate(folder), query.stream.schema)
    joined = lake.lookup_join(gated, "shop.dim", columns=["name"])
    query.joined = joined.mapInArrow(failing_once, joined.schema)

    def change() -> None:
        until((folder / "begun").exists, what="a task")
        put(dim, "b")
        (folder / "changed").touch()

    changing = threading.Thread(target=change)
    changing.start()
    assert query.run(*range(0, 20, 2)) == [1]
    changing.join()
    assert query.names() == [[f"a{n}" for n in range(0, 20, 2)]]


@pytest.mark.deep
def test_two_joins_of_one_query_with_one_table(lake: SparkStore, store: Store, dim: Table, folder: Path) -> None:
    query = Query(lake, store, folder, columns=["name"])
    query.joined = lake.lookup_join(query.joined, "shop.dim", columns=["name"], prefix="other_")
    assert query.run(2) == [1]
    assert query.batches == [[{"n": 0, "id": 2, "name": "a2", "other_name": "a2"}]]


@pytest.mark.deep
def test_a_stream_with_a_watermark_is_aggregated_behind_the_join(
    lake: SparkStore, store: Store, dim: Table, folder: Path
) -> None:
    events = store.create_table("shop.events", "n BIGINT, id BIGINT, ts TIMESTAMP", primary_key=["n"])
    stream = lake.read_stream("shop.events").select("n", "id", "ts").withWatermark("ts", "1 minute")
    joined = lake.lookup_join(stream, "shop.dim", at="ts", expired="oldest", kind="inner", columns=["name"])
    counts = joined.groupBy(F.window("ts", "1 minute"), "name").count().select("name", "count")
    found: list[Row] = []
    query = counts.writeStream.foreachBatch(lambda frame, _: found.extend(collected(frame))).outputMode("append")
    first = begins(dim)[1] + timedelta(seconds=1)
    for number, minutes in enumerate((0, 10)):
        events.write(to_arrow(events, [{"n": number, "id": 2, "ts": first + timedelta(minutes=minutes)}]))
        query.option("checkpointLocation", str(folder / "counts")).trigger(**NOW).start().awaitTermination()
    assert found == [{"name": "a2", "count": 1}]


def test_fresh_reads_what_an_eventual_log_has_beyond_the_version(lake: SparkStore, store: Store) -> None:
    options = {"bucket": "2", "log.consistency": "eventual"}
    table = store.create_table("shop.dim", "id BIGINT, n INT", primary_key=["id"], options=options)
    table.write(pa.table({"id": [1, 2, 3], "n": [1, 2, 3]}))
    df = lake.spark.range(5, numPartitions=2)
    seen: list[list[Row]] = []

    def look() -> None:
        seen.extend(collected(lake.lookup_join(df, "shop.dim", kind="inner", fresh=fresh)) for fresh in (True, False))

    between(table, look).write(to_arrow(table, [{"id": 1, "n": 10}, {"id": 2, "_kind": "-D"}, {"id": 4, "n": 40}]))
    assert seen[0] == collected(lake.lookup_join(df, "shop.dim", kind="inner", fresh=True)) == [
        {"id": 1, "n": 10}, {"id": 3, "n": 3}, {"id": 4, "n": 40}
    ]  # fmt: skip
    assert seen[1] == [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3}]


def test_other_errors_of_the_observation_are_not_hidden(lake: SparkStore, dim: Table) -> None:
    with pytest.raises(AnalysisException, match="nope"):
        lake.lookup_join(lake.spark.range(1).select("nope"), "shop.dim")


@pytest.mark.parametrize("on", [["id"], {"span": "id"}], ids=["beside", "by"])
@pytest.mark.parametrize("interval", ["INTERVAL '1' MONTH", "make_interval(1)"])
def test_rows_with_an_interval_are_refused(lake: SparkStore, dim: Table, on: Any, interval: str) -> None:
    """A join by such a column raised Spark's PySparkTypeError."""
    rows = lake.spark.range(1).selectExpr("id", f"{interval} AS span")
    with pytest.raises(InvalidRequest, match=r"INTERVAL.*, which Spark does not pass to Python") as caught:
        lake.lookup_join(rows, dim.identifier, on=on)
    assert caught.value.code == "bad-lookup"
