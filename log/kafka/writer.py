"""Writes one transaction to a topic, in a transaction of Kafka's or without (PROTOCOL.md sections 7.2 and 7.6)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from filestore.ambient import Ambient
from filestore.errors import Conflict, InvalidRequest, NotFound, TableStoreError, Unavailable
from filestore.model.log_range import LogRange, LogTransaction
from log.formats.log_record import DebeziumJson, Messages
from log.kafka.producers import KeptProducer, keep, take
from log.kafka.sending import Sender
from log.kafka.settings import producer_settings, timeout_seconds, topic_of, translated
from log.kafka.transactions import ProducerState, TransactionState
from log.rows import conform, row_schema, slices, taking
from log.store import LogConfig

__all__ = ["KafkaLogWriter", "PlainWriter", "TransactionDesk", "TransactionWriter"]

logger = logging.getLogger(__name__)

_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 8 << 20
_NOTHING: Mapping[int, int] = MappingProxyType({})
_SEQUENCES = 1 << 31  # Kafka's sequence numbers are 31 bits and wrap


class TransactionDesk(Protocol):
    """What a writer asks of its log, beside the producer."""

    def describe(self, transaction_id: str) -> TransactionState | None:
        """The coordinator's view."""

    def require_writable(self) -> None:
        """`NotFound`: the topic is gone. `InvalidRequest`: this user may not write it."""

    def stored(self, buckets: Sequence[int], producer_id: int) -> dict[int, ProducerState]:
        """The partitions' view."""

    def producer_of(self, bucket: int, offset: int) -> tuple[int, int]:
        """Id and epoch of the producer that wrote a record."""

    def abort(self, transaction: LogTransaction) -> None:
        """Aborts a prepared transaction."""


