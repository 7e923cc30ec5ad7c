"""The stream's source without Spark: planned, cut, pickled, read and restarted as Spark would do it."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from filestore.errors import NotFound
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.spark.opened import identity_options
from tablestore.spark.source import TableStoreSource
from tablestore.spark.streaming.changes import ChangeReader
from tests.tables import in_order
from tests.tablestore.following.test_result_modes import FEW, KEY, SHAPES, STEP, Shape, applied, do
from tests.warehouses import replay, rows, warehouse

Row = dict[str, Any]
COLUMNS_OF_OLD = ("id", "p", "s", "v")


class Stream:
    """A query: it calls a source in Spark's order. Offsets pass through JSON and partitions through pickle."""

    def __init__(self, table: Table, **options: object) -> None:
        self._options = {
            "path": table.identifier,
            "changes": "true",
            **identity_options(table.opened),
            **{name: str(value) for name, value in options.items()},
        }
        self.offset: dict[str, Any] | None = None
        self._planned: dict[str, Any] | None = None
        self.restart()
        self._start()

    def restart(self) -> None:
        """Starts a new driver: the checkpoint has the batch that was planned and not finished."""
        self.reader = ChangeReader(self._options, TableStoreSource(self._options).schema())
        self._initial: dict[str, Any] | None = None

    def _start(self) -> dict[str, Any]:
        if self.offset is not None:
            return self.offset
        self._initial = self._initial or self._json(self.reader.initialOffset())
        return self._initial

    def plan(self) -> bool:
        """Plans and saves the next batch, if there is one."""
        start, limit = self._start(), self.reader.getDefaultReadLimit()
        assert isinstance(limit, ReadMaxRows | ReadAllAvailable)
        end = self._json(self.reader.latestOffset(start, limit))
        self._planned = None if end == start else end
        return self._planned is not None

    def batch(self) -> list[Row]:
        """Reads the planned batch."""
        assert self._planned is not None
        partitions = pickle.loads(cloudpickle.dumps(list(self.reader.partitions(self._start(), self._planned))))
        found = [row for part in partitions for batch in self.reader.read(part) for row in batch.to_pylist()]
        self.offset, self._planned = self._planned, None
        return found

    def batches(self) -> Iterator[list[Row]]:
        """Reads all that is available now."""
        while self.plan():
            yield self.batch()
            self.reader.commit(self.offset or {})

    @staticmethod
    def _json(offset: dict[str, Any]) -> dict[str, Any]:
        return json.loads(json.dumps(offset))  # type: ignore[no-any-return]


def put(table: Table, *ids: int, name: str = "a") -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)})).version


@pytest.fixture
def orders(store: Store) -> Table:
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options={"bucket": "2"})


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["upserts", "partitioned", "lookup", "merge-on-read", "no-log", "no-key"])
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
@FEW
@given(
    before=st.lists(STEP, max_size=2),
    after=st.lists(STEP, max_size=4),
    limit=st.integers(1, 9),
    scan=st.sampled_from(["full", "latest"]),
    schedule=st.tuples(
        st.lists(st.integers(0, 3), min_size=4, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4)
    ),
)
def test_any_history_in_batches_of_any_size_with_restarts(
    name: str,
    mode: str,
    before: list[Any],
    after: list[Any],
    limit: int,
    scan: str,
    schedule: tuple[list[int], list[bool]],
) -> None:
    shape: Shape = SHAPES[name]
    if mode == "upsert" and name == "no-log":
        return
    with warehouse() as store:
        table = shape.create(store)
        for step in before:
            do(table, *step)
        base = rows(table)
        stream = Stream(table, mode=mode, scan=scan, maxRowsPerBatch=limit)
        found = [] if scan == "full" else [row | {"_kind": "+I"} for row in base]
        for step, batches, restarts in zip(after, *schedule, strict=False):
            do(table, *step)
            for _ in range(batches):
                if stream.plan():
                    if restarts:
                        stream.restart()
                    found += stream.batch()
        found += [row for batch in stream.batches() for row in batch]
        # a query keeps the columns that it was planned with until it is restarted
        narrow = [{name: row.get(name) for name in COLUMNS_OF_OLD} for row in rows(table)]
        found = [{name: row.get(name) for name in (*COLUMNS_OF_OLD, "_kind")} for row in found]
        if mode == "changelog":
            assert applied([], found, keyed=shape.keyed) == in_order(narrow)
        elif shape.keyed:
            assert replay(found, KEY) == in_order(narrow)


