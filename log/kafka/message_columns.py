"""Messages of Kafka's client by columns: one call a message and field, which is all that the client offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)

from log.connectors.decoding import Incoming
from log.formats.format import MILLISECONDS, Index

__all__ = ["NOTHING", "Fetched", "incoming"]

_TIMESTAMP_TYPES: Mapping[int, str] = {
    TIMESTAMP_NOT_AVAILABLE: "NoTimestampType",
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}
_HEADERS = pa.map_(pa.string(), pa.binary())


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages that are no events, and where each was.

    Attributes:
        messages: As the consumer gave them.
        partitions: Of each.
        offsets: Of each.
    """

    messages: Sequence[Message]
    partitions: Index
    offsets: Index

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Fetched:
        """With their places."""
        count = len(messages)
        return cls(
            messages,
            np.fromiter((m.partition() for m in messages), np.int64, count),
            np.fromiter((m.offset() for m in messages), np.int64, count),
        )

    def last_offsets(self) -> dict[int, int]:
        """The last offset of each partition, in which messages are in order."""
        return dict(zip(self.partitions.tolist(), self.offsets.tolist(), strict=True))

    def before(self, ends: Mapping[int, int]) -> Fetched:
        """Those below the ends of their partitions; none of a partition without one."""
        limits = np.zeros(max([int(self.partitions.max(initial=0)), *ends]) + 1, np.int64)
        limits[list(ends)] = list(ends.values())
        good = self.offsets < limits[self.partitions]
        if good.all():
            return self
        places = np.flatnonzero(good)
        return Fetched([self.messages[i] for i in places.tolist()], self.partitions[places], self.offsets[places])


NOTHING = Fetched.of(())


def incoming(fetched: Fetched, wanted: Collection[str]) -> Incoming:
    """Keys, values, places, and the metadata that is wanted (`log.metadata.keys.KAFKA_KEYS`)."""
    messages = fetched.messages
    return Incoming(
        [m.key() for m in messages],
        [m.value() for m in messages],
        fetched.partitions.tolist(),
        fetched.offsets.tolist(),
        {name: _COLUMNS[name](messages) for name in wanted},
    )


def _timestamps(messages: Sequence[Message]) -> pa.Array:
    return pa.array([m.timestamp()[1] for m in messages], pa.int64()).cast(MILLISECONDS)


def _headers(messages: Sequence[Message]) -> pa.Array:
    # A dict keeps the last of several headers with one name.
    return pa.array([list(dict(m.headers() or ()).items()) for m in messages], _HEADERS)


_COLUMNS: Mapping[str, Callable[[Sequence[Message]], pa.Array]] = {
    "topic": lambda messages: pa.array([m.topic() for m in messages], pa.string()),
    "partition": lambda messages: pa.array([m.partition() for m in messages], pa.int32()),
    "headers": _headers,
    "leader-epoch": lambda messages: pa.array([m.leader_epoch() for m in messages], pa.int32()),
    "offset": lambda messages: pa.array([m.offset() for m in messages], pa.int64()),
    "timestamp": _timestamps,
    "timestamp-type": lambda messages: pa.array([_TIMESTAMP_TYPES[m.timestamp()[0]] for m in messages], pa.string()),
}
