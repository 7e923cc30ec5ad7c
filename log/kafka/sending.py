"""Sends one writer's messages, in bounded pieces, and notes what the delivery reports say of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat

import polars as pl
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from filestore.ambient import Ambient
from filestore.errors import Unavailable
from log.formats.log_record import Messages
from log.kafka.settings import TOMBSTONE_HEADER, topic_of, translated
from log.store import LogConfig

__all__ = ["TOPIC_IN_DOUBT", "Sender"]

_Headers = list[tuple[str, str | bytes | None]]
_Reporter = Callable[[KafkaError | None, Message], None]

_FLIGHT_MESSAGES = 200_000
_FLIGHT_BYTES = 64 << 20
_PIECE = 1000
"""Messages that are objects of Python at a time: few enough to stay in the processor's cache."""
_POLL_SECONDS = 0.05
TOPIC_IN_DOUBT = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._DESTROY,  # of the client's own object of the topic
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._PURGE_QUEUE,  # the transaction failed, as without the right
    }
)
_PATIENCE_SECONDS = 90.0  # beyond delivery.timeout.ms, after which librdkafka itself gives a message up


class Sender:
    """One producer, connected by the first messages. Only a chunk's first and last message are reported.

    A report for each message would cost a quarter more processor time (measured), and proves nothing that the
    partition leaders' own count does not.

    Args:
        config: The topic.
        ambient: The clock, for patience.
        action: What errors say was tried.
        connect: Makes the producer.

    Attributes:
        counts: For each bucket how many messages were handed over.
        firsts: For each bucket the offset of the first one, once it was reported.
        ends: For each bucket the offset after the last one that was reported.
    """

    def __init__(self, config: LogConfig, ambient: Ambient, action: str, connect: Callable[[], Producer]) -> None:
        self._config = config
        self._ambient = ambient
        self._action = action
        self._connect = connect
        self._topic = topic_of(config)
        self._problems: list[KafkaError] = []
        self.producer: Producer | None = None
        self.counts: dict[int, int] = {}
        self.firsts: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def send(self, bucket: int, messages: Messages) -> None:
        """Hands messages over; waits while too much is in flight.

        Raises:
            Unavailable: ``log-delivery``: the client or, earlier, the broker refused one.
        """
        self._send(bucket, messages.keys, messages.values)

    def send_with_tombstones(self, bucket: int, messages: Messages, deletes: pl.Series, transaction_id: str) -> None:
        """The same, where some have no value and a header names the transaction instead.

        Args:
            bucket: Where to.
            messages: With keys.
            deletes: Which of them are sent without their value.
            transaction_id: Whose they are.
        """
        assert messages.keys is not None, "tombstones without keys"
        values = messages.values.zip_with(~deletes, pl.Series([None], dtype=pl.Binary))
        self._send(bucket, messages.keys, values, [(TOMBSTONE_HEADER, transaction_id.encode())])

    def _send(self, bucket: int, keys: pl.Series | None, values: pl.Series, headers: _Headers | None = None) -> None:
        """Hands messages over. The headers are of those that have no value."""
        reports: list[_Reporter | None] = [None] * len(values)
        reports[0] = reports[-1] = self._reporter(bucket)
        with translated(self._action, self._config):
            producer = self._connected()
            self._wait_for_room(producer, values)
            for at in range(0, len(values), _PIECE):
                piece = values[at : at + _PIECE].to_list()
                # The arguments of `Producer.produce` in its order, as columns: no dict and no frame a message.
                columns: list[Iterable[object]] = [
                    repeat(self._topic),
                    piece,
                    repeat(None) if keys is None else keys[at : at + _PIECE].to_list(),
                    repeat(bucket),
                    reports[at : at + _PIECE],
                ]
                if headers is not None:
                    columns += [repeat(None), repeat(0), [headers if value is None else None for value in piece]]
                try:
                    deque(map(producer.produce, *columns), maxlen=0)
                except (KafkaException, BufferError) as error:
                    if isinstance(error, KafkaException):
                        self._problems.append(error.args[0])
                    raise Unavailable(f"{self._action}: {error}", code="log-delivery") from error
            self.counts[bucket] = self.counts.get(bucket, 0) + len(values)
            producer.poll(0)

    @property
    def topic_in_doubt(self) -> bool:
        """Whether messages were refused as they are where the topic or the right to write it is gone."""
        return any(problem.code() in TOPIC_IN_DOUBT for problem in self._problems)

    def flush(self) -> None:
        """Waits until every message was answered.

        Raises:
            Unavailable: ``log-delivery``: some were refused, or not taken in time.
        """
        assert self.producer is not None
        with translated(self._action, self._config):
            left = self.producer.flush(_PATIENCE_SECONDS)
        if left or self._problems:
            reason = str(self._problems[0]) if self._problems else f"{left} records were not sent in time"
            raise Unavailable(f"{self._action}: {reason}; nothing was committed", code="log-delivery")

    def _connected(self) -> Producer:
        if self.producer is None:
            self.producer = self._connect()
        return self.producer

    def _reporter(self, bucket: int) -> _Reporter:
        def report(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self._problems.append(error or KafkaError(KafkaError._FAIL))
            else:
                self.firsts[bucket] = min(self.firsts.get(bucket, offset), offset)
                self.ends[bucket] = max(self.ends.get(bucket, 0), offset + 1)

        return report

    def _wait_for_room(self, producer: Producer, values: pl.Series) -> None:
        """Bounds what is in flight, in messages and, by this chunk's mean size, in bytes."""
        mean = max(1, values.bin.size().sum() // len(values))
        limit = min(_FLIGHT_MESSAGES, _FLIGHT_BYTES // mean)
        waiting, since_ms = len(producer), self._ambient.now_ms()
        while len(producer) > limit and not self._problems:
            producer.poll(_POLL_SECONDS)
            if len(producer) < waiting:
                waiting, since_ms = len(producer), self._ambient.now_ms()
            elif self._ambient.now_ms() - since_ms > _PATIENCE_SECONDS * 1000:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if self._problems:
            raise KafkaException(self._problems[0])
