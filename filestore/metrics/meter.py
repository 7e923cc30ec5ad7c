"""What measuring code calls: a metric is a value that says what it is, a meter takes what is measured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

__all__ = ["LATENCY_S", "NO_METER", "TABLE", "Kind", "Labels", "Meter", "Metric"]

TABLE = "table"
"""The label of a table's name, ``database.table``: a registry bounds how many there may be."""

LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of a histogram of times, seconds."""

Labels = tuple[str, ...]


class Kind(StrEnum):
    """Prometheus' types of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured.

    Attributes:
        name: By Prometheus' conventions: base units, counters end with ``_total``.
        kind: Its type.
        doc: One sentence.
        labels: Names of its labels.
        bounds: Of a histogram the upper bounds of its buckets, ascending, without +Inf.
    """

    name: str
    kind: Kind
    doc: str
    labels: Labels = ()
    bounds: tuple[float, ...] = ()


class Meter(Protocol):
    """Takes what is measured. Any thread may call it; it never fails and never waits."""

    def add(self, metric: Metric, labels: Labels, amount: float = 1) -> None:
        """A counter grows. `labels` are the values of the metric's labels, in their order."""

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        """A gauge is that much now."""

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """A histogram has one more."""

    def forget(self, table: str) -> None:
        """The table is gone: so are its gauges."""


class _NoMeter:
    def add(self, metric: Metric, labels: Labels, amount: float = 1) -> None:
        """Nobody asks."""

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        """Nobody asks."""

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """Nobody asks."""

    def forget(self, table: str) -> None:
        """Nothing is known."""

    def __reduce__(self) -> str:
        """There is one."""
        return "NO_METER"


NO_METER: Meter = _NoMeter()
"""For processes of which nobody wants to know."""
