"""The topic of a table with a connector: whether it exists, its partitions, and their first and last offsets."""

from __future__ import annotations

from collections.abc import Iterable

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest, NotFound
from log.connector.declaration import KafkaDeclaration
from log.connector.options import Semantic
from log.connector.ranges import PartitionRange, starting_offsets
from log.connector.settings import client_settings, reads_committed
from log.connector.startup import Startup, StartupMode
from log.kafka.errors import TIMEOUT_LIMIT, own_timeout_too_long, translated
from log.kafka.topic import Place, TopicClient, TopicDescription

__all__ = ["ConnectorTopic"]

_TIMEOUT, _LIBRDKAFKAS_TIMEOUT_MS = "transaction.timeout.ms", "60000"


class ConnectorTopic:
    """Describes a table's topic, and creates it. No connection is made before the first use.

    Args:
        declaration: The table.
        ambient: Waits between retries.

    Every method may raise `Unavailable` (``log-unavailable``), or `InvalidRequest` (``log-not-authorized``,
    ``log-settings``).
    """

    def __init__(self, declaration: KafkaDeclaration, ambient: Ambient) -> None:
        self._declaration = declaration
        self.name = declaration.topic
        self._client = TopicClient(self.name, client_settings(declaration), ambient)

    def require(self) -> None:
        """Creates the topic if it does not exist and the table says how; then checks that it is as the table says.

        Raises:
            InvalidRequest: ``topic-not-found``, also of that for dead letters; ``topic-partitions``: it has another
                number of them; ``kafka-transaction-timeout``: with exactly-once, the broker allows shorter ones only.
        """
        if self._declaration.semantic is Semantic.EXACTLY_ONCE:
            self._require_time()
        wanted = self._declaration["topic.partitions"]
        found = self._found(self.name)
        if found is None and wanted is not None:
            with translated(f"creating topic {self.name}", self._declaration):
                policy = {"cleanup.policy": "compact"} if self._declaration.upserts else {}
                self._client.make(wanted, self._declaration["topic.replication-factor"], policy)
                found = self._client.describe()
        if found is None:
            raise InvalidRequest(
                f"option topic = {self.name!r}: Kafka at {self._declaration.bootstrap_servers} has no such topic. Name "
                "another, make it, say topic.partitions so that it is made, or topic.check = false if it comes later",
                code="topic-not-found",
            )
        if wanted is not None and len(found.leaders) != wanted:
            raise InvalidRequest(
                f"option topic.partitions = {wanted}: the topic {self.name!r} is there and has "
                f"{len(found.leaders)}: leave the option out",
                code="topic-partitions",
            )
        letters = self._declaration["scan.dead-letter-topic"]
        if letters is not None and self._found(letters) is None:
            raise InvalidRequest(
                f"option scan.dead-letter-topic = {letters!r}: Kafka at {self._declaration.bootstrap_servers} has no "
                "such topic. Make it, or name another",
                code="topic-not-found",
            )

    def _require_time(self) -> None:
        """Checks the broker's limit. If the broker does not say it, the first write fails if it is too low."""
        asked = self._declaration.properties.get(_TIMEOUT, _LIBRDKAFKAS_TIMEOUT_MS)
        action = f"declaring a table of topic {self.name} with sink.semantic = {Semantic.EXACTLY_ONCE}"
        with translated(action, self._declaration):
            limit = self._client.broker_setting(TIMEOUT_LIMIT).value
        if limit is not None and asked.isdecimal() and int(asked) > int(limit):  # what is no number the client refuses
            raise own_timeout_too_long(action, limit)

    def partitions(self) -> tuple[int, ...]:
        """Returns the partitions. Checks that the topic for dead letters exists, too, if there may be any.

        Raises:
            NotFound: ``topic-not-found``.
        """
        return self.identified()[1]

    def identified(self) -> tuple[str, tuple[int, ...]]:
        """Returns the topic's id and `partitions`; a topic that is made anew under the same name has another id."""
        letters = self._declaration["scan.dead-letter-topic"]
        found, *_ = [self._there(name) for name in (self.name, letters) if name is not None]
        return found.id, tuple(sorted(found.leaders))

    def require_writable(self) -> None:
        """Checks that it can be written: else `NotFound`, or `InvalidRequest` (``log-not-authorized``)."""
        with translated(f"writing topic {self.name}", self._declaration):
            found = self._client.describe(rights=True)
            if found is not None:
                self._client.require_write(found)
        self._there(self.name)

    def _there(self, name: str) -> TopicDescription:
        found = self._found(name)
        if found is None:
            raise NotFound(
                f"Kafka at {self._declaration.bootstrap_servers} has no topic {name!r}: was it deleted? Make it, "
                "name another, or drop the table",
                code="topic-not-found",
            )
        return found

    def _found(self, name: str) -> TopicDescription | None:
        with translated(f"looking for topic {name}", self._declaration):
            return self._client.describe(name=name)

    def ranges(self, partitions: Iterable[int], startup: Startup) -> tuple[PartitionRange, ...]:
        """Returns the ranges from where readers begin to the present ends, as the table's isolation level has them.

        Raises:
            NotFound: ``offset-gone``: specific offsets that are no longer there, or not yet.
        """
        wanted = tuple(partitions)
        first, last = self.first_offsets(wanted), self.end_offsets(wanted)
        after = {}
        if startup.mode is StartupMode.TIMESTAMP:
            assert startup.timestamp_ms is not None
            with translated(f"asking for the offsets of topic {self.name}", self._declaration):
                committed = reads_committed(self._declaration)
                after = self._client.offsets_after(wanted, startup.timestamp_ms, committed=committed)
        starts = starting_offsets(startup, first, last, after)
        return tuple(PartitionRange(p, starts[p], max(starts[p], last[p])) for p in wanted)

    def end_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """Returns the end of each partition, as readers see it."""
        return self._offsets(partitions, Place.STABLE_END if reads_committed(self._declaration) else Place.END)

    def first_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """Returns the first offset of each partition."""
        return self._offsets(partitions, Place.FIRST)

    def _offsets(self, partitions: Iterable[int], place: Place) -> dict[int, int]:
        with translated(f"asking for the offsets of topic {self.name}", self._declaration):
            return self._client.offsets(partitions, place)
