"""Readers whose changes are gone; where readers begin, and how far they lag behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest, NotFound
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.following.gaps import truncates
from tests.bothlogs import both_logs
from tests.warehouses import changes, replay, rows

Row = dict[str, Any]
SOON = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}


def put(table: Table, *ids: int, name: str = "a") -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)})).version


def gone(table: Table, *ids: int) -> int:
    return table.write(pa.table({"id": ids, "_kind": ["-D"] * len(ids)})).version


def trim(table: Table) -> None:
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        log.trim(log.end_offsets())


def after_truncation(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """What a reader ends up with that minds the mark."""
    found: list[Row] = []
    for batch in batches:
        found = [] if truncates(batch) else found + batch.to_pylist()
    return found


def newest(table: Table) -> int:
    return table.filestore.state().version


@pytest.mark.few(2)
@both_logs
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_what_differs_comes_while_the_version_that_was_read_is_there(orders: Table, mode: str) -> None:
    put(orders, 1, 2, 3)
    before = changes(orders, mode=mode)
    put(orders, 2, 4, name="b")
    gone(orders, 1)
    put(orders, 5)
    gone(orders, 5)
    trim(orders)
    following = orders.follow(version=1, mode=mode, on_log_gap="rescan", stop=newest(orders))
    found = [row for batch in following for row in batch.to_pylist()]
    assert replay([*before, *found], ["id"]) == rows(orders)
    if mode == "upsert":
        assert sorted((row["_kind"], row["id"]) for row in found) == [("+I", 4), ("+U", 2), ("-D", 1)], "the least"
        assert following.progress.rescans == 1


@pytest.fixture
def short(store: Store, log_options: dict[str, str]) -> Table:
    """A table whose versions expire at once."""
    options = {"bucket": "2", **SOON, **log_options}
    return store.create_table("shop.short", "id BIGINT, name STRING", primary_key=["id"], options=options)


@pytest.mark.few(1)
@pytest.mark.slow
@both_logs
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_if_that_has_expired_too_all_is_void_and_all_rows_come(short: Table, mode: str) -> None:
    put(short, 1, 2, 3)
    following = short.follow(mode=mode, on_log_gap="rescan", stop=lambda: True)
    failing = short.follow(mode=mode)
    seen = [next(following)]
    next(failing)
    for i in range(12):
        put(short, 4, i, name=str(i))
        gone(short, 1)
        short.compact(full=True)
    assert short.expire().log_entries
    trim(short)
    seen += following
    assert sum(truncates(batch) for batch in seen) == 1
    assert replay(after_truncation(seen), ["id"]) == rows(short)
    assert following.progress.version == newest(short)
    with pytest.raises(NotFound) as caught:
        list(failing)
    assert caught.value.code == "snapshot-expired"


@both_logs
def test_a_gap_within_a_version_makes_its_other_rows_void(orders: Table) -> None:
    """What differs between the versions around it does not take back what was given in between."""
    ids = range(20)
    put(orders, *ids)
    before = changes(orders)
    put(orders, *ids, name="b")
    put(orders, *ids)
    config = orders.opened.log_config()
    assert config is not None
    with open_log(config, orders.opened.ambient) as log:
        log.trim({1: log.end_offsets()[1]})
    batches = list(orders.follow(version=1, on_log_gap="rescan", stop=newest(orders)))
    assert not truncates(batches[0])
    assert sum(truncates(batch) for batch in batches) == 1
    assert replay(after_truncation(batches), ["id"]) == replay(before, ["id"]) == rows(orders)


@both_logs
def test_a_consumer_that_comes_too_late_begins_anew(short: Table) -> None:
    put(short, 1)
    for i in range(12):
        put(short, i)
    short.compact(full=True)
    short.expire()
    with pytest.raises(NotFound):
        short.follow(version=1, consumer="job")
    following = short.follow(version=1, consumer="job", on_log_gap="rescan", stop=newest(short))
    batches = list(following)
    assert truncates(batches[0])
    assert replay(after_truncation(batches), ["id"]) == rows(short)
    put(short, 99)
    assert [row["id"] for row in changes(short, consumer="job")] == [99]


def test_a_choice_that_is_not_known_is_refused(orders: Table) -> None:
    with pytest.raises(InvalidRequest) as caught:
        orders.follow(on_log_gap="ignore")
    assert caught.value.code == "bad-on-log-gap"


# ------------------------------------------------------------------------------------------------------ progress


def test_progress_and_lag_are_values(orders: Table) -> None:
    put(orders, 1, 2)
    put(orders, 3)
    following = orders.follow(version=0, stop=newest(orders))
    assert following.progress.first_row_ms is None
    lag = following.lag()
    assert (lag.versions, lag.records) == (2, 3)
    assert lag.ms > 0
    assert sum(batch.num_rows for batch in following) == 3
    progress = following.progress
    assert (progress.version, progress.records, progress.rescans) == (2, 3, 0)
    assert progress.first_row_ms is not None
    assert progress.latency_ms is not None
    assert 0 <= progress.first_row_ms <= progress.latency_ms
    assert following.lag() == type(lag)()


def test_the_lag_behind_a_rollback_counts_the_records_that_it_logged(orders: Table) -> None:
    put(orders, 1, 2, 3)
    put(orders, 3, 4, name="b")
    with orders.follow(version=2, stop=3) as following:
        orders.rollback(1)
        lag = following.lag()
        assert (lag.versions, lag.records) == (1, 2), "row 3 is restored, and row 4 is deleted"
        assert sum(batch.num_rows for batch in following) == 2


def test_consumers_are_listed_with_what_they_have_still_to_read(orders: Table) -> None:
    changes(orders, consumer="early")
    put(orders, 1, 2)
    changes(orders, consumer="later")
    gone(orders, 1)
    orders.compact(full=True)
    found = orders.consumer_lags()
    assert [(found[name].records) for name in ("early", "later")] == [3, 1]
    assert found["early"].versions == found["later"].versions + 1


# ------------------------------------------------------------------------------------------------------- starts


def test_a_version_a_tag_and_a_time_are_starts_with_and_without_their_rows(orders: Table) -> None:
    put(orders, 1)
    put(orders, 2)
    orders.create_tag("two", 2)
    at = orders.filestore.snapshot(2).timestamp
    put(orders, 3)
    for start, found in (({"version": 2}, [3]), ({"tag": "two"}, [3]), ({"timestamp": at}, [2, 3])):
        assert [row["id"] for row in changes(orders, **start)] == found
        assert sorted(row["id"] for row in changes(orders, "full", **start)) == [1, 2, 3]
    assert [row["id"] for row in changes(orders, "from-timestamp", timestamp=at)] == [2, 3]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"version": 1, "tag": "x"}, "bad-time-travel"),
        ({"scan": "latest", "version": 1}, "bad-scan-mode"),
        ({"scan": "newest"}, "bad-scan-mode"),
        ({"tag": "x"}, "no-such-tag"),
    ],
    ids=str,
)
def test_starts_that_make_no_sense_are_refused(orders: Table, how: dict[str, Any], code: str) -> None:
    with pytest.raises((InvalidRequest, NotFound)) as caught:
        orders.follow(**how)
    assert caught.value.code == code
