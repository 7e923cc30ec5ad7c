"""When partitions expire: their times, read from values, and the choice."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.delta.by_slot import BySlot
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest
from filestore.life.partition_expiry import expired_partitions, partition_ages
from filestore.model.files import DataFile, Partition, Slot
from filestore.model.partition_time import Formatter, TimestampPattern, partition_time
from filestore.model.table_options import TableOptions
from tests.tables import Clock, create, define, seeded, write

HOUR = timedelta(hours=1)


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "text", "time"),
    [
        ("yyyy-MM-dd", "2026-01-31", at(2026, 1, 31)),
        ("yyyy-MM-dd", "2026-1-31", None),
        ("yyyy-M-d", "2026-1-5", at(2026, 1, 5)),
        ("yyyyMMdd", "20260131", at(2026, 1, 31)),
        ("yyyyMMddHH", "2026013107", at(2026, 1, 31, 7)),
        ("yyyy-MM-dd'T'HH:mm", "2026-01-31T07:30", at(2026, 1, 31, 7, 30)),
        ("HH:mm dd.MM.yyyy", "07:30 31.01.2026", at(2026, 1, 31, 7, 30)),
        ("yyyy'('MM')'", "2026(01)", at(2026, 1, 1)),
        ("yyyy''MM", "2026'02", at(2026, 2, 1)),
        ("yyyy", "2026", at(2026, 1, 1)),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2026-01-31 07:30:01.250", at(2026, 1, 31, 7, 30, 1, 250_000)),
        ("yyyy-MM-dd", "2026-02-30", None),
        ("yyyy-MM-dd", "0000-01-01", None),
        ("yyyy-MM-dd", "2026-01-31 ", None),
        ("yyyy-MM-dd", "٢٠٢٦-01-31", None),
    ],
)
def test_a_text_is_read_as_the_formatter_says(form: str, text: str, time: datetime | None) -> None:
    assert Formatter.of(form).read(text) == time


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_a_formatter_reads_what_python_writes(time: datetime) -> None:
    time = time.replace(microsecond=0, tzinfo=UTC)
    assert Formatter.of("yyyyMMdd'T'HHmmss").read(f"{time.year:04d}{time:%m%dT%H%M%S}") == time


@pytest.mark.parametrize(
    "form", ["", "YYYY", "yyyy-mm", "MM", "dd-yyyy", "yyyy yyyy", "yyyy-MM-dd hh", "yyyy-'MM", "yy"]
)
def test_a_bad_formatter_is_refused(form: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        TableOptions.parse({"partition.timestamp-formatter": form})
    assert caught.value.code == "bad-option-value"


DEFINITION = define(
    "id BIGINT, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, text STRING, y INT, m INT, d INT, h STRING",
    (),
    ["day", "at", "local", "text", "y", "m", "d", "h"],
)


@pytest.mark.parametrize(
    ("partition", "pattern", "form", "time"),
    [
        ((("day", "2026-01-31"),), None, None, at(2026, 1, 31)),
        ((("at", "2026-01-31T12:00:00.000000Z"),), None, None, at(2026, 1, 31, 12)),
        ((("local", "2026-01-31 12:00:00.000000"),), None, None, at(2026, 1, 31, 12)),
        ((("text", "2026-01-31"), ("y", "1")), None, None, at(2026, 1, 31)),
        ((("text", "2026-01-31 07:30:00"),), None, None, at(2026, 1, 31, 7, 30)),
        ((("text", "20260131"),), None, "yyyyMMdd", at(2026, 1, 31)),
        ((("y", "20260131"),), None, "yyyyMMdd", at(2026, 1, 31)),
        ((("h", "x"), ("text", "20260131")), "$text", "yyyyMMdd", at(2026, 1, 31)),
        ((("y", "2026"), ("m", "1"), ("d", "5"), ("h", "7")), "$y-$m-$d $h:00:00", None, at(2026, 1, 5, 7)),
        ((("y", "2026"), ("m", "1")), "${y}-${m}-1", None, at(2026, 1, 1)),
        ((("day", "2026-01-31"), ("h", "07")), "$day $h:00:00", None, at(2026, 1, 31, 7)),
        ((("day", None),), None, None, None),
        ((("text", None), ("h", "7")), "$h", "H", None),
        ((("y", "2026"), ("m", None)), "$y-$m-1", None, None),
        ((("text", "eu"),), None, None, None),
    ],
)
def test_the_time_of_a_partition(partition: Partition, pattern: str | None, form: str | None, time: object) -> None:
    if form == "H":
        form = "yyyy"  # "7" is no such year
    types = [DEFINITION.schema.column(name).type for name, _ in partition]
    found = partition_time(
        partition, types, TimestampPattern(pattern) if pattern else None, Formatter.of(form) if form else None
    )
    assert found == time


def state(days: dict[str | None, int], **options: object) -> TableState:
    """A table with a file a day, written at these milliseconds."""
    definition = define("id BIGINT, day DATE", (), ["day"], **options)
    files = [
        DataFile(f"{day}.parquet", Slot((("day", day),), 0), 1, 1, modified, "{}") for day, modified in days.items()
    ]
    return TableState(1, 0, "t", definition, BySlot(files))


def days_of(found: object) -> list[str | None]:
    return sorted((spec[0][1] for spec in found.specs), key=str)  # type: ignore[attr-defined]


NOW = at(2026, 3, 10, 12)
NOW_MS = int(NOW.timestamp() * 1000)


def test_partitions_expire_after_their_time_and_not_at_it() -> None:
    days = {"2026-03-02": 0, "2026-03-03": 0, "2026-03-04": 0, "2026-03-10": 0, "2027-01-01": 0, None: 0}
    found = expired_partitions(state(days, partition_expiration__time="7 d"), NOW_MS)
    assert days_of(found) == ["2026-03-02", "2026-03-03"]
    midnight = NOW_MS - 12 * 3_600_000
    assert days_of(expired_partitions(state(days, partition_expiration__time="7 d"), midnight)) == ["2026-03-02"]


def test_nothing_expires_without_a_time_or_far_in_the_future() -> None:
    assert not expired_partitions(state({"0001-01-01": 0}), NOW_MS)
    table = state({"9999-12-31": 0}, partition_expiration__time="999999999 d")
    assert not expired_partitions(table, NOW_MS)
    assert not expired_partitions(TableState(1, 0, "t", define("id BIGINT, v INT")), NOW_MS)


def test_by_update_time_the_newest_file_counts() -> None:
    days = {"2001-01-01": NOW_MS - 3_600_001, "2001-01-02": NOW_MS - 3_600_000, "2099-01-01": 0, None: 5}
    table = state(days, partition_expiration__time="1 h", partition_expiration__strategy="update-time")
    assert days_of(expired_partitions(table, NOW_MS)) == ["2001-01-01", "2099-01-01", None]
    ages = partition_ages(table)
    assert ages[(("day", "2001-01-02"),)].expires == NOW


def test_by_update_time_pending_runs_count_too(folder: Path) -> None:
    options = {"partition_expiration__time": "1 h", "partition_expiration__strategy": "update-time"}
    definition = define("id BIGINT, day DATE", ["id", "day"], ["day"], bucket=1, write__mode="merge-on-read", **options)
    clock = Clock(NOW_MS)
    store = create(folder / "t", definition, ambient=seeded(1, clock))
    for day in ("2001-01-01", "2001-01-02"):
        write(store, [{"id": 1, "day": date.fromisoformat(day)}], later=day == "2001-01-02")
    clock.ms += 1_800_000
    write(store, [{"id": 2, "day": date(2001, 1, 1)}], later=True)
    assert days_of(expired_partitions(store.state(), NOW_MS + 4_000_000)) == ["2001-01-02"]
    assert set(partition_ages(store.state())) == {(("day", "2001-01-01"),), (("day", "2001-01-02"),)}


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("7 d", 7 * 24 * HOUR),
        ("90min", 1.5 * HOUR),
        ("1 H", HOUR),
        ("0 s", 0 * HOUR),
        ("5 ms", timedelta(milliseconds=5)),
    ],
)
def test_durations(text: str, time: timedelta) -> None:
    assert TableOptions.parse({"partition.expiration-time": text})["partition.expiration-time"] == time


@pytest.mark.parametrize("text", ["7", "d", "-1 d", "1.5 h", "1 y", "1 d 2 h", ""])
def test_bad_durations(text: str) -> None:
    with pytest.raises(InvalidRequest, match="it takes a duration such as '7 d'"):
        TableOptions.parse({"partition.expiration-time": text})


@pytest.mark.parametrize(
    ("partition_by", "options"),
    [
        ([], {"partition.expiration-time": "7 d"}),
        (["day"], {"partition.timestamp-pattern": "$dya"}),
        (["day"], {"partition.timestamp-pattern": "$id"}),
    ],
)
def test_options_that_do_not_fit_the_table(partition_by: list[str], options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        define(
            "id BIGINT, day DATE",
            (),
            partition_by,
            **{k.replace("-", "__").replace(".", "_"): v for k, v in options.items()},
        )
    assert caught.value.code == "partition-expiry"


def test_a_pattern_without_columns_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="partition columns in it"):
        TableOptions.parse({"partition.timestamp-pattern": "2026"})
