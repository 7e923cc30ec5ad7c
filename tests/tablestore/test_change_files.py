"""Change files of a write across both stores: none of a lost race or a failed attempt stays behind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from filestore.errors import Unavailable
from filestore.storage import LocalStorage
from tablestore import Store, Table
from tablestore.write_job import TaskOutcome, WriteJob
from tests.changes import assert_exact, by_deltalake
from tests.faults import FailAt, FaultyStorage
from tests.warehouses import assert_whole, orphans
from tests.writers import on, put, runner

ENGINES = ["deduplicate", "partial-update", "first-row"]


def made(store: Store, engine: str) -> Table:
    options = {"changelog-producer": "lookup", "merge-engine": engine, "bucket": "2"}
    table = store.create_table("shop.fed", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(table, 1, 2, 3, name="old")
    return table


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


def test_a_task_that_fails_takes_its_change_files_along(store: Store) -> None:
    """The disk is full when the second change file is written; the first one's slot is done by then."""
    table = made(store, "deduplicate")
    fault = FailAt(2, Unavailable("disk full"), operation="open_write", path="_change_data/")
    with pytest.raises(Unavailable):
        on(table, FaultyStorage(LocalStorage(), fault)).write(runner(table, *range(20), name="mine"))
    assert fault.fired
    assert orphans(table) == []
    assert_whole(table)
