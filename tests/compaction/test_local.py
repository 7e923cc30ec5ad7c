"""Compacting a table: its rows stay the same, and concurrent writers lose nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import polars as pl
import pytest

from compaction import compact, rebase
from compaction.choice import choose, sorted_runs
from compaction.compact import compact_slots, compact_table, plan_compaction
from compaction.merge import CompactionResult, CompactionTask
from filestore.checks.report import Invariant
from filestore.commit.plan import commit_info
from filestore.commit.proposal import Proposal
from filestore.delta.actions import add_action, remove_action
from filestore.delta.entry import encode
from filestore.errors import Conflict, Unavailable
from filestore.files.writer import TableFiles
from filestore.model.change_text import parse_changes
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation
from filestore.operations.alter import alter
from filestore.operations.carry_over import keys_at
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.faults import Call, FailAt, FaultyStorage, Undeletable
from tests.proposals import commit_compaction
from tests.tables import (
    assert_healthy,
    by_slot,
    create,
    define,
    paths,
    prepare,
    read,
    read_polars,
    reopen,
    seeded,
    write,
)

Rows = list[dict[str, Any]]


def rows(ids: range, v: int) -> Rows:
    return [{"id": i, "v": v} for i in ids]


def filled(folder: Path, batches: int = 6, **options: object) -> FileStore:
    """Creates buckets of `batches` runs, of which all but the last have dead rows."""
    store = create(folder / "t", define("id BIGINT, v INT", ("id",), **{"bucket": 2, **options}))
    for v in range(batches):
        write(store, rows(range(v * 5, 100), v))
    return store


def during(store: FileStore, *steps: Callable[[FileStore], object]) -> compact.CompactionRunner:
    """Returns a runner that takes other steps between the merge and the commit."""

    def run(table: TableFiles, tasks: Sequence[CompactionTask]) -> Sequence[CompactionResult]:
        results = compact_slots(table, tasks)
        for step in steps:
            step(reopen(store))
        return results

    return run


def files_there(store: FileStore) -> set[str]:
    return {path.relative_to(store.location).as_posix() for path in Path(store.location).rglob("bucket-*/*.parquet")}


# ------------------------------------------------------------------------------------------------ alone


def test_the_rows_stay_and_the_files_become_one_a_slot(folder: Path) -> None:
    store = filled(folder)
    before, inputs = read(store), store.state().files
    snapshot = compact_table(store, full=True)
    assert snapshot is not None
    assert snapshot.operation == Operation.COMPACT
    assert read(store) == read_polars(store.location) == before
    assert all(len(files) == 1 and files[0].vector is None for files in by_slot(store.state()))
    assert snapshot.metrics == {
        "files_added": 2,
        "files_removed": len(inputs),
        "rows_rewritten": 100,
        "rows_dropped": sum(f.rows for f in inputs) - 100,
    }
    assert_healthy(store)


def test_a_second_compaction_does_nothing(folder: Path) -> None:
    store = filled(folder)
    assert compact_table(store) is not None
    assert compact_table(store) is None
    assert compact_table(store, full=True) is not None
    assert compact_table(store, full=True) is None
    assert compact_table(create(folder / "empty", store.state().definition), full=True) is None


def test_large_slots_become_runs_of_files_of_the_target_size(folder: Path) -> None:
    store = filled(folder, target__file__size="1 kb", row__group_rows=1024)
    write(store, rows(range(9000), 9))
    compact_table(store, full=True)
    for files in by_slot(store.state()):
        assert len(files) > 1
        assert len(sorted_runs(files, store.state().definition)) == 1
    assert compact_table(store, full=True) is None
    assert_healthy(store)


def test_it_is_no_change_of_data_and_leaves_the_log_alone(folder: Path) -> None:
    store = filled(folder)
    offsets = store.state().log.offsets
    snapshot = compact_table(store, full=True)
    assert snapshot is not None
    lines = (Path(store.location) / f"_delta_log/{snapshot.version:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    changes = [a[kind]["dataChange"] for a in actions for kind in ("add", "remove") if kind in a]
    assert changes
    assert not any(changes)
    assert snapshot.transactions == ()
    assert store.state().log.offsets == offsets
    history = deltalake.DeltaTable(store.location).history(1)
    assert history[0]["operation"] == "COMPACT"


def test_old_versions_stay_readable(folder: Path) -> None:
    store = filled(folder)
    version, before = store.state().version, read(store)
    compact_table(store, full=True)
    write(store, rows(range(100), 99))
    assert read(store, version) == before
    assert pl.scan_delta(store.location, version=version).collect().height == len(before)


def test_only_slots_that_changed_are_looked_at_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compactor looked at all slots of each table every 30 seconds: half a second for 50,000 files."""
    asked = list[int]()

    def counted(files: Sequence[DataFile], *how: Any, **more: Any) -> Any:
        asked.append(len(files))
        return choose(files, *how, **more)

    monkeypatch.setattr("compaction.compact.choose", counted)
    definition = define("p STRING, id BIGINT, v INT", ("p", "id"), ("p",), checkpoint_interval=3)
    store = create(folder / "t", definition, ambient=seeded(1))
    write(store, [{"p": f"p{n}", "id": 1, "v": 0} for n in range(20)])
    for number in range(4):  # over a checkpoint, whose columns the table keeps from then on
        assert plan_compaction(store.state()) == []
        assert len(asked) == (1 if number else 20)
        asked.clear()
        assert plan_compaction(store.state()) == []
        assert asked == []
        write(store, [{"p": "p7", "id": 10 + number, "v": number}])
    assert compact_table(store) is not None, "five runs"
    assert asked == [5]
    asked.clear()
    assert compact_table(store) is None
    write(store, [{"p": "p7", "id": 20, "v": 0}])
    assert plan_compaction(store.state()) == []
    alter(store, parse_changes(["SET num-sorted-run.compaction-trigger = 2"]))
    [task] = plan_compaction(store.state())
    assert task.slot.partition == (("p", "p7"),), "by other options it needs it"


