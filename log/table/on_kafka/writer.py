"""Writes one transaction to a topic, in a transaction of Kafka's or without (PROTOCOL.md sections 7.2 and 7.6)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from filestore.ambient import Ambient
from filestore.errors import Conflict, InvalidRequest, TableStoreError, Unavailable
from filestore.lazily import pl
from filestore.model.log_range import LogRange, LogTransaction
from log.kafka.errors import translated
from log.kafka.producers import KeptProducer, keep, new_producer, take
from log.kafka.sending import Connect, Headers, Producer, Report, Sender
from log.kafka.transactions import ProducerState, TransactionState
from log.slices import slices
from log.table.config import LogConfig
from log.table.log_record import CONTROL_KEY, DebeziumJson
from log.table.on_kafka.settings import (
    TOMBSTONE_HEADER,
    plain_producer_settings,
    producer_settings,
    timeout_seconds,
    timeout_too_long,
    topic_of,
)
from log.table.rows import conform, row_schema, taking

__all__ = ["KafkaLogWriter", "PlainWriter", "TransactionDesk", "TransactionWriter"]

logger = logging.getLogger(__name__)

_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 8 << 20
_NOTHING: Mapping[int, int] = MappingProxyType({})
_LIMIT = "log.kafka.properties.message.max.bytes"
_SEQUENCES = 1 << 31  # Kafka's sequence numbers are 31 bits and wrap


class TransactionDesk(Protocol):
    """The part of a log that a writer needs, besides the producer."""

    def describe(self, transaction_id: str) -> TransactionState | None:
        """Returns what the coordinator knows of a transaction."""

    def require_writable(self) -> None:
        """Checks that the topic exists (else `NotFound`), and that this user may write it (else `InvalidRequest`)."""

    def stored(self, buckets: Sequence[int], producer_id: int) -> dict[int, ProducerState]:
        """Returns what the partitions' leaders know of a producer."""

    def producer_of(self, bucket: int, offset: int) -> tuple[int, int]:
        """Returns id and epoch of the producer that wrote a record."""

    def abort(self, transaction: LogTransaction) -> None:
        """Aborts a prepared transaction."""


class KafkaLogWriter:
    """Implements what both ways of writing have in common (`log.table.store.LogWriter`).

    The producer is made by the first rows: a task without rows costs nothing.
    """

    def __init__(self, transaction_id: str, config: LogConfig, ambient: Ambient, desk: TransactionDesk) -> None:
        self._id = transaction_id
        self._config = config
        self._ambient = ambient
        self._desk = desk
        self._format = DebeziumJson(config)
        self._schema = row_schema(config.schema, config.primary_key)
        action = f"writing log transaction {transaction_id}"
        self._sender = Sender(topic_of(config), config, ambient, action, self._connect(), _LIMIT)
        self._finished = False

    def append(self, bucket: int, rows: pa.RecordBatch | pa.Table) -> None:
        """Encodes and produces at once; waits while too much is in flight."""
        self._require_open(bucket)
        with self._sender.explained(self._desk.require_writable):
            for piece in slices(conform(rows, self._schema), _CHUNK_ROWS, _CHUNK_BYTES):
                self._send(bucket, piece)

    def _send(self, bucket: int, rows: pa.Table) -> None:
        first = self._sender.counts.get(bucket, 0)
        messages = self._format.encode(rows, self._id, first, self._ambient.now_ms())
        values, headers = messages.values, None
        deletes = taking(rows) if self._config.tombstones else None
        if deletes is not None and pc.any(deletes).as_py():
            mine: Headers = [(TOMBSTONE_HEADER, self._id.encode())]
            values = values.zip_with(~pl.Series(pl.from_arrow(deletes)), pl.Series([None], dtype=pl.Binary))
            headers = [mine if deleted else None for deleted in deletes.to_pylist()]
        self._sender.send(values, messages.keys, bucket, headers=headers, offsets=True)

    def control(self, bucket: int, payload: Mapping[str, Any]) -> None:
        """Sends the control record as one message; a compacted topic takes none without a key."""
        self._require_open(bucket)
        sequence = self._sender.counts.get(bucket, 0)
        value = self._format.encode_control(payload, self._id, sequence, self._ambient.now_ms())
        self._sender.send([value], [CONTROL_KEY] if self._config.compacts else None, bucket, offsets=True)

    def prepare(self) -> LogTransaction | None:
        """Flushes, then asks the brokers what they have stored."""
        self._require_open(None)
        self._finished = True
        if self._sender.producer is None:
            return None
        with self._sender.explained(self._desk.require_writable):
            self._sender.flush()
        prepared = self._confirmed(f"preparing log transaction {self._id}")
        for part in prepared.ranges:
            self._config.check_offset(part.bucket, part.start)
        return prepared

    def abort(self) -> None:
        """Aborts the transaction. Errors are only logged: the caller already handles the one that made it abort."""
        self._finished = True
        try:
            self._give_up()
        except TableStoreError as error:
            # recovery can do the rest
            logger.warning("log transaction %s stays open: %s", self._id, error)

    def _connect(self) -> Connect:
        raise NotImplementedError

    def _confirmed(self, action: str) -> LogTransaction:
        raise NotImplementedError

    def _give_up(self) -> None:
        raise NotImplementedError

    def _stored(
        self, action: str, producer_id: int, epoch: int, before: Mapping[int, int] = _NOTHING
    ) -> dict[int, ProducerState]:
        """Checks by the leaders' counts that nothing is missing, also where a message was never reported.

        librdkafka checks failed deliveries only when it commits itself, which we never let it do. After a batch that
        it could not deliver it continues with another epoch.

        Args:
            action: What errors say was tried.
            producer_id: The producer.
            epoch: Its epoch.
            before: What it had written for others before, by bucket.
        """
        counts = self._sender.counts
        found = self._desk.stored(sorted(counts), producer_id)
        for bucket, count in sorted(counts.items()):
            stored = found.get(bucket)
            if stored is None or stored.producer_epoch != epoch:
                raise Unavailable(f"{action}: bucket {bucket} has none of its records", code="log-delivery")
            found_here = (stored.records - before.get(bucket, 0)) % _SEQUENCES
            if found_here != count % _SEQUENCES:
                raise Unavailable(
                    f"{action}: bucket {bucket} holds {found_here} of {count} records", code="log-delivery"
                )
        return found

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


