"""Converts fetched messages to columns; the client offers one call for each message and field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)

__all__ = ["NOTHING", "Fetched"]

_MILLISECONDS = pa.timestamp("ms", tz="UTC")
_HEADERS = pa.map_(pa.string(), pa.binary())
_TIMESTAMP_TYPES: Mapping[int, str] = {
    TIMESTAMP_NOT_AVAILABLE: "NoTimestampType",
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages that were fetched, with their partitions and offsets.

    Attributes:
        messages: As the consumer returned them, without its events.
        partitions: Of each.
        offsets: Of each.
    """

    messages: Sequence[Message]
    partitions: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Fetched:
        """Returns messages with their partitions and offsets."""
        count = len(messages)
        return cls(
            messages,
            np.fromiter((m.partition() for m in messages), np.int64, count),
            np.fromiter((m.offset() for m in messages), np.int64, count),
        )

    def __len__(self) -> int:
        return len(self.messages)

    def take(self, places: Sequence[int]) -> Fetched:
        """Selects messages by their places."""
        return Fetched([self.messages[i] for i in places], self.partitions[places], self.offsets[places])

    def last_offsets(self) -> dict[int, int]:
        """Returns the last offset of each partition; messages of one partition are in order."""
        return dict(zip(self.partitions.tolist(), self.offsets.tolist(), strict=True))

    def before(self, ends: Mapping[int, int]) -> Fetched:
        """Selects the messages below the ends of their partitions; none of a partition without an end."""
        limits = np.zeros(max([int(self.partitions.max(initial=0)), *ends]) + 1, np.int64)
        limits[list(ends)] = list(ends.values())
        good = self.offsets < limits[self.partitions]
        return self if good.all() else self.take(np.flatnonzero(good).tolist())

    def by_partition(self) -> Mapping[int, Fetched]:
        """Groups the messages by partition."""
        found = np.unique(self.partitions).tolist()
        return (
            {found[0]: self}
            if len(found) == 1
            else {p: self.take(np.flatnonzero(self.partitions == p).tolist()) for p in found}
        )

    def keys(self) -> list[bytes | None]:
        """Returns the keys."""
        return [m.key() for m in self.messages]

    def values(self) -> list[bytes | None]:
        """Returns the values."""
        return [m.value() for m in self.messages]

    def headers(self) -> list[list[tuple[str, str | bytes | None]]]:
        """Returns the headers; an empty list where a message has none."""
        return [cast("list[tuple[str, str | bytes | None]]", m.headers() or []) for m in self.messages]

    def written_ms(self, place: int) -> int:
        """Returns the timestamp of one message."""
        return int(self.messages[place].timestamp()[1])

    def metadata(self, key: str) -> pa.Array:
        """Returns a column of Kafka's metadata, by the key that the connector has for it (METADATA.md)."""
        return _COLUMNS[key](self.messages)


NOTHING = Fetched.of(())


def _timestamps(messages: Sequence[Message]) -> pa.Array:
    return pa.array([m.timestamp()[1] for m in messages], pa.int64()).cast(_MILLISECONDS)


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
