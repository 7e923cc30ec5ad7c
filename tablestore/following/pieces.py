"""Divides the changes of a version into pieces that are read one by one, in this process or in Spark's tasks.

Pieces are picklable and have only metadata. Their order depends only on the version, and changes of one key are in
one bucket's pieces in their order. So a position in a version is a number of `units`, counted over its pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.model.definition import TableDefinition
from filestore.model.files import ChangeFile
from filestore.model.log_range import LogRange, LogTransaction
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.reading.change_files import change_files, recorded_changes
from filestore.reading.difference import SlotDifference, VersionPair, changed_rows, differences
from filestore.reading.scan import ScanPlan, scan
from filestore.rows.reshape import reshaped
from filestore.rows.upserts import upserts
from filestore.sorting.runs import local_runs
from managed_table.own_log import OwnRecords
from tablestore.following.admission import between
from tablestore.following.hybrid import Difference, FromLog, Recorded, Replaced, Step, changelog_step, steps
from tablestore.following.records import RecordReader
from tablestore.following.result_mode import ResultMode
from tablestore.following.walk import Walk

__all__ = [
    "DifferencePiece",
    "LogPiece",
    "Piece",
    "Planner",
    "ScanPiece",
    "difference_pieces",
    "pieces_between",
    "read_changes",
    "scan_pieces",
]


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Records of one bucket, or of all: `units` of them, after the first `skip`.

    Attributes:
        bucket: The bucket; None: all.
        transactions: The transactions with the records.
        written: The table's columns when they were written.
        skip: The number of records of the transactions to skip.
        units: The number of its records.
        has_old_rows: Whether each ``-U`` is the row that the following ``+U`` replaces.
        committed_ms: When they were committed; see `log.table.store.LogStore.events`.
        key: The columns of the key.
    """

    bucket: int | None
    transactions: tuple[LogTransaction, ...]
    written: Schema
    skip: int
    units: int
    has_old_rows: bool = False
    committed_ms: int | None = None
    key: tuple[str, ...] = ()

    divisible = True

    @classmethod
    def of(cls, bucket: int | None, step: FromLog, definition: TableDefinition) -> LogPiece:
        """Makes the piece with all records of a step, for one bucket or for all."""
        transactions = step.transactions if bucket is None else tuple(_of_bucket(step.transactions, bucket))
        units = sum(r.count for t in transactions for r in t.ranges)
        images, key = definition.logs_images, definition.primary_key
        return cls(bucket, transactions, definition.schema, 0, units, images, step.committed_ms, key)

    def part(self, start: int, end: int) -> LogPiece:
        """Returns the piece of the records from `start` to before `end`.

        Ranges without records of other transactions in between are narrowed, so that only wanted records are read. In
        other ranges the place of a record is not known in advance: they are read from their beginning.
        """
        first, last = self.skip + start, self.skip + end
        found: list[LogTransaction] = []
        at, skip = 0, None
        for transaction in self.transactions:
            ranges: list[LogRange] = []
            for part in transaction.ranges:
                low, high = max(first - at, 0), min(last - at, part.count)
                at += part.count
                if low >= high:
                    continue
                dense = part.end - part.start == part.count
                if skip is None:
                    skip = 0 if dense else low
                ranges.append(LogRange(part.bucket, part.start + low, part.start + high, high - low) if dense else part)
            if ranges:
                found.append(replace(transaction, ranges=tuple(ranges)))
        return replace(self, transactions=tuple(found), skip=skip or 0, units=end - start)

    def rows(self, records: RecordReader) -> Iterator[pa.Table]:
        """Reads the changes."""
        skip, left = self.skip, self.units
        for rows in records.read(self.transactions, self.written, committed_ms=self.committed_ms):
            wanted = rows.slice(skip, left)
            skip = max(0, skip - rows.num_rows)
            left -= wanted.num_rows
            if wanted.num_rows:
                yield wanted
            if not left:
                return


@dataclass(frozen=True, slots=True)
class ScanPiece:
    """Rows of one part of a scan, as one kind of change."""

    table: TableFiles
    plan: ScanPlan
    kind: RowKind

    divisible = False
    has_old_rows = False

    @property
    def bucket(self) -> int:
        """The bucket of the rows."""
        return self.plan.bucket

    @property
    def units(self) -> int:
        """The largest possible number of rows; at least 1."""
        return max(1, self.plan.rows)

    def rows(self, records: RecordReader) -> Iterator[pa.Table]:
        """Reads the changes."""
        for rows in scan(self.table, self.plan):
            changed = rows.append_column(KIND_COLUMN, pa.repeat(str(self.kind), rows.num_rows))
            yield reshaped(changed, self.table.definition.schema, records.wanted)


@dataclass(frozen=True, slots=True)
class RecordedPiece:
    """A file of change data."""

    table: TableFiles
    file: ChangeFile
    units: int

    divisible = False
    has_old_rows = True

    @property
    def bucket(self) -> int:
        """The bucket of the rows."""
        return self.file.slot.bucket

    def rows(self, records: RecordReader) -> Iterator[pa.Table]:
        """Reads the changes."""
        for rows in recorded_changes(self.table, self.file):
            yield reshaped(rows, self.table.definition.schema, records.wanted)


@dataclass(frozen=True, slots=True)
class DifferencePiece:
    """The difference between two versions in a slot."""

    versions: VersionPair
    difference: SlotDifference

    divisible = False
    has_old_rows = True

    @property
    def bucket(self) -> int:
        """The bucket of the rows."""
        return self.difference.slot.bucket

    @property
    def units(self) -> int:
        """The approximate number of changes; at least 1."""
        return max(1, self.difference.most_rows)

    def rows(self, records: RecordReader) -> Iterator[pa.Table]:
        """Computes the changes, in the order of the key."""
        return changed_rows(self.versions, self.difference, local_runs)


