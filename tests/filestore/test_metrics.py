"""Measured values and the page that Prometheus reads."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.metrics.exposition import text
from filestore.metrics.meter import NO_METER, TABLE, Kind, Metric
from filestore.metrics.registry import Distribution, Metrics

WRITES = Metric("writes_total", Kind.COUNTER, "Writes.\nA \\ in them.", (TABLE, "outcome"))
END = Metric("log_end_offset", Kind.GAUGE, "The end.", (TABLE, "bucket"))
SECONDS = Metric("duration_seconds", Kind.HISTOGRAM, "How long.", (), (0.1, 1.0))


def test_the_page_is_what_prometheus_reads() -> None:
    metrics = Metrics()
    metrics.add(WRITES, ("shop.b", "committed"), 2)
    metrics.add(WRITES, ("shop.a", 'say "hi"\n'))
    metrics.set(END, ("shop.a", "0"), 7)
    metrics.set(END, ("shop.a", "0"), 9)
    for value in (0.05, 0.1, 0.5, 3.25):
        metrics.observe(SECONDS, (), value)
    assert text(metrics.families()).splitlines() == [
        "# HELP duration_seconds How long.",
        "# TYPE duration_seconds histogram",
        'duration_seconds_bucket{le="0.1"} 2',
        'duration_seconds_bucket{le="1"} 3',
        'duration_seconds_bucket{le="+Inf"} 4',
        "duration_seconds_sum 3.9",
        "duration_seconds_count 4",
        "# HELP log_end_offset The end.",
        "# TYPE log_end_offset gauge",
        'log_end_offset{table="shop.a",bucket="0"} 9',
        "# HELP writes_total Writes.\\nA \\\\ in them.",
        "# TYPE writes_total counter",
        'writes_total{table="shop.a",outcome="say \\"hi\\"\\n"} 1',
        'writes_total{table="shop.b",outcome="committed"} 2',
    ]


@given(values=st.lists(st.floats(0, 100), max_size=20), bounds=st.lists(st.floats(0, 100), max_size=5, unique=True))
def test_buckets_count_what_lies_at_or_below_their_bound(values: Sequence[float], bounds: Sequence[float]) -> None:
    metric = Metric("m", Kind.HISTOGRAM, "", (), tuple(sorted(bounds)))
    metrics = Metrics()
    for value in values:
        metrics.observe(metric, (), value)
    if not values:
        assert metrics.families() == ()
        return
    ((family),) = metrics.families()
    ((_, found),) = family.values
    assert isinstance(found, Distribution)
    assert found.counts == (*(sum(v <= bound for v in values) for bound in metric.bounds), len(values))
    assert found.total == pytest.approx(sum(values))


def test_tables_beyond_the_limit_go_together_and_have_no_gauges() -> None:
    metrics = Metrics(most_tables=2)
    for number in range(5):
        metrics.add(WRITES, (f"t{number}", "committed"))
        metrics.set(END, (f"t{number}", "0"), number)
    found = {family.metric: dict(family.values) for family in metrics.families()}
    assert found[WRITES] == {("t0", "committed"): 1, ("t1", "committed"): 1, ("<other>", "committed"): 3}
    assert found[END] == {("t0", "0"): 0, ("t1", "0"): 1}


def test_a_table_that_is_gone_has_no_gauges_and_keeps_its_counts() -> None:
    metrics = Metrics()
    for table in ("a", "b"):
        metrics.add(WRITES, (table, "committed"))
        metrics.set(END, (table, "0"), 1)
    metrics.forget("a")
    found = {family.metric: dict(family.values) for family in metrics.families()}
    assert list(found[END]) == [("b", "0")]
    assert list(found[WRITES]) == [("a", "committed"), ("b", "committed")]


def test_another_processs_copy_keeps_nothing() -> None:
    metrics = Metrics()
    assert pickle.loads(pickle.dumps((metrics, NO_METER))) == (NO_METER, NO_METER)


def test_threads_lose_nothing() -> None:
    metrics = Metrics()
    threads = [threading.Thread(target=lambda: [metrics.add(WRITES, ("t", "x")) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((_, count),) = metrics.families()[0].values
    assert count == 2000
