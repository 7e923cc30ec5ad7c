"""Fetches messages of chosen partitions and offsets, as many at once as memory allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from filestore.ambient import Ambient
from filestore.errors import TableStoreError, Unavailable
from log.kafka.errors import GONE, PASSING, Brokers, translated
from log.kafka.messages import NOTHING, Fetched
from log.kafka.settings import seconds_of

__all__ = ["Fetcher"]

_FIRST_MESSAGES = 500
_MOST_MESSAGES = 20_000
_MOST_BYTES = 32 << 20
_WAIT_SECONDS = 0.05
_SAMPLE = 100


class Fetcher:
    """One consumer that commits no offsets, and its positions.

    Args:
        topic: The topic.
        brokers: What errors say of them.
        settings: The consumer's.
        ambient: The clock.
        action: What errors say was tried.
        gone: Makes the error of an offset that is no longer there, of the partition and the offset.

    Attributes:
        positions: The next offset of each partition; beyond what no reader is shown at the partition's end.
    """

    def __init__(  # what two kinds of readers differ in are its arguments
        self,
        topic: str,
        brokers: Brokers,
        settings: Mapping[str, Any],
        ambient: Ambient,
        action: str,
        gone: Callable[[int, int | None], TableStoreError],
    ) -> None:
        self._topic = topic
        self._brokers = brokers
        self._seconds = seconds_of(settings)
        self._ambient = ambient
        self._action = action
        self._gone = gone
        self._most = _FIRST_MESSAGES
        self._problem: KafkaError | None = None
        self._silent_since_ms: int | None = None
        self.positions: dict[int, int] = {}
        with translated(action, brokers):
            self._consumer = Consumer(dict(settings))

    def assign(self, starts: Mapping[int, int]) -> None:
        """Reads these partitions from these offsets on, and no others."""
        self.positions = dict(starts)
        with translated(self._action, self._brokers):
            self._consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in starts.items()])

    def add(self, starts: Mapping[int, int]) -> None:
        """Reads these partitions too, unless it already does."""
        if not starts.keys() <= self.positions.keys():
            self.assign({**starts, **self.positions})

    def pause(self, partition: int) -> None:
        """Reads no more of a partition."""
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def close(self) -> None:
        """Closes the consumer."""
        with translated(self._action, self._brokers):
            self._consumer.close()

    def fetch(self, most: int) -> Fetched:
        """Returns some messages, at most so many; none if only positions have changed.

        REQUIRES: something is there: messages, or the end of a partition that was not yet seen.

        Raises:
            Unavailable: neither arrived for as long as a request may take.
        """
        until_ms = self._ambient.now_ms() + int(self._seconds * 1000)
        while True:
            with translated(self._action, self._brokers):
                found = self._consumer.consume(max(1, min(most, self._most)), _WAIT_SECONDS)
            before = dict(self.positions)
            fetched = self._seen(found)
            if fetched.messages or self.positions != before:
                return fetched
            if self._ambient.now_ms() >= until_ms:
                raise self._silent()

    def poll(self, seconds: float = _WAIT_SECONDS, most: int | None = None) -> Fetched:
        """Returns what has arrived, at most so many messages, as soon as one has; none after that many seconds."""
        more = self._most if most is None else min(self._most, most - 1)
        with translated(self._action, self._brokers):
            first = self._consumer.poll(seconds)
            if first is None:
                return NOTHING
            # `consume` alone would wait until it has as many.
            found = [first, *(self._consumer.consume(more, 0) if more else ())]
        before = dict(self.positions)
        fetched = self._seen(found)
        if fetched.messages or self.positions != before:
            self._silent_since_ms = None
        return fetched

    def require_answers(self) -> None:
        """Raises `Unavailable` if polls for messages that exist returned none for as long as a request may take."""
        now_ms = self._ambient.now_ms()
        if self._silent_since_ms is None:
            self._silent_since_ms = now_ms
        elif now_ms - self._silent_since_ms > self._seconds * 1000:
            raise self._silent()

    def _silent(self) -> Unavailable:
        return Unavailable(
            f"{self._action}: Kafka at {self._brokers.bootstrap_servers} sent nothing ({self._problem}): is the broker "
            "running? Retry then",
            code="log-unavailable",
        )

    def _seen(self, found: Sequence[Message]) -> Fetched:
        fetched = Fetched.of([m for m in found if m.error() is None])
        self.positions |= {partition: last + 1 for partition, last in fetched.last_offsets().items()}
        if len(fetched) < len(found):
            for event in found:
                self._notice(event)
        if fetched.messages:
            sample = fetched.messages[:: len(fetched) // _SAMPLE + 1]
            self._most = max(1, min(_MOST_MESSAGES, _MOST_BYTES * len(sample) // max(1, sum(map(len, sample)))))
        return fetched

    def _notice(self, event: Message) -> None:
        error, partition = event.error(), event.partition()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            # Markers and what was aborted take offsets, too, and are never seen.
            assert partition is not None
            self.positions[partition] = max(self.positions.get(partition, 0), event.offset() or 0)
        elif error.code() in GONE:
            raise self._gone(partition or 0, self.positions.get(partition or 0))
        elif error.code() not in PASSING:
            with translated(self._action, self._brokers):
                raise KafkaException(error)
        else:
            self._problem = error
