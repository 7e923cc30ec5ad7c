"""One write across files, log and snapshot: the order of its steps, and the state after each failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.commit.proposal import AppVersion
from filestore.errors import CommitUnknown, Conflict, InvalidRequest, TableStoreError, Unavailable
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.faults import FailAt, FaultyStorage
from tests.logspy import LogSpy
from tests.warehouses import assert_whole, open_in_log, orphans, rows
from tests.writers import on, put, runner, sorted_batches


class Watched(FaultyStorage):
    """A storage that records commits in the log spy's list of events."""

    def __init__(self, spy: LogSpy) -> None:
        def note(call: Any) -> None:
            if call.operation == "write_new" and call.path.endswith(".json") and call.done:
                spy.events.append("snapshot")

        super().__init__(LocalStorage(), note)


@pytest.fixture
def untouched(orders: Table) -> Iterator[None]:
    """Asserts that the test changes nothing: no version, no row, no file, no open transaction."""
    put(orders, 1, 2, 3)
    version, before = orders.filestore.state().version, rows(orders)
    yield
    assert orders.filestore.state().version == version
    assert rows(orders) == before
    assert orphans(orders) == []
    assert open_in_log(orders) == []
    assert_whole(orders)


# ---------------------------------------------------------------------- order


def test_prepared_before_the_snapshot_and_ended_after_it(orders: Table, spy: LogSpy) -> None:
    writer = on(orders, Watched(spy))
    writer.write(runner(orders, 1, 2))
    acts = [e for e in spy.events if e != "append"]
    recovery = ["identity", "end_offsets", "abort_unnamed", "end_hanging"]
    assert acts == [*recovery, "begin", "prepare", "snapshot", "end commit"]


@pytest.mark.parametrize("how", [{}, {"overwrite": True}], ids=["upsert", "overwrite"])
def test_a_write_opens_the_log_once(orders: Table, spy: LogSpy, how: dict[str, Any]) -> None:
    writer = on(orders, LocalStorage())
    for expected in (1, 2, 3):
        writer.write(runner(orders, 1, 2), **how)
        assert spy.opened == expected


def test_the_log_is_asked_for_dead_writers_once(orders: Table, spy: LogSpy) -> None:
    writer = on(orders, LocalStorage())
    for i in range(3):
        writer.write(runner(orders, i))
    assert spy.events.count("abort_unnamed") == 1


def test_a_write_needs_no_right_to_end_what_hangs(orders: Table, spy: LogSpy, caplog: pytest.LogCaptureFixture) -> None:
    """Writing markers of another producer needs the right to ALTER the cluster, which writers need not have."""
    spy.failing["end_hanging"] = InvalidRequest("check the broker's ACLs", code="log-not-authorized")
    assert on(orders, LocalStorage()).recover().completed == ()
    assert "readers with read_committed wait" in caplog.text
    put(orders, 1)
    assert [row["id"] for row in rows(orders)] == [1]


def test_an_overwrite_logs_a_control_record_in_each_partition(orders: Table, spy: LogSpy) -> None:
    put(orders, 1)
    spy.events.clear()
    on(orders, Watched(spy)).write(runner(orders, 7), overwrite=True)
    recovery = ["identity", "end_offsets", "end commit", "abort_unnamed", "end_hanging"]
    write = ["begin", "control", "control", "prepare"]
    assert spy.events == [*recovery, *write, "snapshot", "end commit"]


def test_a_table_without_a_log_never_opens_one(store: Store, spy: LogSpy) -> None:
    table = store.create_table(
        "shop.quiet", "id BIGINT, name STRING", primary_key=["id"], options={"log.system": "none"}
    )
    on(table, LocalStorage()).write(runner(table, 1))
    on(table, LocalStorage()).write(runner(table, 2), overwrite=True)
    assert spy.events == []
    assert [row["id"] for row in rows(table)] == [2]
    assert not Path(table.location, "_log").exists()


# ---------------------------------------------------------------------- the same write twice


def test_a_write_of_an_app_happens_once(orders: Table) -> None:
    first = orders.write(pa.table({"id": [1], "name": ["a"]}), app=("job", 7))
    for number in (7, 6):
        again = orders.write(pa.table({"id": [2], "name": ["b"]}), app=("job", number))
        assert again == first
    assert [row["id"] for row in assert_whole(orders, leftovers=False)] == [1]
    other = orders.write(pa.table({"id": [2], "name": ["b"]}), app=("other", 1))
    assert other.version == first.version + 1


def test_two_attempts_of_one_app_at_once_give_one_commit(orders: Table) -> None:
    """The second one is prepared while the first commits, and finds the commit at its own turn."""
    writer = on(orders, LocalStorage())

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        outcomes = runner(orders, 1, 2)(job)
        orders.write(pa.table({"id": [1], "name": ["first"]}), app=("job", 1))
        return outcomes

    snapshot = writer.write(run, app=AppVersion("job", 1))
    assert snapshot.version == 1
    assert rows(orders) == [{"id": 1, "name": "first"}]
    assert_whole(orders, leftovers=False)


