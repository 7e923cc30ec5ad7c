"""``compaction.in-writer``: a long-lived writer compacts its table itself, and no write fails because of that."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from compaction.choice import sorted_runs
from compaction.compact import compact_slots, compact_table, plan_compaction
from compaction.in_writer import InWriter
from compaction.merge import CompactionResult, CompactionTask
from filestore.errors import Unavailable
from filestore.files.writer import TableFiles
from filestore.model.snapshot import Operation
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tablestore import Store, Table
from tests.faults import FailAt, FaultyStorage, Hook
from tests.tables import assert_healthy, by_slot, create, define, read, reopen, write
from tests.waiting import until

OPTIONS = {"num-sorted-run.compaction-trigger": "3", "compaction.in-writer": "true", "bucket": "2"}


def wait_for(*compactions: InWriter) -> None:
    until(lambda: not any(c.busy for c in compactions), what="the compaction")


def runs(table: Table) -> int:
    slots = by_slot(table.filestore.state())
    return max((len(sorted_runs(files, table.definition)) for files in slots), default=0)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("log", ["none", "embedded"])
def test_files_stay_few_while_rows_are_written(store: Store, log: str) -> None:
    table = store.create_table(
        "shop.orders", "id BIGINT, v INT", primary_key=["id"], options=OPTIONS | {"log.system": log}
    )
    for v in range(25):
        table.write(pl.DataFrame({"id": range(v, v + 100), "v": [v] * 100}))
    wait_for(table.in_writer)
    assert runs(table) < 3
    snapshots = table.snapshots()
    assert any(s.operation is Operation.COMPACT for s in snapshots)
    assert len([s for s in snapshots if s.operation is Operation.WRITE]) == 25
    found = dict(table.scan().to_polars().iter_rows())
    assert found == {i: min(i, 24) for i in range(124)}
    assert not table.examine().problems


def test_without_the_option_nothing_runs(store: Store) -> None:
    table = store.create_table(
        "shop.orders", "id BIGINT", primary_key=["id"], options={"num-sorted-run.compaction-trigger": "2"}
    )
    for v in range(4):
        table.write(pl.DataFrame({"id": [v]}))
        assert not table.in_writer.busy
    assert len(table.files()) == 4


def test_commits_during_a_compaction_are_looked_at_once_more(folder: Path) -> None:
    """One at a time, and the last commit's runs are not forgotten."""
    definition = define(
        "id BIGINT, v INT", ("id",), num__sorted__run_compaction__trigger=2, **{"compaction_in-writer": "true"}
    )
    store = create(folder / "t", definition)
    merging, go_on = threading.Event(), threading.Event()
    at_once: list[int] = []
    running = threading.Semaphore(1)

    def slow(table: TableFiles, tasks: Sequence[CompactionTask]) -> list[CompactionResult]:
        assert running.acquire(blocking=False), "two at once"
        at_once.append(len(tasks))
        merging.set()
        assert go_on.wait(300)
        done = compact_slots(table, tasks)
        running.release()
        return done

    compaction = InWriter(store, slow)
    for v in range(6):
        write(store, [{"id": i, "v": v} for i in range(v, 10)])
        compaction.after_commit(definition)
        if v == 1:
            assert merging.wait(300)
    assert at_once == [1]
    go_on.set()
    wait_for(compaction)
    assert len(at_once) == 2
    assert plan_compaction(store.state()) == []
    assert len(read(store)) == 10
    assert_healthy(reopen(store))


def test_a_conflict_is_logged_and_the_next_try_succeeds(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    definition = define(
        "id BIGINT, v INT", ("id",), num__sorted__run_compaction__trigger=2, **{"compaction_in-writer": "true"}
    )
    store = create(folder / "t", definition)

    def robbed(table: TableFiles, tasks: Sequence[CompactionTask]) -> list[CompactionResult]:
        done = compact_slots(table, tasks)
        compact_table(reopen(store), full=True)
        return done

    compaction = InWriter(store, robbed)
    with caplog.at_level(logging.INFO, "compaction.in_writer"):
        for v in range(2):
            write(store, [{"id": i, "v": v} for i in range(10)] + [{"id": 10 + v, "v": v}])
            compaction.after_commit(definition)
        wait_for(compaction)
    assert "lost the race" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    assert_healthy(reopen(store))


@pytest.mark.parametrize("number", range(1, 12))
def test_what_fails_is_logged_and_fails_no_write(folder: Path, caplog: pytest.LogCaptureFixture, number: int) -> None:
    definition = define(
        "id BIGINT, v INT", ("id",), num__sorted__run_compaction__trigger=2, **{"compaction_in-writer": "true"}
    )
    store = create(folder / "t", definition)
    fault = FailAt(number, Unavailable("injected"))
    storage = FaultyStorage(LocalStorage(), only_in("compaction", fault))
    compaction = InWriter(FileStore.open(storage, store.location, store.ambient))
    for v in range(4):
        write(store, [{"id": i, "v": v} for i in range(v, 10)])
        compaction.after_commit(definition)
        wait_for(compaction)
    assert fault.fired
    assert "injected" in caplog.text
    assert plan_compaction(store.state()) == [], "the next commit's compaction made up for it"
    assert_healthy(reopen(store))


def test_an_unexpected_error_is_logged_and_is_not_the_end(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    definition = define(
        "id BIGINT, v INT", ("id",), num__sorted__run_compaction__trigger=2, **{"compaction_in-writer": "true"}
    )
    store = create(folder / "t", definition)
    bugs = [RuntimeError("a bug")]

    def buggy(table: TableFiles, tasks: Sequence[CompactionTask]) -> list[CompactionResult]:
        if bugs:
            raise bugs.pop()
        return compact_slots(table, tasks)

    compaction = InWriter(store, buggy)
    for v in range(3):
        write(store, [{"id": i, "v": v} for i in range(v, 10)])
        compaction.after_commit(definition)
        wait_for(compaction)
    until(lambda: "failed unexpectedly" in caplog.text, what="the log's line")
    assert plan_compaction(store.state()) == []


def test_closing_waits_and_what_else_there_is_to_do_comes_last(folder: Path) -> None:
    definition = define(
        "id BIGINT, v INT", ("id",), num__sorted__run_compaction__trigger=2, **{"compaction_in-writer": "true"}
    )
    store = create(folder / "t", definition)
    seen: list[int] = []
    compaction = InWriter(store, then=lambda own: seen.append(len(own.state().files)))
    for v in range(3):
        write(store, [{"id": v, "v": v}])
        compaction.after_commit(definition)
        compaction.close()
        assert not compaction.busy
    assert seen == [1, 1, 1], "it sees the compacted table, and a commit after closing is looked at, too"
    compaction.close()


def only_in(thread: str, hook: Hook) -> Hook:
    """Strikes in threads of that name only."""

    def strike(call: object) -> None:
        if threading.current_thread().name.startswith(thread):
            hook(call)

    return strike