class KafkaLogWriter:
    """See `log.store.LogWriter`; what both ways of writing have in common.

    The producer is made by the first rows: a task without rows costs nothing.
    """

    def __init__(self, transaction_id: str, config: LogConfig, ambient: Ambient, desk: TransactionDesk) -> None:
        self._id = transaction_id
        self._config = config
        self._ambient = ambient
        self._desk = desk
        self._format = DebeziumJson(config)
        self._schema = row_schema(config.schema, config.primary_key)
        self._sender = Sender(config, ambient, f"writing log transaction {transaction_id}", self._connect)
        self._finished = False

    def append(self, bucket: int, rows: pa.RecordBatch | pa.Table) -> None:
        """Encodes and produces at once; waits while too much is in flight."""
        self._require_open(bucket)
        with self._explained():
            self._append(bucket, rows)

    def _append(self, bucket: int, rows: pa.RecordBatch | pa.Table) -> None:
        for piece in slices(conform(rows, self._schema), _CHUNK_ROWS, _CHUNK_BYTES):
            first = self._sender.counts.get(bucket, 0)
            messages = self._format.encode(piece, self._id, first, self._ambient.now_ms())
            deletes = taking(piece) if self._config.tombstones else None
            if deletes is not None and pc.any(deletes).as_py():
                dead = pl.Series(pl.from_arrow(deletes))
                self._sender.send_with_tombstones(bucket, messages, dead, self._id)
            else:
                self._sender.send(bucket, messages)

    def control(self, bucket: int, payload: Mapping[str, Any]) -> None:
        """One message without a key."""
        self._require_open(bucket)
        sequence = self._sender.counts.get(bucket, 0)
        value = self._format.encode_control(payload, self._id, sequence, self._ambient.now_ms())
        self._sender.send(bucket, Messages(None, pl.Series([value])))

    def prepare(self) -> LogTransaction | None:
        """Flushes, then lets the brokers themselves say what they have stored."""
        self._require_open(None)
        self._finished = True
        if self._sender.producer is None:
            return None
        with self._explained():
            self._sender.flush()
        return self._confirmed(f"preparing log transaction {self._id}")

    def abort(self) -> None:
        """Gives it up; errors are logged, since the caller is busy with the one that made it give up."""
        self._finished = True
        try:
            self._give_up()
        except TableStoreError as error:
            # a janitor can do the rest
            logger.warning("log transaction %s stays open: %s", self._id, error)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Says that the topic or the right is gone, where the client says only that a message was not delivered."""
        try:
            yield
        except (Unavailable, NotFound, InvalidRequest) as error:
            # Without the right to write, the client may also give up for good (`translated`), or name a right on the
            # cluster: the broker gives a producer id to whoever may write any topic.
            refused = error.code == "log-not-authorized"
            if refused or self._sender.topic_in_doubt or isinstance(error.__cause__, SystemError):
                self._desk.require_writable()
            raise

    def _connect(self) -> Producer:
        raise NotImplementedError

    def _confirmed(self, action: str) -> LogTransaction:
        raise NotImplementedError

    def _give_up(self) -> None:
        raise NotImplementedError

    def _stored(
        self, action: str, producer_id: int, epoch: int, before: Mapping[int, int] = _NOTHING
    ) -> dict[int, ProducerState]:
        """What the leaders hold of a producer: proof that nothing is missing, also where a message was never reported.

        librdkafka looks at failed deliveries only when it commits itself, which we never let it do. After a batch that
        it gave up it goes on with another epoch.

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
                raise Unavailable(f"{action}: bucket {bucket} holds nothing of it", code="log-delivery")
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
    """In a transaction of Kafka's, which whoever knows its id, producer id and epoch can end.

    The producer is dropped and never closed: closing it would abort the transaction.
    """

    _prepared: LogTransaction | None = None

    def _connect(self) -> Producer:
        producer = Producer(producer_settings(self._config, self._id))
        producer.init_transactions(timeout_seconds(self._config) * 3)
        producer.begin_transaction()
        return producer

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
            raise Unavailable(f"{action}: a partition knows of no open transaction of it", code="log-delivery")
        self._prepared = LogTransaction(self._id, ranges, state.producer_id, state.producer_epoch)
        self._sender.producer = None
        return self._prepared

    def _give_up(self) -> None:
        """If the broker does not answer the transaction stays open until `LogStore.abort_unnamed`."""
        producer, self._sender.producer = self._sender.producer, None
        if self._prepared is not None:
            self._desk.abort(self._prepared)
        elif producer is not None:
            with translated(f"aborting log transaction {self._id}", self._config):
                producer.abort_transaction(timeout_seconds(self._config))


class PlainWriter(KafkaLogWriter):
    """Without transactions of Kafka's: the snapshot names the ranges, and there is nothing to end."""

    _kept: KeptProducer | None = None

    def _connect(self) -> Producer:
        self._kept = take(self._config)
        return self._kept.producer

    def _confirmed(self, action: str) -> LogTransaction:
        sender, kept, topic = self._sender, self._kept, topic_of(self._config)
        assert kept is not None
        if kept.identity is None:
            # librdkafka does not tell its producer id, but each record that it wrote does
            bucket = min(sender.counts)
            kept.identity = self._desk.producer_of(bucket, sender.firsts[bucket])
        self._stored(action, *kept.identity, {b: kept.sent[topic, b] for b in sender.counts})
        kept.sent.update({(topic, b): count for b, count in sender.counts.items()})
        keep(self._config, kept)
        self._kept = sender.producer = None
        ranges = (LogRange(b, sender.firsts[b], sender.ends[b], n) for b, n in sorted(sender.counts.items()))
        return LogTransaction(self._id, tuple(ranges))

    def _give_up(self) -> None:
        """What was sent stays, named by no snapshot; what was not sent yet never will be."""
        producer, self._sender.producer = self._sender.producer, None
        self._kept = None
        if producer is not None:
            with translated(f"giving up log transaction {self._id}", self._config):
                producer.purge()
