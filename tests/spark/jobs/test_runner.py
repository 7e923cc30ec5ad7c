"""Every job of ours on a real Spark: errors are returned as values, crashes have a name, nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from filestore.errors import Conflict, Corrupt, InvalidRequest, NotFound, TableStoreError, Unavailable
from filestore.files.writer import TableFiles
from tablestore import Store
from tablestore.spark import SparkStore, error_of
from tablestore.spark.jobs import runner
from tablestore.spark.jobs.runner import Attempt, run_tasks
from tests.waiting import until

Work = Callable[[TableFiles, str], str]


@pytest.fixture
def table(store: Store) -> TableFiles:
    made = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
    return made.filestore.table_files(made.filestore.state())


def remove(table: TableFiles, done: Sequence[str]) -> None:
    for path in done:
        Path(path).unlink()


def run(spark: SparkSession, table: TableFiles, tasks: Sequence[str], work: Work) -> list[str]:
    return run_tasks(spark, table, tasks, work, "test", remove)


def write(path: str) -> str:
    Path(path).write_text("x")
    return path


def waits_for_ever(path: str) -> None:
    """Waits until its job is cancelled."""
    Path(path).write_text("x")
    until(lambda: not Path(path).exists(), what="that is never", seconds=250)


def test_results_come_in_the_order_of_the_tasks(spark: SparkSession, table: TableFiles) -> None:
    assert run(spark, table, [str(n) for n in range(7)], lambda _, task: task * 2) == [str(n) * 2 for n in range(7)]
    assert run(spark, table, [], lambda _, task: task) == []


def test_later_collections_of_a_worker_skip_what_it_holds_after_a_task(spark: SparkSession, table: TableFiles) -> None:
    def exempt(_: TableFiles, task: str) -> str:
        return f"{os.getpid()} {gc.get_freeze_count()} {len(gc.get_objects())}"

    seen: set[str] = set()
    for _ in range(20):  # Spark has several workers, and chooses one
        worker, frozen, others = run(spark, table, ["one"], exempt)[0].split()
        if worker in seen:
            assert int(frozen) > int(others)
            return
        seen.add(worker)
    pytest.fail("Spark used no worker again")


def test_an_error_keeps_its_class_message_and_code_and_stops_the_others(
    spark: SparkSession, table: TableFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two cores one task waits for ever, while another one writes, and then one fails."""
    monkeypatch.setattr(runner, "GRACE_S", 0.5)
    waiting, written = str(folder / "waiting"), str(folder / "written")

    def work(_: TableFiles, task: str) -> str:
        if task == waiting:
            waits_for_ever(waiting)
        elif task == written:
            return write(written)
        raise Conflict("line 1\nline 2", code="merged-rows-changed")

    with pytest.raises(Conflict) as caught:
        run(spark, table, [waiting, written, "fails"], work)
    assert (caught.value.message, caught.value.code) == ("line 1\nline 2", "merged-rows-changed")
    assert Path(waiting).exists()
    assert not Path(written).exists(), "what a finished task wrote is removed"


def test_tasks_that_are_at_work_when_another_fails_end_and_leave_nothing(
    spark: SparkSession, table: TableFiles, folder: Path
) -> None:
    """Spark would kill them in the middle of a file, and then nobody would remove that file."""
    failing, written = str(folder / "failing"), str(folder / "written")

    def work(_: TableFiles, task: str) -> str:
        if task == failing:
            until(lambda: Path(written).exists(), what="the other task's file", seconds=250)
            write(failing)
            raise Corrupt("a file is damaged")
        write(written)
        until(lambda: Path(failing).exists(), what="the failure of the other task", seconds=250)
        return written

    with pytest.raises(Corrupt):
        run(spark, table, [failing, written], work)
    assert not Path(written).exists()


def test_what_may_pass_is_tried_again_and_its_last_error_comes_back(
    spark: SparkSession, table: TableFiles, folder: Path
) -> None:
    def away(_: TableFiles, task: str) -> str:
        with open(f"{folder}/attempts", "a") as file:
            file.write(str(Attempt.current().number))
        raise Unavailable("the disk is away", code="storage-unavailable")

    master = spark.conf.get("spark.master")
    assert SparkSession.builder.master("local[1]").getOrCreate() is spark  # as a program does that uses ours, too
    try:
        with pytest.raises(Unavailable, match="the disk is away") as caught:
            run(spark, table, ["one"], away)
    finally:
        spark.conf.set("spark.master", str(master))
    assert caught.value.code == "storage-unavailable"
    assert Path(folder, "attempts").read_text() == "012"


def test_a_worker_that_dies_is_a_crash_with_a_name(spark: SparkSession, table: TableFiles, folder: Path) -> None:
    def work(_: TableFiles, task: str) -> str:
        if task == "dies":
            until(lambda: Path(folder, "written").exists(), what="the other task", seconds=250)
            os._exit(137)
        return write(task)

    with pytest.raises(Unavailable, match=r"a Python worker of Spark died.*Spark says: ") as caught:
        run(spark, table, ["dies", f"{folder}/written"], work)
    assert caught.value.code == "spark-worker-died"
    assert not Path(folder, "written").exists()


