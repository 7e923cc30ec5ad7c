"""Sends messages to one topic: bounds what is in flight, and keeps what the delivery reports say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest, NotFound, TableStoreError, Unavailable
from filestore.lazily import pl
from log.kafka.errors import TOPIC_IN_DOUBT, Brokers, translated

__all__ = ["ANY_PARTITION", "DELIVERY_SECONDS", "Connect", "Headers", "Producer", "Report", "Sender"]

Column: TypeAlias = "pl.Series | Sequence[bytes | None]"
Headers = list[tuple[str, str | bytes | None]]
Report = Callable[[KafkaError | None, Message], None]
"""A delivery report."""
Connect = Callable[[Report], Producer]

ANY_PARTITION = -1
"""The client's partitioner chooses."""
DELIVERY_SECONDS = 90.0
"""The time that all messages may take: more than delivery.timeout.ms, after which librdkafka gives a message up."""
_FLIGHT_MESSAGES = 200_000
_FLIGHT_BYTES = 64 << 20
_PIECE = 1000
"""Messages that are objects of Python at a time: few enough to stay in the processor's cache."""
_REPORT_POLLS = 20
_POLL_SECONDS = 0.05
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


class Sender:
    """A producer that connects with the first messages.

    Args:
        topic: The topic.
        brokers: What errors say of them.
        ambient: The clock, for patience.
        action: What errors say was tried.
        connect: Makes the producer; its argument is a delivery report that keeps errors, for the producer's
            ``on_delivery``.
        limit: The setting that lets the client take larger messages, as users write it.

    Attributes:
        producer: None before the first messages.
        counts: For each partition how many messages were handed over.
        firsts: For each partition the offset of the first message, once it was reported; see `send`.
        ends: For each partition the offset after the last one that was reported.
    """

    def __init__(  # what two kinds of writers differ in are its arguments
        self,
        topic: str,
        brokers: Brokers,
        ambient: Ambient,
        action: str,
        connect: Connect,
        limit: str,
    ) -> None:
        self._topic = topic
        self._brokers = brokers
        self._ambient = ambient
        self._action = action
        self._connect = connect
        self._limit = limit
        self._problems: list[KafkaError] = []
        self.producer: Producer | None = None
        self.counts: dict[int, int] = {}
        self.firsts: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def connect(self) -> Producer:
        """Returns the producer; makes it if there is none."""
        if self.producer is None:
            with translated(self._action, self._brokers):
                self.producer = self._connect(self._keep_error)
        return self.producer

    def send(
        self,
        values: Column,
        keys: Column | None = None,
        partition: int = ANY_PARTITION,
        *,
        partitions: Sequence[int] | None = None,
        timestamps: Sequence[int | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        offsets: bool = False,
    ) -> None:
        """Hands messages to the producer; waits while too much is in flight.

        Args:
            values: None is a message without a value.
            keys: None if no message has one.
            partition: Where to.
            partitions: Where each message goes instead.
            timestamps: In milliseconds; None for the time of writing.
            headers: Of each message; None if no message has any.
            offsets: Whether `firsts` and `ends` are wanted. Then the first and the last of these messages are reported.
                A report for each message would cost a quarter more processor time (measured), and proves nothing that
                the partition leaders' own count does not.

        Raises:
            Unavailable: ``log-delivery``: the client or, earlier, the broker refused one.
            InvalidRequest: ``message-too-large``.
        """
        count = len(values)
        if not count:
            return
        reports: list[Report | None] = [None] * count
        if offsets:
            reports[0] = reports[-1] = self._reporter(partition)
        producer = self.connect()
        with translated(self._action, self._brokers):
            self._wait_for_room(producer, values)
            for at in range(0, count, _PIECE):
                piece = slice(at, at + _PIECE)
                # The arguments of `Producer.produce` in its order, as columns: no dict and no frame a message.
                columns: list[Iterable[object]] = [
                    repeat(self._topic),
                    _objects(values, piece),
                    repeat(None) if keys is None else _objects(keys, piece),
                    repeat(partition) if partitions is None else partitions[piece],
                    reports[piece],
                ]
                if timestamps is not None or headers is not None:
                    columns += [
                        repeat(None),
                        repeat(0) if timestamps is None else [time or 0 for time in timestamps[piece]],
                        repeat(None) if headers is None else headers[piece],
                    ]
                self._produce(producer, columns)
            self.counts[partition] = self.counts.get(partition, 0) + count
            producer.poll(0)

    def flush(self) -> None:
        """Waits until every message was answered.

        Raises:
            Unavailable: ``log-delivery``: some were refused, or not taken in time.
            InvalidRequest: ``message-too-large``.
        """
        producer = self.connect()
        with translated(self._action, self._brokers):
            left = producer.flush(DELIVERY_SECONDS)
        if self._problems:
            raise self._refused(self._problems[0])
        if left:
            raise Unavailable(f"{self._action}: {left} messages were not sent in time", code="log-delivery")

    @contextmanager
    def explained(self, require_writable: Callable[[], None]) -> Iterator[None]:
        """Raises that the topic or the right to write it is gone, where the client only says that a delivery failed.

        Args:
            require_writable: Raises if the topic is gone, or the right.
        """
        try:
            yield
        except (Unavailable, NotFound, InvalidRequest) as error:
            # Without the right to write, the client may also give up for good (`translated`), or name a right on the
            # cluster: the broker gives a producer id to whoever may write any topic.
            refused = error.code == "log-not-authorized"
            in_doubt = any(problem.code() in TOPIC_IN_DOUBT for problem in self._problems)
            if refused or in_doubt or isinstance(error.__cause__, SystemError):
                require_writable()
            raise

    def _produce(self, producer: Producer, columns: Sequence[Iterable[object]]) -> None:
        try:
            deque(map(producer.produce, *columns), maxlen=0)
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            if problem.code() == KafkaError._STATE:
                self._wait_for_report(producer)
                problem = (*self._problems, problem)[0]
            self._problems.append(problem)
            raise self._refused(problem) from error
        except BufferError as error:
            raise Unavailable(f"{self._action}: {error}", code="log-delivery") from error

    def _wait_for_report(self, producer: Producer) -> None:
        """Waits for the report of a message that failed: the client takes no other one before it says why."""
        for _ in range(_REPORT_POLLS):
            if self._problems or not len(producer):
                return
            producer.poll(_POLL_SECONDS)

    def _refused(self, problem: KafkaError) -> TableStoreError:
        if problem.code() in _TOO_LARGE:
            return InvalidRequest(
                f"{self._action}: a message is larger than the client or the broker takes ({problem.str()}): raise "
                f"{self._limit} and the topic's max.message.bytes, or write smaller rows",
                code="message-too-large",
            )
        return Unavailable(f"{self._action}: {problem}", code="log-delivery")

    def _keep_error(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._problems.append(error)

    def _reporter(self, partition: int) -> Report:
        def report(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self._problems.append(error or KafkaError(KafkaError._FAIL))
            else:
                self.firsts[partition] = min(self.firsts.get(partition, offset), offset)
                self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)

        return report

    def _wait_for_room(self, producer: Producer, values: Column) -> None:
        """Bounds what is in flight, in messages and, by this chunk's mean size, in bytes."""
        limit = min(_FLIGHT_MESSAGES, _FLIGHT_BYTES // max(1, _bytes_of(values) // len(values)))
        waiting, since_ms = len(producer), self._ambient.now_ms()
        while len(producer) > limit and not self._problems:
            producer.poll(_POLL_SECONDS)
            if len(producer) < waiting:
                waiting, since_ms = len(producer), self._ambient.now_ms()
            elif self._ambient.now_ms() - since_ms > DELIVERY_SECONDS * 1000:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if self._problems:
            raise self._refused(self._problems[0])


def _objects(column: Column, piece: slice) -> Sequence[bytes | None]:
    part = column[piece]
    return part.to_list() if isinstance(part, pl.Series) else part


def _bytes_of(values: Column) -> int:
    if isinstance(values, pl.Series):
        return int(values.bin.size().sum())
    return sum(map(len, filter(None, values)))
