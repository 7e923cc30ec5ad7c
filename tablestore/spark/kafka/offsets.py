"""The offset of a stream of a Kafka table: the JSON object that Spark keeps in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from log.connector.ranges import PartitionRange, admitted

__all__ = ["KafkaOffset"]


@dataclass(frozen=True, slots=True)
class KafkaOffset:
    """The stream has read all messages before an offset of each partition. Spark compares texts: partitions ascend.

    `begin` is kept to the end: a query that is restarted before its first batch was done asks for a new initial
    offset, and must not plan that batch from there.

    Attributes:
        topic: Its name, for those who read the checkpoint.
        topic_id: Which topic: one of the same name that was made later has another.
        begin: The offset at which the query started, by partition.
        offsets: The next offset to read, by partition.
    """

    topic: str
    topic_id: str
    begin: Mapping[int, int]
    offsets: Mapping[int, int]

    @classmethod
    def initial(cls, topic: str, topic_id: str, begin: Mapping[int, int]) -> KafkaOffset:
        """The offset before anything was read."""
        return cls(topic, topic_id, begin, begin)

    def advanced(self, ends: Mapping[int, int], most: int | None, *, discovers: bool) -> KafkaOffset:
        """Returns the offset at which the next batch ends.

        Args:
            ends: Where the topic's partitions end.
            most: How many offsets it may take; all if None.
            discovers: Whether partitions that were added since the start are read, too, from their first message on.
        """
        starts = {p: self.offsets.get(p, 0) for p in sorted({*self.offsets, *(ends if discovers else ())})}
        return replace(self, offsets=admitted(starts, {p: ends.get(p, at) for p, at in starts.items()}, most))

    def since(self, start: KafkaOffset) -> tuple[PartitionRange, ...]:
        """The ranges of a batch from `start` to here, without empty ones."""
        starts = self.begin if start.offsets == start.begin else start.offsets
        found = (PartitionRange(p, starts.get(p, 0), end) for p, end in self.offsets.items())
        return tuple(part for part in found if part.start < part.end)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that Spark keeps."""
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "begin": {str(p): self.begin[p] for p in sorted(self.begin)},
            "offsets": {str(p): self.offsets[p] for p in sorted(self.offsets)},
        }

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> KafkaOffset:
        """Reads what `to_json` made."""
        begin, offsets = ({int(p): int(at) for p, at in value[name].items()} for name in ("begin", "offsets"))
        return cls(value["topic"], value["topic_id"], begin, offsets)
