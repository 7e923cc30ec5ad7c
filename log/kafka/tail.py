"""Reads a topic as it grows (PROTOCOL.md section 5.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from filestore.errors import Corrupt
from log.formats.log_record import DebeziumJson, RowMessages
from log.kafka.reader import GONE, PASSING, offset_of, tombstone_of
from log.kafka.settings import tail_settings, topic_of, translated
from log.store import LogBatch, LogConfig, LogControl, gap

__all__ = ["KafkaTail"]

_MOST_MESSAGES = 10_000
_MOST_BYTES = 32 << 20


class KafkaTail:
    """See `log.store.LogTail`.

    Args:
        config: The topic.
        offsets: Where each bucket begins.
        schema: The columns wanted, and ``_kind``.
    """

    def __init__(self, config: LogConfig, offsets: Mapping[int, int], schema: pa.Schema) -> None:
        self._config = config
        self._schema = schema
        self._offsets = dict(offsets)
        self._format = DebeziumJson(config)
        self._most = _MOST_MESSAGES // 10
        self._consumer = Consumer(tail_settings(config))
        topic = topic_of(config)
        with translated(f"following topic {topic}", config):
            self._consumer.assign([TopicPartition(topic, bucket, at) for bucket, at in offsets.items()])

    @property
    def offsets(self) -> dict[int, int]:
        """Where reading goes on."""
        return dict(self._offsets)

    def poll(self, seconds: float) -> list[LogBatch | LogControl]:
        """Waits for one message, and takes what is there beside it: `consume` would wait until it has as many."""
        action = f"following the log of table {self._config.database}.{self._config.table}"
        with translated(action, self._config):
            first = self._consumer.poll(seconds)
            if first is None:
                return []
            found = [first, *self._consumer.consume(self._most, 0)]
        messages: defaultdict[int, list[Message]] = defaultdict(list)
        for message in found:
            if self._is_record(message):
                messages[message.partition() or 0].append(message)
        mean = max(1, sum(map(len, found)) // len(found))
        self._most = max(1, min(_MOST_MESSAGES, _MOST_BYTES // mean))
        return [event for bucket, listed in messages.items() for event in self._decoded(bucket, listed)]

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        bucket = message.partition() or 0
        if error.code() in GONE:
            raise gap(self._where(bucket), f"offset {self._offsets.get(bucket)} is no longer there")
        if error.code() not in PASSING:
            raise KafkaException(error)
        return False

    def _where(self, bucket: int) -> str:
        return f"table {self._config.database}.{self._config.table}, bucket {bucket}"

    def _decoded(self, bucket: int, messages: Sequence[Message]) -> Iterator[LogBatch | LogControl]:
        values = [tombstone_of(self._format, m) if (value := m.value()) is None else value for m in messages]
        try:
            for transaction_id, piece in self._format.decode_any(values, self._schema):
                end = offset_of(messages[piece.last]) + 1
                if isinstance(piece, RowMessages):
                    _, written_ms = messages[piece.last].timestamp()
                    yield LogBatch(bucket, transaction_id, piece.rows, end, written_ms)
                else:
                    yield LogControl(bucket, transaction_id, piece.payload, end)
        except Corrupt as error:
            where = f"{self._where(bucket)}, offsets {messages[0].offset()} to {messages[-1].offset()}"
            raise Corrupt(f"{where}: {error}", code=error.code) from error
        self._offsets[bucket] = offset_of(messages[-1]) + 1
