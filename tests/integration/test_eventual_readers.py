"""Readers of ``log.consistency = eventual``: changes as they are written, and scans with the log's tail on top."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from filestore.errors import NotFound, Unavailable
from filestore.storage.local import LocalStorage
from log.table.embedded.tail import EmbeddedTail
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.following.follow import Following
from tablestore.following.gaps import truncates
from tests.faults import Call, FaultyStorage
from tests.integration.test_eventual_log import between, die, make, on, put
from tests.opened import again
from tests.warehouses import replay, rows

Row = dict[str, Any]
NEVER = threading.Event()


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def table(store: Store, request: pytest.FixtureRequest) -> Table:
    return make(store, request)


def take(following: Following, count: int) -> list[Row]:
    """The next so many rows."""
    found: list[Row] = []
    while len(found) < count:
        found += next(following).to_pylist()
    return found


def pairs(found: list[Row]) -> set[tuple[int, str]]:
    return {(row["id"], row["_kind"]) for row in found}


def ended(following: Following, stop: threading.Event) -> list[Row]:
    stop.set()
    return [row for batch in following for row in batch.to_pylist()]


@pytest.mark.parametrize("scan", ["full", "latest"])
def test_changes_come_before_their_commit_and_once(table: Table, scan: str) -> None:
    put(table, 1, 2)
    stop = threading.Event()
    following = table.follow(scan=scan, stop=stop)
    if scan == "full":
        assert pairs(take(following, 2)) == {(1, "+I"), (2, "+I")}
    seen: list[Row] = []
    put(between(table, lambda: seen.extend(take(following, 3))), 2, 3, 4, name="b")
    assert {(row["id"], row["name"]) for row in seen} == {(2, "b"), (3, "b"), (4, "b")}
    assert following.progress.version == 1
    assert ended(following, stop) == []
    assert following.progress.version == table.filestore.state().version


@pytest.mark.slow
def test_records_of_a_dead_writer_are_corrected(table: Table) -> None:
    put(table, 1, 2)
    following = table.follow(version=0, stop=NEVER)
    found = take(following, 2)
    die(table, 2, 3)
    found += take(following, 2)
    assert replay(found, ["id"]) != rows(table)
    table.recover()
    found += take(following, 2)
    assert replay(found, ["id"]) == rows(table)
    following.close()


@pytest.mark.parametrize("dies", [False, True])
def test_an_overwrite_waits_for_its_commit(table: Table, dies: bool) -> None:
    """In the meantime nothing of its buckets is given; if its writer dies, what others did goes on."""
    put(table, 1, 2, 3, 4)
    stop = threading.Event()
    following = table.follow(stop=stop)
    found = take(following, 4)

    def hook(call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith(".json"):
            raise SystemExit

    if dies:
        with pytest.raises(SystemExit):
            put(on(table, FaultyStorage(LocalStorage(), hook)), 7, overwrite=True)
    else:
        put(table, 7, name="b", overwrite=True)
    put(table, 1, 2, 5, name="c")
    found += ended(following, stop)
    assert replay(found, ["id"]) == rows(table)
    assert following.progress.version == table.filestore.state().version


def test_columns_change_while_it_reads(table: Table) -> None:
    put(table, 1, 2)
    stop = threading.Event()
    following = table.follow(stop=stop)
    found = take(following, 2)
    table.alter("RENAME COLUMN name TO title", "ADD COLUMN extra BIGINT")
    table.write(pa.table({"id": [2, 3], "title": ["b", "c"], "extra": [5, 6]}))
    table.alter("DROP COLUMN extra")
    table.write(pa.table({"id": [1], "title": ["d"]}))
    found += ended(following, stop)
    assert replay(found, ["id"]) == [{"id": i, "name": name} for i, name in ((1, "d"), (2, "b"), (3, "c"))]


@pytest.mark.few(1)
@pytest.mark.slow
def test_a_consumer_goes_on_where_it_was(table: Table) -> None:
    put(table, 1, 2)
    with table.follow(consumer="job", stop=table.filestore.state().version) as following:
        found = [row for batch in following for row in batch.to_pylist()]
    assert table.consumers()[0].version == table.filestore.state().version
    put(table, 2, 3, name="b")
    die(table, 9)
    put(table, 4, name="c")
    for _ in range(2):
        with table.follow(consumer="job", stop=table.filestore.state().version) as following:
            arrived = [row for batch in following for row in batch.to_pylist()]
            found += arrived
    assert arrived == []
    assert replay(found, ["id"]) == rows(table)


def test_a_gap_is_an_error_or_a_new_beginning(table: Table) -> None:
    put(table, 1, 2, 3, 4)
    put(table, 2, 3, name="b")
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        log.trim(log.end_offsets())
    stop = table.filestore.state().version
    with pytest.raises(NotFound, match='scan="full"') as caught:
        list(table.follow(version=0, stop=stop))
    assert caught.value.code == "log-gap"
    batches = list(table.follow(version=0, stop=stop, on_log_gap="rescan"))
    assert truncates(batches[0])
    assert replay([row for batch in batches for row in batch.to_pylist()], ["id"]) == rows(table)


def test_a_log_that_gives_nothing_of_what_versions_cover_is_an_error(store: Store) -> None:
    table = store.create_table(
        "shop.orders", "id BIGINT, name STRING", primary_key=["id"], options={"log.consistency": "eventual"}
    )
    put(table, 1)
    hours = itertools.count(0, 3_600_000)
    later = again(table, ambient=replace(table.opened.ambient, now_ms=lambda: next(hours)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedTail, "poll", lambda *_: [])
        with pytest.raises(Unavailable, match="is its server running") as caught:
            list(later.follow(version=0, stop=1))
    assert caught.value.code == "log-unavailable"


def test_a_fresh_scan_has_what_is_not_committed_yet(table: Table) -> None:
    put(table, 1, 2, 3)
    seen: list[list[Row]] = []

    def look() -> None:
        seen.append(table.scan(fresh=True).to_arrow().sort_by("id").to_pylist())
        seen.append(table.scan(["name"], "id >= 2", fresh=True).to_arrow().sort_by("name").to_pylist())
        assert [row["name"] for row in rows(table)] == ["a"] * 3

    put(between(table, look), 2, 4, name="b")
    assert seen[0] == rows(table)
    assert seen[1] == [{"name": "a"}, {"name": "b"}, {"name": "b"}]
    assert table.scan(fresh=True).to_arrow().sort_by("id").to_pylist() == rows(table)


@pytest.mark.few(1)
@pytest.mark.slow
def test_followers_of_two_writers_and_deaths_end_with_the_table(table: Table) -> None:
    stop = threading.Event()
    put(table, *range(10))
    found: dict[str, list[Row]] = {"full": [], "zero": []}

    def read(name: str, **how: Any) -> None:
        for batch in on(table).follow(stop=stop, **how):
            found[name] += batch.to_pylist()

    def write(name: int) -> None:
        for number in range(4):
            ids = range(name * 5, name * 5 + 10)
            put(on(table), *ids, name=f"{name}.{number}", overwrite=(number, name) == (2, 1))

    threads = [
        threading.Thread(target=read, args=("full",)),
        threading.Thread(target=read, args=("zero",), kwargs={"version": 0}),
        *(threading.Thread(target=write, args=(n,)) for n in range(2)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads[2:]:
        thread.join(300)
    die(table, 3, 50)
    table.recover()
    stop.set()
    for thread in threads[:2]:
        thread.join(300)
        assert not thread.is_alive()
    for arrived in found.values():
        assert replay(arrived, ["id"]) == rows(table)
