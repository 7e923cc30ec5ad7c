"""Writes one transaction to a topic (PROTOCOL.md section 7.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from filestore.ambient import Ambient
from filestore.errors import Conflict, InvalidRequest, TableStoreError, Unavailable
from filestore.model.log_range import LogRange, LogTransaction
from log.formats.log_record import DebeziumJson, Messages
from log.kafka.settings import TOMBSTONE_HEADER, producer_settings, timeout_seconds, topic_of, translated
from log.kafka.transactions import ProducerState, TransactionState
from log.rows import conform, row_schema, slices, taking
from log.store import LogConfig

__all__ = ["KafkaLogWriter", "TransactionDesk"]

logger = logging.getLogger(__name__)

_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 8 << 20
_FLIGHT_MESSAGES = 200_000
_FLIGHT_BYTES = 64 << 20
_POLL_SECONDS = 0.05
_SEQUENCES = 1 << 31  # Kafka's sequence numbers are 31 bits and wrap
_PATIENCE_SECONDS = 90.0  # beyond delivery.timeout.ms, after which librdkafka itself gives a message up


class TransactionDesk(Protocol):
    """What a writer asks of its log, beside the producer."""

    def describe(self, transaction_id: str) -> TransactionState | None:
        """The coordinator's view."""

    def stored(self, buckets: Sequence[int], producer_id: int) -> dict[int, ProducerState]:
        """The partitions' view."""

    def abort(self, transaction: LogTransaction) -> None:
        """Aborts a prepared transaction."""


