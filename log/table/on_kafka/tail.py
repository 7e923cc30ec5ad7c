"""Reads a topic as it grows (PROTOCOL.md section 5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import Corrupt
from log.kafka.messages import Fetched
from log.table.config import LogConfig
from log.table.log_record import DebeziumJson, RowMessages
from log.table.on_kafka.reader import log_fetcher, values_of
from log.table.on_kafka.settings import tail_settings
from log.table.store import LogBatch, LogControl, LogTail

__all__ = ["KafkaTail"]


class KafkaTail(LogTail):
    """Reads the topic with a consumer of its own.

    Args:
        config: The topic.
        offsets: Where each bucket begins.
        schema: The columns wanted, and ``_kind``.
        ambient: The clock.
    """

    def __init__(self, config: LogConfig, offsets: Mapping[int, int], schema: pa.Schema, ambient: Ambient) -> None:
        self._config = config
        self._schema = schema
        self._offsets = dict(offsets)
        self._format = DebeziumJson(config)
        self._fetcher = log_fetcher(config, tail_settings(config), ambient)
        self._fetcher.assign(offsets)

    @property
    def offsets(self) -> dict[int, int]:
        """The offset of the next record to read, by bucket."""
        return dict(self._offsets)

    def poll(self, seconds: float) -> list[LogBatch | LogControl]:
        """Waits for one message, and returns it with all others that have arrived."""
        found = self._fetcher.poll(seconds).by_partition()
        return [event for bucket, messages in found.items() for event in self._decoded(bucket, messages)]

    def close(self) -> None:
        """Closes the consumer."""
        self._fetcher.close()

    def _decoded(self, bucket: int, messages: Fetched) -> Iterator[LogBatch | LogControl]:
        try:
            for transaction_id, piece in self._format.decode_any(values_of(messages, self._format), self._schema):
                end = int(messages.offsets[piece.last]) + 1
                if isinstance(piece, RowMessages):
                    yield LogBatch(bucket, transaction_id, piece.rows, end, messages.written_ms(piece.last))
                else:
                    yield LogControl(bucket, transaction_id, piece.payload, end)
        except Corrupt as error:
            table = f"table {self._config.database}.{self._config.table}, bucket {bucket}"
            where = f"{table}, offsets {messages.offsets[0]} to {messages.offsets[-1]}"
            raise Corrupt(f"{where}: {error}", code=error.code) from error
        self._offsets[bucket] = int(messages.offsets[-1]) + 1