def test_a_write_that_was_committed_before_runs_no_task(orders: Table, spy: LogSpy) -> None:
    """Neither files nor log records of the second write are needed, so it writes none."""
    writer, app = on(orders, LocalStorage()), AppVersion("job", 7)
    first = writer.write(runner(orders, 1), app=app)
    spy.events.clear()
    called: list[WriteJob] = []
    assert writer.write(lambda job: called.append(job) or [], app=app) == first
    assert called == []
    assert "begin" not in spy.events


# ---------------------------------------------------------------------- lost races


def test_a_write_that_lost_the_race_is_put_on_top(orders: Table) -> None:
    put(orders, 1, 2, name="old")
    writer = on(orders, LocalStorage())

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        outcomes = runner(orders, 2, 3, name="mine")(job)
        put(orders, 2, 3, 4, name="theirs")
        return outcomes

    assert writer.write(run).version == 3
    assert {row["id"]: row["name"] for row in assert_whole(orders, leftovers=False)} == {
        1: "old",
        2: "mine",
        3: "mine",
        4: "theirs",
    }


def test_deletes_that_lost_the_race_delete_what_was_written_in_between(orders: Table) -> None:
    batches = sorted_batches(orders, pa.table({"id": [2, 3], "_kind": ["-D", "-D"]}))
    writer = on(orders, LocalStorage())

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        outcomes = [job.run(batches, "0.0")]
        put(orders, 1, 2, 3)
        return outcomes

    writer.write(run)
    assert [row["id"] for row in assert_whole(orders, leftovers=False)] == [1]


def test_an_overwrite_removes_what_was_written_in_between(orders: Table) -> None:
    writer = on(orders, LocalStorage())

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        outcomes = runner(orders, 7)(job)
        put(orders, 1, 2, 3)
        return outcomes

    writer.write(run, overwrite=True)
    assert [row["id"] for row in assert_whole(orders, leftovers=False)] == [7]


@pytest.mark.parametrize("rounds", [1, 3])
def test_rows_that_lose_to_a_later_sequence_are_compensated_in_the_log(store: Store, rounds: int) -> None:
    table = store.create_table(
        "shop.seq", "id BIGINT, name STRING, at INT", primary_key=["id"], options={"sequence.field": "at"}
    )

    def rows_at(at: int, *ids: int) -> pa.Table:
        return pa.table({"id": ids, "name": [f"at {at}"] * len(ids), "at": [at] * len(ids)})

    table.write(rows_at(1, 1, 2, 3))
    batches = sorted_batches(table, rows_at(5, 1, 2, 3, 4))
    storage = FaultyStorage(LocalStorage())
    writer = on(table, storage)
    left = rounds

    def between(call: Any) -> None:
        """Another writer commits first, again and again: some rows of ours lose, and some win after all."""
        nonlocal left
        if call.operation == "write_new" and call.path.endswith(".json") and not call.done and left:
            left -= 1
            if left % 2:
                table.write(pa.table({"id": [2], "_kind": ["-D"], "at": [99 + rounds]}))
            else:
                table.write(rows_at(9 + rounds - left, 2, 4))

    storage.hook = between
    writer.write(lambda job: [job.run(batches, "0.0")])
    assert left == 0
    assert_whole(table, leftovers=False)


def test_too_many_lost_races_are_a_conflict_and_leave_nothing(store: Store) -> None:
    table = store.create_table(
        "shop.busy", "id BIGINT, name STRING", primary_key=["id"], options={"commit.max-retries": "2"}
    )
    storage = FaultyStorage(LocalStorage())
    writer = on(table, storage)
    number = 0

    def always_faster(call: Any) -> None:
        nonlocal number
        if call.operation == "write_new" and call.path.endswith(".json") and not call.done:
            number += 1
            put(table, number, name="theirs")

    storage.hook = always_faster
    with pytest.raises(Conflict) as caught:
        writer.write(runner(table, 1, name="mine"))
    assert caught.value.code == "too-many-races"
    storage.hook = lambda call: None
    assert all(row["name"] == "theirs" for row in assert_whole(table, leftovers=False))


# ---------------------------------------------------------------------- failures before the snapshot


@pytest.mark.usefixtures("untouched")
def test_a_runner_that_fails_leaves_nothing_of_the_tasks_that_it_reports(orders: Table) -> None:
    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        good = job.run(sorted_batches(orders, pa.table({"id": [8, 9], "name": ["x", "y"]})), "0.0")
        return [good, TaskOutcome(error=InvalidRequest("no", code="no-such-thing"))]

    with pytest.raises(InvalidRequest):
        orders.writer().write(run)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("act", ["append", "prepare", "begin"])
