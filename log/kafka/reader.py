"""Reads exact ranges of a topic (PROTOCOL.md section 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from filestore.ambient import Ambient
from filestore.errors import Corrupt, NotFound, Unavailable
from filestore.model.log_range import LogRange, LogTransaction
from filestore.model.rowkind import KIND_COLUMN
from log.formats.log_record import ControlMessage, DebeziumJson, RowMessages
from log.kafka.settings import TOMBSTONE_HEADER, consumer_settings, timeout_seconds, topic_of, translated
from log.store import LogBatch, LogConfig, LogControl, gap

__all__ = ["GONE", "PASSING", "RangeReader", "offset_of", "tombstone_of"]

_FIRST_MESSAGES = 500
_MOST_MESSAGES = 20_000
_MOST_BYTES = 32 << 20
_WAIT_SECONDS = 0.1

GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
# librdkafka goes on trying by itself after these
PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        # The client looks for the coordinator of its group, of which readers need no more than that it has a name.
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)


class RangeReader:
    """Reads ranges one after the other; consumers are kept for the next reading.

    Args:
        config: Whose topic.
        ambient: The clock.
        tombstones_kept_ms: Asks how long a compacted topic keeps tombstones.
    """

    def __init__(self, config: LogConfig, ambient: Ambient, tombstones_kept_ms: Callable[[], int]) -> None:
        self._config = config
        self._ambient = ambient
        self._tombstones_kept_ms = tombstones_kept_ms
        self._format = DebeziumJson(config)
        self._idle: list[Consumer] = []

    def read(
        self,
        transactions: Sequence[LogTransaction],
        bucket: int | None,
        schema: pa.Schema,
        committed_ms: int | None = None,
    ) -> Iterator[LogBatch | LogControl]:
        """What `log.store.LogStore.events` says."""
        with self._consumer() as consumer:
            for transaction in transactions:
                for part in transaction.ranges:
                    if bucket is None or part.bucket == bucket:
                        yield from self._range(consumer, transaction.id, part, schema, committed_ms)

    def shows(self, transaction: LogTransaction) -> bool:
        """Whether a read_committed consumer gets the transaction's first records."""
        schema = pa.schema([pa.field(KIND_COLUMN, pa.string(), nullable=False)])
        consumer = Consumer(consumer_settings(self._config, committed=True))
        try:
            now = self._ambient.now_ms()
            first = next(self._range(consumer, transaction.id, transaction.ranges[0], schema, now), None)
        except NotFound:
            return False
        finally:
            consumer.close()
        return first is not None or self._config.compacts  # what is superseded is no longer to be seen

    def close(self) -> None:
        """Closes the consumers."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = self._idle.pop() if self._idle else Consumer(consumer_settings(self._config))
        try:
            yield consumer
        except BaseException:
            consumer.close()
            raise
        consumer.unassign()
        self._idle.append(consumer)

    def _range(
        self,
        consumer: Consumer,
        transaction_id: str,
        part: LogRange,
        schema: pa.Schema,
        committed_ms: int | None,
    ) -> Iterator[LogBatch | LogControl]:
        where = f"table {self._config.database}.{self._config.table}, bucket {part.bucket}"
        cursor = _Cursor(consumer, self._config, part, where)
        found = 0
        while found < part.count:
            messages = cursor.fetch(part.count - found)
            if not messages:
                self._check_missing(part.count - found, f"of {part.count}", transaction_id, where, committed_ms)
                return
            for piece in self._decoded(messages, transaction_id, schema, where):
                end_offset = offset_of(messages[piece.last]) + 1
                if isinstance(piece, RowMessages):
                    found += piece.rows.num_rows
                    yield LogBatch(part.bucket, transaction_id, piece.rows, end_offset)
                else:
                    found += 1
                    yield LogControl(part.bucket, transaction_id, piece.payload, end_offset)

    def _check_missing(self, missing: int, of: str, transaction_id: str, where: str, committed_ms: int | None) -> None:
        """Raises unless what is missing is superseded for sure by records that are still to come."""
        told = f"{missing} {of} records of transaction {transaction_id} are gone"
        if not self._config.compacts:
            raise gap(where, told)
        if not self._config.tombstones:
            return  # a delete is a record like any other: only a later one of its key removes it
        kept_ms = self._tombstones_kept_ms()
        if committed_ms is None or self._ambient.now_ms() - committed_ms >= kept_ms:
            raise gap(where, f"{told}, and tombstones may be among them: the topic keeps them for {kept_ms} ms")

    def _decoded(
        self, messages: Sequence[Message], transaction_id: str, schema: pa.Schema, where: str
    ) -> Iterator[RowMessages | ControlMessage]:
        try:
            yield from self._format.decode(self._values(messages, transaction_id), transaction_id, schema)
        except Corrupt as error:
            first, last = messages[0].offset(), messages[-1].offset()
            raise Corrupt(f"{where}, offsets {first} to {last}: {error}", code=error.code) from error

    def _values(self, messages: Sequence[Message], transaction_id: str) -> list[bytes]:
        values = [m.value() for m in messages]
        if None not in values:
            return cast("list[bytes]", values)
        return [
            self._tombstone(m, transaction_id) if value is None else value
            for m, value in zip(messages, values, strict=True)
        ]

    def _tombstone(self, message: Message, transaction_id: str) -> bytes:
        """A null value as the deletion that it means, if its header says that it is the transaction's."""
        key = message.key()
        if key is None or (TOMBSTONE_HEADER, transaction_id.encode()) not in (message.headers() or ()):
            return b""
        return self._format.tombstone(key, transaction_id)


