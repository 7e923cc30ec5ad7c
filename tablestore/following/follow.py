"""Following a table without Spark: the snapshot's rows, then its changes, version by version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import NotFound
from filestore.life.consumers import Consumer
from filestore.metrics.meter import NO_METER
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.reading.scan import plan_scan
from filestore.table import FileStore
from log.store import LogConfig
from tablestore.following.follow_metrics import FollowMeter
from tablestore.following.gaps import OnLogGap, is_gap, truncation
from tablestore.following.pieces import (
    LogPiece,
    Piece,
    Planner,
    difference_pieces,
    scan_pieces,
    told,
)
from tablestore.following.progress import Lag, Progress, lags
from tablestore.following.records import RecordReader
from tablestore.following.result_mode import ResultMode
from tablestore.following.starting import Asked, Start, start_of
from tablestore.following.walk import Walk
from tablestore.own_log import require_own_log

__all__ = ["Follower", "Following", "How", "Run", "Stop", "change_schema", "table_replaced"]

Stop = int | threading.Event | Callable[[], bool] | None

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.002, 0.05


def change_schema(schema: pa.Schema) -> pa.Schema:
    """A table's schema as changes have it: all nullable, since a delete needs its key only, and ``_kind`` last."""
    return pa.schema([*(f.with_nullable(True) for f in schema), pa.field(KIND_COLUMN, pa.string())])


@dataclass(frozen=True, slots=True)
class How:
    """What a reader wants to be given.

    Attributes:
        mode: What it gets of an update.
        on_log_gap: What follows if changes are gone.
        max_rows: The most rows of a batch; None: as they come.
    """

    mode: ResultMode = ResultMode.UPSERT
    on_log_gap: OnLogGap = OnLogGap.FAIL
    max_rows: int | None = None


class Following(Iterator[pa.RecordBatch]):
    """The batches of one reader, and how far it has come. Close it, or use it in a ``with``, to end it early."""

    def __init__(self, files: FileStore, run: Run, meter: FollowMeter) -> None:
        self._files = files
        self._run = run
        self._batches = run.batches()
        self._meter = meter
        self._began_ms = files.ambient.now_ms()

    def __next__(self) -> pa.RecordBatch:
        """The next batch; waits for it."""
        before = self._run.progress
        batch = next(self._batches)
        self._meter.told(before, self._run.progress, self._files.ambient.now_ms() - self._began_ms)
        return batch

    @property
    def progress(self) -> Progress:
        """What was read so far. Costs nothing."""
        return self._run.progress

    def lag(self) -> Lag:
        """What is still to read. Reads the entries of the versions that are."""
        version = self._run.progress.version
        return lags(self._files, {version})[version]

    def close(self) -> None:
        """Ends it; a consumer keeps its place."""
        self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Follower:
    """Follows one table. Waits for new versions by asking for the next log entry, which is one cheap look.

    Args:
        files: The table.
        log: Its log; None for a table without one, of which changelogs can be told from files.
        run: How its readers work.
        meter: Takes what is measured of them.
    """

    def __init__(
        self,
        files: FileStore,
        log: LogConfig | None,
        run: type[Run] | None = None,
        meter: FollowMeter = FollowMeter(NO_METER, ""),  # noqa: B008  # frozen
    ) -> None:
        self._meter = meter
        self._files = files
        self._config = log
        self._run = run or Run

    def follow(self, asked: Asked, how: How, stop: Stop, consumer: Consumer | None = None) -> Following:
        """See `tablestore.Table.follow`."""
        state = self._files.state()
        rescans = 0
        try:
            start = self._start(asked, consumer)
            first = self._files.state(start.version) if start.rows else None
            at = require_entry(self._files, start.version)
        except NotFound as error:
            if how.on_log_gap is OnLogGap.FAIL or not is_gap(error):
                raise
            start, first, rescans = Start(state.version, rows=True), state, 1
            if consumer is not None:
                consumer.register(state.version, rows=True)
            at = require_entry(self._files, state.version)
        wanted = state.definition.schema
        run = self._run(self._files, self._config, how, wanted, _Ending(stop, self._newest), consumer)
        return Following(self._files, run.begin(first, at, rescans), self._meter)

    def _start(self, asked: Asked, consumer: Consumer | None) -> Start:
        start = start_of(self._files, asked)
        if consumer is not None:
            if (before := consumer.position()) is not None:
                start = Start(before.version, before.rows)
            consumer.register(start.version, rows=start.rows)
        return start

    def _newest(self) -> int:
        return self._files.state().version


