"""``python -m tablestore.metrics.page`` prints METRICS.md from the code. A test compares the file with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from catalog_service.server import REQUEST_METRICS
from compaction.duty_metrics import DUTY_METRICS
from filestore.metrics.meter import Kind, Metric
from tablestore.following.follow_metrics import FOLLOW_METRICS
from tablestore.logcare.metrics import LOG_METRICS
from tablestore.writing.commit_metrics import COMMIT_METRICS

__all__ = ["METRICS", "page"]

METRICS: tuple[tuple[str, Sequence[Metric]], ...] = (
    (
        "Writers: `connect(…, metrics=…)`, with Spark on its driver",
        COMMIT_METRICS,
    ),
    ("Readers: `Table.follow`, and `SparkStore.read_stream` by batches", FOLLOW_METRICS),
    ("Logs: set by `Table.log_status()`, and by a compactor once a minute", LOG_METRICS),
    ("Compactors: `tablestore compactor --metrics-port`", DUTY_METRICS),
    ("The catalog service: `/metrics` beside its API", REQUEST_METRICS),
)

_HEAD = """# Metrics

The metrics follow Prometheus' conventions: they count seconds, offsets and rows, and counters end with `_total`. Each
process serves its own metrics: `tablestore serve` has those of its requests, at `/metrics`, and
`tablestore compactor --metrics-port 9184` those of logs and duties. Both listen at loopback by default. A program that
writes or reads passes a `Metrics` to `connect`, and serves it, or adds it to a registry of prometheus_client that it
serves already:

```python
from tablestore.metrics.server import serving_metrics

metrics = tablestore.Metrics()
store = tablestore.connect("warehouse", metrics=metrics)
with serving_metrics(metrics, port=0) as url:
    ...  # write, follow; Prometheus reads the URL

metrics = tablestore.Metrics(prometheus_client.REGISTRY)
```

The label `table` is `database.table`. The first 500 tables have values of their own (`Metrics(most_tables=…)`). The
counters and histograms of further tables are added up as `<other>`, and their gauges are left out. Spark's workers
have no metrics.
"""


def page() -> str:
    """Returns the text of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    for number, (title, metrics) in enumerate(METRICS):
        yield from ([""] if number else [])
        yield f"## {title}"
        yield "| metric | type | labels | |"
        yield "|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.doc}{_bounds(metric)} |"


def _bounds(metric: Metric) -> str:
    if metric.kind is not Kind.HISTOGRAM:
        return ""
    return f" Buckets from {metric.bounds[0]:g} to {metric.bounds[-1]:g}."


if __name__ == "__main__":
    sys.stdout.write(page())
