"""Metrics of commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from filestore.ambient import Ambient
from filestore.commit.loop import Committed
from filestore.errors import CommitUnknown, Conflict, InvalidRequest, TableStoreError, Unavailable
from filestore.metrics.meter import LATENCY_S, TABLE, Kind, Meter, Metric

__all__ = ["COMMIT_METRICS", "CommitMeter"]

WRITES = Metric(
    "tablestore_writes_total",
    Kind.COUNTER,
    "Writes, overwrites and drops of partitions, by how they ended: committed, conflict, refused, unavailable, unknown "
    "or failed.",
    (TABLE, "outcome"),
)
SECONDS = Metric(
    "tablestore_commit_duration_seconds",
    Kind.HISTOGRAM,
    "From the beginning of a write to the end of its commit, its log included; of those that were committed.",
    (TABLE,),
    LATENCY_S,
)
ROWS = Metric(
    "tablestore_commit_rows_total",
    Kind.COUNTER,
    "Rows of commits: written (put), or deleted.",
    (TABLE, "change"),
)
RACES = Metric(
    "tablestore_commit_races_total",
    Kind.COUNTER,
    "Versions that somebody else committed before a write could: the write was tried again on top of that.",
    (TABLE,),
)
RETRIES = Metric(
    "tablestore_commit_retries_total",
    Kind.COUNTER,
    "Writes that were done again as a whole, since others changed what they rest on; by the conflict's code.",
    (TABLE, "code"),
)
COMMIT_METRICS = (WRITES, SECONDS, ROWS, RACES, RETRIES)

_CHANGES = {"written": "rows_written", "deleted": "rows_deleted"}
_OUTCOMES: tuple[tuple[type[TableStoreError], str], ...] = (
    (CommitUnknown, "unknown"),
    (Unavailable, "unavailable"),
    (Conflict, "conflict"),
    (InvalidRequest, "refused"),
    (TableStoreError, "failed"),
)


@dataclass(frozen=True, slots=True)
class CommitMeter:
    """Measures the commits of one table.

    Attributes:
        meter: Takes the values.
        table: ``database.table``.
        ambient: The clock.
    """

    meter: Meter
    table: str
    ambient: Ambient

    def measured(self, write: Callable[[], Committed | None]) -> Committed | None:
        """Runs a write and measures its outcome; a write that had nothing to do (None) is not counted."""
        began_ms = self.ambient.now_ms()
        try:
            committed = write()
        except TableStoreError as error:
            outcome = next(name for kind, name in _OUTCOMES if isinstance(error, kind))
            self.meter.add(WRITES, (self.table, outcome))
            raise
        if committed is None:
            return None
        self.meter.add(WRITES, (self.table, "committed"))
        self.meter.observe(SECONDS, (self.table,), (self.ambient.now_ms() - began_ms) / 1000)
        for change, name in _CHANGES.items():
            self.meter.add(ROWS, (self.table, change), committed.snapshot.metrics.get(name, 0))
        return committed

    def raced(self, lost: int) -> None:
        """Counts versions that others committed first."""
        if lost:
            self.meter.add(RACES, (self.table,), lost)

    def retried(self, error: Conflict) -> None:
        """Counts a write that begins again."""
        self.meter.add(RETRIES, (self.table, error.code))
