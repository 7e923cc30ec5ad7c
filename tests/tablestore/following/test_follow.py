"""Following a table without Spark: the snapshot and then the log, no row lost, none twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.rows.bucketing import bucket_of
from filestore.storage.local import LocalStorage
from log.table.embedded import segments
from log.table.systems import open_log
from tablestore import Store, Table
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.waiting import until
from tests.warehouses import assert_whole, changes, replay, rows


def put(table: Table, *ids: int, name: str = "a") -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)})).version


def gone(table: Table, *ids: int) -> int:
    return table.write(pa.table({"id": ids, "_kind": ["-D"] * len(ids)})).version


def kinds(found: list[dict]) -> list[tuple[str, int]]:
    return sorted((row["_kind"], row["id"]) for row in found)


def test_full_gives_the_rows_and_then_the_changes(orders: Table) -> None:
    put(orders, 1, 2, 3)
    put(orders, 2, name="b")
    following = orders.follow(stop=4)
    put(orders, 3, 4, name="c")
    gone(orders, 1)
    found = [row for batch in following for row in batch.to_pylist()]
    assert kinds(found[:3]) == [("+I", 1), ("+I", 2), ("+I", 3)]
    assert kinds(found[3:]) == [("+I", 4), ("+U", 3), ("-D", 1)]
    assert replay(found, ["id"]) == rows(orders)


def test_where_it_begins_is_decided_when_it_is_asked_not_when_it_is_read(orders: Table) -> None:
    put(orders, 1)
    latest, full = orders.follow(scan="latest", stop=2), orders.follow(stop=2)
    put(orders, 2)
    assert [b.column("id").to_pylist() for b in latest] == [[2]]
    assert [b.column("id").to_pylist() for b in full] == [[1], [2]]


@pytest.mark.parametrize("options", [{}, {"log.consistency": "eventual"}])
def test_a_batch_has_at_most_so_many_rows(store: Store, options: dict[str, str]) -> None:
    table = store.create_table("shop.t", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(table, *range(8))
    put(table, *range(4, 12), name="b")
    for mode, count in (("upsert", 16), ("changelog", 20)):
        following = table.follow(version=0, mode=mode, max_rows_per_batch=3, stop=2)
        sizes, found = [], []
        for batch in following:
            sizes.append(batch.num_rows)
            found += batch.to_pylist()
            assert following.progress.records == len(found)
        assert (max(sizes), len(found)) == (3, count)
        assert replay(found, ["id"]) == rows(table)
    with pytest.raises(InvalidRequest, match="max_rows_per_batch=0"):
        table.follow(max_rows_per_batch=0)


def test_a_version_of_an_eventual_log_is_read_once_its_records_of_all_buckets_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that continues after a version never gets records of it that were left out."""
    monkeypatch.setattr(segments, "_TAIL_SEGMENTS", 1)  # so each poll returns at most one write of each bucket
    options = {"bucket": "2", "log.consistency": "eventual"}
    table = store.create_table("shop.t", "id BIGINT, name STRING", primary_key=["id"], options=options)
    ids = pa.table({"id": pa.array(range(8))})
    buckets = bucket_of(ids, ["id"], 2).tolist()
    put(table, *(number for number, bucket in enumerate(buckets) if bucket == 1), name="1")
    put(table, *range(8), name="2")
    put(table, *range(8), name="3")
    unread = Counter({"1": sum(buckets), "2": 8, "3": 8})
    following = table.follow(version=0, stop=3)
    for batch in following:
        unread.subtract(batch.column("name").to_pylist())
        assert not any(unread[str(version)] for version in range(1, following.progress.version + 1))
    assert following.progress.version == 3
    assert not any(unread.values())


