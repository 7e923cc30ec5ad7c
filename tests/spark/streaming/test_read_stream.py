"""`read_stream`: the snapshot, then the log from exactly its offsets; a restart continues exactly there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from filestore.errors import InvalidRequest, Unsupported
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.depth import sampled
from tests.waiting import until
from tests.warehouses import replay, rows

ORDERS = "id BIGINT, name STRING"
NOW = {"availableNow": True}


class Sink:
    """Collects a stream's batches; fails at one if `fail_at` says so."""

    def __init__(self, stream: DataFrame, checkpoint: Path) -> None:
        self._stream = stream
        self._checkpoint = checkpoint
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.fail_at: int | None = None
        self.before: Callable[[int], None] = lambda number: None

    def start(self, **trigger: Any) -> Any:
        writer = self._stream.writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def run(self, **trigger: Any) -> list[list[dict[str, Any]]]:
        """Returns what is available now, by batch, without empty batches."""
        self.batches.clear()
        self.start(**(trigger or NOW)).awaitTermination()
        return [self.batches[n] for n in sorted(self.batches) if self.batches[n]]

    def _take(self, frame: DataFrame, number: int) -> None:
        self.before(number)
        if number == self.fail_at:
            raise RuntimeError("the sink fails")
        self.batches[number] = [row.asDict() for row in frame.collect()]

    @property
    def changes(self) -> list[dict[str, Any]]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


@pytest.fixture
def orders(store: Store) -> Table:
    return store.create_table("shop.orders", ORDERS, primary_key=["id"], options={"bucket": "2"})


@pytest.fixture
def sink(lake: SparkStore, orders: Table, folder: Path) -> Sink:
    """Collects a stream of the table from its snapshot on."""
    return Sink(lake.read_stream("shop.orders"), folder / "checkpoint")


def put(table: Table, *ids: int, name: str = "a") -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)})).version


def gone(table: Table, *ids: int) -> int:
    return table.write(pa.table({"id": ids, "_kind": ["-D"] * len(ids)})).version


def counts(batches: list[list[dict[str, Any]]]) -> list[int]:
    return [len(batch) for batch in batches]


@contextmanager
def failing(match: str) -> Iterator[None]:
    with pytest.raises(StreamingQueryException, match=match):
        yield


# ------------------------------------------------------------------------------------------ snapshot, then log


def test_the_snapshot_then_the_log_and_a_restart_goes_on(orders: Table, sink: Sink) -> None:
    put(orders, *range(10))
    put(orders, *range(5), name="b")
    assert counts(sink.run()) == [10], "the rows of the snapshot, not the changes that led there"
    seen = list(sink.changes)
    assert {row["_kind"] for row in seen} == {"+I"}
    put(orders, 3, 20, name="c")
    gone(orders, 4)
    orders.compact(full=True)
    assert counts(sink.run()) == [3], "neither the snapshot again nor less than all changes"
    seen += sink.changes
    assert sink.run() == []
    assert replay(seen, ["id"]) == rows(orders)


@pytest.mark.deep  # it repeats what its neighbours do once
def test_nothing_is_lost_or_doubled_while_a_writer_goes_on(orders: Table, sink: Sink) -> None:
    put(orders, *range(50))
    expected = 50

    def write() -> None:
        for i in range(25):
            put(orders, *range(i, i + 10), name=f"w{i}")

    writer = threading.Thread(target=write)
    started = threading.Event()

    def start_writer(number: int) -> None:
        if not started.is_set():
            started.set()
            writer.start()

    sink.before = start_writer
    query = sink.start(processingTime="0 seconds")
    try:
        until(lambda: not query.isActive or (started.is_set() and not writer.is_alive()), 120)
        expected += 250
        until(lambda: not query.isActive or len(sink.changes) >= expected, 120, "all changes")
    finally:
        query.stop()
        writer.join()
    assert len(sink.changes) == expected
    assert replay(sink.changes, ["id"]) == rows(orders)


@pytest.mark.deep
def test_an_empty_table_is_followed_from_its_first_row(orders: Table, sink: Sink) -> None:
    assert sink.run() == []
    put(orders, 1)
    assert counts(sink.run()) == [1]
    put(orders, 2)
    assert counts(sink.run()) == [1]


# ------------------------------------------------------------------------------------------ restarts


@pytest.mark.deep
def test_a_query_that_dies_in_its_first_batch_repeats_that_batch(orders: Table, sink: Sink) -> None:
    """The batch's offsets were saved: what was committed since belongs to the next batch."""
    put(orders, *range(10))
    sink.fail_at = 0
    with failing("the sink fails"):
        sink.run()
    put(orders, *range(5, 15), name="b")
    orders.compact(full=True)
    sink.fail_at = None
    batches = sink.run()
    assert counts(batches) == [10, 10]
    assert {row["name"] for row in batches[0]} == {"a"}, "the snapshot as it was planned"


