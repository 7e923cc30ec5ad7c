"""Fault test 6: UPDATE beside DELETE of the same row, in all interleavings, with a compaction or a fold among them.

In Iceberg's anomaly a delete was computed on the old row and does not delete the updated one. Here, in whatever order,
the result is that of one after the other, so a delete that is last, or has the higher sequence, leaves no row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from compaction.compact import compact_slots, compact_table, plan_compaction
from filestore.errors import Conflict
from filestore.operations.fold import fold_slots, fold_table, plan_folds
from filestore.reading.scan import plan_scan, scan_table
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.depth import Depth, sampled
from tests.faults import Call, FaultyStorage
from tests.folders import memory_folder
from tests.proposals import commit_compaction, commit_folds
from tests.tables import (
    PreparedWrite,
    assert_healthy,
    create,
    define,
    prepare,
    read_deltalake,
    read_polars,
    reopen,
    seeded,
    write,
)

Rows = list[dict[str, Any]]

OTHERS = [{"id": 2, "s": 0, "v": "other"}, {"id": 3, "s": 0, "v": "other"}]
SEQUENCES = {"no sequence": None, "delete newer": (5, 6), "delete older": (6, 5), "equal": (5, 5)}
TWO = ("prepare update", "commit update", "prepare delete", "commit delete")
THREE = (*TWO, "prepare compaction", "commit compaction")


def orders(steps: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yields all orders in which each step is prepared before it is committed."""
    for order in itertools.permutations(steps):
        if all(order.index(a) < order.index(b) for a, b in zip(steps[::2], steps[1::2], strict=True)):
            yield order


@dataclass
class Race:
    """One table, and the writes that are in progress in it. Each writer is a process of its own."""

    store: FileStore
    later: bool
    sequence: tuple[int, int] | None
    prepared: dict[str, Any] = field(default_factory=dict)
    committed: list[str] = field(default_factory=list)

    def step(self, step: str) -> None:
        act, what = step.split()
        if act == "prepare" and what == "compaction":
            self.prepared[what] = self.merged(reopen(self.store))
        elif act == "prepare":
            self.prepared[what] = self.written(what, reopen(self.store))
        else:
            self.commit(what)

    def written(self, what: str, store: FileStore) -> PreparedWrite:
        update, delete = self.sequence or (0, 0)
        change = {"update": {"s": update, "v": "new"}, "delete": {"s": delete, "v": None, "_kind": "-D"}}[what]
        return prepare(store, [{"id": 1, **change}], later=self.later)

    def merged(self, store: FileStore) -> tuple[FileStore, Any, Any, Any]:
        state = store.state()
        if self.later:
            folds = plan_folds(state, store.ambient.now_ms(), full=True)
            return store, state, folds, fold_slots(store.table_files(state), folds) if folds else []
        tasks = plan_compaction(state, full=True)
        return store, state, tasks, compact_slots(store.table_files(state), tasks) if tasks else []

    def commit(self, what: str) -> None:
        if what != "compaction":
            assert self.prepared[what].commit().fresh
            self.committed.append(what)
            return
        store, state, tasks, results = self.prepared[what]
        try:
            if tasks and self.later:
                commit_folds(store, state, tasks, results)
            elif tasks:
                commit_compaction(store, state, results)
        except Conflict as error:
            assert error.code in ("compaction-conflict", "run-gone")

    def expected(self) -> Rows:
        update, delete = self.sequence or (0, 0)
        if delete > update or (delete == update and self.committed[-1] == "delete"):
            return OTHERS
        return [{"id": 1, "s": update, "v": "new"}, *OTHERS]

    def check(self) -> None:
        """Asserts that our readers and others return the right rows, before and after all is folded and compacted."""
        assert sorted(self.committed) == ["delete", "update"]
        fresh = reopen(self.store)
        assert self.rows(fresh) == self.expected()
        fold_table(fresh, full=True)
        compact_table(fresh, full=True)
        assert self.rows(fresh) == self.expected()
        assert read_polars(fresh.location) == read_deltalake(fresh.location) == self.rows(fresh)
        assert_healthy(fresh)

    @staticmethod
    def rows(store: FileStore) -> Rows:
        state = store.state()
        found = scan_table(store.table_files(state), plan_scan(state)).to_pylist()
        return sorted(found, key=lambda row: row["id"])


def begin(folder: Path, later: bool, sequence: str, storage: FaultyStorage | None = None) -> Race:
    ordered = SEQUENCES[sequence]
    options: dict[str, object] = {"write__mode": "merge-on-read"} if later else {}
    if ordered:
        options["sequence_field"] = "s"
    store = create(folder / "t", define("id BIGINT, s INT, v STRING", ["id"], **options), storage, seeded(1))
    write(store, [{"id": 1, "s": 0, "v": "old"}, *OTHERS])
    write(store, [{"id": 1, "s": 1, "v": "older"}], later=later)
    return Race(store, later, ordered)


modes = pytest.mark.parametrize("later", [False, True], ids=["merge-on-write", "merge-on-read"])
sequences = pytest.mark.parametrize("sequence", SEQUENCES)


@pytest.mark.slow
@pytest.mark.few(2)
@modes
@pytest.mark.parametrize("sequence", sampled(SEQUENCES, 4))
def test_update_and_delete_in_all_orders(later: bool, sequence: str) -> None:
    for order in orders(TWO):
        with memory_folder() as folder:
            race = begin(folder, later, sequence)
            for step in order:
                race.step(step)
            race.check()


@pytest.mark.few(5)
@modes
@pytest.mark.parametrize("sequence", sampled(SEQUENCES, 2))
@pytest.mark.parametrize("first", ["update", "delete"])
@pytest.mark.parametrize("between", [(), ("prepare compaction", "commit compaction")], ids=["alone", "compaction"])
def test_one_commits_just_before_the_other_puts_its_entry(
    folder: Path, later: bool, sequence: str, first: str, between: tuple[str, ...]
) -> None:
    """Both writers have looked for conflicting commits and found none when one of them commits."""
    storage = FaultyStorage(LocalStorage())
    race = begin(folder, later, sequence, storage)
    second = "delete" if first == "update" else "update"
    race.step(f"prepare {first}")
    race.prepared[second] = race.written(second, FileStore.open(storage, race.store.location, race.store.ambient))
    reached: list[str] = []

    def other_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            for step in (f"commit {first}", *between):
                race.step(step)
                reached.append(step)

    storage.hook = other_first
    race.step(f"commit {second}")
    assert len(reached) == 1 + len(between)
    assert race.committed == [first, second]
    race.check()


@pytest.mark.few(2)
@pytest.mark.slow
@modes
@sequences
def test_update_delete_and_compaction_in_all_orders(later: bool, sequence: str, depth: Depth) -> None:
    for order in depth.sample(orders(THREE), 8):
        with memory_folder() as folder:
            race = begin(folder, later, sequence)
            for step in order:
                race.step(step)
            race.check()
