"""Writes that are done once, however often they are tried: the brokers remember the last one of each writer.

A writer's name is its transactional id, so whoever tries again ends what the try before has left open (KIP-98). And it
is a consumer group's id: the number of the write is committed as that group's offset in the same transaction as the
messages (KIP-447), so there is no moment at which only one of the two is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from filestore.ambient import Ambient
from log.connectors.declaration import KafkaDeclaration
from log.kafka.admin import COORDINATOR_MOVES, retried
from log.kafka.declared_settings import consumer_settings, timeout_seconds
from log.kafka.settings import translated

__all__ = ["Mark", "Numbered"]

_PARTITION = 0  # a group has offsets of partitions; which one does not matter, but that it is there


@dataclass(frozen=True, slots=True)
class Numbered:
    """Which write it is. Picklable.

    Attributes:
        writer: No other writer of the topic is called so.
        number: Grows from write to write, from 0 on.
    """

    writer: str
    number: int

    def name(self, topic: str) -> str:
        """The transactional id, and the group's."""
        return f"tablestore/{topic}/{self.writer}"


class Mark:
    """What the brokers remember of a writer.

    REQUIRES: no earlier producer of that name can commit any more (``init_transactions`` has returned).

    Args:
        table: Whose topic is written.
        write: Which write.
        ambient: Waits between retries.
    """

    def __init__(self, table: KafkaDeclaration, write: Numbered, ambient: Ambient) -> None:
        self._table = table
        self._write = write
        self._seconds = timeout_seconds(table) * 3
        self._ambient = ambient
        self._action = f"looking whether write {write.number} of {write.writer} is in topic {table.topic}"
        settings = {"group.id": write.name(table.topic), "isolation.level": "read_committed"}
        with translated(self._action, table):
            self._consumer = Consumer({**consumer_settings(table), **settings})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def messages(self) -> int | None:
        """The number of its messages, if the write was done; 0 if a later one was."""

        def request() -> TopicPartition:
            [found] = self._consumer.committed([TopicPartition(self._table.topic, _PARTITION)], self._seconds)
            if found.error is not None:
                raise KafkaException(found.error)
            return found

        with translated(self._action, self._table):
            found = retried(request, COORDINATOR_MOVES, self._seconds, self._ambient)
        if found.offset <= self._write.number:  # of the next write; below 0 if there was none
            return None
        return int(found.metadata or 0) if found.offset == self._write.number + 1 else 0

    def leave(self, producer: Producer, messages: int) -> None:
        """Puts it into the producer's open transaction."""
        at = TopicPartition(self._table.topic, _PARTITION, self._write.number + 1, str(messages))
        with translated(f"writing topic {self._table.topic}", self._table):
            producer.send_offsets_to_transaction([at], self._consumer.consumer_group_metadata(), self._seconds)
