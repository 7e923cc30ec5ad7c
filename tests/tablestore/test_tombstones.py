"""Deletes that are remembered (``sequence.tombstone-retention``): late rows do not restore a deleted key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.tombstones import clean_tombstones, plan_tombstone_cleanups
from filestore.doctor import examine
from filestore.model.files import Tombstones
from filestore.model.snapshot import Operation
from filestore.operations.fold import fold_table
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.warehouses import assert_whole, changes, orphans, replay, rows, warehouse
from tests.writers import sorted_batches

COLUMNS = "id BIGINT, seq BIGINT, name STRING"
SEQUENCE = {"sequence.field": "seq"}
Change = tuple[int, int | None, str, str]


def make(store: Store, name: str = "t", **options: str) -> Table:
    return store.create_table(f"shop.{name}", COLUMNS, primary_key=["id"], options=SEQUENCE | options)


def frame(given: Sequence[Change]) -> pa.Table:
    ids, sequences, names, kinds = zip(*given, strict=True)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "seq": pa.array(sequences, pa.int64()), "name": names, "_kind": kinds}
    )


def put(table: Table, *given: Change) -> None:
    table.write(frame(given))


def remembered(table: Table) -> list[Tombstones]:
    return list(table.filestore.state().tombstones)


@pytest.fixture
def table(store: Store) -> Table:
    return make(store)


def test_a_late_row_does_not_restore_a_deleted_key(table: Table) -> None:
    put(table, (1, 5, "a", "+I"))
    put(table, (1, 7, "", "-D"))
    put(table, (1, 6, "late", "+I"))
    assert rows(table) == []
    put(table, (1, 7, "again", "+I"))
    assert [row["name"] for row in assert_whole(table, leftovers=False)] == ["again"]


def test_a_delete_of_a_key_without_a_row_is_remembered_too(table: Table) -> None:
    put(table, (1, 7, "", "-D"))
    put(table, (1, 6, "late", "+I"), (2, 1, "b", "+I"))
    assert [row["id"] for row in assert_whole(table, leftovers=False)] == [2]


def test_a_late_delete_does_not_shorten_what_is_remembered(table: Table) -> None:
    put(table, (1, 7, "", "-D"))
    put(table, (1, 3, "", "-D"))
    put(table, (1, 5, "late", "+I"))
    assert rows(table) == []


def test_without_retention_nothing_is_remembered(store: Store) -> None:
    table = make(store, **{"sequence.tombstone-retention": "0 s"})
    put(table, (1, 7, "", "-D"))
    put(table, (1, 6, "late", "+I"))
    assert [row["name"] for row in rows(table)] == ["late"]
    assert remembered(table) == []
    assert orphans(table) == []


def test_after_the_retention_a_late_row_is_taken_and_the_run_forgotten(store: Store) -> None:
    table = make(store, **{"sequence.tombstone-retention": "1 h"})
    put(table, (1, 7, "", "-D"))
    put(table, (2, 7, "", "-D"))
    now = table.opened.ambient.now_ms()
    assert plan_tombstone_cleanups(table.filestore.state(), now + 3_000_000) == []
    table.filestore.ambient = replace(table.filestore.ambient, now_ms=lambda: now + 4_000_000)
    assert len(remembered(table)) == 2
    assert clean_tombstones(table.filestore) is not None
    assert remembered(table) == []
    put(table, (1, 6, "late", "+I"))
    assert [row["name"] for row in assert_whole(table)] == ["late"]


def test_many_runs_become_one_and_are_remembered_on(store: Store) -> None:
    table = make(store, **{"num-sorted-run.compaction-trigger": "3"})
    for number in range(3):
        put(table, (1, 3 + number, "", "-D"), (10 + number, 9, "", "-D"))
    table.compact()
    (run,) = remembered(table)
    assert run.rows == 4
    put(table, (1, 4, "late", "+I"), *((10 + n, 8, "late", "+I") for n in range(3)), (1, 5, "again", "+I"))
    assert [row["name"] for row in assert_whole(table, leftovers=False)] == ["again"]


def test_at_the_end_of_the_retention_a_delete_is_still_remembered(store: Store) -> None:
    """A writer looks keys up in the same runs, so none is removed while it may still count."""
    table = make(store, **{"sequence.tombstone-retention": "1 h"})
    put(table, (1, 7, "", "-D"))
    (run,) = remembered(table)
    state, end_ms = table.filestore.state(), run.modified_ms + 3_600_000
    assert plan_tombstone_cleanups(state, end_ms) == []
    assert run in state.lookup_files(end_ms).of(run.slot)
    assert len(plan_tombstone_cleanups(state, end_ms + 1)) == 1
    assert not state.lookup_files(end_ms + 1)


def test_a_merge_leaves_out_keys_whose_retention_is_over(store: Store) -> None:
    table = make(store, **{"num-sorted-run.compaction-trigger": "3", "sequence.tombstone-retention": "1 h"})
    ambient = table.filestore.ambient
    for key in (1, 2, 3):
        put(table, (key, 7, "", "-D"))
    now = ambient.now_ms()
    table.filestore.ambient = replace(ambient, now_ms=lambda: now + 3_000_000)
    assert clean_tombstones(table.filestore) is not None
    assert [run.rows for run in remembered(table)] == [3]
    for key in (4, 5):
        put(table, (key, 7, "", "-D"))
    table.filestore.ambient = replace(ambient, now_ms=lambda: now + 4_000_000)
    assert clean_tombstones(table.filestore) is not None
    assert [run.rows for run in remembered(table)] == [2], "the merged run is young, and three of its keys are not"


def test_an_overwrite_forgets(table: Table) -> None:
    put(table, (1, 7, "", "-D"))
    table.write(pa.table({"id": [2], "seq": [1], "name": ["b"]}), overwrite=True)
    put(table, (1, 6, "early", "+I"))
    assert [row["id"] for row in assert_whole(table)] == [1, 2]


def test_a_rollback_forgets_deletes_that_it_takes_back(table: Table) -> None:
    put(table, (1, 5, "a", "+I"))
    put(table, (1, 9, "", "-D"))
    table.rollback(1)
    put(table, (1, 7, "b", "+U"))
    assert [row["name"] for row in assert_whole(table)] == ["b"]


def test_a_rollback_takes_deletes_back_of_keys_that_had_no_row(table: Table) -> None:
    """Only the remembered deletes of the two versions differ."""
    put(table, (1, 5, "a", "+I"))
    put(table, (2, 9, "", "-D"))
    assert table.rollback(1).operation is Operation.ROLLBACK
    assert remembered(table) == []
    version = table.filestore.state().version
    assert table.rollback(1).version == version, "nothing to do"
    put(table, (2, 7, "b", "+I"))
    assert [row["name"] for row in assert_whole(table, leftovers=False)] == ["a", "b"]
    table.rollback(2)
    put(table, (2, 8, "late", "+I"))
    assert [row["id"] for row in assert_whole(table, leftovers=False)] == [1], "the delete is remembered again"


def test_a_rollback_does_not_restore_deletes_that_are_too_old_to_be_remembered(store: Store) -> None:
    table = make(store, **{"sequence.tombstone-retention": "1 h"})
    put(table, (1, 7, "", "-D"))
    now = table.opened.ambient.now_ms()
    table.filestore.ambient = replace(table.filestore.ambient, now_ms=lambda: now + 4_000_000)
    assert clean_tombstones(table.filestore) is not None
    version = table.filestore.state().version
    assert table.rollback(1).version == version


MEANWHILE: dict[str, Callable[[Table], object]] = {
    "a delete of a key without a row": lambda table: put(table, (3, 9, "", "-D")),
    "a merge of what is remembered": lambda table: table.compact(full=True),
    "an overwrite": lambda table: table.write(frame([(4, 1, "o", "+I")]), overwrite=True),
    "another rollback": lambda table: table.rollback(2),
}


@pytest.mark.parametrize("other", MEANWHILE)
def test_a_rollback_takes_back_what_others_delete_meanwhile(store: Store, other: str) -> None:
    table = make(store, **{"num-sorted-run.compaction-trigger": "2"})
    put(table, (1, 5, "a", "+I"))
    put(table, (2, 9, "", "-D"))
    put(table, (2, 10, "", "-D"))

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            MEANWHILE[other](store.table("shop.t"))

    storage = FaultyStorage(LocalStorage())
    mine = again(table, storage=storage)
    storage.hook = others_first
    mine.rollback(1)
    fresh = store.table("shop.t")
    assert remembered(fresh) == []
    put(fresh, (2, 7, "b", "+I"), (3, 7, "c", "+I"))
    assert [row["name"] for row in assert_whole(fresh, leftovers=False)] == ["a", "b", "c"]


def test_the_change_feed_of_a_table_of_nothing_but_tombstones_lacks_late_rows(store: Store) -> None:
    """A file contains the late row as dead, and the version had no change data: all its rows were read as inserts."""
    table = make(store, **{"changelog-producer": "lookup"})
    put(table, (1, 7, "", "-D"))
    put(table, (1, 6, "late", "+I"), (2, 1, "b", "+I"))
    feed = deltalake.DeltaTable(table.location).load_cdf(starting_version=2)
    assert [row["id"] for row in pa.table(feed.read_all()).to_pylist()] == [2]
    assert examine(table.filestore).problems == ()


@pytest.mark.parametrize("mode", ["rewrite", "metadata"])
def test_tombstones_outlive_a_wider_sequence(store: Store, mode: str) -> None:
    options = {"schema.evolution-mode": mode, "num-sorted-run.compaction-trigger": "2"}
    table = store.create_table(
        "shop.t", "id BIGINT, seq INT, name STRING", primary_key=["id"], options=SEQUENCE | options
    )
    put(table, (1, 7, "", "-D"), (2, 1, "b", "+I"))
    table.alter("ALTER COLUMN seq TYPE BIGINT")
    assert examine(table.filestore).problems == ()
    put(table, (1, 6, "late", "+I"), (3, 1 << 40, "", "-D"))
    table.compact()
    (run,) = remembered(table)
    assert run.rows == 2
    put(table, (1, 6, "late", "+I"), (3, (1 << 40) - 1, "late", "+I"))
    assert [row["id"] for row in rows(table)] == [2]
    assert examine(table.filestore).problems == ()


def test_a_delete_that_another_writer_commits_first_makes_ours_late(table: Table) -> None:
    """This holds though the delete changed no file, since the key had no row."""
    put(table, (2, 1, "other", "+I"))
    ours = sorted_batches(table, frame([(1, 6, "late", "+I"), (3, 6, "c", "+I")]))

    def run(job: WriteJob) -> list[TaskOutcome]:
        outcome = job.run(ours, "0.0")
        put(table, (1, 7, "", "-D"))
        return [outcome]

    writer = again(table).writer()
    writer.write(run)
    assert [row["id"] for row in assert_whole(table, leftovers=False)] == [2, 3]
    assert [row["id"] for row in replay(changes(table, version=0), ["id"])] == [2, 3]


def test_a_row_that_others_delete_and_put_again_first_is_logged_as_theirs(table: Table) -> None:
    """The log's last record of the key was the delete, though the key was stored again."""
    put(table, (2, 1, "other", "+I"))
    ours = sorted_batches(table, frame([(1, 6, "late", "+I"), (3, 6, "c", "+I")]))

    def run(job: WriteJob) -> list[TaskOutcome]:
        outcome = job.run(ours, "0.0")
        put(table, (1, 7, "", "-D"))
        put(table, (1, 8, "theirs", "+I"))
        return [outcome]

    table.writer().write(run)
    assert [row["id"] for row in assert_whole(table, leftovers=False)] == [1, 2, 3]
    assert [row["name"] for row in replay(changes(table, version=0), ["id"])] == ["theirs", "other", "c"]