def test_only_slots_that_need_it_are_touched(folder: Path) -> None:
    store = create(folder / "t", define("p STRING, id BIGINT, v INT", ("p", "id"), ("p",)))
    write(store, [{"p": "quiet", "id": 1, "v": 0}])
    for v in range(5):
        write(store, [{"p": "busy", "id": i, "v": v} for i in range(v * 10, 100)])
    (task,) = plan_compaction(store.state())
    assert task.slot.partition == (("p", "busy"),)
    quiet = [f for f in store.state().files if f.slot.partition == (("p", "quiet"),)]
    compact_table(store)
    assert all(store.state().files.current(f) == f for f in quiet)
    assert_healthy(store)


def test_tables_without_a_key_lose_their_small_files(folder: Path) -> None:
    store = create(folder / "t", define("v INT"))
    for v in range(6):
        write(store, [{"v": v}, {"v": v}])
    before = read(store)
    assert compact_table(store) is not None
    assert len(store.state().files) == 1
    assert read(store) == read_polars(store.location) == before
    assert compact_table(store, full=True) is None
    assert_healthy(store)


def test_another_runner_does_the_tasks(folder: Path) -> None:
    store = filled(folder)
    seen: list[CompactionTask] = []

    def run(table: TableFiles, tasks: Sequence[CompactionTask]) -> Sequence[CompactionResult]:
        seen.extend(tasks)
        return [result for task in reversed(tasks) for result in compact_slots(table, [task])]

    assert compact_table(store, full=True, runner=run) is not None
    assert {task.slot for task in seen} == set(store.state().files.slots)


# ------------------------------------------------------------------------------------------------ among writers


def test_an_upsert_in_between_survives_with_the_compaction(folder: Path) -> None:
    store = filled(folder)
    upsert = rows(range(40, 120, 3), 77)
    snapshot = compact_table(store, full=True, runner=during(store, lambda other: write(other, upsert)))
    assert snapshot is not None
    found = {row["id"]: row["v"] for row in read(store)}
    assert found == {row["id"]: row["v"] for row in rows(range(100), 0)} | found  # nothing is lost
    assert all(found[row["id"]] == 77 for row in upsert)
    assert read_polars(store.location) == read(store)
    levels = sorted(f.level for f in store.state().files)
    assert levels == [0, 0, 1, 1]
    assert_healthy(store)


@pytest.mark.slow
def test_deletes_and_several_writes_in_between(folder: Path) -> None:
    store = filled(folder)
    before = {row["id"]: row["v"] for row in read(store)}
    steps = [
        lambda other: write(other, [{"id": i, "v": None, "_kind": "-D"} for i in range(0, 50, 2)]),
        lambda other: write(other, rows(range(0, 20), 5)),
        lambda other: write(other, [{"id": 0, "v": None, "_kind": "-D"}]),
    ]
    assert compact_table(store, full=True, runner=during(store, *steps)) is not None
    expected = {i: v for i, v in before.items() if i % 2 or i >= 50} | {i: 5 for i in range(1, 20)}
    assert {row["id"]: row["v"] for row in read(store)} == expected
    assert read_polars(store.location) == read(store)
    assert_healthy(store)


