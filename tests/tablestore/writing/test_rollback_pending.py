"""Rollbacks to versions with pending runs: the rows are those that a scan of that version returns."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from filestore.errors import CommitUnknown, Conflict, Corrupt, NotFound, Unavailable
from filestore.life.restore import as_defined_now
from filestore.model.changes import RenameColumn
from filestore.model.snapshot import Operation
from filestore.operations import fold
from filestore.operations.refold import refold
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tests.depth import Depth
from tests.faults import Call, FailAt, FaultyStorage, Killed
from tests.opened import again
from tests.warehouses import assert_whole, changes, orphans, rows, to_arrow, warehouse

Row = dict[str, Any]
LATER = {"write-mode": "merge-on-read", "bucket": "2"}
NO_LOG = {"log.system": "none"}
ENGINES = {
    "deduplicate": {},
    "sequence": {"sequence.field": "n", **NO_LOG},
    "partial-update": {"merge-engine": "partial-update", **NO_LOG},
    "aggregation": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", **NO_LOG},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true", **NO_LOG},
    "lookup": {"changelog-producer": "lookup"},
}


def make(store: Store, **options: str) -> Table:
    columns = "id BIGINT, n BIGINT, t STRING"
    return store.create_table("shop.t", columns, primary_key=["id"], options=LATER | options)


def put(table: Table, *listed: tuple[Any, ...]) -> int:
    """Writes rows of id, n, t and perhaps a kind."""
    names = [*table.schema.names[:3], "_kind"]
    return table.write(to_arrow(table, [dict(zip(names, row, strict=False)) for row in listed])).version


def shown(table: Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in sorted(rows(table), key=lambda row: row["id"])]


def written_then(table: Table) -> int:
    """Creates a version with folded rows and three pending runs."""
    put(table, (1, 1, "a"), (2, 1, "b"), (4, 1, "d"))
    table.compact(full=True)
    put(table, (1, 5, None), (3, 5, "c"))
    put(table, (2, None, "late"), (5, 6, "e"))
    return put(table, (3, 7, "again"))


def written_since(table: Table) -> None:
    put(table, (1, 9, "z"), (6, 9, "f"))
    table.compact(full=True)
    put(table, (4, 9, "y"), (7, 9, "g"))


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_pending_rows_come_back_merged(store: Store, engine: str) -> None:
    table = make(store, **ENGINES[engine])
    then = written_then(table)
    expected = rows(table)
    written_since(table)
    snapshot = table.rollback(then)
    assert snapshot.operation is Operation.ROLLBACK
    assert snapshot.metrics["restored_version"] == then
    assert not table.filestore.state().pending
    assert assert_whole(table, leftovers=False) == expected == rows(table, then)
    put(table, (1, 11, "on"), (5, None, "on"))
    table.compact(full=True)
    assert_whole(table, leftovers=False)


def test_the_newest_version_is_not_folded_to_be_what_it_is(store: Store) -> None:
    table = make(store)
    then = written_then(table)
    assert table.rollback(then).version == then == table.filestore.state().version


def test_the_log_contains_what_becomes_of_pending_rows_and_no_more(store: Store) -> None:
    table = make(store)
    then = written_then(table)
    table.compact(full=True)
    version = put(table, (1, 9, "z"), (6, 9, "f"), (4, None, None, "-D"))
    snapshot = table.rollback(then)
    reported = changes(table, version=version, stop=snapshot.version)
    assert {(row["_kind"], row["id"], row["n"]) for row in reported} == {("+U", 1, 5), ("-D", 6, 9), ("+I", 4, 1)}


@pytest.mark.slow
def test_many_runs_are_folded_a_few_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "_RUNS_AT_ONCE", 2)
    table = make(store, bucket="1")
    put(table, *((n, 0, "base") for n in range(6)))
    table.compact(full=True)
    for number in range(7):
        then = put(table, (number % 3, number, "run"), (10 + number, 0, None), (9 + number, None, None, "-D"))
    expected = rows(table)
    put(table, (1, 99, "since"))
    table.rollback(then)
    assert assert_whole(table, leftovers=False) == expected


def test_deletes_among_the_runs_are_remembered_again(store: Store) -> None:
    table = make(store, **ENGINES["sequence"])
    put(table, (1, 5, "a"))
    then = put(table, (2, 9, None, "-D"), (1, 8, None, "-D"))
    put(table, (1, 20, "since"), (2, 20, "since"))
    table.rollback(then)
    assert shown(table) == []
    put(table, (2, 8, "late"), (1, 7, "late"), (3, 1, "c"))
    assert shown(table) == [(3, 1, "c")]
    table.compact(full=True)
    assert_whole(table, leftovers=False)


def test_runs_are_read_by_the_columns_of_now(store: Store) -> None:
    table = make(store, **ENGINES["aggregation"], **{"schema.evolution-mode": "metadata"})
    then = put(table, (1, 2**62, "a"))
    put(table, (1, 1, "b"))
    table.alter("RENAME COLUMN t TO text", "ADD COLUMN more INT FIRST", "ALTER COLUMN id COMMENT 'key'")
    table.write(to_arrow(table, [{"id": 1, "n": 5, "text": "c", "more": 7}]))
    table.rollback(then)
    assert rows(table) == [{"more": None, "id": 1, "n": 2**62, "text": "a"}]
    assert table.examine().findings == ()


REMOVES = "partial-update.remove-record-on-delete"


@pytest.mark.parametrize(
    ("option", "statements", "left"),
    [
        ("ignore-delete", ["SET ignore-delete = false", f"SET {REMOVES} = true"], [1, 2]),
        (REMOVES, [f"SET {REMOVES} = false", "SET ignore-delete = true"], [2]),
    ],
)
def test_runs_are_merged_with_their_versions_option_for_deletes(
    store: Store, option: str, statements: list[str], left: list[int]
) -> None:
    table = make(store, **ENGINES["partial-update"], **{option: "true"})
    put(table, (1, 1, "a"), (2, 1, "b"))
    version = put(table, (1, None, None, "-D"))
    table.alter(*statements)
    put(table, (1, 3, "c"), (2, 3, "c"))
    table.rollback(version)
    assert [row["id"] for row in assert_whole(table, leftovers=False)] == left
    assert rows(table) == rows(table, version)


@pytest.mark.slow
def test_runs_live_by_a_tag_or_are_gone(store: Store) -> None:
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "0 s"}
    table = make(store, **kept, **{"checkpoint.interval": "2"})
    then = written_then(table)
    expected = rows(table)
    table.create_tag("then")
    for _ in range(3):
        written_since(table)
        table.compact(full=True)
    gone = table.expire()
    assert gone.versions
    table.rollback(tag="then")
    assert rows(table) == expected
    assert table.examine().problems == ()
    table.delete_tag("then")
    written_since(table)
    table.compact(full=True)
    table.expire()
    with pytest.raises(NotFound) as caught:
        table.rollback(then)
    assert caught.value.code == "snapshot-expired"
    assert table.examine().findings == ()


# ------------------------------------------------------------------------------------------------------ what fails


def outrun(table: Table, *acts: Callable[[Table], object]) -> Table:
    """Opens the table for a writer that loses a race to each of the acts."""
    waiting = list(acts)

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and waiting:
            waiting.pop(0)(again(table))

    return again(table, storage=FaultyStorage(LocalStorage(), others_first))


@pytest.mark.slow
def test_runs_and_rows_that_come_meanwhile_go_with_the_rest(store: Store) -> None:
    table = make(store)
    then = written_then(table)
    expected = rows(table)
    written_since(table)
    acts = [lambda t, n=n: put(t, (n, 99, "other"), (1, None, None, "-D")) for n in (1, 2, 9)]
    outrun(table, *acts, lambda t: t.compact(full=True)).rollback(then)
    assert assert_whole(store.table("shop.t"), leftovers=False) == expected


@pytest.mark.slow
def test_one_that_never_gets_through_leaves_no_file(store: Store) -> None:
    table = make(store, **{"commit.max-retries": "2"})
    then = written_then(table)
    written_since(table)
    acts = [lambda t, n=n: put(t, (n, 99, "other")) for n in range(30)]
    with pytest.raises(Conflict):
        outrun(table, *acts).rollback(then)
    assert Operation.ROLLBACK not in [snapshot.operation for snapshot in table.snapshots()]
    fresh = store.table("shop.t")
    fresh.compact(full=True)
    assert_whole(fresh, leftovers=False)


def test_one_that_begins_again_after_a_change_of_columns_leaves_no_file(store: Store) -> None:
    table = make(store, **{"schema.evolution-mode": "metadata"})
    then = written_then(table)
    table.compact(full=True)
    expected = sorted((row["id"], row["t"]) for row in rows(table, then))
    outrun(table, lambda t: t.alter(RenameColumn("t", "text"))).rollback(then)
    fresh = store.table("shop.t")
    assert sorted((row["id"], row["text"]) for row in rows(fresh)) == expected
    assert orphans(fresh) == []


@pytest.mark.slow
def test_files_stay_when_nobody_knows_whether_it_was_committed(store: Store) -> None:
    table = make(store)
    then = written_then(table)
    expected = rows(table)
    written_since(table)
    table.compact(full=True)

    def cut_off(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and call.done:
            storage.hook = lambda call: _fail() if "_delta_log/" in call.path else None
            _fail()

    storage = FaultyStorage(LocalStorage(), cut_off)
    with pytest.raises(CommitUnknown):
        again(table, storage=storage).rollback(then)
    assert assert_whole(store.table("shop.t")) == expected


def _fail() -> None:
    raise Unavailable("injected")


@pytest.mark.parametrize("broken", [b"", None])
def test_a_run_that_cannot_be_read_leaves_no_file(store: Store, broken: bytes | None) -> None:
    """The fold of the other slot has written its file already."""
    table = make(store)
    then = written_then(table)
    state = table.filestore.state()
    run = next(iter(state.pending))
    written_since(table)
    table.compact(full=True)
    lost = Path(table.location, run.path)
    lost.unlink() if broken is None else lost.write_bytes(broken)
    before = rows(table)
    with pytest.raises((NotFound, Corrupt)):
        table.rollback(then)
    assert rows(table) == before
    assert table.consumers() == []
    assert {finding.code for finding in table.examine().findings} <= {"retained-file"}


def test_what_a_fold_without_a_commit_wrote_can_be_taken_back(store: Store) -> None:
    table = make(store)
    then = written_then(table)
    written_since(table)
    table.compact(full=True)
    filestore = table.filestore
    newest = filestore.state()
    folded = refold(filestore, as_defined_now(filestore.state(then), newest))
    assert folded.state.version == then
    assert not folded.state.pending
    assert len(orphans(table)) == len(folded.written) > 0
    folded.discard(filestore)
    assert orphans(table) == []
    assert filestore.state().version == newest.version


CHANGING = {"write_new", "replace", "delete", "append", "open_write", "sync"}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "after"),
    [(Unavailable, False), (Unavailable, True), (Killed, True)],
    ids=["error-before", "error-after", "kill"],
)
def test_one_that_fails_anywhere_leaves_a_whole_table_and_can_be_repeated(
    kind: type[BaseException], after: bool, depth: Depth
) -> None:
    with warehouse() as store:
        table = make(store, bucket="1")
        then = written_then(table)
        expected = rows(table)
        written_since(table)
        newest = rows(table)
        saved = Path(table.location).parent / "saved"
        shutil.copytree(table.location, saved)
        counting = FaultyStorage(LocalStorage())
        mine = again(table, storage=counting)
        counting.calls.clear()
        mine.rollback(then)
        seen = Counter[str]()
        numbered = list[tuple[int, Call]]()
        for call in counting.calls:
            seen[call.operation] += 1
            if not after or call.operation in CHANGING:
                numbered.append((seen[call.operation], call))
        for number, call in depth.sample(numbered, 6):
            shutil.rmtree(table.location)
            shutil.copytree(saved, table.location)
            storage = FaultyStorage(LocalStorage())
            failing = again(table, storage=storage)
            hook = storage.hook = FailAt(number, kind("injected"), after, call.operation)
            with suppress(Killed, Unavailable):
                failing.rollback(then)
            assert hook.fired, call
            fresh = store.table("shop.t")
            found = rows(fresh)
            assert found in (expected, newest)
            if not after and call.operation != "delete":
                assert found == expected or not orphans(fresh), call
            fresh.rollback(then)
            assert rows(fresh) == expected
            put(fresh, (77, 1, "ends what the log still holds open"))
            fresh.compact(full=True)
            assert_whole(fresh)
            assert not {f.code for f in fresh.examine().findings} - {"orphan"}
