"""Gauges of the offsets of tables' logs."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.metrics.meter import TABLE, Kind, Meter, Metric
from tablestore.logcare.status import BucketLog

__all__ = ["LOG_METRICS", "measure_log"]

_LABELS = (TABLE, "bucket")
START = Metric("tablestore_log_start_offset", Kind.GAUGE, "The first offset that retention has kept.", _LABELS)
COVERED = Metric("tablestore_log_covered_offset", Kind.GAUGE, "The end of what the newest version covers.", _LABELS)
STABLE = Metric(
    "tablestore_log_stable_offset",
    Kind.GAUGE,
    "The last stable offset: how far foreign readers with read_committed get.",
    _LABELS,
)
END = Metric("tablestore_log_end_offset", Kind.GAUGE, "The offset that the next record gets.", _LABELS)
HELD_BACK = Metric(
    "tablestore_log_held_back_offsets",
    Kind.GAUGE,
    "The distance of log end and last stable offset: what foreign readers wait for, behind an open transaction.",
    _LABELS,
)
LOG_METRICS = (START, COVERED, STABLE, END, HELD_BACK)


def measure_log(meter: Meter, table: str, status: Mapping[int, BucketLog]) -> None:
    """Sets a table's gauges.

    Args:
        meter: Takes the values.
        table: ``database.table``.
        status: The result of `tablestore.Table.log_status`.
    """
    for bucket, log in status.items():
        labels = (table, str(bucket))
        meter.set(START, labels, log.start)
        meter.set(COVERED, labels, log.covered)
        meter.set(STABLE, labels, log.stable)
        meter.set(END, labels, log.end)
        meter.set(HELD_BACK, labels, log.held_back)
