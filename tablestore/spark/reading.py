"""What `tablestore.spark.source` reads: the rows of a version, and the changes since one as a stream.

Spark calls the planning methods in a Python process beside the driver and `read` in the workers; what goes between
them are pickled partitions. A stream's offset is a JSON object that holds the phase: a restarted query goes on there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.files.writer import TableFiles
from filestore.life.consumers import Consumer
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.reading.scan import ScanPlan, plan_scan, scan
from filestore.rows.reshape import reshaped, schema_changed
from filestore.table import FileStore
from log.store import LogConfig
from tablestore.defaults import starting_point
from tablestore.follow import change_schema, check_scan
from tablestore.hybrid import FromLog, Replaced, Step, steps
from tablestore.moments import milliseconds
from tablestore.records import RecordReader, definition_after
from tablestore.spark.opened import opened

__all__ = ["BatchReader", "ChangeReader", "known_columns", "row_limit", "wants_changes"]

_LOOK_BACK = 100  # versions: what may be committed between a query's planning and its start


def wants_changes(options: Mapping[str, str]) -> bool:
    """Whether rows have ``_kind``."""
    return options.get("changes", "false").lower() == "true"


@dataclass
class _ScanPartition(InputPartition):
    """Rows of one part of a scan, as one kind of change."""

    table: TableFiles
    plan: ScanPlan
    kind: RowKind
    wanted: Schema

    def rows(self) -> Iterator[pa.Table]:
        for rows in scan(self.table, self.plan):
            changes = rows.append_column(KIND_COLUMN, pa.repeat(str(self.kind), rows.num_rows))
            yield reshaped(changes, self.table.definition.schema, self.wanted)


@dataclass(frozen=True, slots=True)
class _Records:
    """Log records, and the columns that the table had when they were written."""

    step: FromLog
    written: Schema


@dataclass
class _BucketPartition(InputPartition):
    """The changes of one bucket, in order."""

    log: LogConfig
    bucket: int
    parts: tuple[_Records | _ScanPartition, ...]
    ambient: Ambient
    wanted: Schema

    def rows(self) -> Iterator[pa.Table]:
        with RecordReader(self.log, self.wanted, self.ambient) as records:
            for part in self.parts:
                if isinstance(part, _ScanPartition):
                    yield from part.rows()
                else:
                    yield from records.read(part.step.transactions, part.written, self.bucket, part.step.committed_ms)


class BatchReader(DataSourceReader):
    """All rows of the newest version; prefer `SparkStore.read`, which is a native scan."""

    def __init__(self, options: Mapping[str, str], fields: StructType) -> None:
        self._options = options
        self._fields = fields

    def partitions(self) -> Sequence[InputPartition]:
        """One for each file, or slot with pending runs."""
        store = opened(self._options).files()
        state, wanted = store.state(), known_columns(store, self._fields)
        table = store.files(state)
        return [_ScanPartition(table, part, RowKind.INSERT, wanted) for part in plan_scan(state).parts()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        # Spark replaces an empty list of partitions by one that is no partition
        if isinstance(partition, _ScanPartition):
            schema = _wire_schema(partition.wanted, wants_changes(self._options))
            for rows in partition.rows():
                yield from _on_the_wire(rows, schema)


@dataclass(frozen=True, slots=True)
class _Offset:
    """How far a stream has come: `files` parts of the scan of version `begin`, then all changes up to `version`.

    `begin` is kept to the end: a query that is restarted before its first batch was done asks for a new initial
    offset, and must not plan that batch from there.
    """

    table_id: str
    begin: int
    full: bool
    files: int
    version: int

    @classmethod
    def initial(cls, table_id: str, begin: int, full: bool) -> _Offset:
        return cls(table_id, begin, full, 0, begin)

    @property
    def is_initial(self) -> bool:
        return self.files == 0 and self.version == self.begin


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """First the files of a snapshot, some at a time, then the log's changes, some versions at a time."""

    def __init__(self, options: Mapping[str, str], fields: StructType) -> None:
        self._options = options
        self._handle = opened(options)
        self._store = self._handle.files()
        self._wanted = known_columns(self._store, fields)
        self._log = self._handle.required_log(self._store.state().definition)
        self._until: int | None = None
        name = options.get("consumerId".lower()) or options.get("consumerId")
        self._consumer = Consumer(self._store, name) if name else None
        self._held = False
        self._passed: tuple[int, TableDefinition] | None = None  # how far batches were planned

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where a query without a checkpoint begins."""
        state, table_id = self._store.state(), self._handle.table_id
        asked = _moment(self._options["timestamp"]) if "timestamp" in self._options else None
        scan, timestamp = starting_point(self._options.get("scan"), asked, state.definition.options)
        check_scan(scan, timestamp is not None)
        if timestamp is None or scan != "from-timestamp":
            return asdict(_Offset.initial(table_id, state.version, scan == "full"))
        version = self._store.log.version_to_follow(milliseconds(timestamp))
        return asdict(_Offset.initial(table_id, version, full=False))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """``maxRowsPerBatch``."""
        limit = self._options.get("maxRowsPerBatch".lower()) or self._options.get("maxRowsPerBatch")
        if not limit:
            return ReadAllAvailable()
        return ReadMaxRows(row_limit(limit))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """What is committed from here on is for the next run."""
        self._until = self._store.state().version

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends."""
        offset = self._checked(start)
        self._hold(offset)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return asdict(self._more_files(offset, rows) or self._more_versions(offset, rows))

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done, which Spark says when the next one begins: what lies before its end may expire."""
        offset = self._checked(end)
        if self._consumer is not None and self._held and not self._reads_rows(offset):
            self._consumer.advance(offset.version)

    def _hold(self, offset: _Offset) -> None:
        """A query that begins or is restarted takes its consumer; one that waits says that it is still there."""
        if self._consumer is None:
            return
        if self._held:
            self._consumer.keep()
            return
        self._consumer.register(offset.version, rows=self._reads_rows(offset))
        self._held = True

    def _reads_rows(self, offset: _Offset) -> bool:
        if not offset.full or offset.version != offset.begin:
            return False
        return offset.files < len(plan_scan(self._store.state(offset.begin)).parts())

    def _checked(self, value: Mapping[str, Any]) -> _Offset:
        offset = _Offset(**value)
        if offset.table_id != self._handle.table_id:
            raise NotFound(
                f"table {self._options['path']} was dropped and made again since this query began: start it with a "
                "new checkpoint",
                code="table-replaced",
            )
        return offset

    def _more_files(self, offset: _Offset, rows: int | None) -> _Offset | None:
        """A batch never has files and log records together: nothing orders rows of different partitions."""
        if not offset.full or offset.version != offset.begin:
            return None  # that version may have expired since
        parts = plan_scan(self._store.state(offset.begin)).parts()[offset.files :]
        if not parts:
            return None
        return replace(offset, files=offset.files + _at_most([part.rows for part in parts], rows))

    def _more_versions(self, offset: _Offset, rows: int | None) -> _Offset:
        store = self._store
        newest = store.state().version if self._until is None else self._until
        if newest <= offset.version:
            return offset
        if rows is None:
            return replace(offset, version=newest)
        counts = (self._weight(v) for v in range(offset.version + 1, newest + 1))
        return replace(offset, version=offset.version + _at_most(counts, rows))

    def _weight(self, version: int) -> int:
        """How many rows a version gives to a batch; the log holds none of an overwrite's."""
        return sum(
            step.rows if isinstance(step, FromLog) else self._rows_replaced(version)
            for step in steps([self._store.snapshot(version)], keyed=bool(self._log.primary_key))
        )

    def _rows_replaced(self, version: int) -> int:
        before, after = self._store.state(version - 1), self._store.state(version)
        return sum(part.rows for part in (*Replaced.left(before, after), *Replaced.came(before, after)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A batch: files of the snapshot, or each bucket's changes."""
        first, last = self._checked(start), self._checked(end)
        if first.is_initial:
            first = _Offset.initial(last.table_id, last.begin, last.full)
        if last.files > first.files:
            state = self._store.state(last.begin)
            parts, table = plan_scan(state).parts()[first.files : last.files], self._store.files(state)
            return [_ScanPartition(table, part, RowKind.INSERT, self._wanted) for part in parts]
        return self._changes(first.version, last.version)

    def _changes(self, after: int, until: int) -> Sequence[InputPartition]:
        store = self._store
        known = self._passed
        definition = known[1] if known is not None and known[0] == after else store.definition(after)
        todo: list[tuple[Step, Schema]] = []
        for version in range(after + 1, until + 1):
            commit = store.required(version)
            definition = definition_after(commit, definition)
            found = steps([commit.snapshot()], keyed=bool(self._log.primary_key))
            todo += [(step, definition.schema) for step in found]
        self._passed = (until, definition)
        planned = ((bucket, tuple(self._parts(todo, bucket))) for bucket in range(definition.buckets))
        return [
            _BucketPartition(self._log, bucket, parts, store.ambient, self._wanted)
            for bucket, parts in planned
            if parts
        ]

    def _parts(self, todo: Sequence[tuple[Step, Schema]], bucket: int) -> Iterator[_Records | _ScanPartition]:
        for step, written in todo:
            match step:
                case FromLog(transactions=transactions):
                    if any(r.bucket == bucket for t in transactions for r in t.ranges):
                        yield _Records(step, written)
                case Replaced(version):
                    before, after = self._store.state(version - 1), self._store.state(version)
                    for state, scanned, kind in (
                        (before, Replaced.left(before, after), RowKind.DELETE),
                        (after, Replaced.came(before, after), RowKind.INSERT),
                    ):
                        table = self._store.files(state)
                        for part in scanned:
                            if part.bucket == bucket:
                                yield _ScanPartition(table, part, kind, self._wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        if not isinstance(partition, _ScanPartition | _BucketPartition):
            return
        with_kind = wants_changes(self._options)
        schema = _wire_schema(partition.wanted, with_kind)
        for rows in partition.rows():
            if not with_kind:
                _refuse_changes(rows)
            yield from _on_the_wire(rows, schema)


def row_limit(text: str) -> int:
    """The option ``maxRowsPerBatch`` as a number.

    Args:
        text: What was given.

    Raises:
        InvalidRequest: ``bad-option-value``.
    """
    if not text.isdecimal() or int(text) == 0:
        raise InvalidRequest(f"maxRowsPerBatch={text!r} is not a whole number above zero", code="bad-option-value")
    return int(text)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(
            f"timestamp={text!r} is not ISO 8601, such as 2026-01-31T12:00:00Z", code="bad-option-value"
        ) from error


def known_columns(store: FileStore, fields: StructType) -> Schema:
    """The columns that a query was planned with.

    The table may have been changed since. So they are looked for in the newest version and in those before it; if no
    version has them, as they were given by hand, the newest version's are meant.
    """
    state = store.state()
    definition, oldest = state.definition, store.log.versions()[0]
    for version in range(state.version, max(oldest, state.version - _LOOK_BACK), -1):
        if _same_columns(definition.schema, fields):
            return definition.schema
        if any("metaData" in action for action in store.required(version).actions):
            if version <= (oldest := store.log.oldest().version):
                break
            definition = store.definition(version - 1)
    return definition.schema if _same_columns(definition.schema, fields) else state.definition.schema


def _same_columns(schema: Schema, fields: StructType) -> bool:
    own = StructType.fromJson(schema.plain().to_delta())
    known = [(f.name, f.dataType.simpleString()) for f in fields if f.name != KIND_COLUMN]
    return known == [(f.name, f.dataType.simpleString()) for f in own]


def _wire_schema(wanted: Schema, with_kind: bool) -> pa.Schema:
    """What Spark expects of a batch, nullability included."""
    schema = wanted.to_arrow()
    return change_schema(schema) if with_kind else schema


def _on_the_wire(rows: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    try:
        batches: list[pa.RecordBatch] = rows.select(schema.names).cast(schema).to_batches()
    except ValueError as error:  # a null in a column that was NOT NULL when the query was planned
        raise schema_changed(str(error)) from error
    return batches


def _refuse_changes(rows: pa.Table) -> None:
    kinds = set(rows.column(KIND_COLUMN).unique().to_pylist())
    if kinds - {str(RowKind.INSERT)}:
        raise Unsupported(
            f"the stream holds {', '.join(sorted(kinds))} and has no column to say so: set .option('changes', 'true')",
            code="changes-needed",
        )


def _at_most(counts: Iterable[int], rows: int | None) -> int:
    """How many items to take so that their counts stay within `rows`; at least one. Looks at no more than it must."""
    taken = total = 0
    for count in counts:
        total += count
        if rows is not None and total > rows and taken:
            break
        taken += 1
    return taken
