"""Offsets that a group keeps on the brokers, for a reader that has no better place. No member ever joins the group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest
from log.connectors.declaration import KafkaDeclaration
from log.kafka.admin import COORDINATOR_MOVES, retried
from log.kafka.declared_settings import client_settings, timeout_seconds
from log.kafka.settings import translated

__all__ = ["GroupOffsets"]

_Answer: TypeAlias = "Future[ConsumerGroupTopicPartitions]"


class GroupOffsets:
    """Of one topic and group.

    Args:
        declaration: The topic.
        group: The group's id.
        ambient: Waits while the group's coordinator moves.

    Every method may raise `Unavailable` (``log-unavailable``), or `InvalidRequest` (``log-not-authorized``, or
    ``group-in-use``: it has members, who alone may keep offsets).
    """

    def __init__(self, declaration: KafkaDeclaration, group: str, ambient: Ambient) -> None:
        self._declaration = declaration
        self._group = group
        self._ambient = ambient
        self._seconds = timeout_seconds(declaration) * 3
        self._admin = AdminClient(client_settings(declaration))

    def read(self) -> dict[int, int]:
        """The offsets by partition, of those that have one. Brokers forget them with the topic, or after a week."""
        asked = [ConsumerGroupTopicPartitions(self._group)]
        with translated(f"reading the offsets of group {self._group}", self._declaration):
            found = self._answer(lambda: self._admin.list_consumer_group_offsets(asked))
        ours = [at for at in found if at.topic == self._declaration.topic and at.offset >= 0]
        return {at.partition: at.offset for at in ours}

    def write(self, offsets: Mapping[int, int]) -> None:
        """Keeps offsets."""
        places = [TopicPartition(self._declaration.topic, p, offset) for p, offset in offsets.items()]
        asked = [ConsumerGroupTopicPartitions(self._group, places)]
        with translated(f"keeping the offsets of group {self._group}", self._declaration):
            self._answer(lambda: self._admin.alter_consumer_group_offsets(asked))

    def _answer(self, ask: Callable[[], Mapping[str, _Answer]]) -> Sequence[TopicPartition]:
        return retried(
            lambda: self._checked(ask()[self._group].result()), COORDINATOR_MOVES, self._seconds, self._ambient
        )

    def _checked(self, found: ConsumerGroupTopicPartitions) -> Sequence[TopicPartition]:
        """The answer, if it holds for every partition: brokers refuse single ones."""
        places = found.topic_partitions or []
        for error in (at.error for at in places if at.error is not None):
            if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                raise InvalidRequest(
                    f"consumer group {self._group} has members, so nobody else may keep offsets there: end them, or "
                    "name another group by properties.group.id",
                    code="group-in-use",
                )
            raise KafkaException(error)
        return places
