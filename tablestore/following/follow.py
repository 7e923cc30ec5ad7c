"""Follows a table without Spark: returns the snapshot's rows, then its changes, version by version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from filestore.contexts import Closing
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import Corrupt, NotFound, Unavailable
from filestore.life.consumers import Consumer
from filestore.metrics.meter import NO_METER
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.reading.scan import plan_scan
from filestore.rows.casting import cast_rows
from filestore.table import FileStore
from log.table.config import LogConfig
from managed_table.own_log import OwnRecords
from tablestore.following.follow_metrics import FollowMeter
from tablestore.following.gaps import OnLogGap, is_gap, reading_replaced, truncation
from tablestore.following.pieces import (
    DifferencePiece,
    LogPiece,
    Piece,
    Planner,
    ScanPiece,
    difference_pieces,
    read_changes,
    scan_pieces,
)
from tablestore.following.progress import Lag, Progress, lags
from tablestore.following.records import RecordReader
from tablestore.following.result_mode import ResultMode
from tablestore.following.starting import Start, StartOptions, start_of
from tablestore.following.walk import Walk

__all__ = ["FollowOptions", "Follower", "Following", "Run", "Stop", "change_schema", "table_replaced"]

Stop = int | threading.Event | Callable[[], bool] | None

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.002, 0.05


def change_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a table's changes: nullable columns, since a delete may have only its key, and ``_kind``."""
    return pa.schema([*(f.with_nullable(True) for f in schema), pa.field(KIND_COLUMN, pa.string())])


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """The options of a reader.

    Attributes:
        mode: Which kinds of changes are returned, and in which form.
        on_log_gap: What to do if changes are gone.
        max_rows: The largest number of rows in a batch; None: no limit.
    """

    mode: ResultMode = ResultMode.UPSERT
    on_log_gap: OnLogGap = OnLogGap.FAIL
    max_rows: int | None = None


class Following(Closing, Iterator[pa.RecordBatch]):
    """The batches of one reader, and its progress. Close it, or use it in a ``with``, to end it early."""

    def __init__(self, filestore: FileStore, run: Run, meter: FollowMeter) -> None:
        self._filestore = filestore
        self._run = run
        self._batches = run.batches()
        self._meter = meter
        self._began_ms = filestore.ambient.now_ms()

    def __next__(self) -> pa.RecordBatch:
        """Waits for the next batch and returns it."""
        before = self._run.progress
        batch = next(self._batches)
        self._meter.record(before, self._run.progress, self._filestore.ambient.now_ms() - self._began_ms)
        return batch

    @property
    def progress(self) -> Progress:
        """The progress so far. It is known without a read."""
        return self._run.progress

    def lag(self) -> Lag:
        """Returns what is still to be read. It reads the log entries of these versions."""
        version = self._run.progress.version
        return lags(self._filestore, {version})[version]

    def close(self) -> None:
        """Ends the reader; a consumer keeps its position."""
        self._batches.close()


class Follower:
    """Follows one table. It waits for new versions by checking whether the next log entry exists, which is cheap.

    Args:
        filestore: The table.
        log: Its log; None for a table without one, whose changelogs are derived from files.
        run: The class of its runs.
        meter: It gets the metrics.
    """

    def __init__(
        self,
        filestore: FileStore,
        log: LogConfig | None,
        run: type[Run] | None = None,
        meter: FollowMeter = FollowMeter(NO_METER, ""),  # noqa: B008  # frozen
    ) -> None:
        self._meter = meter
        self._filestore = filestore
        self._config = log
        self._run = run or Run

    def follow(
        self, asked: StartOptions, how: FollowOptions, stop: Stop, consumer: Consumer | None = None
    ) -> Following:
        """Implements `tablestore.Table.follow`."""
        state = self._filestore.state()
        rescans = 0
        try:
            start = self._start(asked, consumer)
            first = self._filestore.state(start.version) if start.rows else None
            at = require_entry(self._filestore, start.version)
        except NotFound as error:
            if how.on_log_gap is OnLogGap.FAIL or not is_gap(error):
                raise
            start, first, rescans = Start(state.version, rows=True), state, 1
            if consumer is not None:
                consumer.register(state.version, rows=True)
            at = require_entry(self._filestore, state.version)
        wanted = state.definition.schema
        run = self._run(self._filestore, self._config, how, wanted, _Ending(stop, self._newest), consumer)
        return Following(self._filestore, run.begin(first, at, rescans), self._meter)

    def _start(self, asked: StartOptions, consumer: Consumer | None) -> Start:
        start = start_of(self._filestore, asked)
        if consumer is not None:
            if (before := consumer.position()) is not None:
                start = Start(before.version, before.rows)
            consumer.register(start.version, rows=start.rows)
        return start

    def _newest(self) -> int:
        return self._filestore.state().version


