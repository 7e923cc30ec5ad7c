"""Where in the log a commit's records lie: plain integers, whatever the log is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["LogRange", "LogTransaction", "advance"]


@dataclass(frozen=True, slots=True)
class LogRange:
    """The records of one transaction in one partition: offsets from ``start`` to before ``end``.

    Other transactions' records and broker markers may lie between, so ``count`` (records of ours) can be less than
    ``end - start``.
    """

    bucket: int
    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class LogTransaction:
    """A prepared log transaction: flushed, not yet visible to foreign readers, named by a snapshot or by none.

    Attributes:
        id: Unique for each attempt of each task of each commit; every record carries it.
        ranges: Where its records lie, one range a bucket.
        producer_id: Kafka's producer id; -1 in a log without one.
        producer_epoch: Kafka's producer epoch; -1 in a log without one.
    """

    id: str
    ranges: tuple[LogRange, ...]
    producer_id: int = -1
    producer_epoch: int = -1

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, for the commit."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LogTransaction:
        """Back from `to_json`."""
        ranges = tuple(LogRange(**r) for r in value["ranges"])
        return cls(value["id"], ranges, value["producer_id"], value["producer_epoch"])


def advance(offsets: Mapping[int, int], transactions: Iterable[LogTransaction]) -> dict[int, int]:
    """The end offsets after those transactions; buckets without records keep theirs. They never go back."""
    result = dict(offsets)
    for transaction in transactions:
        for part in transaction.ranges:
            result[part.bucket] = max(result.get(part.bucket, 0), part.end)
    return result
