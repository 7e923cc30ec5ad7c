"""The metrics of readers of changes."""

from __future__ import annotations

from dataclasses import dataclass

from filestore.metrics.meter import LATENCY_S, TABLE, Kind, Meter, Metric
from tablestore.following.progress import Progress

__all__ = ["FOLLOW_METRICS", "FollowMeter"]

FIRST_ROW = Metric(
    "tablestore_follow_first_row_seconds",
    Kind.HISTOGRAM,
    "The time from the start of a reader to its first row.",
    (TABLE,),
    LATENCY_S,
)
LATENCY = Metric(
    "tablestore_follow_latency_seconds",
    Kind.HISTOGRAM,
    "End to end: from the commit of a version, made after the reader began, to the delivery of a batch of its changes; "
    "with log.consistency = eventual from the time at which the log got them.",
    (TABLE,),
    LATENCY_S,
)
ROWS = Metric("tablestore_follow_rows_total", Kind.COUNTER, "Rows that readers returned.", (TABLE,))
RESCANS = Metric(
    "tablestore_follow_rescans_total",
    Kind.COUNTER,
    "How many times readers began again from a snapshot because changes were gone.",
    (TABLE,),
)
FOLLOW_METRICS = (FIRST_ROW, LATENCY, ROWS, RESCANS)


@dataclass(frozen=True, slots=True)
class FollowMeter:
    """Measures the readers of one table.

    Attributes:
        meter: It gets the values.
        table: The table's name, ``database.table``.
    """

    meter: Meter
    table: str

    def record(self, before: Progress, after: Progress, running_ms: int) -> None:
        """Records that a reader returned a batch.

        Args:
            before: Its progress without the batch.
            after: Its progress with the batch.
            running_ms: The time since it began: for versions that were committed before there is no latency.
        """
        name = (self.table,)
        if after.records > before.records:
            self.meter.add(ROWS, name, after.records - before.records)
        if after.rescans > before.rescans:
            self.meter.add(RESCANS, name, after.rescans - before.rescans)
        if before.first_row_ms is None and after.first_row_ms is not None:
            self.meter.observe(FIRST_ROW, name, after.first_row_ms / 1000)
        if after.latency_ms is not None and after.records > before.records and after.latency_ms <= running_ms:
            self.meter.observe(LATENCY, name, max(0, after.latency_ms) / 1000)