def test_a_large_version_comes_in_batches_that_are_as_large_as_they_may_be(orders: Table) -> None:
    stream = Stream(orders, scan="latest", maxRowsPerBatch=30)
    assert not stream.plan()
    put(orders, *range(100))
    put(orders, *range(5), name="b")
    sizes = []
    while stream.plan():
        stream.restart()
        sizes.append(len(stream.batch()))
    assert sizes == [30, 30, 30, 15]


def test_versions_of_a_batch_can_be_limited_too(orders: Table) -> None:
    stream = Stream(orders, version=0, maxVersionsPerBatch=2)
    for i in range(5):
        put(orders, i)
    assert [len(batch) for batch in stream.batches()] == [2, 2, 1]


def test_a_query_with_a_consumer_goes_on_without_its_checkpoint(orders: Table) -> None:
    put(orders, 1, 2)
    first = Stream(orders, consumerId="job")
    assert sum(len(batch) for batch in first.batches()) == 2
    put(orders, 3)
    put(orders, 4)
    assert [row["id"] for batch in first.batches() for row in batch] == [3, 4]
    put(orders, 5)
    again = Stream(orders, consumerId="job")
    assert [row["id"] for batch in again.batches() for row in batch] == [5]
    assert orders.consumer_lags()["job"].versions == 0


def trim(table: Table) -> None:
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        log.trim(log.end_offsets())


@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_a_gap_in_the_log_is_jumped_over_exactly_while_the_old_version_is_there(orders: Table, mode: str) -> None:
    put(orders, 1, 2, 3)
    stream = Stream(orders, mode=mode, onLogGap="rescan")
    found = [row for batch in stream.batches() for row in batch]
    put(orders, 2, 4, name="b")
    orders.write(pa.table({"id": [1], "_kind": ["-D"]}))
    trim(orders)
    rest = [row for batch in stream.batches() for row in batch]
    assert sorted((row["_kind"], row["id"]) for row in rest if row["_kind"] != "-U") == [
        ("+I", 4),
        ("+U", 2),
        ("-D", 1),
    ]
    assert replay([*found, *rest], ["id"]) == rows(orders)
    assert (stream.offset or {})["rescans"] == (1 if mode == "upsert" else 0), "a changelog does not need the log"


def test_a_gap_in_a_version_that_was_read_in_part_rereads_all_rows(
    orders: Table, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(orders, scan="latest", onLogGap="rescan", maxRowsPerBatch=4)
    assert not stream.plan()
    put(orders, *range(10))
    assert stream.plan()
    assert len(stream.batch()) == 4
    put(orders, 3, name="b")
    trim(orders)
    assert stream.plan()
    stream.restart()
    found = stream.batch() + [row for batch in stream.batches() for row in batch]
    assert replay(found, ["id"]) == rows(orders)
    assert "are gone" in caplog.text
    put(orders, 11)
    assert [row["id"] for batch in stream.batches() for row in batch] == [11]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_a_stream_that_was_behind_when_a_new_log_begins_goes_on_exactly(
    orders: Table, mode: str, restarts: bool
) -> None:
    put(orders, 1, 2, 3)
    stream = Stream(orders, mode=mode, onLogGap="rescan")
    found = [row for batch in stream.batches() for row in batch]
    put(orders, 2, 4, name="b")
    shutil.rmtree(Path(orders.location) / "_log")
    orders.new_log()
    orders.write(pa.table({"id": [1], "_kind": ["-D"]}))
    if restarts:
        stream.restart()
    found += [row for batch in stream.batches() for row in batch]
    assert replay(found, ["id"]) == rows(orders)
    put(orders, 7)
    assert [row["id"] for batch in stream.batches() for row in batch] == [7]


def test_without_rescan_a_gap_is_an_error(orders: Table) -> None:
    put(orders, 1)
    stream = Stream(orders, version=0)
    trim(orders)
    with pytest.raises(NotFound, match="scan=") as caught:
        list(stream.batches())
    assert caught.value.code == "log-gap"


def test_offsets_of_older_checkpoints_are_understood(orders: Table) -> None:
    put(orders, 1)
    stream = Stream(orders)
    assert len(next(stream.batches())) == 1
    assert stream.offset is not None
    stream.offset = {name: stream.offset[name] for name in ("table_id", "begin", "full", "files", "version")}
    put(orders, 2)
    assert [row["id"] for batch in stream.batches() for row in batch] == [2]


def test_progress_has_the_newest_version(orders: Table) -> None:
    stream = Stream(orders)
    put(orders, 1)
    put(orders, 2)
    assert stream.reader.reportLatestOffset()["version"] == 2
