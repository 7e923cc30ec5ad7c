"""A table's topic, by Kafka's admin client (PROTOCOL.md section 2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from filestore.ambient import Ambient
from filestore.errors import AlreadyExists, InvalidRequest, NotFound
from log.kafka.errors import TIMEOUT_LIMIT, translated
from log.kafka.requests import Address
from log.kafka.topic import Place, TopicClient, TopicDescription
from log.table.config import LogConfig
from log.table.on_kafka.settings import (
    TRANSACTION_TIMEOUT_MS,
    client_settings,
    timeout_hidden,
    timeout_too_long,
    timeout_unknown,
    topic_of,
)

__all__ = ["Topic"]

_POLICY, _TIME = "cleanup.policy", "message.timestamp.type"
_RETENTION, _TOMBSTONE_RETENTION = "retention.ms", "delete.retention.ms"
# With CreateTime, a record that is older than the retention would be deleted at once, and lookups by time would
# be wrong.
_OWN_TIME = "LogAppendTime"


class Topic:
    """Makes, describes and trims a log's topic. No connection is made before the first use.

    Args:
        config: Its name, partitions and brokers.
        ambient: Waits between retries.
    """

    def __init__(self, config: LogConfig, ambient: Ambient) -> None:
        self._config = config
        self.name = topic_of(config)
        self._client = TopicClient(self.name, client_settings(config), ambient)

    def create(self) -> None:
        """Checks the broker's limit, if there will be transactions, then makes the topic or finds it as it must be."""
        action = f"creating topic {self.name}"
        with translated(action, self._config):
            self._check_timeout(action)
            if self._client.describe() is None:
                config = self._config
                self._client.make(config.buckets, config.replication_factor, _settings(config))
            self._check(action)

    def drop(self) -> None:
        """Deletes the topic, if it is there."""
        try:
            with translated(f"dropping topic {self.name}", self._config):
                self._client.drop()
        except NotFound:
            return

    def exists(self) -> bool:
        """Returns whether the brokers have the topic."""
        with translated(f"looking for topic {self.name}", self._config):
            return self._client.describe() is not None

    def check_writable(self) -> None:
        """Checks the broker's limit, if there are transactions, and then as `require_writable`."""
        action = f"reaching topic {self.name}"
        with translated(action, self._config):
            self._check_timeout(action)
        self.require_writable()

    def require_writable(self) -> None:
        """Checks that it can be written: `NotFound` (``log-not-found``), `InvalidRequest` (``log-not-authorized``)."""
        with translated(f"writing topic {self.name}", self._config):
            self._client.require_write(self._required(rights=True))

    def check_adoptable(self) -> None:
        """Checks that the topic that is there fits, and that nothing was ever written to it."""
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
        """Returns the ids that Kafka has for the topic and for the cluster."""
        with translated(f"identifying topic {self.name}", self._config):
            return self._required().id, self._client.cluster()[0]

    def brokers(self) -> list[Address]:
        """Returns where all brokers of the cluster listen."""
        with translated("looking up the brokers", self._config):
            return self._client.cluster()[1]

    def leaders(self, partitions: Collection[int]) -> Mapping[Address, list[int]]:
        """Returns the partitions by where their leaders listen."""
        with translated(f"looking up the leaders of topic {self.name}", self._config):
            found = self._required()
        leaders: defaultdict[Address, list[int]] = defaultdict(list)
        for partition, leader in found.leaders.items():
            if partition in partitions and leader is not None:
                leaders[leader].append(partition)
        return leaders

    def start_offsets(self) -> dict[int, int]:
        """Returns the log start offsets."""
        return self._offsets(Place.FIRST)

    def end_offsets(self) -> dict[int, int]:
        """Returns the high watermarks, which count markers and open transactions too."""
        return self._offsets(Place.END)

    def stable_offsets(self) -> dict[int, int]:
        """Returns the last stable offsets: where the first open transaction begins, else the high watermark."""
        return self._offsets(Place.STABLE_END)

    def trim(self, before: Mapping[int, int]) -> None:
        """Sends DeleteRecords: deletes the records below these offsets."""
        if before:
            with translated(f"trimming topic {self.name}", self._config):
                self._required()
                self._client.trim(before)

    def keep_for(self, milliseconds: int | None) -> None:
        """Sets ``retention.ms``; None leaves it to the broker."""
        with translated(f"setting {_RETENTION} of topic {self.name}", self._config):
            self._required()
            self._client.set(_RETENTION, None if milliseconds is None else str(milliseconds))

    def tombstone_retention_ms(self) -> int:
        """Returns how long a compacted topic keeps tombstones."""
        with translated(f"asking for the settings of topic {self.name}", self._config):
            return int(str(self._client.settings()[_TOMBSTONE_RETENTION]))

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _check_timeout(self, action: str) -> None:
        if not self._config.transactions:
            return
        limit = self._client.broker_setting(TIMEOUT_LIMIT)
        if not limit.allowed:
            raise timeout_hidden(action)
        if limit.value is None:
            raise timeout_unknown(action)
        if int(limit.value) < TRANSACTION_TIMEOUT_MS:
            raise timeout_too_long(action, limit.value)

    def _check(self, action: str) -> None:
        partitions = len(self._required().leaders)
        if partitions != self._config.buckets:
            raise AlreadyExists(
                f"{action}: it has {partitions} partitions, not {self._config.buckets}, one a bucket: "
                "choose another log.kafka.topic, or make the table with that many buckets; if the topic was made by "
                "mistake in the place of the table's, delete it",
                code="log-exists",
            )
        found = self._client.settings()
        for name, wanted in _settings(self._config).items():
            if not _agrees(name, str(found[name]), wanted):
                raise InvalidRequest(
                    f"{action}: it exists with {name}={found[name]}, and the table's options want {wanted}: "
                    f"choose another log.kafka.topic, or set {name}={wanted} with Kafka's own tools",
                    code="log-topic",
                )

    def _required(self, *, rights: bool = False) -> TopicDescription:
        found = self._client.describe(rights=rights)
        if found is None:
            config = self._config
            raise NotFound(
                f"Kafka at {config.bootstrap_servers} has no topic {self.name!r}: {config.if_gone}",
                code="log-not-found",
            )
        return found

    def _offsets(self, place: Place) -> dict[int, int]:
        with translated(f"asking for the offsets of topic {self.name}", self._config):
            self._required()
            return self._client.offsets(range(self._config.buckets), place)


def _settings(config: LogConfig) -> dict[str, str]:
    retention = {} if config.retention_ms is None else {_RETENTION: str(config.retention_ms)}
    return {_POLICY: config.cleanup_policy, _TIME: _OWN_TIME} | retention


def _agrees(name: str, found: str, wanted: str) -> bool:
    """Returns whether a setting of a topic that is there will do: records may be kept for longer (-1: forever)."""
    match name:
        case "retention.ms":
            return int(found) < 0 or int(found) >= int(wanted)
        case "cleanup.policy":
            return set(found.split(",")) == set(wanted.split(","))
    return found == wanted
