"""Asks for and changes one topic by Kafka's admin client: settings, partitions, leaders and offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its names are not re-exported for mypy
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_exponential

from filestore.ambient import Ambient
from log.kafka.admin import Admin, led
from log.kafka.requests import Address
from log.kafka.settings import seconds_of

__all__ = ["BrokerSetting", "Place", "TopicClient", "TopicDescription"]

T = TypeVar("T")

_BROKERS_OWN = -1


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the brokers describe it.

    Attributes:
        id: A topic of the same name that is made later has another.
        leaders: Of each partition where its leader listens; None while it has none.
        writable: Whether this user may write it; None if that was not asked.
    """

    id: str
    leaders: Mapping[int, Address | None]
    writable: bool | None = None


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """A setting of the brokers.

    Attributes:
        value: None if they do not say it: hosted brokers leave some out, or their values.
        allowed: Whether this user may ask.
    """

    value: str | None
    allowed: bool = True


class Place(Enum):
    """An offset that each partition has."""

    FIRST = "first"
    END = "end"
    """The high watermark, which counts markers and open transactions, too."""
    STABLE_END = "stable end"
    """The offset at which the first open transaction begins, else the high watermark."""


class TopicClient:
    """Makes, describes and changes a topic. No connection is made before the first use.

    Args:
        name: The topic.
        settings: The client's.
        ambient: Waits between retries.

    Every method may raise librdkafka's errors: call it inside of `translated`.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], ambient: Ambient) -> None:
        self.name = name
        self._settings = settings
        self._ambient = ambient
        self._seconds = seconds_of(settings)
        self._client: Admin | None = None

    def close(self) -> None:
        """Closes the connections."""
        self._client = None

    def describe(self, *, rights: bool = False, name: str | None = None) -> TopicDescription | None:
        """Describes the topic, or another one by its name; None if the brokers have none.

        Args:
            rights: Whether `TopicDescription.writable` is wanted.
            name: Another topic.
        """
        name = name or self.name
        asked = TopicCollection([name])
        try:
            found = self._admin.answer(self._admin.describe_topics(asked, include_authorized_operations=rights)[name])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        leaders = {p.id: None if p.leader is None else (p.leader.host, p.leader.port) for p in found.partitions}
        writable = AclOperation.WRITE in found.authorized_operations if rights else None
        return TopicDescription(str(found.topic_id), leaders, writable)

    def require_write(self, found: TopicDescription) -> None:
        """Raises the broker's error of a writer without the right, if this user may not write the topic."""
        if not found.writable:
            raise KafkaException(
                KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, f"WRITE on topic {self.name} is not allowed")
            )

    def make(self, partitions: int, replication: int | None, settings: Mapping[str, str]) -> None:
        """Creates the topic, unless another process was faster, and waits until each partition has a leader."""
        topic = NewTopic(self.name, partitions, replication or _BROKERS_OWN, config=dict(settings))
        try:
            self._admin.answer(self._admin.create_topics([topic])[self.name])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        if not self._wait_until(self._is_led):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def drop(self) -> None:
        """Deletes the topic."""
        self._admin.answer(self._admin.delete_topics([self.name])[self.name])
        self._wait_until(lambda: self.describe() is None)

    def settings(self) -> dict[str, str | None]:
        """Returns the topic's settings."""
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        found = self._admin.answer(self._admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in found.items()}

    def set(self, name: str, value: str | None) -> None:
        """Changes a setting; None leaves it to the broker."""
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        self._admin.answer(self._admin.incremental_alter_configs([resource])[resource])

    def cluster(self) -> tuple[str, list[Address]]:
        """Returns the cluster's id, and where its brokers listen."""
        found = self._admin.answer(self._admin.describe_cluster())
        return str(found.cluster_id), [(node.host, node.port) for node in found.nodes]

    def broker_setting(self, name: str) -> BrokerSetting:
        """Asks one of the brokers for a setting."""
        try:
            nodes = self._admin.answer(self._admin.describe_cluster()).nodes
            resource = ConfigResource(ResourceType.BROKER, str(nodes[0].id))
            found = self._admin.answer(self._admin.describe_configs([resource])[resource])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return BrokerSetting(None, allowed=False)
            raise
        return BrokerSetting(found[name].value if name in found else None)

    def offsets(self, partitions: Iterable[int], place: Place) -> dict[int, int]:
        """Returns offsets of partitions."""
        spec = OffsetSpec.earliest() if place is Place.FIRST else OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(partitions, spec, committed=place is Place.STABLE_END)

    def offsets_after(self, partitions: Iterable[int], timestamp_ms: int, *, committed: bool) -> dict[int, int]:
        """Returns the first offset of each partition whose message is not older; below 0 if there is none."""
        return self._offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms), committed=committed)

    def trim(self, before: Mapping[int, int]) -> None:
        """Removes the messages below these offsets."""
        asked = [TopicPartition(self.name, partition, offset) for partition, offset in before.items()]
        self._led(lambda admin: admin.delete_records(asked))

    @property
    def _admin(self) -> Admin:
        if self._client is None:
            self._client = Admin(self._settings)
        return self._client

    def _offsets(self, partitions: Iterable[int], spec: OffsetSpec, *, committed: bool) -> dict[int, int]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(self.name, partition): spec for partition in partitions}
        if not asked:
            return {}
        found = self._led(lambda admin: admin.list_offsets(asked, isolation_level=level))
        return {at.partition: int(result.offset) for at, result in found.items()}

    def _led(self, request: Callable[[Admin], Mapping[TopicPartition, Future[T]]]) -> dict[TopicPartition, T]:
        def answers() -> dict[TopicPartition, T]:
            return {key: self._admin.answer(future) for key, future in request(self._admin).items()}

        return led(self._admin, self.name, answers, self._seconds, self._ambient)

    def _is_led(self) -> bool:
        found = self.describe()
        return found is not None and None not in found.leaders.values()

    def _wait_until(self, seen: Callable[[], bool]) -> bool:
        """Waits until the brokers show what the controller has done; False if that takes too long."""
        retrying = Retrying(
            retry=retry_if_result(lambda done: not done),
            wait=wait_exponential(multiplier=0.01, max=0.2),
            stop=stop_after_delay(self._seconds),
            sleep=self._ambient.sleep,
            retry_error_callback=lambda _: False,
        )
        return retrying(seen)