class Run:
    """One reader at work, which goes from version to version."""

    def __init__(
        self,
        files: FileStore,
        config: LogConfig | None,
        how: How,
        wanted: Schema,
        ending: _Ending,
        consumer: Consumer | None,
    ) -> None:
        self._files = files
        self._config = config
        self._how = how
        self._wanted = wanted
        self._schema = change_schema(wanted.to_arrow())
        self._ending = ending
        self._consumer = consumer
        self._walk = Walk(files)
        self._planner = Planner(self._walk, how.mode, config is not None, wanted, by_bucket=False)

    def begin(self, first: TableState | None, at: Commit, rescans: int) -> Self:
        """Sets out from a version, whose rows are read if they are given."""
        self._first, self._at = first, at
        self._started_ms = self._files.ambient.now_ms()
        self.progress = Progress(at.version, rescans=rescans)
        return self

    def batches(self) -> Generator[pa.RecordBatch]:
        """All batches; endless, if nothing ends it."""
        wait = _SHORTEST_WAIT_S
        with RecordReader(self._config, self._wanted, self._files.ambient) as records:
            if self._first is not None:
                yield from self._begun(records, self._first)
            if self._config is not None:
                require_own_log(records.log, self._files.state())
            while not self._ending.reached(self._at.version):
                if (commit := self._files.log.commit(self._at.version + 1)) is not None:
                    yield from self._or_rescanned(records, self._version(records, commit))
                    wait = _SHORTEST_WAIT_S
                    continue
                if wait == _LONGEST_WAIT_S:
                    yield from self._or_rescanned(records, self._waiting())
                self._files.ambient.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT_S)

    def _begun(self, records: RecordReader, first: TableState) -> Iterator[pa.RecordBatch]:
        if self.progress.rescans:
            yield truncation(self._schema)

        def rows() -> Iterator[pa.RecordBatch]:
            yield from self._rows(records, first)
            self._passed(self._at)

        yield from self._or_rescanned(records, rows(), exact=False)

    def _version(self, records: RecordReader, commit: Commit) -> Iterator[pa.RecordBatch]:
        """The changes of the next version."""
        self._require_same_table()
        self._walk.take(commit)
        for piece in self._planner.pieces(commit):
            yield from self._given(records, piece, commit)
        self._passed(commit)

    def _waiting(self) -> Iterator[pa.RecordBatch]:
        """Looks whether there is still something to wait for."""
        self._require_same_table()
        if self._consumer is not None:
            self._consumer.keep()
        yield from ()

    def _or_rescanned(
        self, records: RecordReader, batches: Iterator[pa.RecordBatch], *, exact: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """The batches; if they end in a gap, what leads on from there.

        Args:
            records: The reader of the log.
            batches: What was to be given.
            exact: Whether the reader has all rows of the version before them, and nothing else.
        """
        try:
            for batch in batches:
                exact = False  # of a version that was given in part nobody knows what it still lacks
                yield batch
        except NotFound as error:
            if self._how.on_log_gap is OnLogGap.FAIL or not is_gap(error):
                raise
        else:
            return
        yield from self._rescanned(records, exact=exact)

    def _rescanned(self, records: RecordReader, *, exact: bool) -> Iterator[pa.RecordBatch]:
        newest = self._files.state()
        if self._consumer is not None:
            self._consumer.register(newest.version, rows=True)
        self.progress = replace(self.progress, rescans=self.progress.rescans + 1)
        at = require_entry(self._files, newest.version)

        def rows() -> Iterator[pa.RecordBatch]:
            if exact:
                pieces = difference_pieces(self._walk, self._files.state(self._at.version), newest, self._wanted)
                for piece in pieces:
                    yield from self._given(records, piece, at)
            else:
                yield truncation(self._schema)
                yield from self._rows(records, newest)
            self._passed(at)

        yield from self._or_all_rows(records, rows())

    def _or_all_rows(self, records: RecordReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; if they end in a gap, all rows of what is the newest version by then."""
        try:
            yield from batches
        except NotFound as error:
            if not is_gap(error):
                raise
        else:
            return
        yield from self._rescanned(records, exact=False)

    def _rows(self, records: RecordReader, state: TableState) -> Iterator[pa.RecordBatch]:
        at = require_entry(self._files, state.version)
        for piece in scan_pieces(self._files.files(state), [plan_scan(state)], RowKind.INSERT):
            yield from self._given(records, piece, at, version=state.version)

    def _given(
        self, records: RecordReader, piece: Piece, commit: Commit, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """A piece's batches, counted."""
        oldest = self._at.version if version is None else version
        with nullcontext() if isinstance(piece, LogPiece) else self._files.reading(oldest):
            for rows in told(piece, records, self._how.mode):
                # as the snapshot's rows have it, so that all batches make one table
                for batch in rows.cast(self._schema).to_batches(self._how.max_rows):
                    self._count(batch.num_rows, commit)
                    yield batch

    def _count(self, rows: int, commit: Commit) -> None:
        now_ms = self._files.ambient.now_ms()
        self._count_rows(rows, now_ms)
        self.progress = replace(self.progress, latency_ms=now_ms - (commit.timestamp_ms or now_ms))

    def _count_rows(self, rows: int, now_ms: int) -> None:
        known = self.progress
        first = now_ms - self._started_ms if known.first_row_ms is None and rows else known.first_row_ms
        self.progress = replace(known, records=known.records + rows, first_row_ms=first)

    def _passed(self, commit: Commit) -> None:
        """All of a version was taken: the caller has come back for more."""
        if self._consumer is not None:
            self._consumer.advance(commit.version)
        self._at = commit
        self.progress = replace(self.progress, version=commit.version)

    def _require_same_table(self) -> None:
        """A table of the same name that was made later has versions of the same numbers."""
        if require_entry(self._files, self._at.version).timestamp_ms != self._at.timestamp_ms:
            raise table_replaced(self._files.location)


def require_entry(files: FileStore, version: int) -> Commit:
    """A version's entry; an error that says why it is not there."""
    entry = files.log.commit(version)
    if entry is None:
        files.snapshot(version)  # says why
        raise table_replaced(files.location)
    return entry


def table_replaced(location: str) -> NotFound:
    """The error of a reader whose table is no longer there, whether or not another took its place."""
    return NotFound(
        f"the table at {location} was dropped, or dropped and made again, since this reader began: open it anew",
        code="table-replaced",
    )


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
