"""Offsets that a group keeps on the brokers, for a reader that has no better place. No member ever joins the group.

IMPORTANT: by a consumer without a subscription. The admin client's `list_consumer_group_offsets` ends the process
(2.16.0: a segmentation fault) while a cluster's first group has no coordinator yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest
from filestore.model.text import check_text
from log.connectors.declaration import KafkaDeclaration
from log.kafka.admin import COORDINATOR_MOVES, retried
from log.kafka.declared_settings import client_settings, timeout_seconds
from log.kafka.settings import translated

__all__ = ["GroupOffsets"]

_ID_BYTES_MAX = 32_767  # of a text in Kafka's protocol


class GroupOffsets:
    """Of one topic and group.

    Args:
        declaration: The topic.
        group: The group's id.
        ambient: Waits while the group's coordinator moves.

    Every method may raise `Unavailable` (``log-unavailable``), or `InvalidRequest` (``log-not-authorized``, or
    ``group-in-use``: it has members, who alone may keep offsets).

    Raises:
        InvalidRequest: ``bad-consumer-id``: no group can have that id; ``bad-text``.
    """

    def __init__(self, declaration: KafkaDeclaration, group: str, ambient: Ambient) -> None:
        _check_id(group)
        self._declaration = declaration
        self._group = group
        self._ambient = ambient
        self._seconds = timeout_seconds(declaration)
        own = {"group.id": group, "enable.auto.commit": False, "enable.auto.offset.store": False}
        self._consumer = Consumer({**client_settings(declaration), **own})

    def read(self) -> dict[int, int]:
        """The offsets by partition, of those that have one. Brokers forget them with the topic, or after a week."""
        topic = self._declaration.topic

        def ask() -> list[TopicPartition]:
            known = self._consumer.list_topics(topic, timeout=self._seconds).topics[topic].partitions
            return self._consumer.committed([TopicPartition(topic, p) for p in known], timeout=self._seconds)

        with translated(f"reading the offsets of group {self._group}", self._declaration):
            found = self._answer(ask)
        return {at.partition: at.offset for at in found if at.offset >= 0}

    def write(self, offsets: Mapping[int, int]) -> None:
        """Keeps offsets."""
        places = [TopicPartition(self._declaration.topic, p, offset) for p, offset in offsets.items()]
        with translated(f"keeping the offsets of group {self._group}", self._declaration):
            self._answer(lambda: self._consumer.commit(offsets=places, asynchronous=False) or [])

    def _answer(self, ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
        """The answer, if it holds for every partition: brokers refuse single ones."""

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
    """IMPORTANT: with an id that is empty or no UTF-8 librdkafka ends the process (2.16.0), and NUL cuts it short."""
    check_text("the consumer's id", group)
    size = len(group.encode())
    if not 0 < size <= _ID_BYTES_MAX:
        raise InvalidRequest(
            f"a consumer's id has 1 to {_ID_BYTES_MAX:,} bytes of UTF-8, and this one has {size:,}: take another",
            code="bad-consumer-id",
        )
