"""Files that are removed as orphans are fenced first: a commit that names one is before the fence, or begins again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from filestore import layout
from filestore.commit.conflict import Done, judge
from filestore.commit.new_files import any_fenced, check_new_files, fenced_files, new_files
from filestore.commit.proposal import Proposal
from filestore.delta.vectors import vector_file
from filestore.errors import Conflict, InvalidRequest, NotFound, Unavailable
from filestore.life import orphans
from filestore.life.consumers import Consumer
from filestore.life.orphans import MINIMUM_AGE_MS, check_age, find_orphans, remove_orphans
from filestore.model.change_text import parse_changes
from filestore.model.files import ChangeFile, PendingRun, Slot
from filestore.model.snapshot import Operation
from filestore.operations.alter import alter
from filestore.operations.rewrite import TableRewrite
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from filestore.writing.slot_result import written_files
from tests.faults import Call, FailAt, FaultyStorage, Killed
from tests.proposals import propose
from tests.tables import assert_healthy, create, define, in_order, prepare, read, reopen, seeded, write

LATER = 10**15
"""A time after every file was written."""
SLOT = Slot((), 0)


@pytest.fixture
def store(folder: Path) -> FileStore:
    table = create(folder / "t", define("id BIGINT, v STRING", ["id"], bucket=2))
    write(table, rows("a", 1, 2, 3))
    return table


def rows(v: str, *keys: int) -> list[dict[str, object]]:
    return [{"id": key, "v": v} for key in keys]


def clean(store: FileStore) -> list[str]:
    """Removes all orphans in another process, however young, and returns their paths."""
    other = reopen(store)
    return [left.path for left in remove_orphans(other, find_orphans(other, LATER, lambda: None))]


def test_a_write_whose_files_were_removed_is_refused(store: FileStore) -> None:
    prepared = prepare(store, rows("b", 2, 4))
    files = written_files(prepared.result.results)
    assert sorted(files) == clean(store)
    with pytest.raises(Conflict, match="was removed as an orphan") as refused:
        prepared.commit()
    assert (refused.value.code, refused.value.again) == ("file-removed", True)
    fence = store.snapshots()[0]
    assert (fence.operation, fence.metrics) == (Operation.FENCE, {"files_fenced": len(files)})
    assert read(store) == in_order(rows("a", 1, 2, 3))
    assert write(store, rows("b", 2, 4)).snapshot.version == 3, "it begins again with other files"
    assert_healthy(store)
    assert clean(store) == [], "a clean-up that finds nothing commits nothing"
    assert store.state().version == 3


def test_a_write_that_commits_before_the_fence_keeps_its_files(store: FileStore) -> None:
    """Somebody looks at the list for a while, and answers then."""
    prepared = prepare(store, rows("b", 2, 4))
    other = reopen(store)
    found = find_orphans(other, LATER, lambda: None)
    assert found
    prepared.commit()
    assert remove_orphans(other, found) == []
    assert read(store) == in_order([*rows("a", 1, 3), *rows("b", 2, 4)])
    assert_healthy(store)
    # keys in these files may be looked up again, which marks rows of them: they are no new files
    write(store, rows("c", 2))
    assert_healthy(store)


def test_a_writer_that_died_leaves_files_that_are_removed(store: FileStore) -> None:
    killed = FileStore(
        FaultyStorage(LocalStorage(), FailAt(1, Killed(), operation="write_new", path="_delta_log/")),
        store.location,
        store.ambient,
    )
    with pytest.raises(Killed):
        write(killed, rows("b", 2, 4))
    gone = clean(store)
    assert gone
    assert not [path for path in gone if Path(store.location, path).exists()]
    assert_healthy(store)


def test_many_files_are_fenced_by_several_versions(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "_TOGETHER", 2)
    names = sorted(f"bucket-00000/{store.ambient.new_id()}.parquet" for _ in range(5))
    for name in names:
        Path(store.location, name).write_bytes(b"x")
    Path(store.location, "left.tmp").write_bytes(b"x")
    assert clean(store) == [*names, "left.tmp"]
    fences = [entry.fenced_files for entry in store.delta_log.read_entries_after(1)]
    assert fences == [tuple(names[:2]), tuple(names[2:4]), tuple(names[4:])]
    assert_healthy(store)


def test_what_is_no_orphan_any_more_stays(store: FileStore) -> None:
    """A reader that had lapsed goes on while somebody looks at the list."""
    Consumer(store, "slow").register(1)
    path = Path(store.location, layout.consumer_path("slow"))
    text = path.read_text()
    path.write_text(text.replace('"touched_ms": 1', '"touched_ms": 0.1'))
    found = find_orphans(store, LATER, lambda: None)
    assert [left.kind for left in found] == ["lapsed consumer"]
    path.write_text(text)
    assert remove_orphans(store, found) == []
    assert path.exists()


def test_an_operation_that_keeps_files_for_another_attempt_writes_removed_ones_anew(folder: Path) -> None:
    """What the first attempt has rewritten is removed; the next one would keep it."""
    definition = define("id BIGINT, v INT", ["id"], schema_evolution__mode="rewrite")
    store = create(folder / "t", definition)
    write(store, [{"id": n, "v": n} for n in range(9)])
    runs: list[int] = []

    class Rewrite(TableRewrite):
        def write_files(self, state):  # type: ignore[no-untyped-def]
            files = super().write_files(state)
            runs.append(len(files))
            if len(runs) == 1:
                assert clean(store) == sorted(file.path for file in files)
            return files

    alter(store, parse_changes(["ALTER COLUMN v TYPE BIGINT"]), begin=Rewrite)
    assert len(runs) == 2
    assert read(store) == in_order([{"id": n, "v": n} for n in range(9)])
    assert_healthy(store)


def test_a_file_that_is_missing_is_only_called_removed_behind_a_fence(store: FileStore) -> None:
    base = store.state()
    with pytest.raises(NotFound), store.preparing(base):
        store.storage.read(f"{store.location}/bucket-00000/gone.parquet")
    Path(store.location, f"bucket-00000/{store.ambient.new_id()}.parquet").write_bytes(b"x")
    clean(store)
    with pytest.raises(Conflict, match="removed as an orphan"), store.preparing(base):
        store.storage.read(f"{store.location}/bucket-00000/gone.parquet")


def test_a_clean_up_whose_fence_fails_removes_nothing(store: FileStore) -> None:
    name = f"bucket-00000/{store.ambient.new_id()}.parquet"
    Path(store.location, name).write_bytes(b"x")
    found = find_orphans(store, LATER, lambda: None)

    def fails(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path:
            raise Unavailable("injected")

    with pytest.raises(Unavailable):
        remove_orphans(FileStore(FaultyStorage(LocalStorage(), fails), store.location, seeded(1)), found)
    assert Path(store.location, name).exists()
    assert clean(store) == [name]


@pytest.mark.parametrize("kind", ["adds", "vectors", "tombstones", "cdc", "pending"])
def test_every_kind_of_file_that_a_commit_names_is_looked_at(store: FileStore, kind: str) -> None:
    write(store, rows("b", 1))
    file = next(file for file in store.state().files if file.vector is not None)
    assert file.vector is not None
    stored = {
        "adds": (replace(file, vector=None), file.path),
        "vectors": (file, vector_file(file.vector)),
        "cdc": (ChangeFile("_change_data/c.parquet", SLOT, 1), "_change_data/c.parquet"),
        "pending": (PendingRun("_runs/r.parquet", SLOT, 1, 1, 1, "[1]", "[1]"), "_runs/r.parquet"),
    }
    named, path = stored.get(kind, stored["adds"])
    proposal: Proposal = propose(Operation.WRITE, "mine", 2, **{kind: (named,)})
    assert path in new_files(proposal)
    check_new_files(proposal, {"another": 3})
    with pytest.raises(Conflict):
        check_new_files(proposal, {path: 3})


def test_a_fence_of_files_is_not_taken_for_one_that_was_there(store: FileStore) -> None:
    """Neither a fence of commits nor one of other files makes it needless."""
    write(store, rows("b", 1))
    between = [store.required(2)]
    fence = propose(Operation.FENCE, "mine", 1, orphans=frozenset(["x"]))
    assert not isinstance(judge(fence, store.state(), between), Done)


@pytest.mark.parametrize("since", [0, 1])
def test_files_are_kept_only_over_versions_that_fence_none(store: FileStore, since: int) -> None:
    write(store, rows("b", 1))
    assert not any_fenced(store.delta_log, since, 2)
    Path(store.location, f"bucket-00000/{store.ambient.new_id()}.parquet").write_bytes(b"x")
    clean(store)
    assert not any_fenced(store.delta_log, since, 2)
    assert any_fenced(store.delta_log, since, 3)
    assert not any_fenced(store.delta_log, 3, 3)
    assert list(fenced_files([store.required(3)]).values()) == [3]
    Path(store.location, layout.log_entry_path(since + 1)).unlink()
    assert any_fenced(store.delta_log, since, 2), "its entry has expired, so nobody knows"


@pytest.mark.parametrize(
    ("age", "even_young", "allowed"),
    [(MINIMUM_AGE_MS, False, True), (MINIMUM_AGE_MS - 1, False, False), (0, True, True), (-5, False, False)],
)
def test_young_files_are_removed_only_if_that_is_asked_for(age: int, even_young: bool, allowed: bool) -> None:
    if allowed:
        check_age(age, even_young=even_young)
        return
    with pytest.raises(InvalidRequest, match="even_young=True") as refused:
        check_age(age, even_young=even_young)
    assert refused.value.code == "young-orphans"
