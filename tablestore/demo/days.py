"""The changes of flights, day by day, and the rows that the table must have then. Pure functions over frames.

At first there is the year's schedule. In the morning of a day its flights depart: departures are known and arrivals
estimated. In the evening arrivals are corrected, and flights that never departed are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

import polars as pl

__all__ = ["arrivals", "departures", "expected", "first_days", "known_by", "schedule"]

_DEPARTURE = ("dep_time", "dep_delay")
_ARRIVAL = ("arr_time", "arr_delay", "air_time")


def first_days(count: int, after: int = 0) -> list[date]:
    """The given number of days of 2013, after the first ones."""
    return [date(2013, 1, 1) + timedelta(days=after + number) for number in range(count)]


def schedule(flights: pl.DataFrame) -> pl.DataFrame:
    """Returns all flights as they are scheduled, before any departure."""
    return flights.with_columns(_unknown(*_DEPARTURE, *_ARRIVAL))


def departures(flights: pl.DataFrame, day: date) -> pl.DataFrame:
    """The day's departed flights: the departure is known, the delay of the arrival estimated by the departure's."""
    left = flights.filter(_on(day), pl.col("dep_time").is_not_null())
    return left.with_columns(_unknown(*_ARRIVAL)).with_columns(arr_delay=pl.col("dep_delay"))


def arrivals(flights: pl.DataFrame, day: date) -> pl.DataFrame:
    """The day's flights in the evening, with ``_kind``: real arrivals, and ``-D`` for flights that never departed."""
    never_left = pl.col("dep_time").is_null()
    kind = pl.when(never_left).then(pl.lit("-D")).otherwise(pl.lit("+U"))
    return flights.filter(_on(day)).with_columns(_kind=kind)


def expected(flights: pl.DataFrame, days: Iterable[date]) -> pl.DataFrame:
    """The rows that the table must have after those days, computed without a table store."""
    over = pl.any_horizontal(pl.lit(False), *(_on(day) for day in days))
    happened = flights.filter(over, pl.col("dep_time").is_not_null())
    return pl.concat([happened, schedule(flights.filter(~over))])


def known_by(rows: pl.DataFrame) -> int:
    """Counts the rows with a departure."""
    return rows["dep_time"].len() - rows["dep_time"].null_count()


def _on(day: date) -> pl.Expr:
    return (pl.col("year") == day.year) & (pl.col("month") == day.month) & (pl.col("day") == day.day)


def _unknown(*columns: str) -> list[pl.Expr]:
    return [pl.lit(None, dtype=pl.Int32).alias(name) for name in columns]
