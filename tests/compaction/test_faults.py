"""Fault tests 5 and 11 for compaction: at every storage call an error before it, one after it, and a kill.

Whatever happens, the table is whole, no row differs, and the retry succeeds. Others commit between the merge and the
commit, so that calls of a lost race fail, too.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from compaction.compact import CompactionRunner, compact_slots, compact_table, plan_compaction
from compaction.merge import CompactionResult, CompactionTask
from filestore.errors import Conflict, Unavailable
from filestore.files.writer import TableFiles
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.depth import Depth
from tests.faults import Call, FailAt, FaultyStorage, Killed
from tests.proposals import commit_compaction
from tests.tables import assert_healthy, create, define, paths, read, read_polars, reopen, write

Step = Callable[[FileStore], object]


def worn(folder: Path) -> FileStore:
    """Creates a table of two buckets, each with several runs, files and row groups, and with dead rows."""
    definition = define("id BIGINT, v INT", ("id",), bucket=2, target__file__size="1 kb")
    store = create(folder / "t", definition)
    for v in range(3):
        write(store, [{"id": i, "v": v} for i in range(v * 100, 700)])
    return store


def upsert(store: FileStore) -> None:
    """Replaces rows in both buckets."""
    write(store, [{"id": i, "v": 77} for i in range(0, 700, 7)])


def rob_one_bucket(store: FileStore) -> None:
    """Another compaction replaces one bucket's files, and an upsert replaces rows in both."""
    state = store.state()
    task = plan_compaction(state, full=True)[0]
    commit_compaction(store, state, compact_slots(store.table_files(state), [task]))
    upsert(store)


def overwrite(store: FileStore) -> None:
    write(store, [{"id": i, "v": 5} for i in range(50)], overwrite=True)


def between(store: FileStore, step: Step) -> CompactionRunner:
    """Another process commits once after the merge. Slots are merged one by one, so that calls have an order."""
    left = [step]

    def run(table: TableFiles, tasks: Sequence[CompactionTask]) -> Sequence[CompactionResult]:
        results = [result for task in tasks for result in compact_slots(table, [task])]
        if left:
            left.pop()(reopen(store))
        return results

    return run


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", [upsert, rob_one_bucket, overwrite], ids=lambda step: step.__name__)
@pytest.mark.parametrize(
    ("error", "after"),
    [(Unavailable("injected"), False), (Unavailable("injected"), True), (Killed(), False), (Killed(), True)],
    ids=["error before", "error after", "kill before", "kill after"],
)
def test_at_every_storage_call(folder: Path, step: Step, error: BaseException, after: bool, depth: Depth) -> None:
    for number in depth.counting(23, deep=3):
        below = folder / str(number)
        store = worn(below)
        runner = between(store, step)
        fault = FailAt(number, error, after)
        storage = FaultyStorage(LocalStorage())
        opened = FileStore.open(storage, store.location, store.ambient)
        storage.hook = fault
        try:
            compact_table(opened, full=True, runner=runner)
        except (Killed, Unavailable):
            assert fault.fired
        except Conflict:
            assert step is overwrite
        _whole(store, step)
        again = reopen(store)
        compact_table(again, full=True)
        assert plan_compaction(again.state(), full=True) == []
        _whole(store, step)
        if not fault.fired:
            break
    assert number > 30, "there are more calls than that"


def _whole(store: FileStore, step: Step) -> None:
    fresh = reopen(store)
    rows = {row["id"]: row["v"] for row in read(fresh)}
    before = {i: min(i // 100, 2) for i in range(700)}
    dead = {i: 77 for i in range(0, 700, 7)}
    allowed = [before, before | dead, {i: 5 for i in range(50)}] if step is overwrite else [before, before | dead]
    assert rows in allowed
    assert read_polars(store.location) == read(fresh)
    assert_healthy(fresh)


def test_a_file_is_never_added_and_removed_by_one_history(folder: Path) -> None:
    """Fault test 5: a compaction and an overwrite replace the same files, in both orders; each waits at any point."""
    for point in ("before the merge", "after the merge", "in the commit"):
        store = worn(folder / point.replace(" ", "-"))
        waiting, go_on = threading.Event(), threading.Event()

        def hook(call: Call, point: str = point, waiting: Any = waiting, go_on: Any = go_on) -> None:
            here = {
                "before the merge": call.operation == "open_write" and not call.done,
                "after the merge": call.operation == "sync" and call.done,
                "in the commit": call.operation == "write_new" and "_delta_log" in call.path and not call.done,
            }[point]
            if here and not waiting.is_set():
                waiting.set()
                assert go_on.wait(300)

        errors: list[str] = []
        opened = FileStore.open(FaultyStorage(LocalStorage(), hook), store.location, store.ambient)
        thread = threading.Thread(target=_compact, args=(opened, errors))
        thread.start()
        assert waiting.wait(300)
        overwrite(reopen(store))
        go_on.set()
        thread.join(300)
        assert errors == ["compaction-conflict"], point
        assert {row["v"] for row in read(reopen(store))} == {5}
        _no_file_lives_and_is_removed(store)
        assert_healthy(reopen(store))


def _compact(store: FileStore, errors: list[str]) -> None:
    try:
        compact_table(store, full=True)
    except Conflict as error:
        errors.append(error.code)


def _no_file_lives_and_is_removed(store: FileStore) -> None:
    live: set[str] = set()
    removed: set[str] = set()
    for entry in sorted(Path(store.location, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        adds = {a["add"]["path"] for a in actions if "add" in a}
        gone = {a["remove"]["path"] for a in actions if "remove" in a} - adds
        assert gone <= live, "what was not there was removed"
        assert not adds & removed, "a removed file was added again"
        live, removed = (live - gone) | adds, removed | gone
    assert live == paths(reopen(store).state())


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_storage_that_fails_now_and_then(folder: Path, seed: int) -> None:
    """Fault test 11: calls fail at random, before or after their effect, and some tear writes; retries succeed."""
    store = worn(folder)
    expected = {row["id"]: row["v"] for row in read(store)}
    dice = random.Random(seed)
    failed = 0

    def hook(call: Call) -> None:
        nonlocal failed
        if dice.random() < 1 / 30:
            failed += 1
            raise Unavailable(f"injected at {call}")

    storage = FaultyStorage(LocalStorage(), hook)
    while failed < 5:
        write(store, rows := [{"id": i, "v": failed} for i in range(0, 700, 3)])
        expected |= {row["id"]: row["v"] for row in rows}
        _compact_at_last(store, storage)
        assert {row["id"]: row["v"] for row in read(reopen(store))} == expected
    assert read_polars(store.location) == read(reopen(store))
    assert_healthy(reopen(store))


def _compact_at_last(store: FileStore, storage: FaultyStorage) -> None:
    for _ in range(500):
        try:
            compact_table(FileStore.open(storage, store.location, store.ambient), full=True)
        except Unavailable:
            continue
        assert plan_compaction(reopen(store).state(), full=True) == []
        return
    raise AssertionError("each of 500 tries met a fault")
