"""The steps of the demo. Each does one thing that a user would do, and checks the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from filestore.model.snapshot import Snapshot
from tablestore.demo.data import DATABASE, TABLES
from tablestore.demo.days import arrivals, departures, expected, known_by, schedule
from tablestore.demo.replay import fingerprint
from tablestore.demo.report import Event, Story
from tablestore.spark import SparkStore
from tablestore.store import Store

__all__ = ["FLIGHTS", "Stage", "check_keys", "create", "examine", "load", "other_readers", "time_travel", "upsert"]

FLIGHTS = TABLES["flights"].identifier


@dataclass(frozen=True, slots=True)
class Stage:
    """The objects that the steps use.

    Attributes:
        story: Prints the steps.
        frames: The data by table.
        store: The store, over REST.
        spark: The Spark session.
        inbox: The folder of files for Spark; None if its executors do not find files of this machine.
    """

    story: Story
    frames: Mapping[str, pl.DataFrame]
    store: Store
    spark: SparkSession
    inbox: Path | None

    @property
    def logged(self) -> bool:
        """Returns whether the table of flights has a log, so that a reader can follow it."""
        return bool(self.store.table(FLIGHTS).definition.options["log.system"] != "none")

    @property
    def flights(self) -> pl.DataFrame:
        """The real flights of the year."""
        return self.frames["flights"]


def check_keys(story: Story, frames: Mapping[str, pl.DataFrame]) -> None:
    """Checks that each table's key is unique and has no nulls, before the table is created."""
    for name, table in TABLES.items():
        keys = frames[name].select(table.key)
        unique = keys.n_unique() == keys.height and not any(keys.null_count().row(0))
        story.check(unique, f"{name}: {keys.height:,} rows, one for each ({', '.join(table.key)})")


def create(store: Store, options: Mapping[str, str]) -> None:
    """Creates the database and its tables, all of them with these options besides their own."""
    store.create_database(DATABASE)
    for table in TABLES.values():
        both = {**table.options, **options}
        store.create_table(table.identifier, table.columns, primary_key=table.key, options=both)


def load(stage: Stage) -> None:
    """Loads all five tables with Spark, the smallest first; of the flights only the schedule."""
    story, frames = stage.story, stage.frames
    with story.progress("loading", len(TABLES)) as advance:
        for number, name in enumerate(sorted(TABLES, key=lambda name: frames[name].height)):
            if name == "flights":
                _write(stage, name, "the year's schedule", [schedule(stage.flights)])
            else:
                _write(stage, name, "loaded" if number else "loaded, Spark is cold", [frames[name]])
            advance()
    counts = {name: stage.store.table(TABLES[name].identifier).detail()["rows"] for name in TABLES}
    story.say("  ".join(f"{name} {count:,}" for name, count in counts.items()))
    story.check(all(counts[name] == frame.height for name, frame in frames.items()), "every row has arrived")


def upsert(stage: Stage, days: Sequence[date]) -> None:
    """Writes two commits a day: departures, then arrivals, in which flights that never departed are deleted."""
    story = stage.story
    with story.progress("two commits a day", len(days)) as advance:
        for day in days:
            departed, arrived = departures(stage.flights, day), arrivals(stage.flights, day)
            _write(stage, "flights", f"{day:%b %d}", [departed, arrived])
            advance()
    commits = [e for e in story.events if e.table == "flights"][-len(days) :]
    rows, seconds = sum(e.written + e.deleted for e in commits), sum(e.seconds for e in commits)
    story.say(f"{2 * len(days)} commits, {rows:,} rows, {seconds / (2 * len(days)):.2f} s a commit")
    table = stage.store.table(FLIGHTS)
    story.check(
        fingerprint(table.scan().to_polars()) == fingerprint(expected(stage.flights, days)),
        "the table holds the changes of all days, and no cancelled flight",
    )
    if stage.logged:
        story.check(_covers_log(table.snapshots()), "each version names the log offsets that it covers")


def other_readers(stage: Stage, days: Sequence[date]) -> None:
    """Reads the folder with Delta for Spark and polars, without this project's code."""
    table = stage.store.table(FLIGHTS)
    location, options = table.location, table.filestore.storage.delta_options(table.location)
    with stage.story.progress("reading"):
        by_spark = pl.from_arrow(stage.spark.read.format("delta").load(location).toArrow())
        by_polars = pl.scan_delta(location, storage_options=options or None).collect()
    assert isinstance(by_spark, pl.DataFrame)
    wanted = expected(stage.flights, days)
    for reader, rows in (("delta-spark", by_spark), ("polars", by_polars)):
        same = rows.height == wanted.height and fingerprint(rows) == fingerprint(wanted)
        stage.story.check(same, f"{reader} reads {rows.height:,} rows, checksum {fingerprint(rows)}: as it must be")
    with stage.story.progress("asking in SQL"):
        answer = _ask(stage)
    stage.story.say(f"Latest by {days[-1]:%b %d}, in Spark SQL over two Delta folders: {answer}")


