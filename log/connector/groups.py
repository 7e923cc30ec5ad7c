"""Consumer groups of a table's topic: they keep a reader's offsets, and make numbered writes exactly once.

The name of a writer is its transactional id, so a retry ends the transaction that an earlier attempt has left open
(KIP-98). It is also the id of a consumer group: the number of the write is committed as that group's offset in the same
transaction as the messages (KIP-447), so that either both are stored or neither is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from filestore.ambient import Ambient
from log.connector.declaration import KafkaDeclaration
from log.connector.settings import client_settings, consumer_settings
from log.kafka.groups import GroupOffsets
from log.kafka.sending import Producer

__all__ = ["LastWrite", "Numbered", "group_offsets"]

_PARTITION = 0  # a group has offsets for partitions: any partition that exists can be used


def group_offsets(table: KafkaDeclaration, group: str, ambient: Ambient) -> GroupOffsets:
    """Returns the offsets of the table's topic that a group keeps; for errors see `GroupOffsets`."""
    return GroupOffsets(table.topic, group, table, client_settings(table), ambient)


@dataclass(frozen=True, slots=True)
class Numbered:
    """Identifies a write. Picklable.

    Attributes:
        writer: The writer's name, which no other writer of the topic has.
        number: Grows from write to write, from 0 on.
    """

    writer: str
    number: int

    def name(self, topic: str) -> str:
        """The transactional id, and the group's."""
        return f"tablestore/{topic}/{self.writer}"


class LastWrite:
    """The last write of a writer, as the brokers remember it: its number, and how many messages it had.

    REQUIRES: no earlier producer of that name can commit any more (``init_transactions`` has returned).

    Args:
        table: Whose topic is written.
        write: Which write.
        ambient: Waits between retries.
    """

    def __init__(self, table: KafkaDeclaration, write: Numbered, ambient: Ambient) -> None:
        self._write = write
        settings = {**consumer_settings(table), "isolation.level": "read_committed"}
        self._group = GroupOffsets(table.topic, write.name(table.topic), table, settings, ambient)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._group.close()

    def messages(self) -> int | None:
        """The number of this write's messages, if it was done; 0 if a later one was."""
        offset, note = self._group.read_note(_PARTITION)
        if offset <= self._write.number:  # of the next write; below 0 if there was none
            return None
        return int(note or 0) if offset == self._write.number + 1 else 0

    def remember(self, producer: Producer, messages: int) -> None:
        """Puts this write into the producer's open transaction."""
        self._group.write_note(producer, _PARTITION, self._write.number + 1, str(messages))
