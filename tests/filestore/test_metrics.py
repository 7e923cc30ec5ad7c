"""Measured values, as Prometheus' client has them."""

from __future__ import annotations

import pickle
import threading

from prometheus_client import CollectorRegistry, generate_latest

from filestore.metrics.meter import NO_METER, TABLE, Kind, Metric
from filestore.metrics.registry import Metrics
from tests.measured import measured

WRITES = Metric("writes_total", Kind.COUNTER, "Writes.", (TABLE, "outcome"))
END = Metric("log_end_offset", Kind.GAUGE, "The end.", (TABLE, "bucket"))
SECONDS = Metric("duration_seconds", Kind.HISTOGRAM, "How long.", (), (0.1, 1.0))


def test_values_are_in_the_registry_that_was_given() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.add(WRITES, ("shop.b", "committed"), 2)
    metrics.add(WRITES, ("shop.b", "committed"))
    metrics.set(END, ("shop.a", "0"), 7)
    metrics.set(END, ("shop.a", "0"), 9)
    for value in (0.05, 0.1, 0.5, 3.25):
        metrics.observe(SECONDS, (), value)
    page = generate_latest(registry).decode().splitlines()
    assert "# HELP writes_total Writes." in page
    assert 'writes_total{outcome="committed",table="shop.b"} 3.0' in page
    assert 'log_end_offset{bucket="0",table="shop.a"} 9.0' in page
    assert [line for line in page if line.startswith("duration_seconds_") and "created" not in line] == [
        'duration_seconds_bucket{le="0.1"} 2.0',
        'duration_seconds_bucket{le="1.0"} 3.0',
        'duration_seconds_bucket{le="+Inf"} 4.0',
        "duration_seconds_count 4.0",
        "duration_seconds_sum 3.9",
    ]


def test_tables_beyond_the_limit_go_together_and_have_no_gauges() -> None:
    metrics = Metrics(most_tables=2)
    for number in range(5):
        metrics.add(WRITES, (f"t{number}", "committed"))
        metrics.set(END, (f"t{number}", "0"), number)
    assert measured(metrics, "writes_total") == {
        ("t0", "committed"): 1,
        ("t1", "committed"): 1,
        ("<other>", "committed"): 3,
    }
    assert measured(metrics, "log_end_offset") == {("t0", "0"): 0, ("t1", "0"): 1}


def test_a_table_that_is_gone_has_no_gauges_and_keeps_its_counts() -> None:
    metrics = Metrics()
    for table in ("a", "b"):
        metrics.add(WRITES, (table, "committed"))
        metrics.set(END, (table, "0"), 1)
    metrics.forget("a")
    assert list(measured(metrics, "log_end_offset")) == [("b", "0")]
    assert list(measured(metrics, "writes_total")) == [("a", "committed"), ("b", "committed")]


def test_another_processs_copy_keeps_nothing() -> None:
    assert pickle.loads(pickle.dumps((Metrics(), NO_METER))) == (NO_METER, NO_METER)


def test_threads_lose_nothing() -> None:
    metrics = Metrics()
    threads = [threading.Thread(target=lambda: [metrics.add(WRITES, ("t", "x")) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert measured(metrics, "writes_total") == {("t", "x"): 2000}
