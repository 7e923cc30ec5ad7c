"""A table's topic, by Kafka's admin client (PROTOCOL.md section 2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its names are not re-exported for mypy
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    DescribeClusterResult,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_exponential

from filestore.ambient import Ambient
from filestore.errors import AlreadyExists, InvalidRequest, NotFound
from log.kafka.admin import Admin, broker_setting, described, led, made, require_write
from log.kafka.requests import Address
from log.kafka.settings import (
    TIMEOUT_LIMIT,
    TRANSACTION_TIMEOUT_MS,
    client_settings,
    timeout_hidden,
    timeout_seconds,
    timeout_too_long,
    timeout_untold,
    topic_of,
    translated,
)
from log.store import LogConfig

__all__ = ["Topic"]

T = TypeVar("T")

_POLICY, _TIME = "cleanup.policy", "message.timestamp.type"
_RETENTION, _TOMBSTONE_RETENTION = "retention.ms", "delete.retention.ms"
# With CreateTime, a record whose time lies before the retention would be deleted at once, and lookups by time
# lie.
_OWN_TIME = "LogAppendTime"
_BROKERS_OWN = -1


class Topic:
    """Makes, describes and trims it. No connection is made before the first use.

    Args:
        config: Its name, partitions and brokers.
        ambient: Waits between retries.
    """

    def __init__(self, config: LogConfig, ambient: Ambient) -> None:
        self._config = config
        self._ambient = ambient
        self._settings = client_settings(config)
        self._seconds = timeout_seconds(config)
        self._client: Admin | None = None
        self.name = topic_of(config)

    def create(self) -> None:
        """Checks the broker's limit, if there will be transactions, then makes the topic or finds it as it must be."""
        action = f"creating topic {self.name}"
        with translated(action, self._config):
            if self._config.transactions:
                self._check_timeout(action)
            if self._described() is None:
                self._make()
            self._check(action)

    def drop(self) -> None:
        """Deletes it, if it is there."""
        try:
            with translated(f"dropping topic {self.name}", self._config):
                self._admin.answer(self._admin.delete_topics([self.name])[self.name])
        except NotFound:
            return
        with translated(f"dropping topic {self.name}", self._config):
            self._wait_until(lambda: self._described() is None)

    def exists(self) -> bool:
        """Whether the brokers have it."""
        with translated(f"looking for topic {self.name}", self._config):
            return self._described() is not None

    def require_writable(self) -> None:
        """`NotFound` (``log-not-found``) if it is gone, `InvalidRequest` (``log-not-authorized``) without the right."""
        with translated(f"writing topic {self.name}", self._config):
            require_write(self._required(rights=True))

    def check_adoptable(self) -> None:
        """Sees that the topic that is there fits, and that nothing was ever written to it."""
        action = f"taking topic {self.name} as a log"
        with translated(action, self._config):
            self._check(action)
        if held := {bucket: end for bucket, end in sorted(self.end_offsets().items()) if end}:
            raise AlreadyExists(
                f"{action}: records were written to it (end offsets by partition: {held}), and a table's log begins "
                "empty: choose another log.kafka.topic, or delete the topic and make it anew; to read those "
                "records, declare a table with connector = 'kafka' on it",
                code="log-exists",
            )

    def identity(self) -> tuple[str, str]:
        """Its id and the cluster's id, as Kafka gave them."""
        with translated(f"identifying topic {self.name}", self._config):
            return str(self._required().topic_id), str(self._cluster().cluster_id)

    def brokers(self) -> list[Address]:
        """Where all brokers of the cluster listen."""
        with translated("looking up the brokers", self._config):
            return [(node.host, node.port) for node in self._cluster().nodes]

    def leaders(self, partitions: Collection[int]) -> Mapping[Address, list[int]]:
        """Those partitions, by where their leaders listen."""
        with translated(f"looking up the leaders of topic {self.name}", self._config):
            found = self._required()
        leaders: defaultdict[Address, list[int]] = defaultdict(list)
        for partition in found.partitions:
            if partition.id in partitions and partition.leader is not None:
                leaders[(partition.leader.host, partition.leader.port)].append(partition.id)
        return leaders

    def start_offsets(self) -> dict[int, int]:
        """Log start offsets."""
        return self._offsets(OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def end_offsets(self) -> dict[int, int]:
        """High watermarks, which count markers and open transactions too."""
        return self._offsets(OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def stable_offsets(self) -> dict[int, int]:
        """Last stable offsets: where the first open transaction begins, else the high watermark."""
        return self._offsets(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]

    def trim(self, before: Mapping[int, int]) -> None:
        """DeleteRecords."""
        asked = [TopicPartition(self.name, bucket, offset) for bucket, offset in before.items()]
        if asked:
            with translated(f"trimming topic {self.name}", self._config):
                self._required()
                self._led(lambda admin: admin.delete_records(asked))

    def keep_for(self, milliseconds: int | None) -> None:
        """Sets ``retention.ms``; None leaves it to the broker."""
        operation = AlterConfigOpType.DELETE if milliseconds is None else AlterConfigOpType.SET
        value = None if milliseconds is None else str(milliseconds)
        entry = ConfigEntry(_RETENTION, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        with translated(f"setting {_RETENTION} of topic {self.name}", self._config):
            self._required()
            self._admin.answer(self._admin.incremental_alter_configs([resource])[resource])

    def tombstone_retention_ms(self) -> int:
        """How long a compacted topic keeps tombstones."""
        with translated(f"asking for the settings of topic {self.name}", self._config):
            return int(str(self._described_settings()[_TOMBSTONE_RETENTION].value))

    def close(self) -> None:
        """Lets go of the connections."""
        self._client = None

    @property
    def _admin(self) -> Admin:
        if self._client is None:
            self._client = Admin(self._settings, self._ambient)
        return self._client

    def _make(self) -> None:
        config = self._config
        topic = NewTopic(self.name, config.buckets, config.replication_factor or _BROKERS_OWN, config=_settings(config))
        made(self._admin, topic)
        self._wait_until(self._is_led)

    def _is_led(self) -> bool:
        found = self._described()
        return found is not None and all(p.leader is not None for p in found.partitions)

    def _check_timeout(self, action: str) -> None:
        try:
            limit = broker_setting(self._admin, TIMEOUT_LIMIT)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                raise timeout_hidden(action) from error
            raise
        if limit is None:
            raise timeout_untold(action)
        if int(limit) < TRANSACTION_TIMEOUT_MS:
            raise timeout_too_long(action, limit)

    def _check(self, action: str) -> None:
        partitions = len(self._required().partitions)
        if partitions != self._config.buckets:
            raise AlreadyExists(
                f"{action}: it has {partitions} partitions, not {self._config.buckets}, one a bucket: "
                "choose another log.kafka.topic, or make the table with that many buckets",
                code="log-exists",
            )
        found = self._described_settings()
        for name, wanted in _settings(self._config).items():
            if not _agrees(name, str(found[name].value), wanted):
                raise InvalidRequest(
                    f"{action}: it exists with {name}={found[name].value}, and the table's options want {wanted}: "
                    f"choose another log.kafka.topic, or set {name}={wanted} with Kafka's own tools",
                    code="log-topic",
                )

    def _described_settings(self) -> dict[str, ConfigEntry]:
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        found: dict[str, ConfigEntry] = self._admin.answer(self._admin.describe_configs([resource])[resource])
        return found

    def _cluster(self) -> DescribeClusterResult:
        found: DescribeClusterResult = self._admin.answer(self._admin.describe_cluster())
        return found

    def _described(self, *, rights: bool = False) -> TopicDescription | None:
        return described(self._admin, self.name, rights=rights)

    def _required(self, *, rights: bool = False) -> TopicDescription:
        found = self._described(rights=rights)
        if found is None:
            config = self._config
            raise NotFound(
                f"Kafka at {config.bootstrap_servers} has no topic {self.name!r}, the log of table "
                f"{config.database}.{config.table}: if it was deleted, scan() still reads the table: write its rows "
                "into a new one",
                code="log-not-found",
            )
        return found

    def _offsets(self, which: Any, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> dict[int, int]:
        asked = {TopicPartition(self.name, bucket): which for bucket in range(self._config.buckets)}
        with translated(f"asking for the offsets of topic {self.name}", self._config):
            self._required()
            found = self._led(lambda admin: admin.list_offsets(asked, isolation_level=isolation))
        return {partition.partition: int(result.offset) for partition, result in found.items()}

    def _led(self, request: Callable[[Admin], Mapping[TopicPartition, Future[T]]]) -> dict[TopicPartition, T]:
        def answers() -> dict[TopicPartition, T]:
            return {key: self._admin.answer(future) for key, future in request(self._admin).items()}

        return led(self._admin, self.name, answers, self._seconds, self._ambient)

    def _wait_until(self, seen: Callable[[], bool]) -> None:
        """Waits until the brokers show what the controller has done; goes on if that takes too long."""
        Retrying(
            retry=retry_if_result(lambda done: not done),
            wait=wait_exponential(multiplier=0.01, max=0.2),
            stop=stop_after_delay(self._seconds),
            sleep=self._ambient.sleep,
            retry_error_callback=lambda _: None,
        )(seen)


def _settings(config: LogConfig) -> dict[str, str]:
    retention = {} if config.retention_ms is None else {_RETENTION: str(config.retention_ms)}
    return {_POLICY: config.cleanup_policy, _TIME: _OWN_TIME} | retention


def _agrees(name: str, found: str, wanted: str) -> bool:
    """Whether a setting of a topic that is there will do: records may be kept for longer (-1: for ever)."""
    match name:
        case "retention.ms":
            return int(found) < 0 or int(found) >= int(wanted)
        case "cleanup.policy":
            return set(found.split(",")) == set(wanted.split(","))
    return found == wanted