@pytest.mark.deep
def test_a_query_that_dies_in_the_middle_of_the_snapshot_goes_on_there(
    lake: SparkStore, orders: Table, folder: Path
) -> None:
    sink = Sink(lake.read_stream("shop.orders", max_rows_per_batch=4), folder / "checkpoint")
    for i in range(4):
        put(orders, *range(i * 10, i * 10 + 10))
    files = len(orders.files())
    sink.fail_at = 3
    with failing("the sink fails"):
        sink.run()
    first = counts([sink.batches[n] for n in sorted(sink.batches)])
    assert len(first) == 3
    put(orders, *range(100), name="later")
    sink.fail_at = None
    seen = list(sink.changes)
    batches = sink.run()
    seen += sink.changes
    assert len(first) + len(batches) == files + 25, "one file a batch, then four changes a batch"
    assert sum(first) + sum(counts(batches)) == 40 + 100
    assert replay(seen, ["id"]) == rows(orders)


@pytest.mark.deep
def test_latest_and_from_a_timestamp(lake: SparkStore, orders: Table, folder: Path) -> None:
    put(orders, 1)
    moment = orders.snapshots(1)[0].timestamp
    latest = Sink(lake.read_stream("shop.orders", scan="latest"), folder / "latest")
    assert latest.run() == []
    put(orders, 2, 3)
    since = Sink(lake.read_stream("shop.orders", scan="from-timestamp", timestamp=moment), folder / "since")
    assert sorted(row["id"] for row in latest.run()[0]) == [2, 3], "what was committed while it was down"
    assert sorted(row["id"] for row in since.run()[0]) == [1, 2, 3], "what was committed at that millisecond, too"
    put(orders, 4)
    assert counts(since.run()) == counts(latest.run()) == [1]


# ------------------------------------------------------------------------------------------ what batches hold


@pytest.mark.deep
def test_a_batch_has_at_most_so_many_rows(lake: SparkStore, orders: Table, folder: Path) -> None:
    sink = Sink(lake.read_stream("shop.orders", scan="latest", max_rows_per_batch=25), folder / "checkpoint")
    sink.run()
    for size in (10, 10, 10, 40, 1, 1):
        put(orders, *range(size))
    assert counts(sink.run()) == [25, 25, 22], "whole versions, and parts of them"


@pytest.mark.deep
def test_an_overwrite_counts_with_the_rows_that_leave_and_those_that_come(
    lake: SparkStore, orders: Table, folder: Path
) -> None:
    """It counted as nothing, since the log has none of its rows, so one batch contained many."""
    sink = Sink(lake.read_stream("shop.orders", scan="latest", max_rows_per_batch=25), folder / "checkpoint")
    sink.run()
    for _ in range(3):
        orders.write(pa.table({"id": range(10), "name": ["a"] * 10}), overwrite=True)
    put(orders, 1, 2)
    orders.compact(full=True)
    batches = sink.run()
    assert sum(counts(batches)) == 10 + 20 + 20 + 2
    assert max(counts(batches)) <= 25
    assert replay([row for batch in batches for row in batch], ["id"]) == rows(orders)


def test_changes_of_one_key_keep_their_order_within_a_batch(orders: Table, sink: Sink) -> None:
    sink.run()
    for i in range(6):
        put(orders, 1, 2, 3, name=str(i))
        gone(orders, 2)
    [batch] = sink.run()
    assert [row["name"] for row in batch if row["id"] == 1] == list("012345")
    assert [row["_kind"] for row in batch if row["id"] == 2] == ["+I", "-D"] * 6
    assert replay(batch, ["id"]) == rows(orders)


@pytest.mark.deep
def test_an_overwrite_in_the_middle(orders: Table, sink: Sink) -> None:
    put(orders, *range(5))
    sink.run()
    put(orders, 4, 5, name="b")
    orders.write(pa.table({"id": [5, 6], "name": ["c", "c"]}), overwrite=True)
    put(orders, 6, 7, name="d")
    [batch] = sink.run()
    assert len(batch) == 2 + (6 + 2) + 2
    assert replay([{"id": i, "name": "a", "_kind": "+I"} for i in range(5)] + batch, ["id"]) == rows(orders)


@pytest.mark.deep
def test_partitions_that_are_overwritten_and_dropped_in_the_middle(
    lake: SparkStore, store: Store, folder: Path
) -> None:
    sales = store.create_table(
        "shop.sales",
        "id BIGINT, day INT",
        primary_key=["id", "day"],
        partition_by=["day"],
        options={"bucket": "2"},
    )

    def add(day: int, *ids: int, **how: Any) -> None:
        sales.write(pa.table({"id": ids, "day": pa.array([day] * len(ids), pa.int32())}), **how)

    for day in (1, 2, 3):
        add(day, 1, 2, 3)
    sink = Sink(lake.read_stream("shop.sales", max_rows_per_batch=5), folder / "checkpoint")
    reported = [row for batch in sink.run() for row in batch]
    add(1, 4)
    add(1, 5, overwrite="dynamic")
    sales.drop_partitions([{"day": 2}])
    add(2, 6)
    batches = sink.run()
    assert sum(counts(batches)) == 1 + 5 + 3 + 1, "what leaves and comes counts, other partitions do not"
    assert max(counts(batches)) <= 5
    assert replay(reported + [row for batch in batches for row in batch], ["id", "day"]) == rows(sales)


