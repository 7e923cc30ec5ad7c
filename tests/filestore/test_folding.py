"""Folds with failures: every storage call fails before or after its effect, or kills; a retry succeeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from filestore.errors import TableStoreError, Unavailable
from filestore.model.definition import TableDefinition
from filestore.operations.fold import fold_table
from filestore.reading.scan import plan_scan, scan_table
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.depth import Depth
from tests.faults import FailAt, FaultyStorage, Killed
from tests.folders import memory_folder
from tests.tables import assert_healthy, create, define, in_order, prepare, read_polars, reopen, seeded

Rows = list[dict[str, Any]]

LATER = {"write__mode": "merge-on-read", "checkpoint_interval": 3}
DEFINITIONS = {
    "deduplicate": define("id BIGINT, v BIGINT", ["id"], bucket=2, **LATER),
    "aggregation": define(
        "id BIGINT, v BIGINT",
        ["id"],
        bucket=2,
        merge__engine="aggregation",
        fields_v_aggregate__function="sum",
        aggregation_remove__record__on__delete="true",
        **LATER,
    ),
}


def filled(folder: Path, definition: TableDefinition) -> FileStore:
    """Folded files with vectors, and two runs a bucket that are pending, with deletes among their changes."""
    store = create(folder / "t", definition, ambient=seeded(9))
    for start in (0, 20):
        append(store, [{"id": n, "v": n} for n in range(start, start + 40)])
        fold_table(store, full=True)
    append(store, [{"id": n, "v": 1} for n in range(10, 30)])
    append(store, [{"id": n, "v": None, "_kind": "-D"} for n in range(25, 45)] + [{"id": 99, "v": 1}])
    return store


def append(store: FileStore, rows: Rows) -> None:
    prepare(store, rows, later=True).commit()


def seen(store: FileStore) -> Rows:
    state = store.state()
    return in_order(scan_table(store.table_files(state), plan_scan(state)).to_pylist())


def calls_of_a_fold(definition: TableDefinition) -> int:
    with memory_folder() as folder:
        store = filled(folder, definition)
        storage = FaultyStorage(LocalStorage())
        fold_table(reopen(store, storage), full=True)
        return len(storage.calls)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("engine", list(DEFINITIONS))
@pytest.mark.parametrize("how", ["before", "after", "kill"])
def test_a_fault_at_every_call_leaves_the_table_whole(engine: str, how: str, depth: Depth) -> None:
    definition = DEFINITIONS[engine]
    calls = calls_of_a_fold(definition)
    assert calls > 20
    for number in depth.sample(range(1, calls + 1), 4):
        with memory_folder() as folder:
            store = filled(folder, definition)
            wanted = seen(store)
            error = Killed() if how == "kill" else Unavailable(f"injected at call {number}")
            fault = FailAt(number, error, after=how == "after")
            try:
                fold_table(FileStore(FaultyStorage(LocalStorage(), fault), store.location, store.ambient), full=True)
            except (TableStoreError, Killed):
                assert fault.fired
            assert seen(reopen(store)) == wanted, f"after call {number}"
            fold_table(reopen(store), full=True)
            assert seen(reopen(store)) == wanted == read_polars(store.location), f"after the retry of call {number}"
            assert_healthy(reopen(store))


def test_an_error_that_is_reported_leaves_no_file_behind(folder: Path) -> None:
    store = filled(folder, DEFINITIONS["deduplicate"])
    before = {info.path for info in store.storage.walk(store.location)}
    fault = FailAt(1, Unavailable("injected"), operation="write_new", path="_delta_log")
    with pytest.raises(Unavailable, match="injected"):
        fold_table(FileStore(FaultyStorage(LocalStorage(), fault), store.location, store.ambient), full=True)
    assert {info.path for info in store.storage.walk(store.location)} == before