def _ask(stage: Stage) -> str:
    """Answers a question in plain SQL over plain Delta tables."""
    for name in ("flights", "airlines"):
        location = stage.store.table(TABLES[name].identifier).location
        stage.spark.read.format("delta").load(location).createOrReplaceTempView(name)
    rows = stage.spark.sql(
        "SELECT name, count(*) AS flights, round(avg(arr_delay), 1) AS delay FROM flights JOIN airlines USING "
        "(carrier) WHERE arr_time IS NOT NULL GROUP BY name HAVING count(*) >= 100 ORDER BY delay DESC LIMIT 3"
    ).collect()
    return "; ".join(f"{r['name']} {r['delay']} min ({r['flights']} flights)" for r in rows)


def time_travel(stage: Stage) -> None:
    """Travels in time: version 1 is the schedule, and a time finds the version of that time."""
    table = stage.store.table(FLIGHTS)
    then = table.scan(version=1).to_polars()
    same = fingerprint(then) == fingerprint(schedule(stage.flights))
    stage.story.check(same and known_by(then) == 0, f"version 1 has all {then.height:,} flights and no departure yet")
    snapshot = table.snapshots()[-3]
    counts = (
        SparkStore(stage.spark, stage.store).read(FLIGHTS, timestamp=snapshot.timestamp).count(),
        table.scan(["flight"], version=snapshot.version).to_arrow().num_rows,
    )
    stage.story.check(
        counts[0] == counts[1],
        f"Spark, asked for {snapshot.timestamp:%H:%M:%S.%f} UTC, reads version {snapshot.version}",
    )


def examine(stage: Stage) -> None:
    """Lets the doctor read every stored byte of every table, and compute the views again."""
    names, lake = stage.store.list_tables(DATABASE), SparkStore(stage.spark, stage.store)
    with stage.story.progress("reading every file", len(names)) as advance:
        reports = []
        for name in names:
            reports.append(lake.examine(f"{DATABASE}.{name}"))
            advance()
    problems = [f"{f.code} {f.path or ''}" for r in reports for f in r.problems]
    files, rows = sum(r.files for r in reports), sum(r.rows for r in reports)
    stage.story.check(not problems, f"the doctor finds nothing: {files} files, {rows:,} rows in {len(reports)} tables")
    for problem in problems[:5]:
        stage.story.say(problem)


def _write(stage: Stage, name: str, what: str, commits: Sequence[pl.DataFrame]) -> None:
    """Commits frames through Spark, one after another, as one line of the final table."""
    lake = SparkStore(stage.spark, stage.store)
    began = stage.story.seconds()
    snapshots = [lake.write(TABLES[name].identifier, _arrived(stage, rows)) for rows in commits]
    stage.story.happened(event(name, what, snapshots, stage.story.seconds() - began))


def _arrived(stage: Stage, rows: pl.DataFrame) -> DataFrame:
    """Writes rows to a file, since Spark usually gets files, and reads them twice as fast as from Arrow."""
    if stage.inbox is None:
        return stage.spark.createDataFrame(rows.to_arrow())
    stage.inbox.mkdir(exist_ok=True)
    file = stage.inbox / f"{len(list(stage.inbox.iterdir()))}.parquet"
    rows.write_parquet(file)
    return stage.spark.read.parquet(str(file))


def event(table: str, what: str, snapshots: Sequence[Snapshot], seconds: float) -> Event:
    """Adds commits as one line of the final table."""
    return Event(
        table=table,
        versions=(snapshots[0].version, snapshots[-1].version),
        what=what,
        written=sum(s.metrics["rows_written"] for s in snapshots),
        deleted=sum(s.metrics["rows_deleted"] for s in snapshots),
        offsets=snapshots[-1].log_offsets,
        seconds=seconds,
    )


def _covers_log(snapshots: Sequence[Snapshot]) -> bool:
    """Returns whether each version's log offsets end where its own records end, and never decrease. Newest first."""
    for newer, older in pairwise(snapshots):
        if any(newer.log_offsets.get(bucket, 0) < end for bucket, end in older.log_offsets.items()):
            return False
        ranges = [r for t in newer.transactions for r in t.ranges]
        if any(newer.log_offsets.get(r.bucket, 0) < r.end for r in ranges):
            return False
    return bool(snapshots) and bool(snapshots[0].log_offsets)
