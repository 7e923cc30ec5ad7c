"""What is sent to the tasks of a job: a large version's files once, and mapped by the workers of an executor."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tablestore
from filestore.delta.base import FEW_FILES
from filestore.delta.by_slot import BySlot
from filestore.delta.checkpoint import write_checkpoint
from filestore.delta.columns import ColumnFiles
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile, DeletionVector, Slot
from tablestore import Store
from tablestore.spark import SparkStore
from tablestore.spark.jobs import sent as sent_module
from tablestore.spark.jobs.local_disk import local_disk
from tablestore.spark.jobs.runner import run_tasks
from tablestore.spark.jobs.sent import Sent, sent
from tests.tables import assert_healthy
from tests.warehouses import rows

MANY = 30
"""From so many files on they are broadcast in these tests."""


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_module, "FEW_FILES", MANY - 1)


@pytest.fixture
def table(store: Store) -> TableFiles:
    made = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
    return made.filestore.table_files(made.filestore.state())


def file_at(number: int, name: str = "a") -> DataFile:
    slot = Slot((("p", str(number)),), number % 4)
    vector = DeletionVector("u", "x" * 20, 1, 40, 1) if number % 3 else None
    return DataFile(f"{number}/{name}.parquet", slot, 10, 2, 1, '{"numRecords":2}', vector=vector)


def version(files: int) -> BySlot[DataFile]:
    """Files as columns, of which one slot has changed since."""
    base: BySlot[DataFile] = BySlot.on(ColumnFiles.of(BySlot(map(file_at, range(files))), ["p"]))
    return base.changed([(file_at(0).path, file_at(0).slot)], [file_at(0, "b")])


def found(spark: SparkSession, table: TableFiles, value: Sent[BySlot[DataFile]], *, tasks: int = 2) -> list[Any]:
    """What each task has: the files, their file on its disk, whether the worker has mapped it, and all such files."""

    def look(_: TableFiles, task: int) -> tuple[list[DataFile], str, bool, list[str]]:
        files = list(value.get())
        folder = local_disk(0)
        names = sorted(name for name in os.listdir(folder) if name.startswith("tablestore-files-"))
        own = value.parts[0].name if value.parts else ""
        mapped = bool(own) and f"{folder}/{own}" in Path("/proc/self/maps").read_text()
        return files, own, mapped, names

    return run_tasks(spark, table, list(range(tasks)), look, "test", lambda _, done: None)


def in_order(files: Iterator[DataFile] | list[DataFile] | BySlot[DataFile]) -> list[DataFile]:
    return sorted(files, key=lambda file: file.path)


def test_few_files_travel_with_the_job(spark: SparkSession, table: TableFiles) -> None:
    files = version(MANY - 1)
    with sent(files, spark) as value:
        assert value.parts == []
        for got, *_ in found(spark, table, value):
            assert in_order(got) == in_order(files)


def test_many_are_mapped_and_sent_once_for_all_jobs(spark: SparkSession, table: TableFiles) -> None:
    files = version(MANY)
    with sent(files, spark) as value:
        [part] = value.parts
        assert len(value.pickled) < 3000
        for got, own, mapped, names in found(spark, table, value):
            assert in_order(got) == in_order(files)
            assert mapped
            assert own in names
    later = files.changed([], [file_at(7, "c")])
    with sent({"files": [later, files]}, spark) as other:
        assert list(other.parts) == [part, part]
    with sent(later, spark) as again:
        assert list(again.parts) == [part]
        for got, *_ in found(spark, table, again):
            assert in_order(got) == in_order(later)


def test_pages_are_unpacked_from_the_mapped_file(
    spark: SparkSession, table: TableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many files are not made objects, nor unpacked at once, in a worker."""
    monkeypatch.undo()
    files = version(FEW_FILES + 50)
    wanted = [file_at(number).slot for number in range(0, FEW_FILES, 997)]

    def look(_: TableFiles, task: int) -> tuple[int, list[DataFile], int]:
        found = value.get()
        some = [file for slot in wanted[task::2] for file in found.of(slot)]
        base, _ = found.parts()
        return len(found), some, len(base._pages.pages)  # type: ignore[attr-defined]

    with sent(files, spark) as value:
        for task, (count, some, pages) in enumerate(run_tasks(spark, table, [0, 1], look, "test", lambda *_: None)):
            assert count == FEW_FILES + 50
            assert some == [file for slot in wanted[task::2] for file in files.of(slot)]
            assert pages > 70


