"""The rows of all days of the demo together are the rows of the year."""

from __future__ import annotations

import polars as pl
import pytest

from tablestore.demo.data import TABLES, read_frames
from tablestore.demo.days import arrivals, departures, expected, first_days, schedule
from tablestore.demo.replay import fingerprint, replayed

KEY = TABLES["flights"].key


@pytest.fixture(scope="module")
def january() -> pl.DataFrame:
    return read_frames()["flights"].filter(pl.col("month") == 1)


def test_the_schedule_knows_nothing_that_happened(january: pl.DataFrame) -> None:
    planned = schedule(january)
    for column in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"):
        assert planned[column].null_count() == planned.height
    assert planned["sched_dep_time"].null_count() == 0
    assert planned.schema == january.schema


def test_departures_know_no_arrival(january: pl.DataFrame) -> None:
    left = departures(january, first_days(1)[0])
    assert left.height == 838
    assert left["dep_time"].null_count() == 0
    assert left["arr_time"].null_count() == left["air_time"].null_count() == left.height
    assert left["arr_delay"].equals(left["dep_delay"].alias("arr_delay"))


def test_arrivals_delete_what_never_left(january: pl.DataFrame) -> None:
    arrived = arrivals(january, first_days(1)[0])
    assert arrived["_kind"].value_counts().sort("_kind").rows() == [("+U", 838), ("-D", 4)]
    assert arrived.filter(pl.col("_kind") == "-D")["dep_time"].null_count() == 4


@pytest.mark.slow
def test_after_all_days_the_year_is_as_it_was(january: pl.DataFrame) -> None:
    days = first_days(31)
    kind = pl.lit("+I").alias("_kind")
    changes = [schedule(january).with_columns(kind)]
    for day in days:
        changes += [departures(january, day).with_columns(kind), arrivals(january, day)]
    happened = january.filter(pl.col("dep_time").is_not_null())
    assert fingerprint(replayed(pl.concat(changes), KEY)) == fingerprint(happened)
    assert fingerprint(expected(january, days)) == fingerprint(happened)


def test_before_the_first_day_the_schedule_is_expected(january: pl.DataFrame) -> None:
    assert expected(january, []).equals(schedule(january))


def test_days_follow_each_other() -> None:
    days = first_days(3) + first_days(2, after=3)
    assert [f"{d:%m-%d}" for d in days] == ["01-01", "01-02", "01-03", "01-04", "01-05"]
