"""Found while reviewing one write across both stores: what failures left behind, or reported wrongly."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.commit.proposal import AppVersion
from filestore.errors import Corrupt, InvalidRequest, Unavailable
from filestore.storage.local import LocalStorage
from tablestore import Table
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.faults import FaultyStorage, Undeletable
from tests.logspy import LogSpy
from tests.warehouses import assert_whole, open_in_log, orphans, rows, warehouse
from tests.writers import on, put, runner, sorted_batches


@pytest.fixture
def orders() -> Iterator[Table]:
    with warehouse() as store:
        yield store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options={"bucket": "2"})


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> LogSpy:
    return LogSpy.installed(monkeypatch)


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


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("bad", ["null-key", "row-kind"])
def test_bad_rows_change_nothing_wherever_they_stand(orders: Table, bad: str) -> None:
    """Files of many good buckets are removed if the last bucket has a bad row."""
    ids: list[int | None] = list(range(100))
    kinds = ["+I"] * 100
    if bad == "null-key":
        ids[50] = None
    else:
        kinds[50] = "+X"
    with pytest.raises(InvalidRequest):
        orders.write(pa.table({"id": ids, "name": ["x"] * 100, "_kind": kinds}))


def test_a_runner_that_dies_leaves_no_open_transaction(orders: Table) -> None:
    """When Spark gives a job up, finished tasks are not reported, but the log's consumers must not wait for them."""

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        job.run(sorted_batches(orders, pa.table({"id": [8, 9], "name": ["x", "y"]})), "0.0")
        raise RuntimeError("the job was cancelled")

    with pytest.raises(RuntimeError):
        orders.writer().write(run)
    assert open_in_log(orders) == []
    assert assert_whole(orders) == []


def test_attempts_that_the_runner_does_not_report_are_aborted(orders: Table) -> None:
    batches = sorted_batches(orders, pa.table({"id": [1, 2], "name": ["x", "y"]}))

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        job.run(batches, "0.0")
        return [job.run(batches, "0.1")]

    snapshot = orders.writer().write(run, retries=True)
    assert [t.id.rpartition("/")[2] for t in snapshot.transactions] == ["0.1"]
    assert open_in_log(orders) == []
    assert len(assert_whole(orders)) == 2


def test_what_a_copy_of_a_task_leaves_after_the_commit_is_aborted_by_the_next_write(orders: Table) -> None:
    """Spark's slower copy of a task may run on for a while after the write."""
    batches = sorted_batches(orders, pa.table({"id": [1, 2], "name": ["x", "y"]}))
    jobs: list[WriteJob] = []

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        jobs.append(job)
        return [job.run(batches, "0.0")]

    writer = orders.writer()
    writer.write(run, retries=True)
    jobs[0].run(batches, "0.1")
    assert len(open_in_log(orders)) == 1
    writer.write(runner(orders, 3), retries=True)
    assert open_in_log(orders) == []
    assert len(assert_whole(orders)) == 3


def test_offsets_of_another_log_are_not_used(orders: Table) -> None:
    put(orders, 1)
    [identity] = Path(orders.location).glob("_log/**/log.json")
    own = identity.read_text()
    identity.write_text(own.replace(json.loads(own)["log_id"], "of-another-log"))
    for use in (lambda: on(orders, LocalStorage()).write(runner(orders, 2)), lambda: list(orders.follow(stop=1))):
        with pytest.raises(Corrupt) as caught:
            use()
        assert caught.value.code == "log-replaced"
    identity.write_text(own)
    on(orders, LocalStorage()).write(runner(orders, 2))
    assert len(assert_whole(orders)) == 2


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("act", ["begin", "control", "prepare"])
def test_an_overwrite_that_cannot_be_announced_does_not_happen(orders: Table, spy: LogSpy, act: str) -> None:
    spy.failing[act] = Unavailable("the log is down")
    with pytest.raises(Unavailable):
        orders.writer().write(runner(orders, 8, 9), overwrite=True)
    spy.failing.clear()


@pytest.mark.parametrize(
    "error", [Unavailable("down"), InvalidRequest("no rights", code="log-not-authorized")], ids=type
)
def test_once_the_snapshot_stands_no_error_says_that_it_failed(orders: Table, spy: LogSpy, error: Any) -> None:
    """Fault test 8: the snapshot is written, the log transaction is not ended. The next write rolls it forward."""
    writer = orders.writer()
    spy.failing["end commit"] = error
    assert writer.write(runner(orders, 1, 2)).version == 1
    assert len(open_in_log(orders)) == 1
    assert len(assert_whole(orders)) == 2, "our readers do not ask the log what is committed"
    spy.failing.clear()
    on(orders, LocalStorage()).write(runner(orders, 3))
    assert open_in_log(orders) == []
    assert orders.filestore.state().log.open[-1].id.endswith("0.0")
    assert len(assert_whole(orders, leftovers=False)) == 3


def test_a_repeated_write_of_an_app_rolls_the_log_forward_too(orders: Table, spy: LogSpy) -> None:
    """A query that died between snapshot and log repeats its batch: that only ends the log's transaction."""
    spy.failing["end commit"] = Unavailable("killed")
    on(orders, LocalStorage()).write(runner(orders, 1), app=AppVersion("query", 0))
    spy.failing.clear()
    assert len(open_in_log(orders)) == 1
    on(orders, LocalStorage()).write(runner(orders, 1), app=AppVersion("query", 0))
    assert open_in_log(orders) == []


def test_transactions_that_have_ended_leave_the_tables_list(orders: Table) -> None:
    for i in range(5):
        put(orders, i)
    assert len(orders.filestore.state().log.open) == 1, "only those of the newest commit"
    assert len(orders._writer._recovery.ended) <= 2, "and are forgotten here, too"


def test_cleaning_up_may_fail_without_harm(orders: Table) -> None:
    storage = FaultyStorage(LocalStorage(), Undeletable("_runs"))
    batches = sorted_batches(orders, pa.table({"id": [2, 3], "_kind": ["-D", "-D"]}))
    assert on(orders, storage).write(lambda job: [job.run(batches, "0.0")]).version == 1
    assert len(orphans(orders)) >= 1
    assert open_in_log(orders) == [], "the log was ended first"


def test_what_a_dead_writer_prepared_is_aborted_by_the_next_write_of_anyone(orders: Table) -> None:
    """A dead writer is known by its lease. An old writer finds it as well as a new one."""
    long_at_work = orders.writer()
    long_at_work.write(runner(orders, 1))
    dead = prepared_and_dead(orders, 7, 8)
    assert open_in_log(orders) == [dead]
    long_at_work.write(runner(orders, 2))
    assert open_in_log(orders) == []
    assert orders.filestore.leases.abandoned() == []
    assert [row["id"] for row in assert_whole(orders)] == [1, 2]


def prepared_and_dead(table: Table, *ids: int) -> str:
    """Leaves the open transaction of a writer that died between its log and its snapshot."""
    job_done: list[TaskOutcome] = []

    class Died(BaseException):
        pass

    storage = FaultyStorage(LocalStorage())

    def die(call: Any) -> None:
        if job_done:
            raise Died

    storage.hook = die

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        outcomes = runner(table, *ids)(job)
        job_done.extend(outcomes)
        return outcomes

    with pytest.raises(Died):
        on(table, storage).write(run)
    transaction = job_done[0].transaction
    assert transaction is not None
    return transaction.id
