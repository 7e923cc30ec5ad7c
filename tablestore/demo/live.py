"""The step with a concurrent reader and writer: a snapshot's rows, then the log's tail, each change exactly once."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Sequence
from datetime import date

import polars as pl

from filestore.errors import TableStoreError, Unavailable
from filestore.model.snapshot import Snapshot
from tablestore.demo.data import TABLES
from tablestore.demo.days import arrivals, departures, expected
from tablestore.demo.replay import fingerprint, out_of_turn, replayed
from tablestore.demo.report import Story
from tablestore.demo.steps import FLIGHTS, Stage, event
from tablestore.store import connect
from tablestore.table import Table

__all__ = ["follow_writer"]

_PATIENCE_S = 60


class _Reader(threading.Thread):
    """Follows the table in a thread, up to a version, and keeps all changes in the order of their arrival."""

    def __init__(self, table: Table, story: Story, last: int) -> None:
        super().__init__(name="reader", daemon=True)
        self.started = threading.Event()
        self.changes: list[pl.DataFrame] = []
        self.arrived: list[tuple[int, int]] = []
        """The number of changes that had arrived, with the time in milliseconds."""
        self.version = -1
        self.error: TableStoreError | None = None
        self._table, self._story, self._last = table, story, last

    def run(self) -> None:
        """Follows the table; an error is kept for the thread that waits."""
        try:
            self._follow()
        except TableStoreError as error:
            self.error = error
        finally:
            self.started.set()

    def _follow(self) -> None:
        self.version = self._table.filestore.state().version
        batches = self._table.follow("full", stop=self._last)
        self.started.set()
        count = 0
        for batch in batches:
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            self.changes.append(frame)
            count += frame.height
            self.arrived.append((count, self._story.now_ms()))


def follow_writer(stage: Stage, days: Sequence[date], done: Sequence[date]) -> None:
    """Writes those days without Spark while a reader follows; `done` are the days before them."""
    story = stage.story
    if not stage.logged:
        _write_alone(stage, days)
        return
    with connect(stage.store.target, stage.store.token) as own:
        reader, snapshots = _write_and_read(stage, own.table(FLIGHTS), days)
    changes = pl.concat(reader.changes)
    tail = [s for s in snapshots if s.version > reader.version]
    at_start = sum(f.live_rows for f in stage.store.table(FLIGHTS).files(reader.version))
    key = TABLES["flights"].key
    story.say(
        f"The reader began at version {reader.version}, {at_start:,} rows, and then saw {changes.height - at_start:,} "
        f"changes of {len(tail)} versions, {_delay(reader, tail, at_start)}"
    )
    recorded = sum(_changes(s) for s in tail)
    story.check(changes.height == at_start + recorded, f"it saw as many changes as the commits record: {recorded:,}")
    story.check(
        out_of_turn(changes, key) == 0, "no change arrived twice, early or late: each follows from those before"
    )
    wanted = fingerprint(expected(stage.flights, [*done, *days]))
    story.check(
        fingerprint(replayed(changes, key)) == wanted == fingerprint(stage.store.table(FLIGHTS).scan().to_polars()),
        "the changes, replayed, give the table, row for row",
    )


def _write_alone(stage: Stage, days: Sequence[date]) -> None:
    """Writes those days; no reader follows a table without a log."""
    began, snapshots = stage.story.seconds(), []
    with connect(stage.store.target, stage.store.token) as own:
        table = own.table(FLIGHTS)
        for day in days:
            snapshots += [table.write(departures(stage.flights, day)), table.write(arrivals(stage.flights, day))]
    what = f"{days[0]:%b %d}-{days[-1]:%b %d}, no Spark"
    stage.story.happened(event("flights", what, snapshots, stage.story.seconds() - began))
    stage.story.say("No reader follows, because these tables have no log: name brokers with --kafka")


def _write_and_read(stage: Stage, table: Table, days: Sequence[date]) -> tuple[_Reader, list[Snapshot]]:
    story = stage.story
    base = table.filestore.state().version
    reader = _Reader(stage.store.table(FLIGHTS), story, base + 2 * len(days))
    snapshots: list[Snapshot] = []
    began = story.seconds()
    with story.progress("a writer and a reader at once", len(days)) as advance:
        for day in days:
            snapshots.append(table.write(departures(stage.flights, day)))
            if reader.ident is None:  # not started yet
                reader.start()
                reader.started.wait(_PATIENCE_S)
            snapshots.append(table.write(arrivals(stage.flights, day)))
            advance()
        what = f"{days[0]:%b %d}-{days[-1]:%b %d}, no Spark"
        story.happened(event("flights", what, snapshots, story.seconds() - began))
        reader.join(_PATIENCE_S)
    if reader.error is not None:
        raise reader.error
    if reader.is_alive():
        raise Unavailable(f"the reader has not seen the last commit within {_PATIENCE_S} s", code="demo-reader")
    return reader, snapshots


def _changes(snapshot: Snapshot) -> int:
    return sum(r.count for t in snapshot.transactions for r in t.ranges)


def _delay(reader: _Reader, tail: Sequence[Snapshot], at_start: int) -> str:
    """The time from a commit until the reader had all changes of its version."""
    delays, seen = [], at_start
    for snapshot in tail:
        seen += _changes(snapshot)
        moment = next((ms for count, ms in reader.arrived if count >= seen), None)
        if moment is not None:
            delays.append(max(0, moment - snapshot.timestamp_ms))
    return f"half of them within {statistics.median(delays):.0f} ms of the commit" if delays else "never to the end"