def test_an_error_that_is_none_of_ours_stays_sparks(spark: SparkSession, table: TableFiles) -> None:
    def work(_: TableFiles, task: str) -> str:
        raise ZeroDivisionError("a bug")

    with pytest.raises(PySparkException, match="a bug"):
        run(spark, table, ["one"], work)


def test_ctrl_c_stops_the_job_and_removes_what_it_wrote(spark: SparkSession, table: TableFiles, folder: Path) -> None:
    """PySpark alone could not cancel the job: its connection was in the middle of a call."""
    waiting, written = str(folder / "waiting"), str(folder / "written")
    tracker = spark.sparkContext.statusTracker()

    def work(_: TableFiles, task: str) -> str:
        if task == waiting:
            waits_for_ever(waiting)
        return write(task)

    def one_has_ended() -> bool:
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numCompletedTasks == 1 and stage.numTasks == 2 for stage in stages)

    def interrupt() -> None:
        until(lambda: Path(waiting).exists() and one_has_ended(), what="a task that waits alone", seconds=250)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(spark, table, [waiting, written], work)
    thread.join()
    assert not Path(written).exists()
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    assert spark.range(3).count() == 3, "the session lives on"


def test_a_job_that_the_user_cancels_is_unavailable(spark: SparkSession, table: TableFiles, folder: Path) -> None:
    """The user cancels by a job group, which the runner keeps."""
    waiting, context = str(folder / "waiting"), spark.sparkContext

    def work(_: TableFiles, task: str) -> str:
        waits_for_ever(waiting)
        return task

    def cancel() -> None:
        until(Path(waiting).exists, what="a task that waits", seconds=250)
        context.cancelJobGroup("mine")

    thread = threading.Thread(target=cancel)
    thread.start()
    context.setJobGroup("mine", "my own description")
    try:
        with pytest.raises(Unavailable, match="cancelled") as caught:
            run(spark, table, [waiting], work)
        assert context.getLocalProperty("spark.job.description") == "my own description"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
        thread.join()
    assert caught.value.code == "spark-cancelled"
    assert set(context.getJobTags()) == set()


# ------------------------------------------------------------------------------------------------ jobs of tables


def pending(lake: SparkStore, store: Store) -> Path:
    """Returns the file of a pending run of a table with values to merge."""
    options = {"write-mode": "merge-on-read", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    table = store.create_table(
        "shop.m", "id BIGINT, n INT", primary_key=["id"], options={**options, "bucket": "2", "log.system": "none"}
    )
    for _ in range(2):
        lake.write("shop.m", lake.spark.range(50).selectExpr("id", "1 AS n"))
    [run, *_] = list(table.filestore.state().pending)
    return Path(table.location, run.path)


@pytest.mark.deep
def test_an_overlay_whose_file_is_missing_is_an_error_of_ours(lake: SparkStore, store: Store) -> None:
    """It was an error of Spark that looked like a crash."""
    run = pending(lake, store)
    held = run.rename(run.with_suffix(".held"))
    with pytest.raises(TableStoreError, match=run.name) as caught:
        lake.read("shop.m")
    assert isinstance(caught.value, NotFound | Corrupt)
    held.rename(run)
    assert {row.n for row in lake.read("shop.m").collect()} == {2}


# ------------------------------------------------------------------------------------------------ the data source


@pytest.fixture
def source(lake: SparkStore, store: Store) -> Iterator[Callable[..., Any]]:
    store.create_table("shop.s", "id BIGINT", primary_key=["id"]).write(lake.spark.range(9).toArrow())
    yield lambda **options: lake.spark.read.format("tablestore").options(catalog=store.target, **options)


def test_an_error_while_a_read_is_planned_is_found_in_sparks(source: Callable[..., Any]) -> None:
    with pytest.raises(PySparkException) as caught:
        source().load("shop.nothing")
    found = error_of(caught.value)
    assert isinstance(found, NotFound)
    assert found.code != "not-found"
    assert "nothing" in found.message


@pytest.mark.deep
def test_an_error_in_a_task_of_a_read_is_found_in_sparks(source: Callable[..., Any], store: Store) -> None:
    frame = source().load("shop.s")
    for file in store.table("shop.s").files():
        Path(store.table("shop.s").location, file.path).unlink()
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    found = error_of(caught.value)
    assert isinstance(found, NotFound | Corrupt)
    assert found.code
    assert ".parquet" in found.message


def test_an_error_of_a_streaming_query_is_found_in_its_exception(lake: SparkStore, store: Store, folder: Path) -> None:
    store.create_table("shop.u", "id BIGINT", primary_key=["id"])
    (folder / "inbox").mkdir()
    (folder / "inbox" / "1.json").write_text('{"id": 1, "odd": 2}')
    frame = lake.spark.readStream.schema("id BIGINT, odd INT").json(str(folder / "inbox"))
    query = lake.write_stream("shop.u", frame, checkpoint=folder / "checkpoint", trigger={"availableNow": True})
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    found = error_of(caught.value)
    assert isinstance(found, InvalidRequest)
    assert found.code == "unknown-column"
    assert "'odd'" in found.message
