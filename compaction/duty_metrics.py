"""The metrics of a compactor."""

from __future__ import annotations

from filestore.metrics.meter import LATENCY_S, TABLE, Kind, Metric

__all__ = ["DUTIES_DONE", "DUTY_METRICS", "DUTY_SECONDS"]

DUTIES_DONE = Metric(
    "tablestore_duties_total",
    Kind.COUNTER,
    "Duties that were due for a table, by their outcome: done, conflict (another process was faster) or failed.",
    (TABLE, "duty", "outcome"),
)
DUTY_SECONDS = Metric(
    "tablestore_duty_duration_seconds",
    Kind.HISTOGRAM,
    "The duration of a duty that was due for a table; by duty: compaction, fold, tombstones, life, log.",
    ("duty",),
    (*LATENCY_S, 300.0, 1800.0),
)
DUTY_METRICS = (DUTIES_DONE, DUTY_SECONDS)