def test_a_log_that_fails_before_the_snapshot_stops_the_write(orders: Table, spy: LogSpy, act: str) -> None:
    spy.failing[act] = Unavailable("the log is down")
    with pytest.raises(Unavailable):
        orders.writer().write(runner(orders, 8, 9))
    spy.failing.clear()


@pytest.mark.usefixtures("untouched")
def test_a_log_that_is_down_stops_a_write_before_any_work(orders: Table, spy: LogSpy) -> None:
    spy.failing["abort_unnamed"] = Unavailable("the log is down")
    called: list[WriteJob] = []
    with pytest.raises(Unavailable):
        on(orders, LocalStorage()).write(lambda job: called.append(job) or [])
    assert called == []


@pytest.mark.usefixtures("untouched")
def test_a_failed_commit_leaves_nothing(orders: Table) -> None:
    storage = FaultyStorage(LocalStorage(), FailAt(1, Unavailable("disk full"), operation="write_new", path=".json"))
    with pytest.raises(Unavailable) as caught:
        on(orders, storage).write(runner(orders, 2, 8))
    assert not isinstance(caught.value, CommitUnknown)


# ---------------------------------------------------------------------- failures around the snapshot


@pytest.mark.parametrize("error", [Unavailable("late"), ConnectionResetError("late")], ids=type)
def test_a_lost_reply_of_the_commit_is_found_in_the_history(orders: Table, error: Exception) -> None:
    """Fault test 2: the commit has its effect and its reply is lost; there is exactly one snapshot."""
    put(orders, 1, 2)
    fault = FailAt(1, error, operation="write_new", path=".json", after=True)
    writer = on(orders, FaultyStorage(LocalStorage(), fault))
    if isinstance(error, TableStoreError):
        assert writer.write(runner(orders, 2, 3, name="b")).version == 2
        leftovers = False
    else:
        with pytest.raises(ConnectionResetError):
            writer.write(runner(orders, 2, 3, name="b"))
        leftovers = True
    assert fault.fired
    assert {row["id"]: row["name"] for row in assert_whole(orders, leftovers=leftovers)} == {1: "a", 2: "b", 3: "b"}
    assert orders.filestore.state().version == 2
    put(orders, 4)
    assert open_in_log(orders) == [], "the next write ends what is named"


class Retrying(FaultyStorage):
    """A store whose client repeats a conditional put after a lost reply, and learns that the file is there."""

    def write_new(self, path: str, data: bytes) -> None:
        if path.endswith(".json") and "_delta_log" in path:
            self.inner.write_new(path, data)
        self.inner.write_new(path, data)


def test_a_store_that_repeats_a_commit_by_itself_gives_one_snapshot(orders: Table) -> None:
    writer = on(orders, Retrying(LocalStorage()))
    assert writer.write(runner(orders, 1, 2)).version == 1
    assert orders.filestore.state().version == 1
    assert len(assert_whole(orders, leftovers=False)) == 2


def test_when_nobody_knows_everything_stays(orders: Table) -> None:
    """The commit succeeded, and the storage is gone: the files must not be removed, since a snapshot names them."""
    gone = False

    def down(call: Any) -> None:
        nonlocal gone
        if call.operation == "write_new" and call.path.endswith(".json") and call.done:
            gone = True
        if gone:
            raise Unavailable("the storage is gone")

    writer = on(orders, FaultyStorage(LocalStorage(), down))
    with pytest.raises(CommitUnknown, match="look for commit"):
        writer.write(runner(orders, 1, 2))
    assert [row["id"] for row in assert_whole(orders)] == [1, 2]
    put(orders, 3)
    assert len(assert_whole(orders)) == 3
    assert open_in_log(orders) == []


def test_when_nobody_knows_and_it_did_not_land_the_next_writer_tidies_the_log(orders: Table) -> None:
    gone = False

    def down(call: Any) -> None:
        nonlocal gone
        gone = gone or (call.operation == "write_new" and call.path.endswith(".json"))
        if gone:
            raise Unavailable("the storage is gone")

    with pytest.raises(CommitUnknown):
        on(orders, FaultyStorage(LocalStorage(), down)).write(runner(orders, 1, 2))
    assert open_in_log(orders) != []
    assert len(orders.filestore.leases.abandoned()) == 1
    put(orders, 3)
    assert open_in_log(orders) == []
    assert orders.filestore.leases.abandoned() == []
    assert [row["id"] for row in assert_whole(orders)] == [3]


# ---------------------------------------------------------------------- failures after the snapshot


# ---------------------------------------------------------------------- dead writers


def test_a_living_writers_transaction_is_left_alone(orders: Table) -> None:
    writer = on(orders, LocalStorage())

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        outcomes = runner(orders, 1, 2)(job)
        on(orders, LocalStorage()).write(runner(orders, 3))  # a writer looks for dead writers first
        assert len(open_in_log(orders)) == 1, "the outer writer's"
        return outcomes

    writer.write(run)
    assert open_in_log(orders) == []
    assert [row["id"] for row in assert_whole(orders, leftovers=False)] == [1, 2, 3]