class _Cursor:
    """Fetches a range's messages, as many at once as memory allows; never waits for more than there are."""

    def __init__(self, consumer: Consumer, config: LogConfig, part: LogRange, where: str) -> None:
        self._consumer = consumer
        self._config = config
        self._part = part
        self._where = where
        self._most = _FIRST_MESSAGES
        self._patience = int(timeout_seconds(config) / _WAIT_SECONDS) + 1
        self._problem: KafkaError | None = None
        self._events: list[Message] = []
        with translated(f"reading the log of {where}", config):
            consumer.assign([TopicPartition(topic_of(config), part.bucket, part.start)])

    def fetch(self, wanted: int) -> list[Message]:
        """The next messages of the range, of any transaction; none at its end.

        Args:
            wanted: How many of the transaction's are still to come. So many messages at least are still in
                the range, so asking for them never waits for one that does not exist.
        """
        for _ in range(self._patience):
            found = self._consumer.consume(min(wanted, self._most), _WAIT_SECONDS)
            messages = [m for m in found if m.error() is None]
            if len(messages) < len(found):
                self._events += [m for m in found if m.error() is not None]
            if messages:
                return self._bounded(messages)
            # An event is told once, perhaps together with the last messages before it.
            events, self._events = self._events, []
            if any(self._ends(event) for event in events):
                return []
        raise Unavailable(
            f"Kafka at {self._config.bootstrap_servers} sent nothing of {self._where} from offset "
            f"{self._part.start} on ({self._problem}): is the broker running? Retry then",
            code="log-unavailable",
        )

    def _bounded(self, messages: list[Message]) -> list[Message]:
        sample = messages[:: len(messages) // 100 + 1]
        mean = max(1, sum(map(len, sample)) // len(sample))
        self._most = max(1, min(_MOST_MESSAGES, _MOST_BYTES // mean))
        if offset_of(messages[-1]) < self._part.end:
            return messages
        return [m for m in messages if offset_of(m) < self._part.end]

    def _ends(self, event: Message) -> bool:
        """Whether the partition ends here, after the range's end; raises what waiting does not mend."""
        error = event.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            # Before the range's end: a broker that has just restarted may know less for a moment.
            return (event.offset() or 0) >= self._part.end
        if error.code() in GONE:
            raise gap(self._where, f"offset {self._part.start} is no longer there")
        if error.code() not in PASSING:
            with translated(f"reading the log of {self._where}", self._config):
                raise KafkaException(error)
        self._problem = error
        return False


def tombstone_of(form: DebeziumJson, message: Message) -> bytes:
    """A null value as the deletion that it means, of the transaction that its header names; empty without one."""
    key, headers = message.key(), dict(message.headers() or ())
    named = headers.get(TOMBSTONE_HEADER)
    if key is None or not isinstance(named, bytes):
        return b""
    return form.tombstone(key, named.decode(errors="replace"))


def offset_of(message: Message) -> int:
    """The offset of a message that was consumed."""
    offset = message.offset()
    assert offset is not None  # only messages that were never produced have none
    return offset
