"""The step with maintained views: flights with their planes and destinations, and their delays, while tables change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

import polars as pl

from tablestore.demo.data import DATABASE, TABLES
from tablestore.demo.days import arrivals, departures
from tablestore.demo.replay import fingerprint
from tablestore.demo.steps import FLIGHTS, Stage
from tablestore.spark import SparkStore
from tablestore.views.view import View

__all__ = ["keep_views"]

_KEY = TABLES["flights"].key


class _Kept(Protocol):
    """A view of the step."""

    @property
    def name(self) -> str:
        """The view's name in the database."""

    @property
    def meaning(self) -> str:
        """Says which rows the view has; it is printed behind its name."""

    @property
    def claim(self) -> str:
        """Says what is checked; it is printed behind its name."""

    def open(self, stage: Stage) -> View:
        """Creates it."""

    def expected(self, stage: Stage) -> pl.DataFrame:
        """Computes its rows with polars from the tables' newest rows."""


@dataclass(frozen=True, slots=True)
class _Join:
    """A join of the flights with another table by its key.

    Attributes:
        name: The view's name in the database.
        right: The other table.
        on: The column of the flights.
        added: The columns of the other table, with their names in the view.
    """

    name: str
    right: str
    on: str
    added: dict[str, str]

    claim = "is the join"

    @property
    def meaning(self) -> str:
        """Says which rows the view has; it is printed behind its name."""
        return f"joins flights and {self.right}"

    @property
    def columns(self) -> list[str]:
        """The columns of the flights in the view."""
        return [*_KEY, self.on, "arr_delay"]

    def open(self, stage: Stage) -> View:
        """Creates the view."""
        return stage.store.maintain_join(
            f"{DATABASE}.{self.name}",
            left=FLIGHTS,
            right=TABLES[self.right].identifier,
            on=self.on,
            kind="left",
            select=[f"l.{name}" for name in self.columns] + [f"r.{n} AS {alias}" for n, alias in self.added.items()],
        )

    def expected(self, stage: Stage) -> pl.DataFrame:
        """Joins the tables' newest rows with polars."""
        left, right = (
            stage.store.table(TABLES[name].identifier).scan().to_polars() for name in ("flights", self.right)
        )
        [key] = TABLES[self.right].key
        found = right.select(pl.col(key).alias(self.on), *(pl.col(n).alias(alias) for n, alias in self.added.items()))
        return left.select(self.columns).join(found, on=self.on, how="left")


@dataclass(frozen=True, slots=True)
class _Delays:
    """The average delay of departures by airport and hour."""

    name = "delays"
    meaning = "averages the delays of departures by airport and hour"
    claim = "has the averages"

    def open(self, stage: Stage) -> View:
        """Creates the view. The hour of a flight is never null, which its column does not say: so it has a key."""
        return SparkStore(stage.spark, stage.store).create_materialized_view(
            f"{DATABASE}.{self.name}",
            f"SELECT origin, hour, avg(dep_delay) AS delay, count(*) AS flights FROM {FLIGHTS} GROUP BY origin, hour",
            primary_key=("origin", "hour"),
        )

    def expected(self, stage: Stage) -> pl.DataFrame:
        """Computes its rows with polars from the flights."""
        flights = stage.store.table(FLIGHTS).scan(["origin", "hour", "dep_delay"]).to_polars()
        delay, count = pl.col("dep_delay").mean().alias("delay"), pl.len().cast(pl.Int64).alias("flights")
        return flights.group_by("origin", "hour").agg(delay, count)


_JOINS = (
    _Join("flown", "planes", "tailnum", {"model": "model", "seats": "seats"}),
    _Join("landed", "airports", "dest", {"name": "airport", "tzone": "tzone"}),
)
_KEPT: tuple[_Kept, ...] = (*_JOINS, _Delays())


def keep_views(stage: Stage, day: date) -> None:
    """Keeps views up to date: first all rows, then those that depend on a plane, an airport and a day's flights."""
    views = [kept.open(stage) for kept in _KEPT]
    with stage.story.progress("reading all flights"):
        first = [_refreshed(stage, view) for view in views]
    changes = _change(stage, day)
    with stage.story.progress("adding what changed"):
        later = [_refreshed(stage, view) for view in views]
    for kept, (rows, seconds), (changed, later_seconds) in zip(_KEPT, first, later, strict=True):
        stage.story.say(
            f"{kept.name} {kept.meaning}: {rows:,} rows in {seconds:.2f} s at first; "
            f"then {changed:,} rows in {later_seconds:.2f} s"
        )
    for kept, view in zip(_KEPT, views, strict=True):
        same = fingerprint(view.table.scan().to_polars()) == fingerprint(kept.expected(stage))
        stage.story.check(same, f"{kept.name} {kept.claim} after {changes}")


def _change(stage: Stage, day: date) -> str:
    """Changes a row of both smaller tables, those that most flights name, and the flights of a day."""
    keys = []
    for join in _JOINS:
        table = stage.store.table(TABLES[join.right].identifier)
        [key] = TABLES[join.right].key
        row = _most_named(stage.flights, join.on, table.scan().to_polars(), key)
        changed = next(iter(join.added))
        table.write(row.with_columns(pl.concat_str(changed, pl.lit(" (new)")).alias(changed)))
        keys.append(row[key][0])
    flights = stage.store.table(FLIGHTS)
    written: Sequence[pl.DataFrame] = (departures(stage.flights, day), arrivals(stage.flights, day))
    for rows in written:
        flights.write(rows)
    return f"plane {keys[0]}, airport {keys[1]} and the {written[1].height} flights of {day:%b %d} have changed"


def _most_named(flights: pl.DataFrame, column: str, rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """Returns the row whose key most flights name."""
    known = flights.filter(pl.col(column).is_in(rows[key].implode()))
    most = known.group_by(column).len().sort("len", column, descending=[True, False])[column][0]
    return rows.filter(pl.col(key) == most)


def _refreshed(stage: Stage, view: View) -> tuple[int, float]:
    """Refreshes a view; returns the rows that it wrote, and the seconds that it took."""
    began = stage.story.seconds()
    view.refresh()
    seconds = stage.story.seconds() - began
    return view.table.snapshots(1)[0].metrics["rows_written"], seconds
