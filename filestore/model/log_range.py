"""The place of a commit's records in the log: plain integers for every kind of log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["LogRange", "LogState", "LogTransaction", "advance", "ends_before"]


@dataclass(frozen=True, slots=True)
class LogRange:
    """The records of one transaction in one partition: the offsets from ``start`` to before ``end``.

    Records of other transactions and Kafka's control records may be between them, so ``count`` (the transaction's own
    records) can be less than ``end - start``.
    """

    bucket: int
    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class LogTransaction:
    """A prepared log transaction: flushed, but not visible to other consumers until a snapshot names it.

    Attributes:
        id: Unique for each attempt of each task of each commit; every record carries it.
        ranges: The offsets of its records, one range for each bucket.
        producer_id: Kafka's producer id; -1 in a log without one.
        producer_epoch: Kafka's producer epoch; -1 in a log without one.
    """

    id: str
    ranges: tuple[LogRange, ...]
    producer_id: int = -1
    producer_epoch: int = -1

    def to_json(self) -> dict[str, Any]:
        """Encodes it as a JSON object, for the commit."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LogTransaction:
        """Reverses `to_json`."""
        ranges = tuple(LogRange(**r) for r in value["ranges"])
        return cls(value["id"], ranges, value["producer_id"], value["producer_epoch"])


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of a table's log at one version of the table (log/table/PROTOCOL.md).

    Attributes:
        offsets: The log's end offset for each bucket, as far as the version covers it.
        identity: What offsets are bound to: log system, topic, topic id, cluster id.
        open: Log transactions of committed versions that may still have to be ended.
        repaired: For each bucket of a log that is read in its own order, the offset before which every record is named
            by a commit or was repaired by one.
        begins: The version with which this log begins: records of earlier versions, and of itself, were in another one.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    open: tuple[LogTransaction, ...] = ()
    repaired: Mapping[int, int] = field(default_factory=dict)
    begins: int = 0


def advance(offsets: Mapping[int, int], transactions: Iterable[LogTransaction]) -> dict[int, int]:
    """The end offsets after those transactions; buckets without records keep theirs. Offsets never decrease."""
    result = dict(offsets)
    for transaction in transactions:
        for part in transaction.ranges:
            result[part.bucket] = max(result.get(part.bucket, 0), part.end)
    return result


def ends_before(ends: Mapping[int, int], state: LogState) -> dict[int, tuple[int, int]]:
    """The buckets in which a log ends before what a version knows of it: by bucket that end, and the one that it had.

    A log never ends earlier than before, so it has lost its end: it was restored from a backup, say.
    """
    known = {b: max(state.offsets.get(b, 0), state.repaired.get(b, 0)) for b in {*state.offsets, *state.repaired}}
    return {b: (ends.get(b, 0), end) for b, end in known.items() if ends.get(b, 0) < end}
