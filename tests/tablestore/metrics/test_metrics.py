"""The metrics of a program's writes, readers and logs, and the page that lists them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import tablestore
from filestore.errors import InvalidRequest, Unavailable
from filestore.metrics.meter import Kind
from filestore.metrics.registry import Metrics
from tablestore import Table
from tablestore.following.follow_metrics import FollowMeter
from tablestore.following.progress import Progress
from tablestore.logcare.duty import LOG
from tablestore.metrics.page import METRICS, page
from tablestore.metrics.server import serving_metrics
from tests.faults import Call, FaultyStorage
from tests.folders import memory_folder
from tests.integration.test_eventual_log import between
from tests.measured import measured
from tests.opened import opened_again

ALL = [metric for _, metrics in METRICS for metric in metrics]


def values(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    return measured(metrics, f"tablestore_{name}")


def count(metrics: Metrics, name: str, *labels: str) -> float:
    return values(metrics, f"{name}_count")[labels]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def table(metrics: Metrics) -> Iterator[Table]:
    with memory_folder() as folder, tablestore.connect(str(folder), metrics=metrics) as store:
        store.create_database("shop")
        yield store.create_table("shop.t", "id BIGINT, name STRING", primary_key=["id"], options={"bucket": "2"})


def put(table: Table, *ids: int) -> None:
    table.write(pa.table({"id": ids, "name": ["a"] * len(ids)}))


def test_the_page_is_drawn_from_the_code() -> None:
    assert (Path(tablestore.__file__).parent / "METRICS.md").read_text() == page()


def test_names_are_as_prometheus_wants_them() -> None:
    names = [metric.name for metric in ALL]
    assert len(set(names)) == len(names)
    for metric in ALL:
        assert re.fullmatch(r"tablestore_[a-z]+(_[a-z]+)+", metric.name)
        assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER), metric.name
        assert metric.name.endswith("_seconds") is (metric.kind is Kind.HISTOGRAM), metric.name
        assert bool(metric.bounds) is (metric.kind is Kind.HISTOGRAM)
        assert list(metric.bounds) == sorted(set(metric.bounds))
        assert metric.doc.endswith(".")


def test_commits_are_counted_and_timed(table: Table, metrics: Metrics) -> None:
    put(table, 1, 2, 3)
    table.write(pa.table({"id": [1], "_kind": ["-D"]}))
    with pytest.raises(InvalidRequest):
        table.write(pa.table({"nothing": [1]}))
    assert values(metrics, "commit_rows_total") == {("shop.t", "written"): 3, ("shop.t", "deleted"): 1}
    assert values(metrics, "writes_total") == {("shop.t", "committed"): 2}
    assert count(metrics, "commit_duration_seconds", "shop.t") == 2


def test_races_and_failures_are_counted(table: Table, metrics: Metrics) -> None:
    put(between(table, lambda: put(table, 1)), 2)
    assert values(metrics, "commit_races_total") == {("shop.t",): 1}

    def broken(call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith(".json"):
            raise Unavailable("disk full")

    failing = between(table, lambda: None)
    assert isinstance(failing.opened.storage, FaultyStorage)
    failing.opened.storage.hook = broken
    with pytest.raises(Unavailable):
        put(failing, 3)
    assert values(metrics, "writes_total")["shop.t", "unavailable"] == 1


def test_writes_that_are_done_again_are_counted_by_what_changed(metrics: Metrics) -> None:
    with memory_folder() as folder, tablestore.connect(str(folder), metrics=metrics) as store:
        store.create_database("shop")
        options = {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
        table = store.create_table("shop.s", "id BIGINT, n BIGINT", primary_key=["id"], options=options)
        rows = pa.table({"id": [1], "n": [1]})
        table.write(rows)
        between(table, lambda: table.write(rows)).write(rows)
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "n": 3}]
    assert values(metrics, "commit_retries_total") == {("shop.s", "merged-rows-changed"): 1}
    assert values(metrics, "writes_total") == {("shop.s", "committed"): 3}


def test_a_rollback_that_begins_again_is_no_write_that_is_done_again(table: Table, metrics: Metrics) -> None:
    """Rollbacks are not among the writes that are counted, so neither are their races."""
    put(table, 1, 2)
    put(table, 2, 3)
    between(table, lambda: table.alter("ADD COLUMN n INT")).rollback(1)
    between(table, lambda: put(table, 4)).rollback(2)
    assert [str(s.operation) for s in table.snapshots(4)] == ["ROLLBACK", "WRITE", "ROLLBACK", "ALTER TABLE"]
    assert values(metrics, "writes_total") == {("shop.t", "committed"): 3}
    assert values(metrics, "commit_retries_total") == {}
    assert values(metrics, "commit_races_total") == {}


def test_readers_are_timed_from_their_start_and_from_commits(table: Table, metrics: Metrics) -> None:
    put(table, 1, 2)
    stop = threading.Event()
    with table.follow(stop=stop) as following:
        first = next(following).num_rows
        assert count(metrics, "follow_first_row_seconds", "shop.t") == 1
        put(table, 3)
        stop.set()
        rest = sum(batch.num_rows for batch in following)
    assert first + rest == 3
    assert values(metrics, "follow_rows_total") == {("shop.t",): 3}
    assert count(metrics, "follow_first_row_seconds", "shop.t") == 1
    assert count(metrics, "follow_latency_seconds", "shop.t") >= 1


def test_an_eventual_logs_latency_is_counted_from_when_the_log_took_it(metrics: Metrics) -> None:
    """Before the commit."""
    with memory_folder() as folder, tablestore.connect(str(folder), metrics=metrics) as store:
        store.create_database("shop")
        options = {"bucket": "1", "log.consistency": "eventual"}
        table = store.create_table("shop.e", "id BIGINT, name STRING", primary_key=["id"], options=options)
        put(table, 1)
        with table.follow("latest", stop=threading.Event()) as following:
            put(between(table, lambda: next(following)), 2)
            assert following.progress.version == 1
    assert count(metrics, "follow_latency_seconds", "shop.e") == 1


def test_what_was_there_before_a_reader_began_has_no_latency() -> None:
    metrics = Metrics()
    meter = FollowMeter(metrics, "shop.t")
    old = Progress(1, records=5, first_row_ms=3, latency_ms=60_000)
    meter.record(Progress(0), old, running_ms=4)
    meter.record(old, Progress(2, records=6, first_row_ms=3, latency_ms=20, rescans=1), running_ms=500)
    assert count(metrics, "follow_latency_seconds", "shop.t") == 1
    assert values(metrics, "follow_latency_seconds_sum") == {("shop.t",): 0.02}
    assert values(metrics, "follow_rows_total") == {("shop.t",): 6}
    assert values(metrics, "follow_rescans_total") == {("shop.t",): 1}


def test_logs_are_gauges_of_who_asks_and_of_the_compactor(table: Table, metrics: Metrics) -> None:
    put(table, 1, 2, 3, 4)
    status = table.log_status()
    wanted = {("shop.t", str(bucket)): log.end for bucket, log in status.items()}
    assert values(metrics, "log_end_offset") == wanted
    assert values(metrics, "log_held_back_offsets") == {("shop.t", "0"): 0, ("shop.t", "1"): 0}
    own = Metrics()
    LOG.perform(opened_again(table.opened, meter=own), lambda: None)
    assert values(own, "log_end_offset") == wanted
    assert values(own, "log_stable_offset") == wanted


def test_they_are_served_on_loopback(table: Table, metrics: Metrics) -> None:
    put(table, 1)
    with serving_metrics(metrics, 0) as url:
        assert url.startswith("http://127.0.0.1:")
        answer = httpx.get(url, trust_env=False)
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        assert 'tablestore_writes_total{outcome="committed",table="shop.t"} 1.0\n' in answer.text
        with pytest.raises(Unavailable) as taken, serving_metrics(metrics, int(url.split(":")[2].split("/")[0])):
            pass
        assert taken.value.code == "port-in-use"
