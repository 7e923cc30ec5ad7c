"""Partitions expire on request, and after writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest, Unavailable
from filestore.model.snapshot import Operation
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tests.faults import Call, FailAt, FaultyStorage
from tests.opened import again
from tests.tables import Clock
from tests.warehouses import assert_whole, rows

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def made(store: Store, clock: Clock | None = None, **options: str) -> Table:
    """A table with an hour of the clock that is set."""
    named = {f"partition.{name.replace('_', '-')}": value for name, value in options.items()}
    table = store.create_table(
        "shop.logs", "id BIGINT, day DATE", primary_key=["id", "day"], partition_by=["day"], options=named
    )
    if clock is None:
        return table
    return again(table, ambient=replace(table.opened.ambient, now_ms=clock))


def clock(time: datetime = NOW) -> Clock:
    return Clock(int(time.timestamp() * 1000), step_ms=1)


def days(*ago: int) -> pa.Table:
    return pa.table({"id": list(ago), "day": [(NOW - timedelta(days=n)).date() for n in ago]})


def left(table: Table) -> list[int]:
    return sorted(row["id"] for row in rows(table))


def test_expired_partitions_go_when_asked_to(store: Store) -> None:
    table = made(store, clock(NOW - timedelta(days=30)), expiration_time="7 d")
    table.write(days(0, 6, 7, 8, 30))
    assert left(table) == [0, 6, 7, 8, 30], "by that clock none is old"
    later = again(table, ambient=replace(table.opened.ambient, now_ms=clock()))
    snapshot = later.expire_partitions()
    assert snapshot is not None
    assert snapshot.operation is Operation.DROP_PARTITION
    assert left(table) == [0, 6]
    assert later.expire_partitions() is None
    assert_whole(table, leftovers=False)


def test_a_partition_that_others_write_right_before_the_drop_stays(store: Store) -> None:
    table = made(store, clock(NOW - timedelta(days=30)), expiration_time="7 d", expiration_strategy="update-time")
    table.write(days(1, 2))
    ambient = replace(table.opened.ambient, now_ms=clock())
    others = [again(table, ambient=ambient)]

    def hook(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and others:
            others.pop().write(days(2))

    storage = FaultyStorage(LocalStorage(), hook)
    again(table, storage=storage, ambient=ambient).expire_partitions()
    assert not others
    assert left(table) == [2], "it is young now, so the choice is made again"


def test_a_table_without_the_option_says_so(store: Store) -> None:
    table = made(store)
    with pytest.raises(InvalidRequest, match=r"set the option with Table\.alter") as caught:
        table.expire_partitions()
    assert caught.value.code == "no-expiration-time"
    table.alter("SET partition.expiration-time = 7 d")
    assert table.expire_partitions() is None


def test_a_writer_drops_after_its_first_write_and_then_once_an_interval(store: Store) -> None:
    time = clock()
    table = made(store, time, expiration_time="7 d", expiration_check_interval="2 h")
    written = table.write(days(0, 10))
    assert written.operation is Operation.WRITE
    assert left(table) == [0]
    table.write(days(11))
    assert left(table) == [0, 11], "not yet"
    time.ms += 2 * 3_600_000
    table.write(days(1))
    assert left(table) == [0, 1]
    assert [s.operation for s in table.snapshots(5)] == ["DROP PARTITION", "WRITE", "WRITE", "DROP PARTITION", "WRITE"]


def test_a_write_stands_though_the_drop_fails(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    table = made(store, clock(), expiration_time="7 d")
    fault = FailAt(2, Unavailable("full"), operation="write_new", path="_delta_log")
    writer = again(table, storage=FaultyStorage(table.opened.storage, fault))
    assert writer.write(days(0, 10)).version == 1
    assert fault.fired
    assert "expired partitions stay for now" in caplog.text
    assert left(table) == [0, 10]
    assert table.expire_partitions() is not None
    assert left(table) == [0]


def test_by_update_time_a_partition_that_is_written_stays(store: Store) -> None:
    time = clock()
    table = made(store, time, expiration_time="1 h", expiration_strategy="update-time")
    table.write(days(100, 200))
    time.ms += 3_000_000
    table.write(days(200))
    time.ms += 1_000_000
    snapshot = table.expire_partitions()
    assert snapshot is not None
    assert left(table) == [200]