@pytest.mark.deep
def test_an_append_table_streams_its_rows(lake: SparkStore, store: Store, folder: Path) -> None:
    events = store.create_table("shop.events", ORDERS, options={"bucket": "2"})
    put(events, 1, 1)
    sink = Sink(lake.read_stream("shop.events"), folder / "checkpoint")
    assert counts(sink.run()) == [2]
    put(events, 1)
    assert counts(sink.run()) == [1]


# ------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"scan": "earliest"}, "bad-scan-mode"),
        ({"scan": "from-timestamp"}, "bad-scan-mode"),
        ({"max_rows_per_batch": 0}, "bad-option-value"),
        ({"max_rows_per_batch": -1}, "bad-option-value"),
    ],
    ids=str,
)
def test_what_cannot_be_streamed_is_refused_before_the_start(
    lake: SparkStore, orders: Table, how: dict[str, Any], code: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        lake.read_stream("shop.orders", **how)
    assert caught.value.code == code


def test_a_table_without_a_log_is_refused_before_the_start(lake: SparkStore, store: Store) -> None:
    store.create_table("shop.orders", ORDERS, primary_key=["id"], options={"log.system": "none"})
    with pytest.raises(Unsupported, match=r"log\.system = none"):
        lake.read_stream("shop.orders")


# ------------------------------------------------------------------------------------------ tables that go away


@pytest.mark.deep
def test_a_table_that_was_made_again_is_an_error_after_a_restart(
    lake: SparkStore, store: Store, orders: Table, sink: Sink
) -> None:
    put(orders, 1)
    sink.run()
    store.drop_table("shop.orders")
    again = store.create_table("shop.orders", ORDERS, primary_key=["id"], options={"bucket": "2"})
    for i in range(4):
        put(again, i)
    with failing("dropped and made again"):
        sink.run()


@pytest.mark.deep
@pytest.mark.parametrize("again", sampled([True, False], 2, test=2), ids=["made-again", "dropped"])
def test_a_table_that_is_dropped_under_a_running_query_is_an_error(
    store: Store, orders: Table, sink: Sink, again: bool
) -> None:
    put(orders, 1)
    query = sink.start(processingTime="0 seconds")
    try:
        until(lambda: sink.changes or not query.isActive, 120)
        store.drop_table("shop.orders")
        if again:
            made = store.create_table("shop.orders", ORDERS, primary_key=["id"], options={"bucket": "2"})
            for i in range(3):
                put(made, 100 + i)
        with failing("dropped"):
            query.awaitTermination(120)
            raise AssertionError("the query goes on")
    finally:
        query.stop()
    assert [row["id"] for row in sink.changes] == [1], "no row of the other table"


@pytest.mark.deep
def test_a_stream_begins_where_the_table_says_and_tables_take_the_sessions_options(
    store: Store, lake: SparkStore, tmp_path: Path
) -> None:
    lake.spark.conf.set("table-storage.log.scan", "latest")
    try:
        table = lake.create_table("shop.late", ORDERS, primary_key=["id"], options={"changelog-producer": "lookup"})
    finally:
        lake.spark.conf.unset("table-storage.log.scan")
    assert table.detail()["options"] == {"log.scan": "latest", "changelog-producer": "lookup"}
    table.write(pa.table({"id": [1], "name": ["a"]}))
    sink = Sink(lake.read_stream("shop.late", mode="changelog"), tmp_path / "checkpoint")
    assert sink.run() == []
    table.write(pa.table({"id": [1], "name": ["b"]}))
    assert sink.run() == [
        [{"id": 1, "name": "a", "_kind": "-U"}, {"id": 1, "name": "b", "_kind": "+U"}],
    ]


# ------------------------------------------------------------------------------------------ result modes


@pytest.mark.slow
@pytest.mark.deep
def test_a_changelog_in_parts_through_a_query_that_dies_between_them(
    lake: SparkStore, orders: Table, folder: Path
) -> None:
    put(orders, *range(6))
    orders.create_tag("eod")
    put(orders, *range(3), name="b")
    put(orders, 1, name="b")  # leaves the row as it was
    gone(orders, 4, 99)
    orders.write(pa.table({"id": [0, 7], "name": ["c", "c"]}), overwrite=True)
    stream = lake.read_stream("shop.orders", "full", tag="eod", mode="changelog", max_rows_per_batch=4)
    sink = Sink(stream, folder / "checkpoint")
    sink.fail_at = 2
    with failing("the sink fails"):
        sink.run()
    seen = list(sink.changes)
    put(orders, 7, name="d")
    sink.fail_at = None
    sink.run()
    seen += sink.changes
    held: list[dict[str, Any]] = []
    for change in seen:
        row = {"id": change["id"], "name": change["name"]}
        if change["_kind"] in ("-U", "-D"):
            held.remove(row)  # it was there, exactly so
        else:
            held.append(row)
    assert sorted(held, key=lambda row: row["id"]) == rows(orders)
    assert [r["_kind"] for r in seen].count("-U") == [r["_kind"] for r in seen].count("+U") > 0
