"""``log.consistency = eventual``: a reader that applies the log in its own order ends with the table's rows."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from filestore.errors import Unavailable
from filestore.storage.local import LocalStorage
from log.table.store import LogBatch
from tablestore import Store, Table
from tablestore.following.follow import Follower, FollowOptions
from tablestore.following.starting import StartOptions
from tests.depth import Depth, sampled
from tests.faults import Call, FailAt, FaultyStorage
from tests.integration.crashing import reach
from tests.logorder import applied, events
from tests.opened import again
from tests.processes import PROCESSES
from tests.warehouses import assert_whole, changes, replay, rows

LOGS = [
    "embedded",
    pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.deep]),
    pytest.param("tombstones", marks=pytest.mark.kafka),
]


@pytest.fixture(params=LOGS)
def table(store: Store, request: pytest.FixtureRequest) -> Table:
    return make(store, request)


def make(store: Store, request: pytest.FixtureRequest, **options: str) -> Table:
    options = {"bucket": "2", "log.consistency": "eventual"} | options
    if request.param != "embedded":
        broker = request.getfixturevalue("kafka_broker")
        options |= {"log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap}
    if request.param == "tombstones":
        options["log.delete-format"] = "tombstone"
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options=options)


def on(table: Table, storage: Any = None) -> Table:
    """Opens the table as another process does."""
    return again(table, storage=storage or LocalStorage())


def put(table: Table, *ids: int, name: str = "a", **how: Any) -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)}), **how).version


def delete(table: Table, *ids: int) -> int:
    return table.write(pa.table({"id": ids, "_kind": ["-D"] * len(ids)})).version


def assert_right(table: Table) -> None:
    """Asserts that the log's order, its order by versions, and the doctor agree."""
    found = assert_whole(table)
    assert applied(table) == found
    newest = table.filestore.state().version
    by_versions = Follower(table.filestore, table.opened.log_config()).follow(
        StartOptions(version=0), FollowOptions(), newest
    )
    assert replay([row for batch in by_versions for row in batch.to_pylist()], ["id"]) == found
    for version in range(newest + 1):
        begun = [{**row, "_kind": "+I"} for row in rows(table, version)]
        assert replay([*begun, *changes(table, version=version)], ["id"]) == found, f"from version {version}"