KINDS = st.sampled_from(["+I", "+U", "-D", "-D"])
CHANGE = st.tuples(st.integers(0, 4), st.none() | st.integers(0, 6), st.sampled_from(["a", "b"]), KINDS)
STEP = st.lists(CHANGE, min_size=1, max_size=6) | st.sampled_from(["fold", "compact"])


def after(held: dict[int, Change], change: Change) -> None:
    """Keeps the key's change with the highest sequence: null is below all others, of equals the later one wins."""
    key, sequence, _, _ = change
    before = held.get(key)
    order = -1 if sequence is None else sequence
    if before is None or (-1 if before[1] is None else before[1]) <= order:
        held[key] = change


@pytest.mark.slow
@settings(deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=8))
def test_the_highest_sequence_wins_whatever_comes_in_which_order(steps: list[Any]) -> None:
    """This holds with merge on write and merge on read, whatever is folded or compacted in between."""
    with warehouse() as store:
        trigger = {"num-sorted-run.compaction-trigger": "2", "bucket": "2"}
        now = make(store, "now", **trigger)
        later = make(store, "later", **trigger, **{"write-mode": "merge-on-read", "log.system": "none"})
        held: dict[int, Change] = {}
        for step in steps:
            if step == "fold":
                fold_table(later.filestore, full=True)
            elif step == "compact":
                now.compact()
                later.compact()
            else:
                put(now, *step)
                put(later, *step)
                for change in step:
                    after(held, change)
            wanted = sorted((k, s, n) for k, s, n, kind in held.values() if kind in ("+I", "+U"))
            for table in (now, later):
                assert sorted((r["id"], r["seq"], r["name"]) for r in rows(table)) == wanted
        assert_whole(now, leftovers=False)
        fold_table(later.filestore, full=True)
        assert_whole(later, leftovers=False)
