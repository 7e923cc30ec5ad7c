"""Reads and stores offsets that a consumer group keeps on the brokers. No member ever joins the group.

IMPORTANT: it does so by a consumer without a subscription. The admin client's `list_consumer_group_offsets` ends the
process (2.16.0: a segmentation fault) while a cluster's first group has no coordinator yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest
from filestore.model.text import check_text
from log.kafka.admin import COORDINATOR_MOVES, retried
from log.kafka.errors import Brokers, translated
from log.kafka.sending import Producer
from log.kafka.settings import seconds_of

__all__ = ["GroupOffsets"]

_ID_BYTES_MAX = 32_767  # of a text in Kafka's protocol
_NO_COMMITS = {"enable.auto.commit": False, "enable.auto.offset.store": False}


class GroupOffsets:
    """The offsets of one topic that one group has committed.

    Args:
        topic: The topic.
        group: The group's id.
        brokers: What errors say of them.
        settings: The client's.
        ambient: Waits while the group's coordinator moves.

    Every method may raise `Unavailable` (``log-unavailable``), or `InvalidRequest` (``log-not-authorized``, or
    ``group-in-use``: it has members, who alone may keep offsets).

    Raises:
        InvalidRequest: ``bad-consumer-id``: no group can have that id; ``bad-text``.
    """

    def __init__(self, topic: str, group: str, brokers: Brokers, settings: Mapping[str, Any], ambient: Ambient) -> None:
        _check_id(group)
        self._topic = topic
        self._group = group
        self._brokers = brokers
        self._seconds = seconds_of(settings)
        self._ambient = ambient
        with translated(f"opening group {group}", brokers):
            self._consumer = Consumer({**settings, **_NO_COMMITS, "group.id": group})

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()

    def read(self) -> dict[int, int]:
        """Returns the offsets by partition. Brokers delete them with the topic, or after a week."""

        def ask() -> list[TopicPartition]:
            known = self._consumer.list_topics(self._topic, timeout=self._seconds).topics[self._topic].partitions
            return self._committed([TopicPartition(self._topic, p) for p in known])

        with translated(f"reading the offsets of group {self._group}", self._brokers):
            found = self._answer(ask)
        return {at.partition: at.offset for at in found if at.offset >= 0}

    def write(self, offsets: Mapping[int, int]) -> None:
        """Commits offsets."""
        places = [TopicPartition(self._topic, p, offset) for p, offset in offsets.items()]
        with translated(f"keeping the offsets of group {self._group}", self._brokers):
            self._answer(lambda: self._consumer.commit(offsets=places, asynchronous=False) or [])

    def read_note(self, partition: int) -> tuple[int, str]:
        """Returns the offset of one partition, below 0 if there is none, and the text that was committed with it."""
        with translated(f"reading the offsets of group {self._group}", self._brokers):
            [found] = self._answer(lambda: self._committed([TopicPartition(self._topic, partition)]))
        return found.offset, found.metadata or ""

    def write_note(self, producer: Producer, partition: int, offset: int, note: str) -> None:
        """Commits an offset and a text in the producer's open transaction."""
        at = TopicPartition(self._topic, partition, offset, note)
        with translated(f"writing topic {self._topic}", self._brokers):
            producer.send_offsets_to_transaction([at], self._consumer.consumer_group_metadata(), self._seconds * 3)

    def _committed(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        return self._consumer.committed(asked, timeout=self._seconds)

    def _answer(self, ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
        """Makes a request; raises if brokers refuse it for one of the partitions."""

        def checked() -> list[TopicPartition]:
            found = ask()
            for at in found:
                if at.error is not None:
                    raise KafkaException(at.error)
            return found

        try:
            return retried(checked, COORDINATOR_MOVES, self._seconds * 3, self._ambient)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:
                raise
            raise InvalidRequest(
                f"consumer group {self._group} has members, so nobody else may keep offsets there: end them, or name "
                "another group, an ingestion's by properties.group.id and a follower's by consumer",
                code="group-in-use",
            ) from error


def _check_id(group: str) -> None:
    """Checks an id. IMPORTANT: if it is empty or no UTF-8, librdkafka 2.16.0 ends the process; NUL cuts it short."""
    check_text("the consumer's id", group)
    size = len(group.encode())
    if not 0 < size <= _ID_BYTES_MAX:
        raise InvalidRequest(
            f"a consumer's id has 1 to {_ID_BYTES_MAX:,} bytes of UTF-8, and this one has {size:,}: take another",
            code="bad-consumer-id",
        )
