"""A reader that begins at a time gets what was committed at exactly that millisecond, in each way to say the time.

``from-timestamp`` left it out, where CHANGES FROM TIMESTAMP, Kafka, Flink and Delta include it. Topics:
tests/tablestore/test_kafka_table.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from filestore.errors import NotFound
from tablestore import Store, Table
from tablestore.following.starting import start_of
from tablestore.incoming.moments import milliseconds, milliseconds_from
from tablestore.spark.sql.changes import described_changes
from tablestore.spark.streaming.options import StreamOptions
from tests.cli.conftest import Run, run  # noqa: F401  # a fixture
from tests.warehouses import changes

MS, US = timedelta(milliseconds=1), timedelta(microseconds=1)


@pytest.fixture
def orders(store: Store) -> Table:
    """Versions 1, 2 and 3 have the rows 1, 2 and 3."""
    table = store.create_table("shop.orders", "id BIGINT", primary_key=["id"])
    for key in (1, 2, 3):
        table.write([{"id": key}])
    return table


def _first(table: Table, moment: datetime) -> list[int]:
    """The version with whose changes SQL begins."""
    microseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // US
    bound = {"microseconds": microseconds, "inclusive": True}
    return [described_changes(table, {"start": bound})["first"]]


def _streamed(table: Table, given: dict[str, str]) -> list[int]:
    return [start_of(table.filestore, StreamOptions.parse(given).start).version + 1]


def _by_default(table: Table, moment: datetime) -> list[int]:
    """By the table's own options, which have whole milliseconds."""
    options = {"log.scan": "from-timestamp", "log.scan.timestamp-millis": milliseconds_from(moment)}
    table.alter(*(f"SET {name} = {value}" for name, value in options.items()))
    return [row["id"] for row in changes(table)]


WAYS: dict[str, Callable[[Table, datetime], list[int]]] = {
    "follow": lambda table, moment: [row["id"] for row in changes(table, timestamp=moment)],
    "scan": lambda table, moment: [row["id"] for row in changes(table, "from-timestamp", timestamp=moment)],
    "changelog": lambda table, moment: [row["id"] for row in changes(table, timestamp=moment, mode="changelog")],
    "option of the table": _by_default,
    "option of a stream": lambda table, moment: _streamed(table, {"timestamp": moment.isoformat()}),
    "option of a stream by the table's name": lambda table, moment: _streamed(
        table, {"log.scan": "from-timestamp", "log.scan.timestamp-millis": str(milliseconds_from(moment))}
    ),
    "CHANGES FROM TIMESTAMP": _first,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("shift", "first"),
    [(-MS, 2), (-US, 2), (timedelta(), 2), (US, 3), (MS, 3)],
    ids=["a millisecond before", "a microsecond before", "exactly", "a microsecond after", "a millisecond after"],
)
def test_it_begins_with_what_was_committed_then(orders: Table, way: str, shift: timedelta, first: int) -> None:
    times = [orders.filestore.snapshot(version).timestamp for version in (1, 2, 3)]
    if shift in (-MS, MS) and (times[1] - times[0] == MS or times[2] - times[1] == MS):
        shift /= 2  # then the next millisecond is that of another version
    assert WAYS[way](orders, times[1] + shift)[0] == first


@pytest.mark.parametrize(("shift", "expected"), [(-MS, [2, 3]), (timedelta(), [2, 3]), (US, [3])])
def test_it_does_on_the_command_line(
    run: Run,  # noqa: F811
    orders: Table,
    shift: timedelta,
    expected: list[int],
) -> None:
    times = [orders.filestore.snapshot(version).timestamp for version in (1, 2, 3)]
    text = (times[1] + (shift if times[1] - times[0] > MS else shift / 2)).isoformat()
    found = run("follow", "shop.orders", "--timestamp", text, "--until", 3, "-f", "json")
    assert [json.loads(line)["id"] for line in found.stdout.splitlines()] == expected


def test_with_all_rows_first_it_is_the_state_at_that_time(orders: Table) -> None:
    moment = orders.filestore.snapshot(2).timestamp
    assert sorted(row["id"] for row in changes(orders, "full", timestamp=moment)) == [1, 2, 3]
    at_first = orders.filestore.snapshot(1).timestamp
    kinds = [row["id"] for row in changes(orders, "full", timestamp=at_first)]
    assert kinds == [1, 2, 3], "the row of version 1, and the changes after it"


def test_the_first_and_the_last_commit(orders: Table) -> None:
    first, last = (orders.filestore.snapshot(version).timestamp for version in (1, 3))
    assert [row["id"] for row in changes(orders, timestamp=first)] == [1, 2, 3]
    assert [row["id"] for row in changes(orders, timestamp=last)] == [3]
    assert changes(orders, timestamp=last + US) == []
    with pytest.raises(NotFound, match="in the future"):
        orders.follow(timestamp=last + timedelta(days=1))


@pytest.mark.parametrize("micro", [0, 1, 499, 999, 1000, 1001])
@pytest.mark.parametrize("base", [-1_000_000, 0, 1_700_000_000_123_000])
def test_a_time_between_two_milliseconds(base: int, micro: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=base + micro)
    assert milliseconds(moment) * 1000 <= base + micro <= milliseconds_from(moment) * 1000
    assert milliseconds_from(moment) - milliseconds(moment) == (micro % 1000 > 0)