Piece = LogPiece | ScanPiece | RecordedPiece | DifferencePiece


def pieces_between(pieces: Sequence[Piece], start: int, end: int | None) -> Iterator[Piece]:
    """Yields the pieces from one unit of a version to before another (None: to the end), divided where necessary."""
    for piece, low, high in between(pieces, start, end):
        yield piece.part(low, high) if isinstance(piece, LogPiece) and high - low < piece.units else piece


def read_changes(piece: Piece, records: RecordReader, mode: ResultMode) -> Iterator[pa.Table]:
    """Reads a piece's changes for a reader: a reader of upserts gets no rows as they were before (``-U``)."""
    if mode is ResultMode.CHANGELOG:
        yield from piece.rows(records)
    elif isinstance(piece, LogPiece) and not piece.has_old_rows:
        yield from upserts(piece.rows(records), piece.key)
    else:
        for rows in piece.rows(records):
            yield rows.filter(pc.not_equal(rows.column(KIND_COLUMN), str(RowKind.UPDATE_BEFORE)))


def scan_pieces(table: TableFiles, plans: Sequence[ScanPlan], kind: RowKind) -> list[ScanPiece]:
    """Makes pieces of parts of a scan, with one kind of change."""
    return [ScanPiece(table, plan, kind) for plan in plans]


def difference_pieces(walk: Walk, before: TableState, after: TableState, wanted: Schema) -> list[Piece]:
    """Makes pieces with the changes from the rows of one version to those of another, slot by slot."""
    versions = VersionPair(walk.filestore.table_files(before), walk.filestore.table_files(after), wanted)
    found = sorted(differences(before, after), key=lambda d: (d.slot.bucket, repr(d.slot)))
    return [DifferencePiece(versions, difference) for difference in found]


class Planner:
    """Plans the changes of versions. It reads only metadata.

    Args:
        walk: The table's versions.
        mode: How the reader gets updates.
        logged: Whether the reader has the table's log.
        wanted: The reader's columns.
        by_bucket: Whether each piece has changes of one bucket only, as tasks need it.
    """

    def __init__(self, walk: Walk, mode: ResultMode, logged: bool, wanted: Schema, *, by_bucket: bool) -> None:
        self._walk = walk
        self._mode = mode
        self._logged = logged
        self._wanted = wanted
        self._by_bucket = by_bucket

    def pieces(self, commit: Commit) -> list[Piece]:
        """Returns the changes of a version; with `by_bucket` ordered by bucket.

        Raises:
            NotFound: ``snapshot-expired``: the version before is needed, and is not complete any more; ``log-gap``: its
                records were in a log that was lost.
        """
        definition = self._walk.definition(commit.version)
        step = self._step(commit, definition)
        match step:
            case None:
                return []
            case FromLog():
                return self._logged_pieces(step, definition)
            case Recorded():
                return self._recorded(commit, definition)
            case Replaced(version):
                return self._replaced(*self._walk.pair(version))
            case Difference(version):
                return difference_pieces(self._walk, *self._walk.pair(version), self._wanted)

    def _step(self, commit: Commit, definition: TableDefinition) -> Step | None:
        records = OwnRecords.known(self._walk.filestore)
        if self._mode is ResultMode.CHANGELOG:
            # a position in the middle of a version counts its records, so tasks do not go over to its files
            lost = not self._by_bucket and not records.has(commit.version)
            return changelog_step(commit, definition, records if self._logged and not lost else None)
        return next(steps([commit.snapshot()], records, keyed=bool(definition.primary_key)), None)

    def _logged_pieces(self, step: FromLog, definition: TableDefinition) -> list[Piece]:
        if not self._by_bucket:
            return [LogPiece.of(None, step, definition)]
        buckets = sorted({r.bucket for t in step.transactions for r in t.ranges})
        return [LogPiece.of(bucket, step, definition) for bucket in buckets]

    def _recorded(self, commit: Commit, definition: TableDefinition) -> list[Piece]:
        state = self._walk.pair(commit.version)[1]
        table = self._walk.filestore.table_files(state)
        files = change_files(commit, definition)
        # only a file's footer has its number of rows: the commit's own count, divided by bytes, is near enough
        rows, size = _written(commit), max(1, sum(file.size for file in files))
        pieces: list[Piece] = [RecordedPiece(table, file, max(1, rows * file.size // size)) for file in files]
        return sorted(pieces, key=_bucket)

    def _replaced(self, before: TableState, after: TableState) -> list[Piece]:
        removed = scan_pieces(self._walk.filestore.table_files(before), Replaced.removed(before, after), RowKind.DELETE)
        added = scan_pieces(self._walk.filestore.table_files(after), Replaced.added(before, after), RowKind.INSERT)
        found: list[Piece] = [*removed, *added]
        return sorted(found, key=_bucket) if self._by_bucket else found


def _bucket(piece: Piece) -> int:
    return -1 if piece.bucket is None else piece.bucket


def _of_bucket(transactions: Sequence[LogTransaction], bucket: int) -> Iterator[LogTransaction]:
    for transaction in transactions:
        if ranges := tuple(r for r in transaction.ranges if r.bucket == bucket):
            yield replace(transaction, ranges=ranges)


def _written(commit: Commit) -> int:
    metrics: Mapping[str, int] = commit.snapshot().metrics
    return metrics.get("rows_written", 0) + metrics.get("rows_deleted", 0)