def test_another_driver_on_the_same_executors_has_its_own_files(
    spark: SparkSession, table: TableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process of Python does that Spark starts again after a crash: it counts from 0, too."""
    files, others = version(MANY), version(MANY + 7)
    for driver, mine in (("a" * 36, files), ("b" * 36, others), ("a" * 36, files)):
        monkeypatch.setattr(sent_module, "_SHARED", sent_module._Shared(driver))
        with sent(mine, spark) as value:
            for got, own, _, names in found(spark, table, value):
                assert in_order(got) == in_order(mine)
                assert own in names


def test_a_broadcast_of_a_context_that_has_ended_is_left_alone(spark: SparkSession) -> None:
    """Another one has its number in the next context."""
    shared, files = sent_module._Shared("c" * 36), version(MANY).parts()[0]
    assert isinstance(files, ColumnFiles)
    part = shared.borrow(spark.sparkContext, files)
    shared._lent[0].context = object()  # type: ignore[assignment]
    del files
    shared.give_back([part])
    assert shared._lent == []
    assert part.content._jbroadcast is not None
    assert part.content._jbroadcast.isValid()
    part.content.destroy()


def test_what_no_job_uses_any_more_leaves_the_disk(spark: SparkSession, table: TableFiles) -> None:
    versions = [version(MANY + number) for number in range(5)]
    with sent(versions[0], spark) as first:
        [(_, used, *_)] = found(spark, table, first, tasks=1)
        names: list[str] = []
        for files in versions[1:]:
            with sent(files, spark) as value:
                [(got, _, _, names)] = found(spark, table, value, tasks=1)
                assert in_order(got) == in_order(files)
        assert used in names, "its job has not ended"
        [(got, *_)] = found(spark, table, first, tasks=1)
        assert in_order(got) == in_order(versions[0])
    with sent(version(MANY), spark) as last:
        [(_, own, _, names)] = found(spark, table, last, tasks=1)
        assert used not in names
        assert own in names
        assert len(names) <= 3


def test_files_that_are_gone_from_memory_are_not_kept(spark: SparkSession, table: TableFiles) -> None:
    files = version(MANY)
    with sent(files, spark) as value:
        [part] = value.parts
    del files, value
    with sent(version(MANY), spark):
        pass
    assert [lent.part for lent in sent_module._SHARED._lent if lent.part is part] == []
    assert part.content._jbroadcast is not None
    assert not part.content._jbroadcast.isValid(), "Spark keeps it"


def test_an_error_in_the_block_ends_the_loan(spark: SparkSession) -> None:
    files = version(MANY)
    with pytest.raises(KeyError), sent(files, spark):
        raise KeyError("x")
    assert all(lent.users == 0 for lent in sent_module._SHARED._lent)


def test_writes_into_a_large_version_are_right(spark: SparkSession, store: Store) -> None:
    """Slots that stay, change, come and go. A version is opened from its checkpoint, then changes."""
    table = store.create_table("shop.parts", "p INT, id BIGINT, v INT", primary_key=["p", "id"], partition_by=["p"])
    expected: dict[tuple[int, int], int] = {}
    versions = itertools.count(1)

    def write(put: Callable[[list[dict[str, int]]], object], partitions: Iterable[int]) -> None:
        v = next(versions)
        some = [{"p": p, "id": i, "v": v} for p in partitions for i in range(v % 3, 5)]
        put(some)
        expected.update({(row["p"], row["id"]): row["v"] for row in some})

    write(table.write, range(MANY + 5))
    for number in range(3):
        write_checkpoint(table.filestore.delta_log, table.filestore.state())
        with tablestore.connect(store.target) as opened:
            lake = SparkStore(spark, opened)

            def by_spark(some: list[dict[str, int]], lake: SparkStore = lake) -> None:
                lake.write("shop.parts", spark.createDataFrame(some, "p INT, id BIGINT, v INT"))

            base, _ = opened.table("shop.parts").filestore.state().files.parts()
            assert isinstance(base, ColumnFiles)
            write(by_spark, range(number, MANY + 10, 3 + number))
            write(table.write, range(number, 8))
            write(by_spark, range(5))
            assert any(lent.files() is base for lent in sent_module._SHARED._lent)
        found = {(row["p"], row["id"]): row["v"] for row in rows(table)}
        assert found == expected
    assert assert_healthy(table.filestore).findings == ()
