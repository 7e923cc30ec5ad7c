"""Reads ``readStream.format("tablestore")``: first a snapshot's files, some at a time, then the changes of versions.

A batch never has files of the snapshot and changes together: nothing orders rows of different partitions. All changes
of a bucket are in one partition, in their order. A batch may end within a version (`tablestore.following.admission`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from filestore.ambient import Ambient
from filestore.errors import NotFound
from filestore.life.consumers import Consumer
from filestore.model.rowkind import RowKind
from filestore.model.schema import Schema
from filestore.reading.scan import plan_scan
from log.table.config import LogConfig
from tablestore.following.admission import Limit, Place, admit
from tablestore.following.gaps import OnLogGap, is_gap
from tablestore.following.pieces import (
    LogPiece,
    Piece,
    Planner,
    difference_pieces,
    pieces_between,
    read_changes,
    scan_pieces,
)
from tablestore.following.records import RecordReader
from tablestore.following.result_mode import ResultMode
from tablestore.following.starting import start_of
from tablestore.following.walk import Walk
from tablestore.spark.batch.reading import known_columns, on_the_wire, refuse_changes, wants_changes, wire_schema
from tablestore.spark.opened import opened
from tablestore.spark.streaming.offsets import Offset
from tablestore.spark.streaming.options import StreamOptions

__all__ = ["ChangeReader"]

logger = logging.getLogger(__name__)


@dataclass
class _Partition(InputPartition):
    """Pieces that are read in their order."""

    log: LogConfig | None
    pieces: tuple[Piece, ...]
    ambient: Ambient
    wanted: Schema
    mode: ResultMode

    def rows(self) -> Iterator[pa.Table]:
        with RecordReader(self.log, self.wanted, self.ambient) as records:
            for piece in self.pieces:
                yield from read_changes(piece, records, self.mode)


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches. Spark plans in a Python process beside the driver, and calls `read` in workers.

    Args:
        options: See `tablestore.spark.streaming.options`.
        fields: The columns that the query was planned with.
    """

    def __init__(self, options: Mapping[str, str], fields: StructType) -> None:
        self._options = options
        self._asked = StreamOptions.parse(options)
        self._table = opened(options)
        self._store = self._table.filestore
        self._wanted = known_columns(self._store, fields)
        upserts = self._asked.mode is ResultMode.UPSERT
        needs_log = upserts or self._table.log_config() is not None
        self._has_log = needs_log and self._table.own_log() is not None
        self._walk = Walk(self._store)
        self._planner = Planner(self._walk, self._asked.mode, self._has_log, self._wanted, by_bucket=True)
        self._until: int | None = None
        self._consumer = Consumer(self._store, self._asked.consumer) if self._asked.consumer else None
        self._held = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Returns where a query without a checkpoint begins: where its consumer stopped, if it has one that did."""
        table_id = self._table.identity.table_id
        if self._consumer is not None and (before := self._consumer.position()) is not None:
            return Offset.initial(table_id, before.version, full=before.rows).to_json()
        start = start_of(self._store, self._asked.start)
        return Offset.initial(table_id, start.version, full=start.rows).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Returns ``maxRowsPerBatch``."""
        limit = self._asked.max_rows
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Leaves what is committed from here on to the next run."""
        self._until = self._store.state().version

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Returns the newest version: Spark shows in the query's progress how far the query is behind that."""
        return Offset.initial(self._table.identity.table_id, self._store.state().version, full=False).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Returns where the next batch ends."""
        offset = self._checked(start)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if self._asked.on_log_gap is OnLogGap.RESCAN and self._has_gap(offset):
            return self._rescanned(offset, rows).to_json()
        self._hold(offset)
        return (self._more_files(offset, rows) or self._more_versions(offset, rows)).to_json()

    def commit(self, end: dict[str, Any]) -> None:
        """Moves the consumer to the end of a batch that is done, which Spark says when the next one begins."""
        offset = self._checked(end)
        if self._consumer is not None and self._held and not self._reads_rows(offset):
            self._consumer.advance(offset.version)

    def _hold(self, offset: Offset) -> None:
        """Registers the consumer of a query that begins or is restarted; renews that of one that waits."""
        if self._consumer is None:
            return
        if self._held:
            self._consumer.keep()
            return
        self._consumer.register(offset.version, rows=self._reads_rows(offset))
        self._held = True

    def _reads_rows(self, offset: Offset) -> bool:
        return offset.may_have_files and offset.files < len(plan_scan(self._store.state(offset.begin)).parts())

    def _checked(self, value: Mapping[str, Any]) -> Offset:
        offset = Offset.of(value)
        if offset.table_id != self._table.identity.table_id:
            raise NotFound(
                f"table {self._options['path']} was dropped and made again since this query began: start it with a "
                "new checkpoint",
                code="table-replaced",
            )
        return offset

    def _more_files(self, offset: Offset, rows: int | None) -> Offset | None:
        if not offset.may_have_files:
            return None
        parts = plan_scan(self._store.state(offset.begin)).parts()
        if offset.files >= len(parts):
            return None
        pieces = scan_pieces(self._store.table_files(self._store.state(offset.begin)), parts, RowKind.INSERT)[
            offset.files :
        ]
        taken = total = 0
        for piece in pieces:
            total += piece.units
            if rows is not None and total > rows and taken:
                break
            taken += 1
        return replace(offset, files=offset.files + taken)

    def _more_versions(self, offset: Offset, rows: int | None) -> Offset:
        limit = Limit(rows, self._asked.max_versions)
        end = admit(lambda v: self._planner.pieces(self._walk.read_entry(v)), offset.place, self._target(), limit)
        return replace(offset, version=end.version, units=end.units)

    def _has_gap(self, offset: Offset) -> bool:
        """Returns whether the next changes are gone. Asks the log only if they are to be read from it."""
        try:
            if self._reads_rows(offset) or offset.version >= self._target():
                return False
            pieces = self._planner.pieces(self._walk.read_entry(offset.version + 1))
        except NotFound as error:
            if not is_gap(error):
                raise
            return True
        logged = [p for p in pieces_between(pieces, offset.units, None) if isinstance(p, LogPiece)]
        if not logged:
            return False
        with RecordReader(self._log_config(), self._wanted, self._store.ambient) as records:
            kept = records.log.start_offsets()
        ranges = (part for piece in logged for transaction in piece.transactions for part in transaction.ranges)
        return any(part.start < kept.get(part.bucket, 0) for part in ranges)

    def _rescanned(self, offset: Offset, rows: int | None) -> Offset:
        """Goes on to the newest version: by its difference to the last one read, or if that is gone, by all rows."""
        newest = self._target()
        if offset.units == 0 and self._is_whole(offset):
            self._hold(offset)
            return replace(offset, version=newest, rescans=offset.rescans + 1)
        logger.warning(
            "changes of table %s after version %d are gone: the stream goes on with all rows of version %d, and has "
            "no deletes of rows that were deleted meanwhile",
            self._table.identity.identifier,
            offset.version,
            newest,
        )
        found = Offset.initial(offset.table_id, newest, full=True, rescans=offset.rescans + 1)
        if self._consumer is not None:
            self._consumer.register(newest, rows=True)
            self._held = True
        return self._more_files(found, rows) or found

    def _is_whole(self, offset: Offset) -> bool:
        """Returns whether all rows of its version were read, and the version still exists to compare with."""
        try:
            self._store.state(offset.version)
            return not self._reads_rows(offset)
        except NotFound as error:
            if not is_gap(error):
                raise
            return False

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A batch: files of the snapshot, or each bucket's changes."""
        first, last = self._checked(start), self._checked(end)
        set_out_again = last.rescans > first.rescans and last.version == last.begin
        if first.is_initial or set_out_again:
            rescans = last.rescans if last.version == last.begin else first.rescans
            first = Offset.initial(last.table_id, last.begin, full=last.full, rescans=rescans)
        if last.rescans > first.rescans:
            before, after = self._store.state(first.version), self._store.state(last.version)
            return self._by_bucket(difference_pieces(self._walk, before, after, self._wanted))
        if last.files > first.files:
            state = self._store.state(last.begin)
            parts = plan_scan(state).parts()[first.files : last.files]
            return [self._partition([p]) for p in scan_pieces(self._store.table_files(state), parts, RowKind.INSERT)]
        return self._by_bucket(self._changes(first.place, last.place))

    def _changes(self, start: Place, end: Place) -> Iterator[Piece]:
        for version in range(start.version + 1, end.version + (2 if end.units else 1)):
            pieces = self._planner.pieces(self._walk.read_entry(version))
            low = start.units if version == start.version + 1 else 0
            yield from pieces_between(pieces, low, end.units if version > end.version else None)

    def _by_bucket(self, pieces: Iterable[Piece]) -> list[InputPartition]:
        found: dict[int | None, list[Piece]] = {}
        for piece in pieces:
            found.setdefault(piece.bucket, []).append(piece)
        return [self._partition(listed) for listed in found.values()]

    def _partition(self, pieces: Sequence[Piece]) -> InputPartition:
        return _Partition(self._log_config(), tuple(pieces), self._store.ambient, self._wanted, self._asked.mode)

    def _log_config(self) -> LogConfig | None:
        """The log as the newest version reaches it: a new one may have other brokers."""
        return self._table.log_config() if self._has_log else None

    def _target(self) -> int:
        """The last version that a batch may hold."""
        return self._store.state().version if self._until is None else self._until

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a part of a micro-batch; runs in a task."""
        if not isinstance(partition, _Partition):
            return
        with_kind = wants_changes(self._options)
        schema = wire_schema(partition.wanted, with_kind)
        for rows in partition.rows():
            if not with_kind:
                refuse_changes(rows)
            yield from on_the_wire(rows, schema)
