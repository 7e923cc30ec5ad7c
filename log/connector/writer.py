"""Writes a table's topic, as ``sink.semantic`` promises; and dead letters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import CommitUnknown, TableStoreError
from log.connector.declaration import KafkaDeclaration
from log.connector.encoding import Outgoing, RowEncoder
from log.connector.formats.malformed import DeadLetter
from log.connector.groups import LastWrite, Numbered
from log.connector.options import Semantic
from log.connector.settings import producer_settings, timeout_seconds
from log.connector.topic import ConnectorTopic
from log.kafka.errors import translated
from log.kafka.messages import Fetched
from log.kafka.producers import commit, new_producer
from log.kafka.sending import Connect, Producer, Report, Sender
from log.slices import slices

__all__ = ["ConnectorWriter", "DeadLetters"]

logger = logging.getLogger(__name__)

_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 8 << 20


class ConnectorWriter:
    """Writes one table. It keeps its producer, so that a later write need not connect again. Threads may share it.

    Args:
        table: Whose topic.
        ambient: Clock, ids.
    """

    def __init__(self, table: KafkaDeclaration, ambient: Ambient) -> None:
        self._table = table
        self._ambient = ambient
        self._encoder = RowEncoder.of(table)
        self._topic = ConnectorTopic(table, ambient)
        self._lock = threading.Lock()
        self._sink: _Sink | None = None

    def write(self, rows: Iterable[pa.Table], once: Numbered | None = None) -> int:
        """Writes declared rows; returns the number of messages.

        Args:
            rows: As `RowEncoder.encode` takes them, in order. They are taken one after the other.
            once: Which write it is: it is one transaction, and if it was done already it is not done again. A try
                before this one that is still at work, wherever it runs, fails.

        Raises:
            InvalidRequest: rows that do not fit, or ``message-too-large``.
            Unavailable: a message was not delivered.
            CommitUnknown: with exactly-once: the broker took the end of the transaction and did not answer.

            With exactly-once nothing was written then (but after `CommitUnknown`); otherwise earlier rows may be.
        """
        encode = self._encoder.encode
        partitions = len(self._topic.partitions()) if self._encoder.placed_by else 1
        pieces = (encode(piece, partitions) for given in rows for piece in slices(given, _CHUNK_ROWS, _CHUNK_BYTES))
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
        with LastWrite(self._table, write, self._ambient) as last:
            if (known := last.messages()) is not None:
                return known
            with _ended(sink):
                sink.begin()
                count = sum(map(sink.send, messages))
                sink.finish(lambda producer: last.remember(producer, count))
        return count

    @contextmanager
    def _working(self) -> Iterator[_Sink]:
        """Lends the producer; one that failed is not used again."""
        sink, self._sink = self._sink, None
        if sink is None:
            sink = _Sink(self._table, self._ambient)
        with _ended(sink):
            yield sink
        self._sink = None if sink.spent else sink


@contextmanager
def _ended(sink: _Sink) -> Iterator[None]:
    """Aborts a write that fails."""
    try:
        yield
    except BaseException as error:
        sink.give_up(ended=isinstance(error, CommitUnknown))
        raise


class DeadLetters:
    """Sends messages that cannot be read to the dead-letter topic, before reading continues."""

    def __init__(self, table: KafkaDeclaration, ambient: Ambient) -> None:
        self._table = table
        topic = str(table["scan.dead-letter-topic"])
        action = f"sending dead letters to topic {topic}"
        connect: Connect = lambda report: new_producer(producer_settings(table, report), timeout_seconds(table))  # noqa: E731
        self._sender = Sender(topic, table, ambient, action, connect, _LIMIT)

    def send(self, messages: Fetched, letters: Sequence[DeadLetter]) -> None:
        """Sends messages unchanged, with headers that say where they were and why; waits until they are delivered.

        Raises:
            Unavailable: ``log-delivery``: they were not delivered.
        """
        found = messages.take([letter.index for letter in letters])
        headers = [
            [*had, *letter.headers(self._table.topic)] for had, letter in zip(found.headers(), letters, strict=True)
        ]
        self._sender.send(found.values(), found.keys(), headers=headers)
        self._sender.flush()


_LIMIT = "properties.message.max.bytes"


class _Sink:
    """A producer and, with exactly-once or a name, its transactions, one after the other."""

    def __init__(self, table: KafkaDeclaration, ambient: Ambient, name: str | None = None) -> None:
        self._table = table
        self._ambient = ambient
        self._action = f"writing topic {table.topic}"
        self._seconds = timeout_seconds(table) * 3
        exactly = table.semantic is Semantic.EXACTLY_ONCE
        self._transaction_id = name or (f"tablestore/{table.topic}/{ambient.new_id()}" if exactly else None)
        self.spent = False
        """True if the next write needs another producer."""
        self._sender = self._connected()

    def _connected(self) -> Sender:
        sender = Sender(self._table.topic, self._table, self._ambient, self._action, self._producer, _LIMIT)
        sender.connect()
        return sender

    def _producer(self, report: Report) -> Producer:
        certain = self._table.semantic is not Semantic.NONE
        return new_producer(
            producer_settings(self._table, report, self._transaction_id, certain=certain), self._seconds
        )

    def begin(self) -> None:
        """Begins a write."""
        if self._transaction_id is not None:
            with translated(self._action, self._table):
                self._sender.connect().begin_transaction()

    def send(self, messages: Outgoing) -> int:
        """Puts messages into the client's queue; waits while too much is in flight. Returns their number."""
        with self._sender.explained(self._require_writable):
            self._sender.send(
                messages.values,
                messages.keys,
                partitions=messages.partitions,
                timestamps=messages.timestamps,
                headers=messages.headers,
            )
        return len(messages.values)

    def finish(self, last: Callable[[Producer], None] | None = None) -> None:
        """Waits until all are delivered, and commits; before that `last` may add to the transaction."""
        with self._sender.explained(self._require_writable):
            self._sender.flush()
        producer = self._sender.connect()
        if last is not None:
            last(producer)
        if self._transaction_id is not None:
            commit(producer, self._transaction_id, self._seconds, self._ambient, self._action)
            self._wait_until_seen()

    def give_up(self, *, ended: bool) -> None:
        """Ends a write that failed.

        Args:
            ended: The transaction was ended already, as far as is known.
        """
        producer = self._sender.connect()
        # What is not sent yet need not be, and its reports have nobody who listens.
        producer.purge()
        if self._transaction_id is None or ended:
            return
        try:
            with translated("aborting it", self._table):
                producer.abort_transaction(self._seconds)
        except TableStoreError as error:
            # The caller is busy with the error that made it give up; the broker's time-out does the rest.
            logger.warning("transaction %s stays open: %s", self._transaction_id, error)

    def _require_writable(self) -> None:
        ConnectorTopic(self._table, self._ambient).require_writable()

    def _wait_until_seen(self) -> None:
        """The broker answers a commit before readers see it.

        A producer of the same transactional id may begin when the last transaction has ended in all partitions. So it
        is made now, and writes the next one.
        """
        try:
            self._sender = self._connected()
        except TableStoreError as error:
            logger.info("transaction %s is committed, and is seen later: %s", self._transaction_id, error)
            self.spent = True
