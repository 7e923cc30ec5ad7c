"""Found by phase-locked races: a row is late only as long as the row with the higher sequence is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from filestore.storage.local import LocalStorage
from filestore.writing.fold import rebase_slot
from tests.faults import Call, FaultyStorage
from tests.tables import assert_healthy, create, define, paths, prepare, read, reopen, write

COLUMNS = "id BIGINT, s INT, v STRING"


def row(sequence: int, value: str, kind: str = "+U") -> dict[str, object]:
    return {"id": 1, "s": sequence, "v": value, "_kind": kind}


@pytest.mark.parametrize("removal", ["overwrite", "delete"])
def test_a_row_late_when_folded_lives_if_the_newer_one_went_before_the_commit(folder: Path, removal: str) -> None:
    """A fold dropped late rows for good; if an overwrite removed the newer row meanwhile, the key was lost."""
    forgetful = define(COLUMNS, ["id"], sequence_field="s", sequence_tombstone__retention="0 s")
    store = create(folder / "t", forgetful)
    write(store, [row(9, "newer")])
    late = prepare(store, [row(5, "late")])
    write(store, [] if removal == "overwrite" else [row(9, "", "-D")], overwrite=removal == "overwrite")
    late.commit()
    assert read(store) == [{"id": 1, "s": 5, "v": "late"}]
    assert_healthy(store)


@pytest.mark.parametrize("kind", ["+U", "-D"])
def test_a_row_late_in_one_race_lives_after_the_next(folder: Path, kind: str) -> None:
    """The second rebase started from the result of the first, in which the row was dead already.

    After a delete, of which only a tombstone was left, an overwrite did not count as a change.
    """
    storage = FaultyStorage(LocalStorage())
    store = create(folder / "t", define(COLUMNS, ["id"], sequence_field="s"), storage)
    mine = prepare(store, [row(5, "mine")])
    others = [([row(9, "newer", kind)], False), ([], True)]

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and others:
            storage.hook = lambda _: None
            rows, overwrite = others.pop(0)
            write(reopen(store), rows, overwrite=overwrite)
            storage.hook = others_first

    storage.hook = others_first
    assert mine.commit().snapshot.version == 3
    assert len(mine.rebases) == 2
    assert [r["v"] for r in read(store)] == ["mine"]
    assert_healthy(store)


def test_late_rows_are_dead_from_birth_and_leave_no_file_of_their_own(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"], sequence_field="s"))
    write(store, [row(9, "newer")])
    before = paths(store.state())
    metrics = write(store, [row(5, "late")]).snapshot.metrics
    assert (metrics["rows_written"], metrics["rows_late"], metrics["files_added"]) == (0, 1, 0)
    assert paths(store.state()) == before
    write(store, [row(5, "late"), {"id": 2, "s": 1, "v": "new"}])
    (added,) = (file for file in store.state().files if file.path not in before)
    assert (added.rows, added.live_rows) == (2, 1)
    assert_healthy(store)


def test_looking_again_in_a_table_without_a_key_changes_nothing(folder: Path) -> None:
    """It failed with an IndexError."""
    store = create(folder / "t", define(COLUMNS))
    (result,) = prepare(store, [{"id": 1}]).result.results
    assert rebase_slot(store.table_files(store.state()), (), result) == result
