"""Reads exact ranges of a topic (PROTOCOL.md section 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import Corrupt, NotFound
from filestore.model.log_range import LogRange, LogTransaction
from filestore.model.rowkind import KIND_COLUMN
from log.kafka.fetching import Fetcher
from log.kafka.messages import Fetched
from log.kafka.sending import Headers
from log.table.config import LogConfig
from log.table.log_record import ControlMessage, DebeziumJson, RowMessages
from log.table.on_kafka.settings import TOMBSTONE_HEADER, consumer_settings, topic_of
from log.table.store import LogBatch, LogControl, gap

__all__ = ["RangeReader", "log_fetcher", "values_of"]

_MESSAGES_AT_ONCE = 10_000


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
        self._idle: list[Fetcher] = []

    def read(
        self,
        transactions: Sequence[LogTransaction],
        bucket: int | None,
        schema: pa.Schema,
        committed_ms: int | None = None,
    ) -> Iterator[LogBatch | LogControl]:
        """Reads transactions as `log.table.store.LogStore.events` does."""
        with self._fetcher() as fetcher:
            for transaction in transactions:
                for part in transaction.ranges:
                    if bucket is None or part.bucket == bucket:
                        yield from self._range(fetcher, transaction.id, part, schema, committed_ms)

    def shows(self, transaction: LogTransaction) -> bool:
        """Finds out whether a read_committed consumer gets the transaction's first records."""
        schema = pa.schema([pa.field(KIND_COLUMN, pa.string(), nullable=False)])
        fetcher = log_fetcher(self._config, consumer_settings(self._config, committed=True), self._ambient)
        try:
            now = self._ambient.now_ms()
            first = next(self._range(fetcher, transaction.id, transaction.ranges[0], schema, now), None)
        except NotFound:
            return False
        finally:
            fetcher.close()
        return first is not None or self._config.compacts  # what is superseded is no longer to be seen

    def committed_between(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """Returns the offset of the first of the table's records that a read_committed consumer gets, by bucket."""
        fetcher = log_fetcher(self._config, consumer_settings(self._config, committed=True), self._ambient)
        firsts: dict[int, int] = {}
        waiting = {b: start for b, start in starts.items() if start < ends[b]}
        try:
            fetcher.assign(waiting)
            while waiting:
                for bucket, messages in fetcher.fetch(_MESSAGES_AT_ONCE).before(ends).by_partition().items():
                    place = self._format.first_own(values_of(messages, self._format))
                    if place is not None:
                        firsts.setdefault(bucket, int(messages.offsets[place]))
                for bucket in [b for b in waiting if b in firsts or fetcher.positions[b] >= ends[b]]:
                    fetcher.pause(bucket)  # a busy bucket does not hide that another one is silent
                    del waiting[bucket]
            return firsts
        finally:
            fetcher.close()

    def close(self) -> None:
        """Closes the consumers."""
        with ExitStack() as closing:
            while self._idle:
                closing.callback(self._idle.pop().close)

    @contextmanager
    def _fetcher(self) -> Iterator[Fetcher]:
        settings = consumer_settings(self._config)
        fetcher = self._idle.pop() if self._idle else log_fetcher(self._config, settings, self._ambient)
        try:
            yield fetcher
        except BaseException:
            fetcher.close()
            raise
        fetcher.assign({})
        self._idle.append(fetcher)

    def _range(
        self, fetcher: Fetcher, transaction_id: str, part: LogRange, schema: pa.Schema, committed_ms: int | None
    ) -> Iterator[LogBatch | LogControl]:
        where = f"table {self._config.database}.{self._config.table}, bucket {part.bucket}"
        fetcher.assign({part.bucket: part.start})
        found = 0
        while found < part.count:
            if fetcher.positions[part.bucket] >= part.end:
                self._check_missing(part.count - found, f"of {part.count}", transaction_id, where, committed_ms)
                return
            # So many messages at least are still in the range: this never waits for one that does not exist.
            messages = fetcher.fetch(part.count - found).before({part.bucket: part.end})
            for piece in self._decoded(messages, transaction_id, schema, where) if messages else ():
                end_offset = int(messages.offsets[piece.last]) + 1
                if isinstance(piece, RowMessages):
                    found += piece.rows.num_rows
                    yield LogBatch(part.bucket, transaction_id, piece.rows, end_offset)
                else:
                    found += 1
                    yield LogControl(part.bucket, transaction_id, piece.payload, end_offset)

    def _check_missing(self, missing: int, of: str, transaction_id: str, where: str, committed_ms: int | None) -> None:
        """Raises a gap, unless compaction must have removed what is missing: then a later record of its key follows."""
        missed = f"{missing} {of} records of transaction {transaction_id} are gone"
        if not self._config.compacts:
            raise gap(where, missed)
        if not self._config.tombstones:
            return  # a delete is a record like any other: only a later one of its key removes it
        kept_ms = self._tombstones_kept_ms()
        if committed_ms is None or self._ambient.now_ms() - committed_ms >= kept_ms:
            raise gap(where, f"{missed}, and tombstones may be among them: the topic keeps them for {kept_ms} ms")

    def _decoded(
        self, messages: Fetched, transaction_id: str, schema: pa.Schema, where: str
    ) -> Iterator[RowMessages | ControlMessage]:
        values = values_of(messages, self._format, transaction_id)
        try:
            yield from self._format.decode(values, transaction_id, schema)
        except Corrupt as error:
            first, last = messages.offsets[0], messages.offsets[-1]
            raise Corrupt(f"{where}, offsets {first} to {last}: {error}", code=error.code) from error


def log_fetcher(config: LogConfig, settings: Mapping[str, Any], ambient: Ambient) -> Fetcher:
    """Makes a consumer of the log's topic."""
    where = f"table {config.database}.{config.table}"

    def gone(bucket: int, offset: int | None) -> NotFound:
        return gap(f"{where}, bucket {bucket}", f"offset {offset} is no longer there")

    return Fetcher(topic_of(config), config, settings, ambient, f"reading the log of {where}", gone)


def values_of(messages: Fetched, form: DebeziumJson, transaction_id: str | None = None) -> list[bytes]:
    """Returns the values. A null value becomes the delete that it stands for; it becomes empty without a transaction.

    Args:
        messages: The messages.
        form: The log's format.
        transaction_id: The only transaction that is asked for; None: any.
    """
    values = messages.values()
    if None not in values:
        return cast("list[bytes]", values)
    return [
        _tombstone(form, key, headers, transaction_id) if value is None else value
        for value, key, headers in zip(values, messages.keys(), messages.headers(), strict=True)
    ]


def _tombstone(form: DebeziumJson, key: bytes | None, headers: Headers, transaction_id: str | None) -> bytes:
    """Returns the delete that a null value means, of the transaction that its header names; empty without one."""
    if key is None:
        return b""
    if transaction_id is not None:
        return form.tombstone(key, transaction_id) if (TOMBSTONE_HEADER, transaction_id.encode()) in headers else b""
    named = dict(headers).get(TOMBSTONE_HEADER)
    return form.tombstone(key, named.decode(errors="replace")) if isinstance(named, bytes) else b""
