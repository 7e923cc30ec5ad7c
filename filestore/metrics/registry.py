"""`Metrics`: a process's measured values, for whoever exports them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from filestore.metrics.meter import NO_METER, TABLE, Kind, Labels, Metric

__all__ = ["Distribution", "Family", "Metrics"]

_MOST_TABLES = 500
_OTHER = "<other>"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's values.

    Attributes:
        counts: How many lie at or below each bound of the metric, and in the end how many there are.
        total: Their sum.
    """

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values, by the values of its labels; sorted by those."""

    metric: Metric
    values: tuple[tuple[Labels, float | Distribution], ...]


@dataclass(slots=True)
class _Histogram:
    counts: list[int]
    total: float = 0.0


class Metrics:
    """Keeps values; a `filestore.metrics.meter.Meter`.

    Give one to `tablestore.connect`, and export it with `tablestore.metrics_server.serving_metrics`, with
    `filestore.metrics.exposition.text`, or by `families` through a registry of your own.

    In another process, as in Spark's workers, a copy of it keeps nothing.

    Args:
        most_tables: How many tables have values of their own: counters and histograms of further ones go together
            under the name ``<other>``, their gauges are left out.
    """

    def __init__(self, most_tables: int = _MOST_TABLES) -> None:
        self._most_tables = most_tables
        self._lock = threading.Lock()
        self._tables: set[str] = set()
        self._numbers: dict[Metric, dict[Labels, float]] = {}
        self._histograms: dict[Metric, dict[Labels, _Histogram]] = {}

    def add(self, metric: Metric, labels: Labels, amount: float = 1) -> None:
        """A counter grows."""
        with self._lock:
            values, place = self._numbers.setdefault(metric, {}), self._place(metric, labels)
            values[place] = values.get(place, 0) + amount

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        """A gauge is that much now."""
        with self._lock:
            if (place := self._place(metric, labels)) == labels:
                self._numbers.setdefault(metric, {})[place] = value

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """A histogram has one more."""
        with self._lock:
            held, place = self._histograms.setdefault(metric, {}), self._place(metric, labels)
            if place not in held:
                held[place] = _Histogram([0] * (len(metric.bounds) + 1))
            held[place].counts[bisect_left(metric.bounds, value)] += 1
            held[place].total += value

    def forget(self, table: str) -> None:
        """The table is gone: so are its gauges. What was counted of it stays."""
        with self._lock:
            for metric, known in self._numbers.items():
                if metric.kind is Kind.GAUGE and TABLE in metric.labels:
                    at = metric.labels.index(TABLE)
                    for labels in [labels for labels in known if labels[at] == table]:
                        del known[labels]

    def families(self) -> tuple[Family, ...]:
        """All metrics that have values, by name: a picture of one moment."""
        with self._lock:
            found: list[Family] = [_family(metric, dict(values)) for metric, values in self._numbers.items() if values]
            found += [
                _family(metric, {labels: _distribution(held) for labels, held in values.items()})
                for metric, values in self._histograms.items()
            ]
        return tuple(sorted(found, key=lambda family: family.metric.name))

    def _place(self, metric: Metric, labels: Labels) -> Labels:
        if TABLE not in metric.labels:
            return labels
        at = metric.labels.index(TABLE)
        if labels[at] not in self._tables and len(self._tables) >= self._most_tables:
            return (*labels[:at], _OTHER, *labels[at + 1 :])
        self._tables.add(labels[at])
        return labels

    def __reduce__(self) -> tuple[object, ...]:
        """What another process measures is not known here."""
        return _nothing, ()


def _nothing() -> object:
    return NO_METER


def _distribution(held: _Histogram) -> Distribution:
    return Distribution(tuple(accumulate(held.counts)), held.total)


def _family(metric: Metric, values: Mapping[Labels, float | Distribution]) -> Family:
    assert all(isinstance(v, Distribution) is (metric.kind is Kind.HISTOGRAM) for v in values.values()), metric.name
    return Family(metric, tuple(sorted(values.items(), key=lambda item: item[0])))