def test_an_overwrite_whose_record_is_read_before_its_commit_is_not_left_out(store: Store) -> None:
    """Its version counts as read only once the rows that it replaced and added were returned."""
    options = {"bucket": "1", "log.consistency": "eventual"}
    table = store.create_table("shop.t", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(table, 1, 2)
    following = table.follow(stop=3)
    found = next(following).to_pylist()
    put(table, 3)

    def read_on(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            found.extend(next(following).to_pylist())  # a poll returns row 3 and the overwrite's record

    overwriting = again(table, storage=FaultyStorage(LocalStorage(), read_on))
    overwriting.write(pa.table({"id": [7], "name": ["b"]}), overwrite=True)
    assert [row["id"] for row in found] == [1, 2, 3]
    found += [row for batch in following for row in batch.to_pylist()]
    assert following.progress.version == 3
    assert replay(found, ["id"]) == rows(table) == [{"id": 7, "name": "b"}]


def test_after_a_version(orders: Table) -> None:
    for i in range(1, 5):
        put(orders, i)
    assert kinds(changes(orders, version=2)) == [("+I", 3), ("+I", 4)]
    assert kinds(changes(orders, version=0)) == [("+I", i) for i in range(1, 5)]
    assert changes(orders, version=4) == []


def test_an_overwrite_is_the_old_rows_leaving_and_the_new_ones_coming(orders: Table) -> None:
    put(orders, 1, 2)
    put(orders, 2, name="b")
    orders.write(pa.table({"id": [2, 7], "name": ["x", "y"]}), overwrite=True)
    put(orders, 7, name="z")
    found = changes(orders, version=2)
    assert kinds(found[:4]) == [("+I", 2), ("+I", 7), ("-D", 1), ("-D", 2)]
    assert [row["name"] for row in found[:2] if row["id"] == 2] == ["b"], "the rows as they were"
    assert kinds(found[4:]) == [("+U", 7)]
    assert_whole(orders)


def test_an_overwrite_by_nothing_empties_the_table(orders: Table) -> None:
    put(orders, 1, 2)
    orders.write(pa.table({"id": pa.array([], pa.int64())}), overwrite=True)
    assert kinds(changes(orders, version=1)) == [("-D", 1), ("-D", 2)]
    assert rows(orders) == []
    put(orders, 3)
    assert_whole(orders, leftovers=False)


def test_commits_without_rows_and_compactions_give_nothing(orders: Table) -> None:
    put(orders, 1)
    orders.write(pa.table({"id": pa.array([], pa.int64())}))
    assert changes(orders, version=1) == []


def test_an_append_table_is_followed_too(store: Store) -> None:
    events = store.create_table("shop.events", "id BIGINT, name STRING", options={"bucket": "2"})
    put(events, 1, 1, 2)
    put(events, 1)
    assert kinds(changes(events)) == [("+I", 1), ("+I", 1), ("+I", 1), ("+I", 2)]
    assert_whole(events)


def test_a_partitioned_table_is_followed_too(store: Store) -> None:
    table = store.create_table(
        "shop.parts",
        "day DATE, id BIGINT, name STRING",
        primary_key=["day", "id"],
        partition_by=["day"],
        options={"bucket": "2"},
    )
    days = pa.array([0, 1, 1, 2], pa.date32())
    table.write(pa.table({"day": days, "id": [1, 1, 2, 2], "name": list("abcd")}))
    table.write(pa.table({"day": days[:2], "id": [1, 1], "_kind": ["-D", "+U"], "name": ["", "x"]}))
    assert len(assert_whole(table)) == 3


def test_stop_by_event_and_by_function(orders: Table) -> None:
    put(orders, 1)
    put(orders, 2)
    event = threading.Event()
    event.set()
    assert [b.num_rows for b in orders.follow(stop=event)] == [1, 1], "the rows that were there, then it asks"
    asked = iter([False, False, True])
    assert sum(b.num_rows for b in orders.follow(version=0, stop=lambda: next(asked))) == 2
    assert sum(b.num_rows for b in orders.follow(version=0, stop=lambda: True)) == 2, "what is there first"


def test_what_was_committed_before_the_signal_is_given(orders: Table) -> None:
    def commits_and_says_stop() -> bool:
        put(orders, 7)
        return True

    put(orders, 1)
    following = orders.follow(version=1, stop=commits_and_says_stop)
    assert [row["id"] for batch in following for row in batch.to_pylist()] == [7]


def test_it_waits_for_what_is_still_to_come(orders: Table) -> None:
    event = threading.Event()
    got: list[int] = []

    def read() -> None:
        for batch in orders.follow(scan="latest", stop=event):
            got.extend(batch.column("id").to_pylist())

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(5):
        put(orders, i)
        until(lambda i=i: got == list(range(i + 1)))
    event.set()
    reader.join(300)
    assert not reader.is_alive()


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_while_writers_go_on(orders: Table) -> None:
    stop = threading.Event()

    def write(start: int) -> None:
        for i in range(15):
            put(orders, *range(start + i, start + i + 20), name=f"{start}.{i}")

    writers = [threading.Thread(target=write, args=(n * 10,)) for n in range(2)]
    for writer in writers:
        writer.start()
    try:
        found: list[dict] = []
        for batch in orders.follow(stop=30):
            found += batch.to_pylist()
    finally:
        for writer in writers:
            writer.join(300)
        stop.set()
    assert replay(found, ["id"]) == assert_whole(orders)


def test_modes_that_do_not_exist_are_refused(orders: Table) -> None:
    for how in ({"scan": "earliest"}, {"scan": "from-timestamp"}):
        with pytest.raises(InvalidRequest) as caught:
            orders.follow(**how)
        assert caught.value.code == "bad-scan-mode"
    with pytest.raises(NotFound) as missing:
        orders.follow(version=9)
    assert missing.value.code == "no-such-version"


def test_a_table_without_a_log_is_refused(store: Store) -> None:
    table = store.create_table("shop.quiet", "id BIGINT", primary_key=["id"], options={"log.system": "none"})
    with pytest.raises(Unsupported) as caught:
        table.follow()
    assert caught.value.code == "no-log"


def test_a_gap_in_the_log_is_an_error_never_silence(orders: Table) -> None:
    put(orders, 1, 2, 3, 4)
    put(orders, 5, 6)
    config = orders.opened.log_config()
    with open_log(config, orders.opened.ambient) as log:
        log.trim({bucket: 1 for bucket in range(2)})
    with pytest.raises(NotFound) as caught:
        changes(orders, version=0)
    assert caught.value.code == "log-gap"
    assert replay(changes(orders), ["id"]) == rows(orders), "a full scan needs none of it"


def test_a_reader_that_leaves_lets_go(orders: Table) -> None:
    put(orders, 1)
    following: Iterator[pa.RecordBatch] = orders.follow()
    next(following)
    following.close()  # type: ignore[attr-defined]