def test_an_input_whose_last_row_died_in_between_is_no_conflict(folder: Path) -> None:
    """A stream that rewrites the same keys again and again must not prevent compactions from committing."""
    store = create(folder / "t", define("id BIGINT, v INT", ("id",)))
    write(store, rows(range(100), 0))
    for v in range(1, 5):
        write(store, rows(range(v * 10, v * 10 + 10), v))
    hot = rows(range(10, 50), 9)
    assert compact_table(store, runner=during(store, lambda other: write(other, hot))) is not None
    assert {row["id"]: row["v"] for row in read(store)} == {i: 9 if 10 <= i < 50 else 0 for i in range(100)}
    assert_healthy(store)


def test_an_input_with_dead_rows_may_lose_the_rest_in_between(folder: Path) -> None:
    """The dead rows of the input come first: they must not be counted as the rows that died meanwhile."""
    store = create(folder / "t", define("id BIGINT, v INT", ("id",)))
    write(store, rows(range(10), 0))
    write(store, rows(range(5), 1))
    rest = rows(range(5, 10), 2)
    assert compact_table(store, full=True, runner=during(store, lambda other: write(other, rest))) is not None
    assert {row["id"]: row["v"] for row in read(store)} == {i: 1 if i < 5 else 2 for i in range(10)}
    assert len(read(store)) == 10
    assert_healthy(store)


