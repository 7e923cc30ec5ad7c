"""Values as Prometheus reads them: the text format, version 0.0.4 (prometheus.io, "Exposition formats"). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from filestore.metrics.meter import Labels, Metric
from filestore.metrics.registry import Distribution, Family

__all__ = ["MEDIA_TYPE", "text"]

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(families: Iterable[Family]) -> str:
    """The page that a scrape gets."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    metric = family.metric
    yield f"# HELP {metric.name} {_escaped(metric.doc)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in family.values:
        if isinstance(value, Distribution):
            yield from _histogram(metric, labels, value)
        else:
            yield f"{metric.name}{_shown(metric.labels, labels)} {_number(value)}"


def _histogram(metric: Metric, labels: Labels, value: Distribution) -> Iterator[str]:
    bounds = (*(_number(bound) for bound in metric.bounds), "+Inf")
    for bound, count in zip(bounds, value.counts, strict=True):
        yield f"{metric.name}_bucket{_shown((*metric.labels, 'le'), (*labels, bound))} {count}"
    yield f"{metric.name}_sum{_shown(metric.labels, labels)} {_number(value.total)}"
    yield f"{metric.name}_count{_shown(metric.labels, labels)} {value.counts[-1]}"


def _shown(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_quoted(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(doc: str) -> str:
    return doc.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(value: str) -> str:
    return _escaped(value).replace('"', r"\"")