def write_and_die(where: Any, ids: list[int], name: str, how: dict[str, Any]) -> None:
    def hook(call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith(".json"):
            os.kill(os.getpid(), signal.SIGKILL)

    put(on(reach(where), FaultyStorage(LocalStorage(), hook)), *ids, name=name, **how)


def die(table: Table, *ids: int, name: str = "never", **how: Any) -> None:
    """Runs a writer that dies between its records and its snapshot."""
    process = PROCESSES.Process(target=write_and_die, args=(table.opened.identity, list(ids), name, how))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL


def test_records_are_read_before_the_snapshot_and_lead_to_the_table(table: Table) -> None:
    seen: list[int] = []

    def hook(call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith(".json") and not call.done:
            seen.extend(e.rows.num_rows for e in events(table) if isinstance(e, LogBatch))

    put(on(table, FaultyStorage(LocalStorage(), hook)), 1, 2, 3)
    assert sum(seen) == 3
    put(table, 2, name="b")
    delete(table, 3, 9)
    assert_right(table)


def test_a_quiet_commit_logs_nothing_twice(table: Table) -> None:
    for number in range(3):
        put(table, 1, number)
    assert len([row for e in events(table) if isinstance(e, LogBatch) for row in e.rows.to_pylist()]) == 5
    state = table.filestore.state()
    assert state.log.open == ()
    assert state.log.repaired == {b: state.log.offsets.get(b, 0) for b in range(2)}


@pytest.mark.few(2)
@pytest.mark.parametrize("healer", sampled(["the next write", "recover"], 2))
def test_records_of_a_dead_writer_are_taken_back(table: Table, healer: str) -> None:
    put(table, 1, 2, 3)
    delete(table, 3)
    die(table, 2, 3, 4)
    assert applied(table) != rows(table)
    if healer == "recover":
        assert len(on(table).recover().repaired) == 1
    else:
        put(on(table), 9)
    assert_right(table)
    version = table.filestore.state().version
    assert on(table).recover().repaired == ()
    assert table.filestore.state().version == version, "what is repaired is not repaired again"


def batches(table: Table) -> list[LogBatch]:
    return [event for event in events(table) if isinstance(event, LogBatch)]


def records(table: Table) -> int:
    return sum(event.rows.num_rows for event in batches(table))


@pytest.mark.deep
@pytest.mark.slow
def test_what_repairs_write_does_not_grow_with_the_dead(table: Table) -> None:
    """Each dead writer repeated the keys that others had left, once for each of their transactions with the key."""
    put(table, 1, 2, 3)
    written = [records(table)]
    for number in range(6):
        die(table, 1 + number % 3)
        written.append(records(table))
    died = [after - before for before, after in itertools.pairwise(written)]
    assert died == [1, 2, 2, 2, 2, 2], "its own record, and the key of the one before"
    put(table, 9)
    assert records(table) == written[-1] + 2
    assert_right(table)


@pytest.mark.slow
@pytest.mark.few(1)
def test_one_key_of_many_dead_writers_is_repaired_once(table: Table) -> None:
    put(table, 1)
    for _ in range(4):
        die(table, 1)
    assert records(table) == 5, "each put the key behind the others' records"
    assert len(on(table).recover().repaired) == 4
    assert records(table) == 6
    assert_right(table)


@pytest.mark.deep
@pytest.mark.slow
def test_a_tail_of_more_records_than_are_held_at_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablestore.recovering.order.MOST_RECORDS", 7)
    put(table, *range(10))
    die(table, *range(5, 25))
    put(between(table, lambda: put(on(table), *range(20, 30), name="early")), *range(15, 25), name="late")
    assert_right(table)
    written = Counter((e.transaction_id, key) for e in batches(table) for key in e.rows["id"].to_pylist())
    assert set(written.values()) == {1}, "no repair has a key twice"
    assert records(table) == (10 + 20 + 10 + 10) + 10 + 15 + 20, "of three repairs: strays, strays, contended keys"


@pytest.mark.few(1)
def test_a_control_record_of_a_dead_writer_does_not_hold_readers_up(table: Table) -> None:
    """The stray has no key to repair, so readers waited for the next write."""
    put(table, 1, 2)
    die(table, overwrite=True)
    assert len(on(table).recover().repaired) == 1
    assert_right(table)


def test_a_write_that_fails_takes_back_what_it_logged(table: Table) -> None:
    put(table, 1, 2)
    fault = FailAt(1, Unavailable("disk full"), operation="write_new", path=".json")
    with pytest.raises(Unavailable):
        put(on(table, FaultyStorage(LocalStorage(), fault)), 2, 3, name="never")
    assert_right(table)
    assert [row["name"] for row in rows(table)] == ["a", "a"]


@pytest.mark.few(1)
def test_a_rollback_that_fails_takes_back_what_it_logged(table: Table) -> None:
    put(table, 1, 2)
    put(table, 2, 3, name="b")
    fault = FailAt(1, Unavailable("disk full"), operation="write_new", path="_delta_log")
    with pytest.raises(Unavailable):
        on(table, FaultyStorage(LocalStorage(), fault)).rollback(1)
    assert_right(table)
    assert [row["name"] for row in rows(table)] == ["a", "b", "b"]


def test_one_that_cannot_leaves_it_to_the_next(table: Table) -> None:
    put(table, 1, 2)

    def broken(call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith(".json"):
            raise Unavailable("disk full")

    with pytest.raises(Unavailable):
        put(on(table, FaultyStorage(LocalStorage(), broken)), 2, 3, name="never")
    put(table, 7)
    assert_right(table)


def between(table: Table, work: Any) -> Table:
    """Opens the table for a writer that loses a race: `work` runs after its records are written, before its commit."""
    done: list[int] = []

    def hook(call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith(".json") and not call.done and not done:
            done.append(1)
            work()

    return on(table, FaultyStorage(LocalStorage(), hook))


@pytest.mark.slow
@pytest.mark.few(1)
def test_the_one_that_commits_last_speaks_last(table: Table) -> None:
    put(table, 1, 2, 3, 4)
    put(between(table, lambda: put(on(table), 2, 3, name="early")), 1, 2, name="late")
    assert {row["id"]: row["name"] for row in rows(table)} == {1: "late", 2: "late", 3: "early", 4: "a"}
    assert_right(table)


@pytest.mark.slow
def test_strays_that_others_wrote_over_meanwhile(table: Table) -> None:
    """The late writer has repaired the stray's key by the table's row, and then another writer changes that row."""
    put(table, 1, 2)
    die(table, 2, 3)
    put(between(table, lambda: put(on(table), 2, 3, name="early")), 1, name="late")
    assert {row["id"]: row["name"] for row in rows(table)} == {1: "late", 2: "early", 3: "early"}
    assert_right(table)


@pytest.mark.few(1)
def test_a_living_writers_records_are_left_to_it(table: Table) -> None:
    """Another writer commits the same keys before the living one does."""
    put(table, 1, 2)

    def others() -> None:
        put(on(table), 2, 5, name="other")
        assert table.filestore.state().log.repaired != table.filestore.state().log.offsets

    put(between(table, others), 1, 2, 3, name="living")
    assert_right(table)
    assert {row["id"]: row["name"] for row in rows(table)} == {1: "living", 2: "living", 3: "living", 5: "other"}


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("first", ["write", "overwrite"])
def test_overwrites_and_writes_at_once(table: Table, first: str) -> None:
    put(table, 1, 2, 3, 4, 5, 6)
    if first == "write":
        put(between(table, lambda: put(on(table), 2, 7, name="over", overwrite=True)), 1, 2, 8, name="late")
        expected = {1: "late", 2: "late", 7: "over", 8: "late"}
    else:
        put(between(table, lambda: put(on(table), 1, 2, 8, name="early")), 2, 7, name="over", overwrite=True)
        expected = {2: "over", 7: "over"}
    assert {row["id"]: row["name"] for row in rows(table)} == expected
    assert_right(table)


@pytest.mark.few(1)
def test_a_rollback_while_others_write(table: Table) -> None:
    put(table, 1, 2, 3)
    put(table, 2, 4, name="b")
    between(table, lambda: put(on(table), 1, 4, 5, name="c")).rollback(1)
    assert_right(table)


@pytest.mark.deep  # test_log_deaths.py has deaths
@pytest.mark.few(1)
@pytest.mark.slow
def test_rounds_of_two_writers_and_deaths(table: Table, seed: int, depth: Depth) -> None:
    dice = random.Random(seed)
    for number in range(depth.times(2, deep=6)):
        threads = [
            threading.Thread(
                target=put, args=(on(table), *dice.sample(range(30), 12)), kwargs={"name": f"{number}.{n}"}
            )
            for n in range(2)
        ]
        for thread in threads:
            thread.start()
        if number % 2:
            die(table, *dice.sample(range(30), 8))
        for thread in threads:
            thread.join(300)
    on(table).recover()
    assert_right(table)
