"""The topic of a table with a connector: is it there, which partitions has it, where do they begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its names are not re-exported for mypy
    NewTopic,
    OffsetSpec,
    TopicDescription,
)
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_exponential

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest, NotFound
from log.connectors.declaration import KafkaDeclaration
from log.connectors.options import Semantic
from log.connectors.ranges import PartitionRange, starting_offsets
from log.connectors.startup import Startup, StartupMode
from log.kafka.admin import Admin, broker_setting, described, led, made, require_write
from log.kafka.declared_settings import client_settings, reads_committed, timeout_seconds
from log.kafka.settings import TIMEOUT_LIMIT, own_timeout_too_long, translated

__all__ = ["DeclaredTopic"]

_TIMEOUT, _LIBRDKAFKAS_TIMEOUT_MS = "transaction.timeout.ms", "60000"


class DeclaredTopic:
    """Looks at it. No connection is made before the first use.

    Args:
        declaration: The table.
        ambient: Waits between retries.

    Every method may raise `Unavailable` (``log-unavailable``), or `InvalidRequest` (``log-not-authorized``,
    ``log-settings``).
    """

    def __init__(self, declaration: KafkaDeclaration, ambient: Ambient) -> None:
        self._declaration = declaration
        self._ambient = ambient
        self._seconds = timeout_seconds(declaration)
        self._client: Admin | None = None
        self.name = declaration.topic

    def require(self) -> None:
        """Makes it, if the table says how and it is not there; then it is there, as the table says.

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
                found = self._made(wanted)
        if found is None:
            raise InvalidRequest(
                f"option topic = {self.name!r}: Kafka at {self._declaration.bootstrap_servers} has no such topic. Name "
                "another, make it, say topic.partitions so that it is made, or topic.check = false if it comes later",
                code="topic-not-found",
            )
        if wanted is not None and len(found.partitions) != wanted:
            raise InvalidRequest(
                f"option topic.partitions = {wanted}: the topic {self.name!r} is there and has "
                f"{len(found.partitions)}: leave the option out",
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
        """A broker that does not tell its limit tells it to the first write."""
        asked = self._declaration.properties.get(_TIMEOUT, _LIBRDKAFKAS_TIMEOUT_MS)
        action = f"declaring a table of topic {self.name} with sink.semantic = {Semantic.EXACTLY_ONCE}"
        with translated(action, self._declaration):
            try:
                limit = broker_setting(self._admin, TIMEOUT_LIMIT)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                    raise
                return
        if limit is not None and asked.isdecimal() and int(asked) > int(limit):  # what is no number the client refuses
            raise own_timeout_too_long(action, limit)

    def partitions(self) -> tuple[int, ...]:
        """Its partitions. The topic for dead letters is there, too, if there may be any.

        Raises:
            NotFound: ``topic-not-found``.
        """
        return self.identified()[1]

    def identified(self) -> tuple[str, tuple[int, ...]]:
        """Its id, which a topic of the same name that was made later has not, and its partitions; as `partitions`."""
        letters = self._declaration["scan.dead-letter-topic"]
        found, *_ = [self._there(name) for name in (self.name, letters) if name is not None]
        return str(found.topic_id), tuple(sorted(p.id for p in found.partitions))

    def require_writable(self) -> None:
        """`NotFound` (``topic-not-found``): it is gone. `InvalidRequest` (``log-not-authorized``): no right to."""
        with translated(f"writing topic {self.name}", self._declaration):
            found = described(self._admin, self.name, rights=True)
            if found is not None:
                require_write(found)
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
            return self._described(name)

    def ranges(self, partitions: Iterable[int], startup: Startup) -> tuple[PartitionRange, ...]:
        """What there is now from where readers begin; ends are those of what is committed, if readers see no other.

        Raises:
            NotFound: ``offset-gone``: specific offsets that are no longer there, or not yet.
        """
        wanted = tuple(partitions)
        first = self._offsets({p: OffsetSpec.earliest() for p in wanted})  # type: ignore[no-untyped-call]
        last = self._offsets({p: OffsetSpec.latest() for p in wanted})  # type: ignore[no-untyped-call]
        after = {}
        if startup.mode is StartupMode.TIMESTAMP:
            assert startup.timestamp_ms is not None
            after = self._offsets({p: OffsetSpec.for_timestamp(startup.timestamp_ms) for p in wanted})
        starts = starting_offsets(startup, first, last, after)
        return tuple(PartitionRange(p, starts[p], max(starts[p], last[p])) for p in wanted)

    def end_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """The end of each partition, as readers see it."""
        return self._offsets({p: OffsetSpec.latest() for p in partitions})  # type: ignore[no-untyped-call]

    def first_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """The earliest offset of each partition."""
        return self._offsets({p: OffsetSpec.earliest() for p in partitions})  # type: ignore[no-untyped-call]

    def _offsets(self, asked: Mapping[int, OffsetSpec]) -> dict[int, int]:
        level = IsolationLevel.READ_COMMITTED if reads_committed(self._declaration) else IsolationLevel.READ_UNCOMMITTED
        specs = {TopicPartition(self.name, p): spec for p, spec in asked.items()}

        def request() -> dict[int, int]:
            futures = self._admin.list_offsets(specs, isolation_level=level)
            return {at.partition: int(self._admin.answer(future).offset) for at, future in futures.items()}

        if not specs:
            return {}
        with translated(f"asking for the offsets of topic {self.name}", self._declaration):
            return led(self._admin, self.name, request, self._seconds, self._ambient)

    @property
    def _admin(self) -> Admin:
        if self._client is None:
            self._client = Admin(client_settings(self._declaration), self._ambient)
        return self._client

    def _made(self, partitions: int) -> TopicDescription:
        config = {"cleanup.policy": "compact"} if self._declaration.upserts else {}
        topic = NewTopic(self.name, partitions, self._declaration["topic.replication-factor"] or -1, config=config)
        made(self._admin, topic)
        found = Retrying(
            retry=retry_if_result(lambda found: found is None or any(p.leader is None for p in found.partitions)),
            wait=wait_exponential(multiplier=0.01, max=0.2),
            stop=stop_after_delay(self._seconds),
            sleep=self._ambient.sleep,
            retry_error_callback=lambda _: None,
        )(self._described, self.name)
        if found is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found

    def _described(self, name: str) -> TopicDescription | None:
        return described(self._admin, name)
