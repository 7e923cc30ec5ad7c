"""Retention of the embedded log: old records are removed, except those that a consumer or an open transaction needs."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.duties import LIFE
from compaction.log_trim import needed_from, trim_log
from filestore.errors import NotFound
from filestore.model.log_range import LogRange, LogTransaction
from log.table.store import LogStore
from log.table.systems import open_log
from managed_table.opened import OpenedTable
from tablestore import Store, Table
from tests.opened import opened_again

HOUR = 3_600_000


def make(store: Store, **options: str) -> Table:
    given = {"log.retention": "1 h", "bucket": "2"} | options
    table = store.create_table("shop.t", "id BIGINT", primary_key=["id"], options=given)
    for number in range(4):
        table.write(pa.table({"id": [number, number + 10, number + 20]}))
    return table


def in_hours(table: Table, hours: float) -> OpenedTable:
    now = table.opened.ambient.now_ms() + int(hours * HOUR)
    return opened_again(table.opened, ambient=replace(table.opened.ambient, now_ms=lambda: now))


def opened(table: Table) -> LogStore:
    config = table.opened.log_config()
    assert config is not None
    return open_log(config, table.opened.ambient)


def changed(table: Table, after: int) -> int:
    return sum(batch.num_rows for batch in table.follow(version=after, stop=table.snapshots()[0].version))


def test_what_is_younger_than_the_retention_stays(store: Store) -> None:
    table = make(store)
    assert trim_log(in_hours(table, 0.9)) == 0
    assert changed(table, 0) == 12


def test_older_records_are_removed_and_readers_that_need_them_get_an_error(store: Store) -> None:
    table = make(store)
    assert LIFE.due(table.filestore.state(), 0)
    message = LIFE.perform(in_hours(table, 1.1), lambda: None)
    assert message == "12 old records of the log removed"
    assert trim_log(in_hours(table, 1.1)) == 0
    with pytest.raises(NotFound, match='scan="full"') as caught:
        changed(table, 0)
    assert caught.value.code == "log-gap"
    newest = table.snapshots()[0].version
    table.write(pa.table({"id": [7]}))
    assert changed(table, newest) == 1
    assert table.examine().healthy


def test_for_ever_is_the_default(store: Store) -> None:
    table = make(store)
    table.alter("UNSET log.retention")
    assert trim_log(in_hours(table, 1000)) == 0


@pytest.mark.parametrize("holder", ["tag", "consumer"])
def test_what_leads_on_from_a_held_version_stays(store: Store, holder: str) -> None:
    table = make(store)
    if holder == "tag":
        table.create_tag("audit", 2)
    else:
        next(table.follow(version=2, consumer="job", stop=threading.Event()))
    newest = table.snapshots()[0].version
    assert trim_log(in_hours(table, 2)) == 6
    assert changed(table, 2) == 6
    assert newest >= 4


def test_records_of_a_transaction_that_has_not_ended_stay(store: Store) -> None:
    table = make(store)
    with opened(table) as log:
        writer = log.begin(f"{table.opened.identity.table_id}/a-long-job/0.0")
        writer.append(0, pa.table({"id": [1], "_kind": ["+I"]}))
        transaction = writer.prepare()
        assert transaction is not None
        trim_log(in_hours(table, 2))
        assert [batch.rows.num_rows for batch in log.read([transaction])] == [1]
        assert log.start_offsets()[0] == transaction.ranges[0].start
        assert log.start_offsets()[1] == log.end_offsets()[1]
        log.end([transaction], commit=False)


def test_records_of_an_eventual_log_stay_until_they_were_looked_at(store: Store) -> None:
    table = make(store, **{"log.consistency": "eventual"})
    table.write(pa.table({"id": [1]}))
    with opened(table) as log:
        writer = log.begin(f"{table.opened.identity.table_id}/a-dead-job/0.0")
        for bucket in range(2):
            writer.append(bucket, pa.table({"id": [bucket + 100], "_kind": ["+I"]}))
        assert writer.prepare() is not None
        writer.abort()
        repaired = table.filestore.state().log.repaired
        assert trim_log(in_hours(table, 2)) == sum(repaired.values())
        assert log.start_offsets() == repaired
        assert table.recover().repaired
        assert trim_log(in_hours(table, 2)) > 0
        assert log.start_offsets() == table.filestore.state().log.repaired == log.end_offsets()


@given(
    before=st.lists(st.integers(0, 20), min_size=2, max_size=2),
    covered=st.dictionaries(st.integers(0, 1), st.integers(0, 20)),
    later=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20))),
)
def test_nothing_that_is_needed_is_before_it(
    before: list[int], covered: dict[int, int], later: list[tuple[int, int]]
) -> None:
    transactions = [LogTransaction("a/b/c", (LogRange(b, start, start + 1, 1),)) for b, start in later]
    found = needed_from(dict(enumerate(before)), covered, transactions)
    for bucket, offset in found.items():
        bounds = [before[bucket], *(s for b, s in later if b == bucket)]
        assert offset == min([*bounds, covered[bucket]] if bucket in covered else bounds)
