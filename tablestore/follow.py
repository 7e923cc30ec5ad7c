"""Following a table without Spark: the snapshot's rows, then the log, version by version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import pyarrow as pa

from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound
from filestore.life.consumers import Consumer
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.reading.scan import ScanPlan, plan_scan, scan
from filestore.rows.reshape import reshaped
from filestore.table import FileStore
from log.store import LogConfig
from tablestore.defaults import starting_point
from tablestore.hybrid import FromLog, Replaced, Step, steps
from tablestore.moments import milliseconds
from tablestore.records import RecordReader, definition_after
from tablestore.recovery import require_own_log

__all__ = ["Follower", "Stop", "change_schema", "check_scan", "rows_of", "table_replaced"]

Stop = int | threading.Event | Callable[[], bool] | None

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.002, 0.05


def change_schema(schema: pa.Schema) -> pa.Schema:
    """A table's schema as changes have it: all nullable, since a delete needs its key only, and ``_kind`` last."""
    return pa.schema([*(f.with_nullable(True) for f in schema), pa.field(KIND_COLUMN, pa.string())])


def check_scan(scan: str, has_timestamp: bool) -> None:
    """Refuses a reader that would not know where to begin.

    Args:
        scan: The option of that name.
        has_timestamp: Whether there is a timestamp, too.

    Raises:
        InvalidRequest: ``bad-scan-mode``.
    """
    if scan not in ("full", "latest", "from-timestamp"):
        problem = "is not known"
    elif scan == "from-timestamp" and not has_timestamp:
        problem = "lacks its timestamp"
    else:
        return
    raise InvalidRequest(
        f"scan={scan!r} {problem}: use 'full', 'latest', or 'from-timestamp' with a timestamp", code="bad-scan-mode"
    )


class Follower:
    """Follows one table. Waits for new versions by asking for the next log entry, which is one cheap look."""

    def __init__(self, files: FileStore, log: LogConfig) -> None:
        self._files = files
        self._config = log

    def follow(
        self,
        scan: str | None,
        timestamp: datetime | None,
        version: int | None,
        stop: Stop,
        consumer: Consumer | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See `tablestore.Table.follow`."""
        state = self._files.state()
        scan, timestamp = starting_point(scan, timestamp, state.definition.options)
        start = self._start(state, scan, timestamp, version)
        with_rows = version is None and scan == "full"
        if consumer is not None:
            if (before := consumer.position()) is not None:
                start, with_rows = before.version, before.rows
            consumer.register(start, rows=with_rows)
        first = self._files.state(start) if with_rows else None
        return self._run(first, state.definition.schema, self._required(start), stop, consumer)

    def _required(self, version: int) -> Commit:
        entry = self._files.log.commit(version)
        if entry is None:
            self._files.snapshot(version)  # says why
            raise table_replaced(self._files.location)
        return entry

    def _start(self, state: TableState, scan: str, timestamp: datetime | None, version: int | None) -> int:
        if version is not None:
            return version
        check_scan(scan, timestamp is not None)
        if timestamp is not None and scan == "from-timestamp":
            return self._files.log.version_to_follow(milliseconds(timestamp))
        return state.version

    def _run(
        self, state: TableState | None, wanted: Schema, at: Commit, stop: Stop, consumer: Consumer | None
    ) -> Iterator[pa.RecordBatch]:
        definition = self._files.definition(at.version)
        if state is not None:
            yield from rows_of(self._files, state, [plan_scan(state)], RowKind.INSERT, wanted)
            if consumer is not None:
                consumer.advance(at.version)
        ending, wait = _Ending(stop, lambda: self._files.state().version), _SHORTEST_WAIT_S
        with RecordReader(self._config, wanted, self._files.ambient) as records:
            require_own_log(records.log, self._files.state())
            while not ending.reached(at.version):
                if (commit := self._files.log.commit(at.version + 1)) is not None:
                    self._require_same_table(at)
                    definition = definition_after(commit, definition)
                    for step in steps([commit.snapshot()], keyed=bool(definition.primary_key)):
                        yield from self._changes(records, step, definition.schema, wanted)
                    at, wait = commit, _SHORTEST_WAIT_S
                    if consumer is not None:
                        consumer.advance(at.version)
                    continue
                if wait == _LONGEST_WAIT_S:
                    self._require_same_table(at)
                    if consumer is not None:
                        consumer.keep()
                self._files.ambient.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT_S)

    def _require_same_table(self, at: Commit) -> None:
        """A table of the same name that was made later has versions of the same numbers."""
        if self._required(at.version).timestamp_ms != at.timestamp_ms:
            raise table_replaced(self._files.location)

    def _changes(self, records: RecordReader, step: Step, written: Schema, wanted: Schema) -> Iterator[pa.RecordBatch]:
        match step:
            case FromLog(transactions=transactions, committed_ms=committed_ms):
                for rows in records.read(transactions, written, committed_ms=committed_ms):
                    # as the snapshot's rows have it, so that all batches make one table
                    yield from rows.cast(change_schema(wanted.to_arrow())).to_batches()
            case Replaced(version):
                before, after = self._files.state(version - 1), self._files.state(version)
                yield from rows_of(self._files, before, Replaced.left(before, after), RowKind.DELETE, wanted)
                yield from rows_of(self._files, after, Replaced.came(before, after), RowKind.INSERT, wanted)


def table_replaced(location: str) -> NotFound:
    """The error of a reader whose table is no longer there, whether or not another took its place."""
    return NotFound(
        f"the table at {location} was dropped, or dropped and made again, since this reader began: open it anew",
        code="table-replaced",
    )


def rows_of(
    files: FileStore, state: TableState, parts: Iterable[ScanPlan], kind: RowKind, wanted: Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of some parts of a version's scan as changes of one kind; in other columns, if they are given.

    Raises:
        NotFound: ``snapshot-expired``: the version expired meanwhile.
        Unsupported: ``schema-changed``: a value does not fit the columns that are wanted.
    """
    written = state.definition.schema
    wanted = wanted or written
    schema = change_schema(wanted.to_arrow())
    table = files.files(state)
    with files.reading(state.version):
        for part in parts:
            for rows in scan(table, part):
                kinds = pa.repeat(str(kind), rows.num_rows)
                changes = reshaped(rows.append_column(KIND_COLUMN, kinds), written, wanted)
                yield from changes.cast(schema).to_batches()


class _Ending:
    """When to end. What was committed before the signal is still given, however busy the writers are."""

    def __init__(self, stop: Stop, newest: Callable[[], int]) -> None:
        self._asked = stop.is_set if isinstance(stop, threading.Event) else stop if callable(stop) else None
        self._last = stop if isinstance(stop, int) else None
        self._newest = newest

    def reached(self, version: int) -> bool:
        if self._last is None and self._asked is not None and self._asked():
            self._last = self._newest()
        return self._last is not None and version >= self._last
