"""The interface for measuring code: a metric is a value that describes itself, and a meter records measurements."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

__all__ = ["LATENCY_S", "NO_METER", "TABLE", "Kind", "Labels", "Meter", "Metric"]

TABLE = "table"
"""The label of a table's name, ``database.table``: a registry limits the number of its values."""

LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of a histogram of times, in seconds."""

Labels = tuple[str, ...]


class Kind(StrEnum):
    """Prometheus' types of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: The name by Prometheus' conventions: base units, counters end with ``_total``.
        kind: The type.
        doc: One sentence of documentation.
        labels: The names of its labels.
        bounds: The upper bounds of a histogram's buckets, ascending, without +Inf.
    """

    name: str
    kind: Kind
    doc: str
    labels: Labels = ()
    bounds: tuple[float, ...] = ()


class Meter(Protocol):
    """Records measurements. Any thread may call it; it never fails and never waits."""

    def add(self, metric: Metric, labels: Labels, amount: float = 1) -> None:
        """Increases a counter. `labels` are the values of the metric's labels, in their order."""

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        """Sets a gauge."""

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """Adds a value to a histogram."""

    def forget(self, table: str) -> None:
        """Removes the gauges of a table that was dropped."""


class _NoMeter:
    def add(self, metric: Metric, labels: Labels, amount: float = 1) -> None:
        """Ignores the measurement."""

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        """Ignores the measurement."""

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """Ignores the measurement."""

    def forget(self, table: str) -> None:
        """Does nothing: there are no measurements to remove."""

    def __reduce__(self) -> str:
        """Unpickles to the only instance."""
        return "NO_METER"


NO_METER: Meter = _NoMeter()
"""Ignores all measurements."""