def test_vectors_of_lost_races_do_not_stay(folder: Path) -> None:
    """Each lost race marks other rows of the new files: the table names the last vectors only, and no others remain."""
    store = filled(folder, bucket=1)
    waiting = [rows(range(10), 7), rows(range(20, 30), 8)]

    def hook(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and waiting:
            write(store, waiting.pop())

    assert compact_table(reopen(store, FaultyStorage(LocalStorage(), hook)), full=True) is not None
    assert not waiting
    assert [f.path for f in store.state().files if f.vector], "rows of the new files died"
    assert not [found for found in assert_healthy(store).findings if found.code is Invariant.ORPHAN]


def test_a_rebase_carries_over_only_what_died_since_the_last_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each attempt of a compaction would take longer than the one before, and it would never commit."""
    store = filled(folder, bucket=1)
    waiting = [rows(range(3, 4), 7), rows(range(10, 15), 8), rows(range(50, 90), 9)]
    expected = {row["id"]: row["v"] for row in [*read(store), *(row for batch in waiting for row in batch)]}
    carried: list[int] = []

    def recorded(table: TableFiles, file: DataFile, died: np.ndarray) -> list[pl.DataFrame]:
        carried.append(len(died))
        return keys_at(table, file, died)

    def hook(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and waiting:
            write(store, waiting.pop())

    monkeypatch.setattr(rebase, "keys_at", recorded)
    assert compact_table(reopen(store, FaultyStorage(LocalStorage(), hook)), full=True) is not None
    assert sum(carried) == 40 + 5 + 1
    assert {row["id"]: row["v"] for row in read(store)} == expected
    assert read_polars(store.location) == read(store)
    assert_healthy(store)


def test_when_everything_died_in_between_nothing_is_added(folder: Path) -> None:
    store = filled(folder)
    snapshot = compact_table(store, full=True, runner=during(store, lambda other: write(other, rows(range(100), 9))))
    assert snapshot is not None
    assert snapshot.metrics["files_added"] == 0
    assert {row["v"] for row in read(store)} == {9}
    assert_healthy(store)


def test_a_write_in_another_slot_changes_nothing(folder: Path) -> None:
    store = create(folder / "t", define("p STRING, id BIGINT, v INT", ("p", "id"), ("p",)))
    for v in range(5):
        write(store, [{"p": "a", "id": i, "v": v} for i in range(10 - v)])
    other = [{"p": "b", "id": 1, "v": 1}]
    assert compact_table(store, runner=during(store, lambda opened: write(opened, other))) is not None
    assert len(read(store)) == 11
    assert_healthy(store)


def test_an_append_in_between_stays(folder: Path) -> None:
    store = create(folder / "t", define("v INT"))
    for v in range(5):
        write(store, [{"v": v}])
    assert compact_table(store, runner=during(store, lambda other: write(other, [{"v": 9}]))) is not None
    assert sorted(row["v"] for row in read(store)) == [0, 1, 2, 3, 4, 9]
    assert_healthy(store)


def test_a_writer_that_began_before_the_compaction_finds_its_rows_again(folder: Path) -> None:
    store = filled(folder)
    begun = prepare(reopen(store), rows(range(30, 130), 66))
    compact_table(store, full=True)
    begun.commit()
    found = {row["id"]: row["v"] for row in read(store)}
    assert len(found) == 130
    assert {found[i] for i in range(30, 130)} == {66}
    assert_healthy(store)


@pytest.mark.parametrize(
    "step",
    [
        lambda other: write(other, rows(range(3), 1), overwrite=True),
        lambda other: compact_table(other, full=True),
    ],
    ids=["overwrite", "another compaction"],
)
def test_replaced_inputs_are_a_conflict_that_leaves_nothing(folder: Path, step: Callable[[FileStore], object]) -> None:
    store = filled(folder)
    with pytest.raises(Conflict) as caught:
        compact_table(store, full=True, runner=during(store, step))
    assert caught.value.code == "compaction-conflict"
    fresh = reopen(store)
    report = assert_healthy(fresh)
    assert not [f for f in report.findings if f.path in files_there(fresh) - _ever(fresh)]
    assert files_there(fresh) == _ever(fresh)


@pytest.mark.slow
@pytest.mark.parametrize("also", [False, True], ids=["alone", "beside an upsert"])
def test_a_slot_whose_inputs_were_replaced_is_left_out(folder: Path, also: bool) -> None:
    """Another compactor compacted one partition: what was merged of the others is committed all the same."""
    store = create(folder / "t", define("p STRING, id BIGINT, v INT", ("p", "id"), ("p",)))
    for v in range(6):
        write(store, [{"p": p, "id": i, "v": v} for p in "ab" for i in range(v, 30)])

    def one_partition(other: FileStore) -> None:
        tasks = [t for t in plan_compaction(other.state(), full=True) if t.slot.partition == (("p", "a"),)]
        state = other.state()
        commit_compaction(other, state, compact_slots(other.table_files(state), tasks))
        if also:
            write(other, [{"p": "b", "id": 29, "v": 9}])

    before = read(store)
    snapshot = compact_table(store, full=True, runner=during(store, one_partition))
    assert snapshot is not None
    assert snapshot.metrics["files_removed"] == 6
    assert len(read(store)) == len(before) == 60
    assert read_polars(store.location) == read(store)
    assert plan_compaction(store.state()) == []
    assert files_there(store) == _ever(store)
    assert_healthy(store)


def test_rows_that_are_alive_again_are_a_conflict(folder: Path) -> None:
    """A rollback restores rows: the same file has fewer dead rows."""
    store = create(folder / "t", define("id BIGINT, v INT", ("id",)))
    write(store, rows(range(10), 0))
    write(store, rows(range(5), 1))

    def roll_back(other: FileStore) -> None:
        state, first = other.state(), other.state(1)
        (first_file,) = first.files
        actions = [
            commit_info(Proposal(Operation.WRITE, "rollback", state.version), state.version, state.timestamp_ms + 1),
            *(remove_action(file, 0, data_change=True) for file in state.files),
            add_action(first_file, data_change=True),
        ]
        entry = Path(other.location) / f"_delta_log/{state.version + 1:020d}.json"
        entry.write_bytes(encode(actions))

    with pytest.raises(Conflict, match="were restored"):
        compact_table(store, full=True, runner=during(store, roll_back))
    assert {row["v"] for row in read(store)} == {0}


def _ever(store: FileStore) -> set[str]:
    """Returns every data file that some version names."""
    return {path for version in store.delta_log.versions() for path in paths(store.state(version))}


def test_a_change_of_the_schema_in_between_is_a_conflict(folder: Path) -> None:
    """The compaction is retried as often as the table allows, and then fails."""
    store = filled(folder, **{"commit.max-retries": 3})

    def change(other: FileStore) -> None:
        state = other.state()
        log = Path(other.location) / "_delta_log"
        first = (log / f"{0:020d}.json").read_text().splitlines()
        info = json.loads(first[0])
        info["commitInfo"]["inCommitTimestamp"] = state.timestamp_ms + 1
        metadata = next(line for line in first if "metaData" in line)
        (log / f"{state.version + 1:020d}.json").write_text(json.dumps(info) + "\n" + metadata + "\n")

    with pytest.raises(Conflict) as caught:
        compact_table(store, full=True, runner=during(store, change))
    assert caught.value.code == "metadata-changed"
    assert files_there(store) == _ever(reopen(store))


# ------------------------------------------------------------------------------------------------ failures


def test_a_slot_that_fails_takes_the_others_files_with_it(folder: Path) -> None:
    store = filled(folder)
    before = files_there(store)
    storage = FaultyStorage(LocalStorage(), FailAt(2, Unavailable("injected"), operation="open_write"))
    with pytest.raises(Unavailable):
        compact_table(FileStore.open(storage, store.location, store.ambient), full=True)
    assert files_there(store) == before
    assert compact_table(store, full=True) is not None


def test_files_that_cannot_be_removed_do_not_hide_the_conflict(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = filled(folder)
    storage = FaultyStorage(LocalStorage(), Undeletable())
    opened = FileStore.open(storage, store.location, store.ambient)
    overwrite = during(store, lambda other: write(other, rows(range(3), 1), overwrite=True))
    with pytest.raises(Conflict):
        compact_table(opened, full=True, runner=overwrite)
    assert "could not be removed" in caplog.text
