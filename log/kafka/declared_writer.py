"""Writes a declared table's topic, as ``sink.semantic`` promises; and dead letters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from filestore.ambient import Ambient
from filestore.errors import CommitUnknown, InvalidRequest, Unavailable
from log.connectors.declaration import KafkaDeclaration
from log.connectors.encoding import Outgoing, RowEncoder
from log.connectors.options import Semantic
from log.formats.malformed import DeadLetter
from log.kafka.declared_once import Mark, Numbered
from log.kafka.declared_settings import producer_settings, timeout_seconds
from log.kafka.declared_topic import DeclaredTopic
from log.kafka.sending import TOPIC_IN_DOUBT
from log.kafka.settings import translated
from log.rows import slices

__all__ = ["DeadLetters", "DeclaredWriter"]

logger = logging.getLogger(__name__)

_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 8 << 20
_FLIGHT_MESSAGES = 200_000
_FLIGHT_BYTES = 64 << 20
_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 90.0  # beyond delivery.timeout.ms, after which librdkafka itself gives a message up


class DeclaredWriter:
    """Writes one table. It keeps its producer, so that a later write need not connect again. Threads may share it.

    Args:
        table: Whose topic.
        ambient: Clock, ids.
    """

    def __init__(self, table: KafkaDeclaration, ambient: Ambient) -> None:
        self._table = table
        self._ambient = ambient
        self._encoder = RowEncoder.of(table)
        self._lock = threading.Lock()
        self._sink: _Sink | None = None

    def write(self, rows: Iterable[pa.Table], once: Numbered | None = None) -> int:
        """Writes declared rows; gives the number of messages.

        Args:
            rows: As `RowEncoder.encode` takes them, in order. They are taken one after the other.
            once: Which write it is: it is one transaction, and if it was done already it is not done again. A try
                before this one that is still at work, wherever it runs, fails.

        Raises:
            InvalidRequest: rows that do not fit, or ``message-too-large``.
            Unavailable: a message was not delivered.
            CommitUnknown: with exactly-once: the broker took the end of the transaction and did not answer.

            With exactly-once nothing was written then (but after `CommitUnknown`); otherwise what came before may be.
        """
        encode = self._encoder.encode
        pieces = (encode(piece) for given in rows for piece in slices(given, _CHUNK_ROWS, _CHUNK_BYTES))
        first = next(pieces, None)  # what is wrong with the first rows is known before anything begins
        if first is None:
            return 0
        messages = chain([first], pieces)
        if once is not None:
            return self._once(messages, once)
        with self._lock, self._working() as sink:
            sink.begin()
            count = sum(map(sink.send, messages))
            sink.finish()
            return count

    def _once(self, messages: Iterable[Outgoing], write: Numbered) -> int:
        # The producer has the writer's name and is not kept: the next write makes one of that name, perhaps elsewhere.
        sink = _Sink(self._table, self._ambient, write.name(self._table.topic))
        with Mark(self._table, write, self._ambient) as mark:
            if (known := mark.messages()) is not None:
                return known
            with _ended(sink):
                sink.begin()
                count = sum(map(sink.send, messages))
                sink.finish(lambda producer: mark.leave(producer, count))
        return count

    @contextmanager
    def _working(self) -> Iterator[_Sink]:
        """The producer; one that failed is not used again."""
        sink, self._sink = self._sink, None
        if sink is None:
            sink = _Sink(self._table, self._ambient)
        with _ended(sink):
            yield sink
        self._sink = None if sink.spent else sink


@contextmanager
def _ended(sink: _Sink) -> Iterator[None]:
    """Gives up what fails."""
    try:
        yield
    except BaseException as error:
        sink.give_up(ended=isinstance(error, CommitUnknown))
        raise


class DeadLetters:
    """Sends messages that cannot be read to the topic for them. Nobody may have read on before they are there."""

    def __init__(self, table: KafkaDeclaration) -> None:
        self._table = table
        self._topic = str(table["scan.dead-letter-topic"])
        self._reports = _Reports()
        self._producer: Producer | None = None

    def send(self, messages: Sequence[Message], letters: Sequence[DeadLetter]) -> None:
        """Sends them on as they are, with headers that say where they were and why; waits until they are there.

        Raises:
            Unavailable: ``log-delivery``: they are not.
        """
        action = f"sending dead letters to topic {self._topic}"
        with translated(action, self._table):
            if self._producer is None:
                self._producer = Producer(producer_settings(self._table, self._reports))
            for letter in letters:
                message = messages[letter.index]
                headers = [*(message.headers() or ()), *letter.headers(self._table.topic)]
                self._producer.produce(self._topic, message.value(), message.key(), headers=headers)
            left = self._producer.flush(_PATIENCE_SECONDS)
        self._reports.check(action, left)


class _Reports:
    """What is told of messages that were not delivered."""

    def __init__(self) -> None:
        self.problem: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        self.problem = self.problem or error

    def check(self, action: str, left: int) -> None:
        """Raises what went wrong, if anything."""
        if self.problem is not None and self.problem.code() in _TOO_LARGE:
            raise InvalidRequest(
                f"{action}: a message is larger than the client or the broker takes ({self.problem.str()}): raise "
                "properties.message.max.bytes and the topic's max.message.bytes, or write smaller rows",
                code="message-too-large",
            )
        if self.problem is not None or left:
            reason = str(self.problem) if self.problem is not None else f"{left} messages were not sent in time"
            raise Unavailable(f"{action}: {reason}", code="log-delivery")


_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


class _Sink:
    """A producer, and with exactly-once, or a name, its transactions, one after the other."""

    def __init__(self, table: KafkaDeclaration, ambient: Ambient, name: str | None = None) -> None:
        self._table = table
        self._ambient = ambient
        self._action = f"writing topic {table.topic}"
        self._seconds = timeout_seconds(table) * 3
        self._reports = _Reports()
        exactly = table.semantic is Semantic.EXACTLY_ONCE
        self._transaction_id = name or (f"tablestore/{table.topic}/{ambient.new_id()}" if exactly else None)
        self.spent = False
        """Whether another producer has to be made for the next write."""
        with translated(self._action, table):
            self._producer = self._made()

    def _made(self) -> Producer:
        certain = self._table.semantic is not Semantic.NONE
        producer = Producer(producer_settings(self._table, self._reports, self._transaction_id, certain=certain))
        if self._transaction_id is not None:
            producer.init_transactions(self._seconds)
        return producer

    def begin(self) -> None:
        """Begins a write."""
        if self._transaction_id is not None:
            with translated(self._action, self._table):
                self._producer.begin_transaction()

    def send(self, messages: Outgoing) -> int:
        """Puts messages into the client's queue; waits while too much is in flight. Gives their number."""
        if not messages.values:
            return 0
        with translated(self._action, self._table):
            self._wait_for_room(messages.values)
            if any(messages.headers or ()) or any(messages.timestamps or ()):
                self._singly(messages)
            else:
                self._batch(messages)
            self._producer.poll(0)
        return len(messages.values)

    def finish(self, last: Callable[[Producer], None] | None = None) -> None:
        """Waits until all are delivered, and commits; before that `last` may add to the transaction."""
        with translated(self._action, self._table):
            left = self._producer.flush(_PATIENCE_SECONDS)
        if self._reports.problem is not None and self._reports.problem.code() in TOPIC_IN_DOUBT:
            DeclaredTopic(self._table, self._ambient).require_writable()
        self._reports.check(self._action, left)
        if last is not None:
            last(self._producer)
        if self._transaction_id is not None:
            self._commit()
            self._wait_until_seen()

    def give_up(self, *, ended: bool) -> None:
        """Ends a write that failed.

        Args:
            ended: The transaction was ended, for all that is known.
        """
        # What is not sent yet need not be, and its reports have nobody who listens.
        self._producer.purge()
        if self._transaction_id is None or ended:
            return
        try:
            self._producer.abort_transaction(self._seconds)
        except KafkaException as error:
            # The caller is busy with the error that made it give up; the broker's time-out does the rest.
            logger.warning("transaction %s stays open: %s", self._transaction_id, error)

    def _wait_until_seen(self) -> None:
        """The broker answers a commit before readers see it.

        A producer of the same transactional id may begin when the last transaction has ended in all partitions. So it
        is made now, and writes the next one.
        """
        try:
            self._producer = self._made()
        except KafkaException as error:
            logger.info("transaction %s is committed, and is seen later: %s", self._transaction_id, error)
            self.spent = True

    def _commit(self) -> None:
        until_ms = self._ambient.now_ms() + int(_PATIENCE_SECONDS * 1000)
        while True:
            try:
                self._producer.commit_transaction(self._seconds)
                return
            except KafkaException as error:
                cause = error.args[0]
                if not cause.retriable():
                    raise Unavailable(
                        f"{self._action}: the transaction was not committed ({cause.str()}); nothing was written",
                        code="log-delivery",
                    ) from error
                if self._ambient.now_ms() > until_ms:
                    raise CommitUnknown(
                        f"{self._action}: the broker did not say whether transaction {self._transaction_id} was "
                        f"committed ({cause.str()}): look whether its rows are there before writing them again"
                    ) from error

    def _batch(self, messages: Outgoing) -> None:
        # A dict a message is how the client takes them.
        batch: list[dict[str, Any]]
        if messages.keys is None:
            batch = [{"value": value} for value in messages.values]
        else:
            batch = [{"value": value, "key": key} for value, key in zip(messages.values, messages.keys, strict=True)]
        if self._producer.produce_batch(self._table.topic, batch) < len(batch):
            problem = next(m["_error"] for m in batch if "_error" in m)
            self._reports.problem = problem
            self._reports.check(self._action, 0)

    def _singly(self, messages: Outgoing) -> None:
        """One by one, since batches have no headers and no timestamps."""
        nothing = [None] * len(messages.values)
        for value, key, time, headers in zip(
            messages.values,
            messages.keys or nothing,
            messages.timestamps or nothing,
            messages.headers or nothing,
            strict=True,
        ):
            self._producer.produce(self._table.topic, value, key, timestamp=time or 0, headers=headers)

    def _wait_for_room(self, values: Sequence[bytes | None]) -> None:
        """Bounds what is in flight, in messages and, by this chunk's mean size, in bytes."""
        mean = max(1, sum(map(len, filter(None, values))) // len(values))
        limit = min(_FLIGHT_MESSAGES, _FLIGHT_BYTES // mean)
        waiting, since_ms = len(self._producer), self._ambient.now_ms()
        while len(self._producer) > limit and self._reports.problem is None:
            self._producer.poll(_POLL_SECONDS)
            if len(self._producer) < waiting:
                waiting, since_ms = len(self._producer), self._ambient.now_ms()
            elif self._ambient.now_ms() - since_ms > _PATIENCE_SECONDS * 1000:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._reports.check(self._action, 0)
