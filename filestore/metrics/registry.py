"""`Metrics` keeps a process's measurements in Prometheus' client."""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from filestore.metrics.meter import NO_METER, TABLE, Kind, Labels, Metric

__all__ = ["Metrics"]

_MOST_TABLES = 500
_OTHER = "<other>"

_Instrument = Counter | Gauge | Histogram


class Metrics:
    """Keeps measurements; it is a `filestore.metrics.meter.Meter`.

    Pass one to `tablestore.connect`, and export it with `tablestore.metrics.server.serving_metrics` or any other
    exporter of a prometheus_client registry.

    A copy of it in another process, such as Spark's workers, keeps nothing.

    Args:
        registry: The registry of the metrics, such as the program's own `prometheus_client.REGISTRY`; a registry can
            have one `Metrics`. By default it is a new registry.
        most_tables: The largest number of tables with values of their own: counters and histograms of further tables
            are added up under the name ``<other>``, and their gauges are left out.

    Attributes:
        registry: The registry of the metrics.
    """

    def __init__(self, registry: CollectorRegistry | None = None, most_tables: int = _MOST_TABLES) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._most_tables = most_tables
        self._lock = threading.Lock()
        self._tables: set[str] = set()
        self._instruments: dict[Metric, _Instrument] = {}

    def add(self, metric: Metric, labels: Labels, amount: float = 1) -> None:
        """Increases a counter."""
        counter = self._of(metric, self._place(metric, labels))
        assert isinstance(counter, Counter), metric.name
        counter.inc(amount)

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        """Sets a gauge."""
        if self._place(metric, labels) != labels:
            return
        gauge = self._of(metric, labels)
        assert isinstance(gauge, Gauge), metric.name
        gauge.set(value)

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """Adds a value to a histogram."""
        histogram = self._of(metric, self._place(metric, labels))
        assert isinstance(histogram, Histogram), metric.name
        histogram.observe(value)

    def forget(self, table: str) -> None:
        """Removes the gauges of a table that was dropped. Its counters stay."""
        with self._lock:
            gauges = {m: i for m, i in self._instruments.items() if isinstance(i, Gauge) and TABLE in m.labels}
        for gauge in gauges.values():
            gauge.remove_by_labels({TABLE: table})

    def _of(self, metric: Metric, labels: Labels) -> _Instrument:
        with self._lock:
            if metric not in self._instruments:
                self._instruments[metric] = self._made(metric)
            found = self._instruments[metric]
        return found.labels(*labels) if labels else found

    def _made(self, metric: Metric) -> _Instrument:
        match metric.kind:
            case Kind.COUNTER:
                return Counter(metric.name, metric.doc, metric.labels, registry=self.registry)
            case Kind.GAUGE:
                return Gauge(metric.name, metric.doc, metric.labels, registry=self.registry)
            case Kind.HISTOGRAM:
                return Histogram(
                    metric.name,
                    metric.doc,
                    metric.labels,
                    registry=self.registry,
                    buckets=(*metric.bounds, float("inf")),
                )

    def _place(self, metric: Metric, labels: Labels) -> Labels:
        if TABLE not in metric.labels:
            return labels
        at = metric.labels.index(TABLE)
        with self._lock:
            if labels[at] not in self._tables and len(self._tables) >= self._most_tables:
                return (*labels[:at], _OTHER, *labels[at + 1 :])
            self._tables.add(labels[at])
        return labels

    def __reduce__(self) -> tuple[object, ...]:
        """Unpickles to a meter that keeps nothing: this process does not see another one's measurements."""
        return _nothing, ()


def _nothing() -> object:
    return NO_METER