class TransactionWriter(KafkaLogWriter):
    """Writes in a transaction of Kafka's, which any process can end by its id, producer id and epoch.

    The producer is dropped and never closed: closing it would abort the transaction.
    """

    _prepared: LogTransaction | None = None

    def _connect(self) -> Connect:
        def connect(_: Report) -> Producer:
            with translated(f"writing log transaction {self._id}", self._config, timeout_too_long):
                producer = new_producer(producer_settings(self._config, self._id), timeout_seconds(self._config) * 3)
                producer.begin_transaction()
            return producer

        return connect

    def _confirmed(self, action: str) -> LogTransaction:
        state = self._desk.describe(self._id)
        if state is None or state.state != "Ongoing":
            found = state.state if state else "unknown"
            raise Conflict(
                f"{action}: another process has ended it ({found}), as its writer seemed dead",
                code="log-transaction",
            )
        stored = self._stored(action, state.producer_id, state.producer_epoch)
        ranges = tuple(
            LogRange(bucket, stored[bucket].first_offset, self._sender.ends[bucket], count)
            for bucket, count in sorted(self._sender.counts.items())
        )
        if any(part.start < 0 for part in ranges):
            raise Unavailable(f"{action}: a partition does not know of its open transaction", code="log-delivery")
        self._prepared = LogTransaction(self._id, ranges, state.producer_id, state.producer_epoch)
        self._sender.producer = None
        return self._prepared

    def _give_up(self) -> None:
        """Aborts the transaction; if the broker does not answer, it stays open until `LogStore.abort_unnamed`."""
        producer, self._sender.producer = self._sender.producer, None
        if self._prepared is not None:
            self._desk.abort(self._prepared)
        elif producer is not None:
            with translated(f"aborting log transaction {self._id}", self._config):
                producer.abort_transaction(timeout_seconds(self._config))


class PlainWriter(KafkaLogWriter):
    """Writes without transactions of Kafka's: the snapshot names the ranges, and there is nothing to end."""

    _kept: KeptProducer | None = None

    def _connect(self) -> Connect:
        def connect(_: Report) -> Producer:
            self._kept = take(plain_producer_settings(self._config))
            return self._kept.producer

        return connect

    def _confirmed(self, action: str) -> LogTransaction:
        sender, kept, topic = self._sender, self._kept, topic_of(self._config)
        assert kept is not None
        if kept.identity is None:
            # librdkafka does not show its producer id, but each record that it wrote has it
            bucket = min(sender.counts)
            kept.identity = self._desk.producer_of(bucket, sender.firsts[bucket])
        self._stored(action, *kept.identity, {b: kept.sent[topic, b] for b in sender.counts})
        kept.sent.update({(topic, b): count for b, count in sender.counts.items()})
        keep(plain_producer_settings(self._config), kept)
        self._kept = sender.producer = None
        ranges = (LogRange(b, sender.firsts[b], sender.ends[b], n) for b, n in sorted(sender.counts.items()))
        return LogTransaction(self._id, tuple(ranges))

    def _give_up(self) -> None:
        """Drops what was not sent yet; what was sent stays, and no snapshot names it."""
        producer, self._sender.producer = self._sender.producer, None
        self._kept = None
        if producer is not None:
            with translated(f"giving up log transaction {self._id}", self._config):
                producer.purge()
