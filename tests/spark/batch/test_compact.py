"""Compaction as a Spark job, alone, with tasks that fail, and beside a streaming query's commits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import TaskContext

import tablestore.spark.batch.compaction
from compaction.merge import CompactionResult, CompactionTask, compact_slot
from filestore.errors import Corrupt, NotFound, Unavailable
from filestore.files.writer import TableFiles
from filestore.model.snapshot import Operation
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.depth import sampled
from tests.waiting import until
from tests.warehouses import assert_whole, orphans


def worn(lake: SparkStore, store: Store, **options: str) -> Table:
    """Three buckets in two partitions, of six runs each."""
    table = store.create_table(
        "shop.orders",
        "p STRING, id BIGINT, v INT",
        primary_key=["p", "id"],
        partition_by=["p"],
        options={"bucket": "3", "log.system": "none", **options},
    )
    for v in range(6):
        rows = lake.spark.range(v * 20, 300).selectExpr("concat('p', id % 2) p", "id", f"{v} v")
        table.write(rows.toArrow())
    return table


def test_every_bucket_becomes_one_file(lake: SparkStore, store: Store) -> None:
    table = worn(lake, store)
    before = assert_whole(table)
    snapshot = lake.compact("shop.orders", full=True)
    assert snapshot is not None
    assert snapshot.operation is Operation.COMPACT
    assert len(table.files()) == 6
    assert all(f.vector is None for f in table.files())
    assert assert_whole(table, leftovers=False) == before
    assert lake.read("shop.orders").count() == 300
    assert lake.compact("shop.orders", full=True) is None


def test_only_what_needs_it(lake: SparkStore, store: Store) -> None:
    table = worn(lake, store)
    assert lake.compact("shop.orders") is not None
    assert lake.compact("shop.orders") is None
    assert_whole(table)
    with pytest.raises(NotFound):
        lake.compact("shop.nothing")


Attempt = Callable[[TableFiles, CompactionTask], object]


def first_try() -> bool:
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber() == 0


def fails_after_its_work(table: TableFiles, task: CompactionTask) -> CompactionResult:
    result = compact_slot(table, task.files, task.level)
    if first_try():
        raise Unavailable("lost on the way")
    return result


def dies_after_its_work(table: TableFiles, task: CompactionTask) -> CompactionResult:
    result = compact_slot(table, task.files, task.level)
    if first_try():
        os._exit(137)
    return result


def runs_twice(table: TableFiles, task: CompactionTask) -> CompactionResult:
    """What speculation amounts to: two attempts come to their ends, one is heard."""
    compact_slot(table, task.files, task.level)
    return compact_slot(table, task.files, task.level)


@pytest.mark.deep  # test_task_faults.py has such attempts
@pytest.mark.parametrize(
    "attempt", sampled([dies_after_its_work, fails_after_its_work, runs_twice], 3, test=3), ids=lambda f: f.__name__
)
def test_attempts_leave_orphans_and_nothing_else(
    lake: SparkStore, store: Store, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = worn(lake, store)
    before = assert_whole(table)
    monkeypatch.setattr(tablestore.spark.batch.compaction, "_compacted", attempt)
    assert lake.compact("shop.orders", full=True) is not None
    assert assert_whole(table) == before
    assert len(table.files()) == 6
    assert len(orphans(table)) >= 6


def always_away(table: TableFiles, task: CompactionTask) -> CompactionResult:
    raise Unavailable("the disk is away")


def one_is_damaged(table: TableFiles, task: CompactionTask) -> CompactionResult:
    if task.slot.bucket == 0:
        raise Corrupt("a file is damaged")
    return compact_slot(table, task.files, task.level)


@pytest.mark.parametrize(
    ("attempt", "error"),
    sampled([(one_is_damaged, Corrupt), (always_away, Unavailable)], 2, test=2, names=2),
    ids=["damaged", "away"],
)
def test_a_job_that_fails_changes_nothing_and_the_retry_succeeds(
    lake: SparkStore, store: Store, attempt: Attempt, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = worn(lake, store)
    before = assert_whole(table)
    with monkeypatch.context() as patch:
        patch.setattr(tablestore.spark.batch.compaction, "_compacted", attempt)
        with pytest.raises(error):
            lake.compact("shop.orders", full=True)
    assert orphans(table) == []
    assert table.filestore.state().version == 6
    assert lake.compact("shop.orders", full=True) is not None
    assert assert_whole(table, leftovers=False) == before


@pytest.mark.deep
def test_a_stream_compacts_its_own_table(lake: SparkStore, store: Store, folder: Path) -> None:
    """``compaction.in-writer``: beside the micro-batches, as Spark jobs of the same session."""
    options = {"compaction.in-writer": "true", "num-sorted-run.compaction-trigger": "3", "bucket": "2"}
    table = store.create_table("shop.copy", "id BIGINT, v BIGINT", primary_key=["id"], options=options)
    source = folder / "source"
    for number in range(8):
        lake.spark.range(number * 10, 200).selectExpr("id", f"{number}L v").coalesce(1).write.parquet(
            f"{source}/{number}"
        )
    rows = (
        lake.spark.readStream.schema("id BIGINT, v BIGINT")
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .parquet(str(source))
    )
    query = lake.write_stream("shop.copy", rows, checkpoint=str(folder / "checkpoint"), trigger={"availableNow": True})
    assert query.awaitTermination(120)
    until(lambda: any(s.operation is Operation.COMPACT for s in table.snapshots()), what="a compaction")
    [writer] = lake._writers.values()
    until(lambda: not writer.compaction.busy, what="the last compaction")
    assert len([s for s in table.snapshots() if s.operation is Operation.WRITE]) == 8
    assert len(assert_whole(table)) == 200