class KafkaLogWriter:
    """See `log.store.LogWriter`.

    The producer is made by the first rows: a task without rows costs nothing.
    """

    def __init__(self, transaction_id: str, config: LogConfig, ambient: Ambient, desk: TransactionDesk) -> None:
        self._id = transaction_id
        self._config = config
        self._ambient = ambient
        self._desk = desk
        self._topic = topic_of(config)
        self._format = DebeziumJson(config)
        self._schema = row_schema(config.schema, config.primary_key)
        self._producer: Producer | None = None
        self._counts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._problems: list[KafkaError] = []
        self._prepared: LogTransaction | None = None
        self._finished = False

    def append(self, bucket: int, rows: pa.RecordBatch | pa.Table) -> None:
        """Encodes and produces at once; waits while too much is in flight."""
        self._require_open(bucket)
        for piece in slices(conform(rows, self._schema), _CHUNK_ROWS, _CHUNK_BYTES):
            first = self._counts.get(bucket, 0)
            messages = self._format.encode(piece, self._id, first, self._ambient.now_ms())
            deletes = taking(piece) if self._config.tombstones else None
            if deletes is not None and pc.any(deletes).as_py():
                self._produce_with_tombstones(bucket, messages, deletes.to_pylist())
            else:
                self._produce(bucket, messages)

    def control(self, bucket: int, payload: Mapping[str, Any]) -> None:
        """One message without a key."""
        self._require_open(bucket)
        value = self._format.encode_control(payload, self._id, self._counts.get(bucket, 0), self._ambient.now_ms())
        self._produce(bucket, Messages(None, [value]))

    def prepare(self) -> LogTransaction | None:
        """Flushes, then lets the broker itself confirm what it has stored.

        The producer is dropped and never closed: closing it would abort the transaction. What the ranges say
        comes from the partition leaders (DescribeProducers): the first offset, and how many records of this
        producer they hold, which is proof that none is missing. So no delivery report is needed for each
        message, only for the last of each chunk.
        """
        self._require_open(None)
        self._finished = True
        if self._producer is None:
            return None
        action = f"preparing log transaction {self._id}"
        with translated(action, self._config):
            left = self._producer.flush(_PATIENCE_SECONDS)
        if left or self._problems:
            reason = str(self._problems[0]) if self._problems else f"{left} records were not sent in time"
            raise Unavailable(f"{action}: {reason}; nothing was committed", code="log-delivery")
        self._prepared = self._confirmed(action)
        self._producer = None
        return self._prepared

    def abort(self) -> None:
        """Aborts; if the broker does not answer the transaction stays open until `LogStore.abort_unnamed`."""
        self._finished = True
        producer, self._producer = self._producer, None
        try:
            if self._prepared is not None:
                self._desk.abort(self._prepared)
            elif producer is not None:
                with translated(f"aborting log transaction {self._id}", self._config):
                    producer.abort_transaction(timeout_seconds(self._config))
        except TableStoreError as error:
            # The caller is busy with the error that made it give up; a janitor can do the rest.
            logger.warning("log transaction %s stays open: %s", self._id, error)

    def _confirmed(self, action: str) -> LogTransaction:
        state = self._desk.describe(self._id)
        if state is None or state.state != "Ongoing":
            found = state.state if state else "unknown"
            raise Conflict(
                f"{action}: another process has ended it ({found}), as its writer seemed dead",
                code="log-transaction",
            )
        stored = self._desk.stored(sorted(self._counts), state.producer_id)
        return LogTransaction(
            self._id,
            tuple(self._range(action, bucket, stored.get(bucket), state) for bucket in sorted(self._counts)),
            state.producer_id,
            state.producer_epoch,
        )

    def _range(self, action: str, bucket: int, stored: ProducerState | None, state: TransactionState) -> LogRange:
        count = self._counts[bucket]
        if stored is None or stored.producer_epoch != state.producer_epoch or stored.first_offset < 0:
            raise Unavailable(f"{action}: bucket {bucket} holds nothing of it", code="log-delivery")
        if stored.records % _SEQUENCES != count % _SEQUENCES:
            raise Unavailable(
                f"{action}: bucket {bucket} holds {stored.records} of {count} records", code="log-delivery"
            )
        return LogRange(bucket, stored.first_offset, self._ends[bucket], count)

    def _produce(self, bucket: int, messages: Messages) -> None:
        with translated(f"writing log transaction {self._id}", self._config):
            producer = self._started()
            batch: list[dict[str, Any]]
            if messages.keys is None:
                batch = [{"value": value} for value in messages.values]
            else:
                batch = [
                    {"value": value, "key": key} for value, key in zip(messages.values, messages.keys, strict=True)
                ]
            batch[-1]["callback"] = self._reporter(bucket)
            self._wait_for_room(producer, messages.values)
            if producer.produce_batch(self._topic, batch, partition=bucket) < len(batch):
                problem = next(m["_error"] for m in batch if "_error" in m)
                raise Unavailable(f"writing log transaction {self._id}: {problem}", code="log-delivery")
            self._counts[bucket] = self._counts.get(bucket, 0) + len(batch)
            producer.poll(0)

    def _produce_with_tombstones(self, bucket: int, messages: Messages, deletes: Sequence[bool]) -> None:
        """One by one, since batches have no headers, which name the transaction where there is no value."""
        assert messages.keys is not None, "tombstones without keys"
        headers: list[tuple[str, str | bytes | None]] = [(TOMBSTONE_HEADER, self._id.encode())]
        last = len(messages.values) - 1
        with translated(f"writing log transaction {self._id}", self._config):
            producer = self._started()
            self._wait_for_room(producer, messages.values)
            for at, (key, value, dead) in enumerate(zip(messages.keys, messages.values, deletes, strict=True)):
                producer.produce(
                    self._topic,
                    None if dead else value,
                    key,
                    bucket,
                    headers=headers if dead else None,
                    on_delivery=self._reporter(bucket) if at == last else None,
                )
            self._counts[bucket] = self._counts.get(bucket, 0) + len(messages.values)
            producer.poll(0)

    def _started(self) -> Producer:
        if self._producer is None:
            producer = Producer(producer_settings(self._config, self._id))
            producer.init_transactions(timeout_seconds(self._config) * 3)
            producer.begin_transaction()
            self._producer = producer
        return self._producer

    def _reporter(self, bucket: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self._problems.append(error or KafkaError(KafkaError._FAIL))
            else:
                self._ends[bucket] = max(self._ends.get(bucket, 0), offset + 1)

        return report

    def _wait_for_room(self, producer: Producer, values: Sequence[bytes]) -> None:
        """Bounds what is in flight, in messages and, by this chunk's mean size, in bytes."""
        mean = max(1, sum(map(len, values)) // len(values))
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

    def _require_open(self, bucket: int | None) -> None:
        if self._finished:
            raise Conflict(
                f"log transaction {self._id} is already prepared or aborted: begin another",
                code="log-transaction",
            )
        if bucket is not None and not 0 <= bucket < self._config.buckets:
            raise InvalidRequest(
                f"bucket {bucket} is not in the log, which has {self._config.buckets}", code="log-bucket"
            )
