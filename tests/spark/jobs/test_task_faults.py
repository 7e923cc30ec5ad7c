"""Fault test 15: retried, killed and speculative tasks never double a row or a record of the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

import tablestore.spark.batch.writing
from filestore.errors import Unavailable
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.depth import sampled
from tests.warehouses import assert_whole, changes, open_in_log, orphans

Attempt = Callable[[WriteJob, Any, str], TaskOutcome]


def attempt_number() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


def fails_after_its_work(job: WriteJob, batches: Any, attempt: str) -> TaskOutcome:
    """The files are there and the log is prepared when the first attempt fails."""
    outcome = job.run(batches, attempt)
    if attempt_number() == 0:
        raise RuntimeError("lost on the way")
    return outcome


def dies_after_its_work(job: WriteJob, batches: Any, attempt: str) -> TaskOutcome:
    """The worker is killed, as a kernel short of memory does."""
    outcome = job.run(batches, attempt)
    if attempt_number() == 0:
        os._exit(137)
    return outcome


def runs_twice(job: WriteJob, batches: Any, attempt: str) -> TaskOutcome:
    """Two attempts come to their ends, and only one is heard: what speculation amounts to."""
    rows = list(batches)
    job.run(iter(rows), f"{attempt}9")
    return job.run(iter(rows), attempt)


def fails_in_the_middle(job: WriteJob, batches: Any, attempt: str) -> TaskOutcome:
    def some() -> Iterator[Any]:
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if attempt_number() < 2:
                raise OSError("a disk that comes back")
            yield batch.slice(batch.num_rows // 2)

    return job.run(some(), attempt)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "attempt",
    sampled([dies_after_its_work, fails_after_its_work, runs_twice, fails_in_the_middle], 2, test=2),
    ids=lambda f: f.__name__,
)
def test_attempts(lake: SparkStore, store: Store, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    table = store.create_table("shop.orders", "id BIGINT, v INT", primary_key=["id"], options={"bucket": "2"})
    table.write(lake.spark.range(50).selectExpr("id", "0 v").toArrow())
    with monkeypatch.context() as patch:
        patch.setattr(tablestore.spark.batch.writing, "_attempt", attempt)
        snapshot = lake.write("shop.orders", lake.spark.range(40, 120).selectExpr("id", "1 v"))
    assert snapshot.version == 2
    assert snapshot.metrics["rows_written"] == 80
    assert len(changes(table, version=1)) == 80
    assert sum(r.count for t in snapshot.transactions for r in t.ranges) == 80
    assert [row["v"] for row in sorted(assert_whole(table), key=lambda row: row["id"])] == [0] * 40 + [1] * 80
    assert open_in_log(table) == [], "what the other attempts had prepared is aborted"
    left = orphans(table)
    assert all("data file" in o or "deletion vector" in o for o in left), "and their files are no part of the table"


def test_a_task_that_never_succeeds(lake: SparkStore, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = store.create_table("shop.orders", "id BIGINT, v INT", primary_key=["id"], options={"bucket": "2"})
    with monkeypatch.context() as patch:
        patch.setattr(tablestore.spark.batch.writing, "_attempt", always_fails)
        with pytest.raises(Exception, match="never"):
            lake.write("shop.orders", lake.spark.range(80).selectExpr("id", "1 v"))
    assert table.filestore.state().version == 0
    assert open_in_log(table) == [], "the other consumers of the log must not wait for it"
    lake.write("shop.orders", lake.spark.range(10).selectExpr("id", "1 v"))
    assert len(assert_whole(table)) == 10


def finds_no_log(job: WriteJob, batches: Any, attempt: str) -> TaskOutcome:
    raise Unavailable("the broker is away", code="log-unavailable")


@pytest.mark.deep  # test_runner.py has errors of tasks
def test_a_log_that_is_away_in_all_tasks_is_an_error_of_ours(
    lake: SparkStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its code, too: whoever retries on `Unavailable` must get it."""
    store.create_table("shop.orders", "id BIGINT", primary_key=["id"])
    monkeypatch.setattr(tablestore.spark.batch.writing, "_attempt", finds_no_log)
    with pytest.raises(Unavailable, match="the broker is away") as caught:
        lake.write("shop.orders", lake.spark.range(9))
    assert caught.value.code == "log-unavailable"


def always_fails(job: WriteJob, batches: Any, attempt: str) -> TaskOutcome:
    outcome = job.run(batches, attempt)
    if outcome.results and outcome.results[0].slot.bucket == 0:
        raise RuntimeError("never")
    return outcome


@pytest.mark.deep  # as test_sink.py has it
def test_a_frame_whose_tasks_are_retried(lake: SparkStore, store: Store, folder: Path) -> None:
    """The stage before the shuffle fails once: its rows are made again."""
    table = store.create_table("shop.orders", "id BIGINT, v INT", primary_key=["id"], options={"bucket": "2"})

    def flaky(batches: Any) -> Any:
        yield from batches
        if attempt_number() == 0:
            raise RuntimeError("once")

    frame = lake.spark.range(0, 1000, 1, numPartitions=3).selectExpr("id % 100 id", "cast(id AS INT) v")
    lake.write("shop.orders", frame.mapInArrow(flaky, "id BIGINT, v INT"))
    assert {row["id"]: row["v"] for row in assert_whole(table)} == {k: 900 + k for k in range(100)}


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.timeout(900)
def test_a_worker_stays_below_a_gigabyte_with_five_million_rows(
    lake: SparkStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups are streamed: memory does not grow with the bucket."""
    table: Table = store.create_table(
        "shop.big",
        "id BIGINT, a BIGINT, b DOUBLE, c STRING, d STRING, e TIMESTAMP, f INT, g BOOLEAN",
        primary_key=["id"],
        options={"bucket": "2"},
    )

    def frame(start: int, end: int) -> Any:
        return lake.spark.range(start, end).selectExpr(
            "id", "id * 7 a", "rand(1) b", "concat('customer ', id % 10007) c", "sha1(cast(id AS STRING)) d",
            "timestamp_seconds(1700000000 + id) e", "cast(id % 97 AS INT) f", "id % 2 = 0 g",
        )  # fmt: skip

    monkeypatch.setattr(tablestore.spark.batch.writing, "_attempt", measured)
    peaks: list[int] = []
    for start, end in ((0, 5_000_000), (4_800_000, 5_050_000)):
        lake.write("shop.big", frame(start, end))
        peaks += [int(p.read_text()) for p in Path(table.location, "_log").glob("*.peak")]
    print(f"peaks in MB: {[peak // 1024 for peak in peaks]}")
    assert len(peaks) >= 4
    assert max(peaks) <= 1024 * 1024
    assert table.detail()["rows"] == 5_050_000


def measured(job: WriteJob, batches: Any, attempt: str) -> TaskOutcome:
    """The attempt, and its process's peak memory in KB in a file beside the log."""
    outcome = job.run(batches, attempt)
    [peak] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    Path(job.table.location, "_log", f"{os.getpid()}.{attempt}.peak").write_text(peak)
    return outcome
