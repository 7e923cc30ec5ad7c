"""The embedded log: a folder with one SQLite file for each partition (PROTOCOL.md section 6). No server.

For the processes of one machine on a local file system: SQLite's WAL needs shared memory and working file
locks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import AlreadyExists, Conflict, InvalidRequest, TableStoreError
from filestore.model.log_range import LogRange, LogTransaction
from log.slices import BATCH_BYTES, BATCH_ROWS, slices
from log.table.config import LogConfig
from log.table.embedded.folder import LogFolder
from log.table.embedded.segments import (
    CONTROL,
    DATA,
    Segment,
    Segments,
    StoredSegment,
    decode_control,
    decode_segment,
    encode_segment,
    partition_path,
)
from log.table.embedded.tail import EmbeddedTail
from log.table.open_transaction import OpenTransaction
from log.table.rows import conform, keys_of_deletes, row_schema
from log.table.store import EndReport, LogBatch, LogControl, LogStore, gap
from log.table.transaction_ids import parse_transaction_id

__all__ = ["EmbeddedLog"]

logger = logging.getLogger(__name__)


class EmbeddedLog(LogStore):
    """A log in SQLite files.

    Args:
        config: Its ``location`` is the log's folder.
        ambient: Clock and ids.
    """

    def __init__(self, config: LogConfig, ambient: Ambient) -> None:
        self._config = config
        self._ambient = ambient
        self._files = LogFolder(config, ambient)
        folder = Path(config.location)
        self._partitions = [Segments(partition_path(folder, b), config.if_gone) for b in range(config.buckets)]

    def create(self) -> None:
        """Creates the folder under another name, then renames it: a log exists as a whole or not at all."""
        self._files.create()

    def create_anew(self) -> None:
        """Creates the folder in the place of what is left of it, which is in a folder ``lost-…`` below it then."""
        self.close()
        self._files.create_anew()

    def drop(self) -> None:
        """Renames the folder, then deletes it: a drop that is interrupted leaves a leftover, never half a log."""
        self.close()
        self._files.drop()

    def exists(self) -> bool:
        """Returns whether the folder holds a log."""
        return self._files.exists()

    def check_adoptable(self) -> None:
        """Refuses to adopt a log: an embedded one is in the folder of its own table."""
        raise AlreadyExists(
            f"there is a log at {self._config.location} already: move it away, or choose another name",
            code="log-exists",
        )

    def identity(self) -> dict[str, str]:
        """Returns the log's identity: ``topic_id`` was drawn by `create`, and a moved folder keeps it."""
        stored = self._files.own_identity()
        return {"system": "embedded", "topic": "", "topic_id": stored["log_id"], "cluster_id": ""}

    def begin(self, transaction_id: str) -> EmbeddedLogWriter:
        """Opens a transaction; it opens no file before its first rows."""
        parse_transaction_id(transaction_id)
        return EmbeddedLogWriter(transaction_id, self._config, self._partitions, self._ambient)

    def end(self, transactions: Iterable[LogTransaction], *, commit: bool, late: bool = False) -> EndReport:
        """Ends transactions: committed ones are not open any more; others' records go, unless readers may have them."""
        ended: list[str] = []
        lost: list[str] = []
        for transaction in transactions:
            keep = commit or self._config.eventual
            found = [self._end_range(transaction.id, part, keep) for part in transaction.ranges]
            (ended if all(found) or not commit else lost).append(transaction.id)
        return EndReport(tuple(ended), tuple(lost))

    def abort_unnamed(self, dead_among: Callable[[Sequence[str]], Collection[str]]) -> list[str]:
        """Deletes the records of open transactions whose writers are dead."""
        of_table = f"{self._config.table_id}/"
        found = {i for p in self._partitions for i in p.open_transactions() if i.startswith(of_table)}
        dead = sorted(dead_among(sorted(found))) if found else []
        for transaction_id in dead:
            for partition in self._partitions:
                partition.abort(transaction_id, keep=self._config.eventual)
        return dead

    def aborted(self, transactions: Sequence[LogTransaction]) -> list[str]:
        """Looks for the records: an abort deletes them, unless the log is eventual."""
        return [t.id for t in transactions if not all(self._whole(t.id, part) for part in t.ranges)]

    def damages(self, covered: Mapping[int, int]) -> list[str]:
        """Looks at the bytes of all partitions."""
        named = f"table {self._config.database}.{self._config.table}, bucket"
        return [
            found
            for bucket, partition in enumerate(self._partitions)
            for found in partition.damages(f"{named} {bucket}", covered.get(bucket, 0))
        ]

    def _whole(self, transaction_id: str, part: LogRange) -> bool:
        partition = self._partitions[part.bucket]
        found = sum(segment.count for segment in partition.find(transaction_id, part.start, part.end))
        return found == part.count or part.start < partition.bounds()[0]

    def end_hanging(self) -> list[str]:
        """Does nothing: each partition knows by itself what is open."""
        return []

    def events(
        self,
        transactions: Sequence[LogTransaction],
        *,
        bucket: int | None = None,
        columns: Sequence[str] | None = None,
        committed_ms: int | None = None,
    ) -> Iterator[LogBatch | LogControl]:
        """Yields one batch for each stored record batch, which has at most `BATCH_ROWS` rows."""
        target = row_schema(self._config.schema, self._config.primary_key, columns)
        for transaction in transactions:
            for part in transaction.ranges:
                if bucket is None or part.bucket == bucket:
                    yield from self._range(transaction.id, part, target)

    def tail(self, offsets: Mapping[int, int], columns: Sequence[str] | None = None) -> EmbeddedTail:
        """Opens a reader that looks into the files every few milliseconds."""
        target = row_schema(self._config.schema, self._config.primary_key, columns)
        return EmbeddedTail(self._config, offsets, target, self._ambient)

    def start_offsets(self) -> dict[int, int]:
        """Returns for each bucket the first offset that is kept."""
        return {b: p.bounds()[0] for b, p in enumerate(self._partitions)}

    def end_offsets(self) -> dict[int, int]:
        """Returns for each bucket the offset of the next record."""
        return {b: p.bounds()[1] for b, p in enumerate(self._partitions)}

    def open_transactions(self) -> list[OpenTransaction]:
        """Lists the open transactions of all buckets."""
        found = ((b, one) for b, p in enumerate(self._partitions) for one in p.opened())
        return [OpenTransaction(b, start, id_, since_ms=since_ms) for b, (id_, start, since_ms) in found]

    def stable_offsets(self) -> dict[int, int]:
        """Returns for each bucket where its first open transaction begins; no reader waits for it."""
        return {b: p.stable_offset() for b, p in enumerate(self._partitions)}

    def committed_behind(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Looks for records that belong to no open transaction."""
        if self._config.eventual:
            return {}
        found = {b: self._partitions[b].committed_behind(offset) for b, offset in offsets.items()}
        return {b: offset for b, offset in found.items() if offset is not None}

    def older_than(self, time_ms: int) -> dict[int, int]:
        """Returns for each bucket the offset before which all records are older, and their transactions have ended."""
        return {b: p.older_than(time_ms) for b, p in enumerate(self._partitions)}

    def trim(self, before: Mapping[int, int]) -> None:
        """Deletes whole record batches; an offset inside one keeps its bytes and hides them."""
        for bucket, offset in before.items():
            self._partitions[bucket].trim(offset)

    def check_writable(self) -> None:
        """Checks that it is there with all its partitions; no setting says how it is reached."""
        self._files.identity()
        self.end_offsets()

    def keep_for(self, milliseconds: int | None) -> None:
        """Does nothing: maintenance reads `log.retention` when it trims."""

    def close(self) -> None:
        """Closes the files."""
        for partition in self._partitions:
            partition.close()

    def _range(self, transaction_id: str, part: LogRange, target: pa.Schema) -> Iterator[LogBatch | LogControl]:
        where = f"table {self._config.database}.{self._config.table}, bucket {part.bucket}"
        partition = self._partitions[part.bucket]
        start, _ = partition.bounds()
        if part.start < start:
            raise gap(where, f"offsets {part.start} to {start - 1} were trimmed")
        stored = partition.find(transaction_id, part.start, part.end)
        if (found := sum(_within(s, part)[1] for s in stored)) != part.count:
            raise gap(
                where,
                f"{part.count - found} of {part.count} records of transaction {transaction_id} are gone",
            )
        for segment in stored:
            there = f"{where}, offset {segment.base_offset}"
            payload = partition.payload(segment.base_offset, there)
            if payload is None:
                raise gap(where, f"offset {segment.base_offset} was trimmed while it was read")
            first, count = _within(segment, part)
            end_offset = segment.base_offset + first + count
            if segment.kind == CONTROL:
                yield LogControl(part.bucket, transaction_id, decode_control(payload, there), end_offset)
            else:
                rows = decode_segment(payload, target, there).slice(first, count)
                yield LogBatch(part.bucket, transaction_id, rows, end_offset)

    def _end_range(self, transaction_id: str, part: LogRange, commit: bool) -> bool:
        partition = self._partitions[part.bucket]
        found = partition.end(transaction_id, part.start, part.end, commit=commit)
        # Trimmed is not lost: retention took records that every reader could have had.
        return found == part.count or part.start < partition.bounds()[0]


class EmbeddedLogWriter:
    """Implements `log.table.store.LogWriter`. It puts small appends together into one record batch."""

    def __init__(
        self,
        transaction_id: str,
        config: LogConfig,
        partitions: Sequence[Segments],
        ambient: Ambient,
    ) -> None:
        self._id = transaction_id
        self._partitions = partitions
        self._ambient = ambient
        self._schema = row_schema(config.schema, config.primary_key)
        self._config = config
        self._tombstones = config.primary_key if config.tombstones else None
        self._keep = config.eventual
        self._waiting: dict[int, _Waiting] = {}
        self._ranges: dict[int, LogRange] = {}
        self._finished = False

    def append(self, bucket: int, rows: pa.RecordBatch | pa.Table) -> None:
        """Keeps the rows until they fill a record batch."""
        self._require_unfinished()
        self._require_bucket(bucket)
        table = conform(rows, self._schema)
        if self._tombstones is not None:
            table = keys_of_deletes(table, self._tombstones)
        if self._waiting.setdefault(bucket, _Waiting()).add(table):
            self._flush(bucket)

    def control(self, bucket: int, payload: Mapping[str, Any]) -> None:
        """Stores the control record as a record batch of its own."""
        self._require_unfinished()
        self._require_bucket(bucket)
        self._flush(bucket, [Segment(1, CONTROL, json.dumps(dict(payload)).encode())])

    def prepare(self) -> LogTransaction | None:
        """Stores the rows that were kept back, and syncs every partition that was written."""
        self._require_unfinished()
        for bucket in sorted(set(self._ranges) | {b for b, waiting in self._waiting.items() if waiting.tables}):
            self._flush(bucket, prepared=True)
        self._finished = True
        ranges = tuple(self._ranges[b] for b in sorted(self._ranges))
        return LogTransaction(self._id, ranges) if ranges else None

    def abort(self) -> None:
        """Deletes what was stored, unless readers may have it.

        Errors are only logged, since the caller already handles the one that made it abort: recovery does the rest.
        """
        self._finished = True
        self._waiting.clear()
        for bucket in self._ranges:
            try:
                self._partitions[bucket].abort(self._id, keep=self._keep)
            except TableStoreError as error:
                logger.warning("log transaction %s stays open: %s", self._id, error)

    def _flush(self, bucket: int, then: Sequence[Segment] = (), *, prepared: bool = False) -> None:
        waiting = self._waiting.pop(bucket, _Waiting()).tables
        pieces = slices(pa.concat_tables(waiting)) if waiting else []
        segments = [*(Segment(p.num_rows, DATA, encode_segment(p)) for p in pieces), *then]
        before = self._ranges.get(bucket)
        base = self._partitions[bucket].append(
            self._id,
            segments,
            self._ambient.now_ms(),
            first=before is None,
            prepared=prepared,
            check=lambda offset: self._config.check_offset(bucket, offset),
        )
        count = sum(s.count for s in segments)
        self._ranges[bucket] = LogRange(
            bucket,
            base if before is None else before.start,
            base + count if count or before is None else before.end,
            count + (0 if before is None else before.count),
        )

    def _require_bucket(self, bucket: int) -> None:
        if not 0 <= bucket < len(self._partitions):
            raise InvalidRequest(
                f"bucket {bucket} is not in the log, which has {len(self._partitions)}", code="log-bucket"
            )

    def _require_unfinished(self) -> None:
        if self._finished:
            raise Conflict(
                f"log transaction {self._id} is already prepared or aborted: begin another",
                code="log-transaction",
            )


@dataclass(slots=True)
class _Waiting:
    """Rows that wait until they fill a record batch: those of many slots, so their sums are kept and not made anew."""

    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0

    def add(self, table: pa.Table) -> bool:
        """Keeps rows; returns whether there are enough."""
        if table.num_rows:
            self.tables.append(table)
            self.rows += table.num_rows
            self.nbytes += table.nbytes
        return self.rows >= BATCH_ROWS or self.nbytes >= BATCH_BYTES


def _within(segment: StoredSegment, part: LogRange) -> tuple[int, int]:
    """Returns which records of a record batch are in a range: the number of the first, and how many."""
    first = max(part.start - segment.base_offset, 0)
    return first, min(part.end - segment.base_offset, segment.count) - first