class Run:
    """One running reader, which reads version by version."""

    def __init__(
        self,
        filestore: FileStore,
        config: LogConfig | None,
        how: FollowOptions,
        wanted: Schema,
        ending: _Ending,
        consumer: Consumer | None,
    ) -> None:
        self._filestore = filestore
        self._config = config
        self._how = how
        self._wanted = wanted
        self._schema = change_schema(wanted.to_arrow())
        self._ending = ending
        self._consumer = consumer
        self._walk = Walk(filestore)
        self._planner = Planner(self._walk, how.mode, config is not None, wanted, by_bucket=False)

    def begin(self, first: TableState | None, at: Commit, rescans: int) -> Self:
        """Starts at a version; its rows are read if `first` is given."""
        self._first, self._at = first, at
        self._started_ms = self._filestore.ambient.now_ms()
        self.progress = Progress(at.version, rescans=rescans)
        return self

    def batches(self) -> Generator[pa.RecordBatch]:
        """Yields all batches; without an end unless `stop` sets one."""
        wait = _SHORTEST_WAIT_S
        with RecordReader(self._config, self._wanted, self._filestore.ambient) as records:
            if self._first is not None:
                yield from self._begun(records, self._first)
            if self._config is not None:
                yield from self._or_rescanned(records, self._compared(records))
            while not self._ending.reached(self._at.version):
                if (commit := self._filestore.delta_log.read_entry(self._at.version + 1)) is not None:
                    yield from self._or_rescanned(records, self._version(records, commit))
                    wait = _SHORTEST_WAIT_S
                    continue
                if wait == _LONGEST_WAIT_S:
                    yield from self._or_rescanned(records, self._waiting())
                self._filestore.ambient.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT_S)

    def _begun(self, records: RecordReader, first: TableState) -> Iterator[pa.RecordBatch]:
        if self.progress.rescans:
            yield truncation(self._schema)

        def rows() -> Iterator[pa.RecordBatch]:
            yield from self._rows(records, first)
            self._passed(self._at)

        yield from self._or_rescanned(records, rows(), exact=False)

    def _compared(self, records: RecordReader) -> Iterator[pa.RecordBatch]:
        """Compares the log with the newest version."""
        own = OwnRecords.newest(self._filestore)
        self._reach_by(records, own.state.definition)
        own.compare(records.log)
        yield from ()

    def _version(self, records: RecordReader, commit: Commit) -> Iterator[pa.RecordBatch]:
        """Yields the changes of the next version."""
        self._require_same_table()
        self._walk.take(commit)
        if commit.begins_log:
            self._reach_by(records, self._walk.definition(commit.version))
        for piece in self._planner.pieces(commit):
            of_files = isinstance(piece, ScanPiece | DifferencePiece)
            with reading_replaced(self._filestore, commit.version) if of_files else nullcontext():
                yield from self._given(records, piece, commit)
        self._passed(commit)

    def _reach_by(self, records: RecordReader, definition: TableDefinition) -> None:
        """Closes the log, and goes on with that of a version: what is open may be a former one, of other brokers."""
        records.reach_by(definition)
        self._config = None if self._config is None else self._config.reached_by(definition)

    def _waiting(self) -> Iterator[pa.RecordBatch]:
        """Checks that the table still exists."""
        self._require_same_table()
        if self._consumer is not None:
            self._consumer.keep()
        yield from ()

    def _or_rescanned(
        self, records: RecordReader, batches: Iterator[pa.RecordBatch], *, exact: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yields the batches; if they end in a gap, continues from the newest version.

        Args:
            records: The reader of the log.
            batches: The batches.
            exact: Whether the reader has exactly the rows of the version before them.
        """
        try:
            for batch in batches:
                exact = False  # the reader may have only a part of the version from now on
                yield batch
        except NotFound as error:
            if self._how.on_log_gap is OnLogGap.FAIL or not is_gap(error):
                raise
        else:
            return
        yield from self._rescanned(records, exact=exact)

    def _rescanned(self, records: RecordReader, *, exact: bool) -> Iterator[pa.RecordBatch]:
        newest = self._filestore.state()
        self._reach_by(records, newest.definition)
        if self._consumer is not None:
            self._consumer.register(newest.version, rows=True)
        self.progress = replace(self.progress, rescans=self.progress.rescans + 1)
        at = require_entry(self._filestore, newest.version)

        def rows() -> Iterator[pa.RecordBatch]:
            if exact:
                pieces = difference_pieces(self._walk, self._filestore.state(self._at.version), newest, self._wanted)
                with reading_replaced(self._filestore, newest.version):
                    for piece in pieces:
                        yield from self._given(records, piece, at)
            else:
                yield truncation(self._schema)
                yield from self._rows(records, newest)
            self._passed(at)

        yield from self._or_all_rows(records, rows())

    def _or_all_rows(self, records: RecordReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the batches; if they end in a gap, all rows of the version that is the newest by then."""
        try:
            yield from batches
        except NotFound as error:
            if not is_gap(error):
                raise
        else:
            return
        yield from self._rescanned(records, exact=False)

    def _rows(self, records: RecordReader, state: TableState) -> Iterator[pa.RecordBatch]:
        at = require_entry(self._filestore, state.version)
        for piece in scan_pieces(self._filestore.table_files(state), [plan_scan(state)], RowKind.INSERT):
            yield from self._given(records, piece, at, version=state.version)

    def _given(
        self, records: RecordReader, piece: Piece, commit: Commit, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields a piece's batches, and counts them."""
        oldest = self._at.version if version is None else version
        reading = self._reading_log(commit.version) if isinstance(piece, LogPiece) else self._filestore.reading(oldest)
        with reading:
            for rows in read_changes(piece, records, self._how.mode):
                # cast to the snapshot's types, so that all batches can be one table
                for batch in cast_rows(rows, self._schema).to_batches(self._how.max_rows):
                    self._count(batch.num_rows, commit)
                    yield batch

    @contextmanager
    def _reading_log(self, version: int) -> Iterator[None]:
        """Surrounds the reading of a version's records: an error becomes `log-gap` if a new log has begun since."""
        try:
            yield
        except (NotFound, Corrupt, Unavailable) as error:
            try:
                OwnRecords.newest(self._filestore).require(version)
            except NotFound as gap:
                raise gap from error
            raise

    def _count(self, rows: int, commit: Commit) -> None:
        now_ms = self._filestore.ambient.now_ms()
        self._count_rows(rows, now_ms)
        self.progress = replace(self.progress, latency_ms=now_ms - (commit.timestamp_ms or now_ms))

    def _count_rows(self, rows: int, now_ms: int) -> None:
        known = self.progress
        first = now_ms - self._started_ms if known.first_row_ms is None and rows else known.first_row_ms
        self.progress = replace(known, records=known.records + rows, first_row_ms=first)

    def _passed(self, commit: Commit) -> None:
        """Marks a version as read: the caller has returned for more."""
        if self._consumer is not None:
            self._consumer.advance(commit.version)
        self._at = commit
        self.progress = replace(self.progress, version=commit.version)

    def _require_same_table(self) -> None:
        """Fails if the table was created again: a new table of the same name has versions of the same numbers."""
        if require_entry(self._filestore, self._at.version).timestamp_ms != self._at.timestamp_ms:
            raise table_replaced(self._filestore.location)


def require_entry(filestore: FileStore, version: int) -> Commit:
    """Returns a version's log entry; raises an error that says why it does not exist."""
    entry = filestore.delta_log.read_entry(version)
    if entry is None:
        filestore.snapshot(version)  # raises if the version has expired or never existed
        raise table_replaced(filestore.location)
    return entry


def table_replaced(location: str) -> NotFound:
    """The error of a reader whose table does not exist any more, whether or not another one has its name."""
    return NotFound(
        f"the table at {location} was dropped, or dropped and created again, after this reader began: open it again",
        code="table-replaced",
    )


class _Ending:
    """Decides when a reader ends. It still returns what was committed before the signal, however busy writers are."""

    def __init__(self, stop: Stop, newest: Callable[[], int]) -> None:
        self._asked = stop.is_set if isinstance(stop, threading.Event) else stop if callable(stop) else None
        self._last = stop if isinstance(stop, int) else None
        self._newest = newest

    def reached(self, version: int) -> bool:
        if self._last is None and self._asked is not None and self._asked():
            self._last = self._newest()
        return self._last is not None and version >= self._last
