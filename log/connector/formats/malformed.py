"""Decides what a reader does with messages that cannot be read: fail, skip, or send them to a dead-letter topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from filestore.errors import Corrupt
from log.connector.formats.format import Malformed

__all__ = ["DeadLetter", "Policy", "decide"]


class Policy(StrEnum):
    """The policies of a reader for malformed messages."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message for the topic of dead letters.

    Args:
        index: Its position in the batch, by which its key, value and headers are found.
        partition: Where it was.
        offset: Where it was.
        reason: Why it could not be read.
    """

    index: int
    partition: int
    offset: int
    reason: str

    def headers(self, topic: str) -> list[tuple[str, bytes]]:
        """Returns the headers to add to its own: where it was, and why it could not be read."""
        return [
            ("tablestore.topic", topic.encode()),
            ("tablestore.partition", str(self.partition).encode()),
            ("tablestore.offset", str(self.offset).encode()),
            ("tablestore.reason", self.reason.encode()),
        ]


def decide(
    policy: Policy, malformed: Sequence[Malformed], topic: str, partitions: Sequence[int], offsets: Sequence[int]
) -> tuple[DeadLetter, ...]:
    """Returns the messages to send as dead letters; with ``skip`` none.

    Args:
        policy: What the table says.
        malformed: From `Decoded`, of keys and values; a message may be in both.
        topic: The messages' topic.
        partitions: Of each message of the batch.
        offsets: Of each message of the batch.

    Raises:
        Corrupt: ``malformed-record``: the policy is to fail; it names the first one.
    """
    reasons: dict[int, str] = {}
    for one in malformed:
        reasons[one.index] = f"{reasons[one.index]}; {one.reason}" if one.index in reasons else one.reason
    if policy is Policy.SKIP or not reasons:
        return ()
    if policy is Policy.FAIL:
        first = min(reasons)
        more = f" ({len(reasons)} messages of this batch cannot)" if len(reasons) > 1 else ""
        raise Corrupt(
            f"the message of {topic}, partition {partitions[first]}, offset {offsets[first]}, cannot be read"
            f"{more}: {reasons[first]}. Correct its writer, or set scan.malformed-records = skip or dead-letter",
            code="malformed-record",
        )
    return tuple(DeadLetter(i, partitions[i], offsets[i], reasons[i]) for i in sorted(reasons))
