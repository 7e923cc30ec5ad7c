"""Change files of a write across both stores: lost races and failed attempts leave none behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from filestore.errors import Unavailable
from filestore.operations.fold import fold_table
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.changes import assert_exact, by_deltalake
from tests.depth import sampled
from tests.faults import Call, FailAt, FaultyStorage
from tests.warehouses import assert_whole, orphans
from tests.writers import on, put, runner, sorted_batches

ENGINES = ["deduplicate", "partial-update", "first-row"]


def made(store: Store, engine: str) -> Table:
    options = {"changelog-producer": "lookup", "merge-engine": engine, "bucket": "2"}
    table = store.create_table("shop.fed", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(table, 1, 2, 3, name="old")
    return table


@pytest.mark.few(2)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_lost_race_leaves_the_changes_of_the_last_attempt_only(store: Store, engine: str) -> None:
    table = made(store, engine)
    left = [0, 1]

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        outcomes = runner(table, 2, 3, 4, name="mine")(job)
        if left:
            put(table, 3, 4, left.pop(), name="other")
        return outcomes

    on(table, LocalStorage()).write(run)
    assert_exact(table.filestore, by_deltalake(table.filestore))
    assert_whole(table, leftovers=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_compaction_in_between_keeps_the_changes(store: Store, engine: str) -> None:
    table = made(store, engine)
    put(table, 4, 5, name="old")

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        outcomes = runner(table, 2, 3, 6, name="mine")(job)
        assert table.compact(full=True) is not None
        return outcomes

    on(table, LocalStorage()).write(run)
    assert_exact(table.filestore, by_deltalake(table.filestore))
    assert_whole(table, leftovers=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_commit_that_fails_leaves_no_change_file(store: Store, engine: str) -> None:
    table = made(store, engine)
    fault = FailAt(1, Unavailable("injected"), operation="write_new", path="_delta_log/")
    with pytest.raises(Unavailable):
        on(table, FaultyStorage(LocalStorage(), fault)).write(runner(table, 2, 9, name="mine"))
    assert fault.fired
    assert orphans(table) == []
    assert_whole(table)


# ----------------------------------------------------------------------------------- commits that replace files

REPLACED = {"changelog-producer": "lookup", "bucket": "2"}
KINDS = [
    {},
    {"changelog-producer": "input"},
    {"write-mode": "merge-on-read"},
    {"write-mode": "merge-on-read", "changelog-producer": "full-compaction"},
    {"merge-engine": "partial-update"},
]


def parted(store: Store, options: dict[str, str]) -> Table:
    """Creates rows of two partitions, some dead in their files, and with merge-on-read some in pending runs."""
    columns = "id BIGINT, name STRING, p STRING"
    table = store.create_table(
        "shop.parted", columns, primary_key=["id", "p"], partition_by=["p"], options=REPLACED | options
    )
    for name in ("old", "new"):
        table.write(rows_of("x", *range(8 if name == "old" else 3), name=name))
        table.write(rows_of("y", 1, 2, name=name))
        table.compact() if name == "old" else fold_table(table.filestore, full=True)
    table.write(rows_of("x", 5, 20, name="pending"))
    return table


def rows_of(p: str, *ids: int, name: str = "a") -> pa.Table:
    return pa.table({"id": ids, "name": [name] * len(ids), "p": [p] * len(ids)})


def assert_exact_from(table: Table, first: int) -> None:
    """Asserts that change data are exact from the version `first` on, for readers that begin at any version."""
    last = table.filestore.state().version
    found = by_deltalake(table.filestore, first, last)
    assert_exact(table.filestore, found)
    for begin in range(first, last + 1):
        assert by_deltalake(table.filestore, begin, last) == {v: c for v, c in found.items() if v >= begin}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("options", sampled(KINDS, 3, test=2), ids=repr)
def test_overwrites_drops_and_rollbacks_change_the_rows_that_differ(store: Store, options: dict[str, str]) -> None:
    table = parted(store, options)
    back = table.compact(full=True) or table.snapshots(1)[0]
    table.write(rows_of("x", 1, 5, name="pending"))
    first = table.filestore.state().version + 1
    table.write(rows_of("x", 1, 2, 30, name="new"), overwrite="dynamic")
    table.write(rows_of("x", 1, 2, 30, name="new"), overwrite={"p": "x"})
    table.drop_partitions([{"p": "y"}])
    table.rollback(back.version)
    table.write(pa.concat_tables([rows_of("x", 1, name="last"), rows_of("z", 1)]), overwrite=True)
    assert_exact_from(table, first)
    assert_whole(table, leftovers=False)


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("options", sampled(KINDS, 3, test=2), ids=repr)
def test_an_overwrite_that_lost_the_race_records_what_it_replaces_then(store: Store, options: dict[str, str]) -> None:
    table = parted(store, options)
    table.compact(full=True)
    first = table.filestore.state().version + 1

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        batches = sorted_batches(table, pa.concat_tables([rows_of("x", 1, 2, 40, name="new"), rows_of("y", 2)]))
        outcomes = [job.run(batches, "0.0")]
        other = store.table("shop.parted")
        other.write(pa.concat_tables([rows_of("x", 2, 40, 41, name="new"), rows_of("z", 7)]))
        fold_table(other.filestore, full=True)
        return outcomes

    faster = faster_at_the_commit(table, lambda: store.table("shop.parted").write(rows_of("x", 1, 50, name="other")))
    on(table, faster).write(run, overwrite="dynamic")
    fold_table(table.filestore, full=True)
    if options.get("changelog-producer") != "input":
        assert_exact_from(table, first)
    overwrite = next(s.version for s in table.snapshots() if s.operation == "OVERWRITE")
    assert overwrite >= first + 2, "others committed during its attempt and right before its commit"
    assert_exact(table.filestore, by_deltalake(table.filestore, overwrite, overwrite))
    assert_whole(table, leftovers=False)


def faster_at_the_commit(table: Table, write: Callable[[], object]) -> FaultyStorage:
    """A storage on which another writer commits right before the first entry of the log is written."""
    left = [write]

    def hook(call: Call) -> None:
        if left and call.operation == "write_new" and "_delta_log/" in call.path:
            left.pop()()

    return FaultyStorage(LocalStorage(), hook)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["_change_data/", "_delta_log/"])
def test_an_overwrite_that_fails_leaves_nothing(store: Store, path: str) -> None:
    table = parted(store, {})
    before = assert_whole(table)
    operation = "write_new" if path == "_delta_log/" else "open_write"
    fault = FailAt(2 if path == "_change_data/" else 1, Unavailable("injected"), operation=operation, path=path)
    batches = sorted_batches(table, rows_of("x", *range(10), name="new"))
    with pytest.raises(Unavailable):
        on(table, FaultyStorage(LocalStorage(), fault)).write(lambda job: [job.run(batches, "0.0")], overwrite=True)
    assert fault.fired
    assert orphans(table) == []
    assert assert_whole(table) == before


def test_a_task_that_fails_takes_its_change_files_along(store: Store) -> None:
    """The disk is full when the second change file is written; the first slot's file is complete by then."""
    table = made(store, "deduplicate")
    fault = FailAt(2, Unavailable("disk full"), operation="open_write", path="_change_data/")
    with pytest.raises(Unavailable):
        on(table, FaultyStorage(LocalStorage(), fault)).write(runner(table, *range(20), name="mine"))
    assert fault.fired
    assert orphans(table) == []
    assert_whole(table)
