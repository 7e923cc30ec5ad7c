"""Reads the values of a program's metrics."""

from __future__ import annotations

from tablestore import Metrics

__all__ = ["measured"]


def measured(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """A sample's values by the values of its labels: a histogram has ``_bucket``, ``_sum``, ``_count``."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    }
