"""write-mode = merge-on-read: pending runs are read and folded; the rows are the same as with merge-on-write."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.errors import Conflict, InvalidRequest
from filestore.files.writer import TableFiles
from filestore.operations.fold import FoldTask, fold_runs, fold_slots, fold_table, plan_folds
from filestore.reading.overlay import pending_slots
from filestore.reading.overlay_table import commit_overlay, overlay_location, overlay_slot
from filestore.writing.slot_result import SlotResult
from tablestore import Store, Table
from tests.depth import sampled
from tests.proposals import commit_folds
from tests.tables import assert_healthy, in_order, read_deltalake, read_polars
from tests.warehouses import assert_whole, changes, orphans, replay, rows, warehouse

Row = dict[str, Any]

COLUMNS = "id BIGINT, n BIGINT, t STRING"
LATER = {"write-mode": "merge-on-read"}
NO_LOG = {"log.system": "none"}
ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "deduplicate by sequence": {"sequence.field": "n"},
    "partial-update by sequence": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
        "sequence.field": "n",
    },
    "listagg by sequence": {
        "merge-engine": "aggregation",
        "fields.t.aggregate-function": "listagg",
        "fields.t.ignore-retract": "true",
        "sequence.field": "n",
    },
    "sequence group": {"merge-engine": "partial-update", "fields.n.sequence-group": "t"},
}


def make(store: Store, name: str = "t", columns: str = COLUMNS, **options: str) -> Table:
    return store.create_table(f"shop.{name}", columns, primary_key=["id"], options=options)


def put(table: Table, *given: Sequence[Any]) -> None:
    names = [*table.schema.names, "_kind"][: len(given[0])]
    types = {field.name: field.type for field in table.schema} | {"_kind": pa.string()}
    table.write(pa.table({n: pa.array(c, types[n]) for n, c in zip(names, zip(*given, strict=True), strict=True)}))


def overlay_of(table: Table) -> str:
    """Makes the overlay as Spark does, and returns its location."""
    state = table.filestore.state()
    files = table.filestore.table_files(state)
    location = overlay_location(files, state.version)
    named = [file for slot in pending_slots(state) for file in overlay_slot(files, slot, location)]
    commit_overlay(files, state, set(state.pending.slots), named, location)
    return location


@pytest.fixture
def orders(store: Store) -> Table:
    return make(store, bucket="2", **LATER)


class TestPendingRuns:
    def test_a_commit_adds_runs_and_leaves_the_files_alone(self, orders: Table) -> None:
        put(orders, (1, 1, "a"), (2, 2, "b"))
        orders.compact(full=True)
        files = orders.files()
        put(orders, (1, 10, "c"), (3, 3, "d"))
        assert orders.files() == files
        assert sum(run.rows for run in orders.filestore.state().pending) == 2
        assert in_order(read_polars(orders.location)) == [{"id": 1, "n": 1, "t": "a"}, {"id": 2, "n": 2, "t": "b"}]
        assert rows(orders) == in_order(
            [{"id": 1, "n": 10, "t": "c"}, {"id": 2, "n": 2, "t": "b"}, {"id": 3, "n": 3, "t": "d"}]
        )

    @pytest.mark.slow
    def test_of_more_runs_than_a_fold_takes_the_oldest_are_folded_first(self, store: Store) -> None:
        table = make(store, **LATER, **NO_LOG)
        for n in range(66):
            put(table, (1, n, f"{n}"))
        runs = tuple(table.filestore.state().pending)
        (task,) = plan_folds(table.filestore.state(), 0, full=True)
        assert task.runs == runs[: len(task.runs)]
        assert len(task.runs) < len(runs)
        table.compact(full=True)
        assert rows(table) == [{"id": 1, "n": 65, "t": "65"}]

    def test_a_fold_shows_every_reader_what_ours_saw(self, orders: Table) -> None:
        put(orders, (1, 1, "a"), (2, 2, "b"))
        put(orders, (1, 10, "c", "+U"), (2, None, None, "-D"))
        seen = rows(orders)
        snapshot = fold_table(orders.filestore, full=True)
        assert snapshot is not None
        assert snapshot.operation == "FOLD"
        assert not orders.filestore.state().pending
        assert in_order(read_polars(orders.location)) == seen == rows(orders)
        assert fold_table(orders.filestore, full=True) is None

    def test_time_travel_reads_the_runs_of_its_version(self, orders: Table) -> None:
        put(orders, (1, 1, "a"))
        put(orders, (1, 2, "b"))
        fold_table(orders.filestore, full=True)
        assert [rows(orders, version=v) for v in (1, 2, 3)] == [
            [{"id": 1, "n": 1, "t": "a"}],
            [{"id": 1, "n": 2, "t": "b"}],
            [{"id": 1, "n": 2, "t": "b"}],
        ]

    def test_runs_are_folded_when_there_are_as_many_as_the_trigger_says(self, store: Store) -> None:
        table = make(store, **LATER, **{"num-sorted-run.compaction-trigger": "3"})
        put(table, (1, 1, "a"))
        put(table, (2, 1, "a"))
        assert plan_folds(table.filestore.state(), 0) == []
        put(table, (3, 1, "a"))
        (task,) = plan_folds(table.filestore.state(), 0)
        assert [run.version for run in task.runs] == [1, 2, 3]

    def test_an_overwrite_takes_the_runs_with_it(self, orders: Table) -> None:
        put(orders, (1, 1, "a"))
        orders.write(pa.table({"id": [7], "n": [7], "t": ["z"]}), overwrite=True)
        assert not orders.filestore.state().pending
        assert assert_whole(orders) == [{"id": 7, "n": 7, "t": "z"}]

    def test_a_checkpoint_keeps_them(self, store: Store) -> None:
        table = make(store, **LATER, **{"checkpoint.interval": "2", "num-sorted-run.compaction-trigger": "100"})
        for n in range(5):
            put(table, (n, n, "a"))
        again = store.table("shop.t")
        assert rows(again) == rows(table)
        assert again.filestore.state().pending == table.filestore.state().pending
        assert_whole(again)

    def test_followers_see_them_as_rows_and_as_changes(self, orders: Table) -> None:
        put(orders, (1, 1, "a"), (2, 2, "b"))
        put(orders, (1, 10, "c"))
        assert replay(changes(orders), ["id"]) == rows(orders)
        assert replay(changes(orders, version=0), ["id"]) == rows(orders)

    def test_keys_are_found_among_files_and_runs(self, orders: Table) -> None:
        put(orders, (1, 1, "a"), (2, 2, "b"), (3, 3, "c"))
        orders.compact(full=True)
        put(orders, (1, 10, "d", "+U"), (3, None, None, "-D"), (4, 4, "e", "+I"))
        assert orders.get([4, 3, 2, 1, 9], columns=["t", "id"]).to_pylist() == [
            {"t": "e", "id": 4},
            {"t": "b", "id": 2},
            {"t": "d", "id": 1},
        ]

    def test_full_compaction_writes_change_data_when_it_is_due(self, store: Store) -> None:
        table = make(
            store,
            **LATER,
            **{"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"},
        )
        put(table, (1, 1, "a"))
        table.compact(full=True)
        put(table, (1, 2, "b"), (2, 2, "b"))
        put(table, (1, 3, "c"))
        assert table.compact() is None, "two commits are not three"
        put(table, (2, None, None, "-D"), (3, 3, "d", "+I"))
        folded = table.compact()
        assert folded is not None
        feed = pl.DataFrame(deltalake.DeltaTable(table.location).load_cdf(starting_version=folded.version).read_all())
        reported = feed.select("_change_type", "id", "n", "t").sort("id", "n").rows()
        assert reported == [("update_preimage", 1, 1, "a"), ("update_postimage", 1, 3, "c"), ("insert", 3, 3, "d")]
        assert_whole(table)

    def test_partitions_are_pruned(self, store: Store) -> None:
        table = store.create_table(
            "shop.p", "day STRING, id BIGINT, n BIGINT", primary_key=["day", "id"], partition_by=["day"], options=LATER
        )
        put(table, ("a", 1, 1), ("b", 1, 1))
        put(table, ("a", 1, 2))
        fold_table(table.filestore)
        plan = table.scan(where="day = 'a'")
        assert plan.to_arrow().to_pylist() == [{"day": "a", "id": 1, "n": 2}]
        fold_table(table.filestore, full=True)
        assert assert_whole(table) == in_order([{"day": "a", "id": 1, "n": 2}, {"day": "b", "id": 1, "n": 1}])

    def test_a_partition_that_has_runs_only_is_dropped(self, store: Store) -> None:
        table = store.create_table(
            "shop.p", "day STRING, id BIGINT, n BIGINT", primary_key=["day", "id"], partition_by=["day"], options=LATER
        )
        put(table, ("a", 1, 1), ("b", 1, 1))
        assert table.drop_partitions([{"day": "c"}]) is None
        assert table.drop_partitions([{"day": "a"}]) is not None
        assert assert_whole(table) == [{"day": "b", "id": 1, "n": 1}]

    def test_a_condition_on_keys_that_the_first_run_does_not_have(self, store: Store) -> None:
        """The scan left the slot out, since its first run had no such key."""
        table = make(store, **LATER, **NO_LOG, **{"merge-engine": "partial-update"})
        put(table, (2, 0, None))
        table.compact(full=True)
        put(table, (5, 1, "b"))
        put(table, (2, None, "a"))
        assert table.scan(where="id < 5").to_arrow().to_pylist() == [{"id": 2, "n": 0, "t": "a"}]

    def test_changes_of_pending_runs_are_listed(self, orders: Table) -> None:
        put(orders, (1, 1, "a"), (2, 2, "b"))
        put(orders, (1, 5, "c", "+U"), (2, None, None, "-D"))
        orders.compact(full=True)
        for last in (2, 3):
            reported = orders.system("changes", from_version=1, to_version=last).to_polars()
            assert reported.sort("id", "n").rows() == [("-U", 1, 1, "a"), ("+U", 1, 5, "c"), ("-D", 2, 2, "b")]
        assert orders.system("changes", from_version=2, to_version=3).to_arrow().num_rows == 0

    def test_an_expiry_keeps_the_runs_that_a_retained_version_needs(self, store: Store) -> None:
        table = make(store, **LATER, **{"snapshot.num-retained.min": "2", "snapshot.time-retained": "0 s"})
        for n in range(12):
            put(table, (n, n, "a"))
            if n % 5 == 4:
                fold_table(table.filestore, full=True)
        wanted = rows(table)
        gone = table.expire()
        assert any(path.startswith("_runs/") for path in gone.files)
        assert rows(store.table("shop.t")) == wanted
        assert_healthy(table.filestore)


class TestRefusals:
    @pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
    def test_a_log_would_contain_changes_before_anybody_knows_what_becomes_of_them(
        self, store: Store, engine: str
    ) -> None:
        with pytest.raises(InvalidRequest, match=r"needs log\.system = none") as caught:
            make(store, **LATER, **{"merge-engine": engine})
        assert caught.value.code == "write-mode"
        with pytest.raises(InvalidRequest, match=r"sequence\.field needs log\.system = none"):
            make(store, **LATER, **{"sequence.field": "n"})

    def test_a_table_without_a_key_has_nothing_to_merge(self, store: Store) -> None:
        with pytest.raises(InvalidRequest, match="needs a primary key"):
            store.create_table("shop.t", COLUMNS, options=LATER)

    def test_what_the_engine_cannot_merge_is_refused_when_it_is_written(self, store: Store) -> None:
        table = make(store, **LATER, **NO_LOG, **{"merge-engine": "aggregation", "fields.n.aggregate-function": "max"})
        put(table, (1, 1, "a"))
        with pytest.raises(InvalidRequest, match="cannot retract them"):
            put(table, (1, 1, "a", "-D"))
        assert table.filestore.state().version == 1
        assert_whole(table, leftovers=False)


class TestRaces:
    def test_a_full_fold_ends_beside_a_writer_that_never_pauses(self, orders: Table) -> None:
        put(orders, (1, 1, "a"))
        written = itertools.count(2)

        def run(table: TableFiles, tasks: Sequence[FoldTask]) -> Sequence[SlotResult]:
            put(orders, (1, next(written), "b"))
            return fold_slots(table, tasks)

        fold_table(orders.filestore, full=True, runner=run)
        assert read_polars(orders.location) == [{"id": 1, "n": 1, "t": "a"}]
        assert rows(orders) == [{"id": 1, "n": 2, "t": "b"}]

    def test_a_run_that_comes_while_others_are_folded_stays_pending(self, orders: Table) -> None:
        put(orders, (1, 1, "a"))
        base = orders.filestore.state()
        tasks = plan_folds(base, 0, full=True)
        results = [fold_runs(orders.filestore.table_files(base), task) for task in tasks]
        put(orders, (1, 2, "b"))
        commit_folds(orders.filestore, base, tasks, results)
        assert read_polars(orders.location) == [{"id": 1, "n": 1, "t": "a"}]
        assert rows(orders) == [{"id": 1, "n": 2, "t": "b"}]
        assert_whole(orders)

    @pytest.mark.few(4)
    @pytest.mark.parametrize("engine", list(ENGINES))
    def test_a_compaction_meanwhile_moves_the_rows_that_a_fold_replaces(self, store: Store, engine: str) -> None:
        table = make(store, **LATER, **NO_LOG, **ENGINES[engine])
        for n in range(3):
            put(table, (n, 1, "a"), (9, 1, "a"))
            fold_table(table.filestore, full=True)
        put(table, (9, 5, "b"), (1, 5, "b"))
        wanted = rows(table)
        base = table.filestore.state()
        tasks = plan_folds(base, 0, full=True)
        results = [fold_runs(table.filestore.table_files(base), task) for task in tasks]
        from compaction.compact import compact_table

        assert compact_table(table.filestore, full=True) is not None
        commit_folds(table.filestore, base, tasks, results)
        assert assert_whole(table) == wanted

    def test_of_two_folds_one_loses_and_leaves_nothing(self, orders: Table) -> None:
        put(orders, (1, 1, "a"), (2, 2, "b"))
        base = orders.filestore.state()
        tasks = plan_folds(base, 0, full=True)
        results = [fold_runs(orders.filestore.table_files(base), task) for task in tasks]
        fold_table(orders.filestore, full=True)
        with pytest.raises(Conflict) as caught:
            commit_folds(orders.filestore, base, tasks, results)
        assert caught.value.code == "run-gone"
        assert_whole(orders, leftovers=False)

    def test_a_fold_that_an_overwrite_was_faster_than_loses(self, orders: Table) -> None:
        put(orders, (1, 1, "a"))
        base = orders.filestore.state()
        tasks = plan_folds(base, 0, full=True)
        results = [fold_runs(orders.filestore.table_files(base), task) for task in tasks]
        orders.write(pa.table({"id": [7], "n": [7], "t": ["z"]}), overwrite=True)
        with pytest.raises(Conflict):
            commit_folds(orders.filestore, base, tasks, results)
        assert assert_whole(orders, leftovers=False) == [{"id": 7, "n": 7, "t": "z"}]


LATE: dict[str, tuple[dict[str, str], list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    "a late row of a removed key": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true", "sequence.field": "n"},
        [(1, 5, "a", "+I"), (1, 7, None, "-D"), (1, 6, "late", "+I")],
        [(1, 6, "late")],
    ),
    "listagg": (
        {"merge-engine": "aggregation", "fields.t.aggregate-function": "listagg", "sequence.field": "n"},
        [(1, 2, "b", "+I"), (1, 5, "c", "+I"), (1, 3, "a", "+I")],
        [(1, 5, "a,b,c")],
    ),
    "last_non_null_value": (
        {"merge-engine": "partial-update", "sequence.field": "n"},
        [(1, 2, "first", "+I"), (1, 5, None, "+I"), (1, 3, "late", "+I")],
        [(1, 5, "first")],
    ),
    "a value that only a sum of all fits": (
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "sequence.field": "t"},
        [(1, 2**63 - 1, "a", "+I"), (1, 2**63 - 1, "c", "+I"), (1, -(2**63), "b", "+I")],
        [(1, 2**63 - 2, "c")],
    ),
}


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("case", LATE)
def test_it_makes_no_difference_when_runs_are_folded(store: Store, case: str) -> None:
    """Runs that were folded together were merged as if they were one commit."""
    options, given_rows, wanted = LATE[case]
    for number, after in enumerate([(), (0,), (1,), (0, 1)]):
        if 1 in after and case == "a value that only a sum of all fits":
            continue  # the sum is out of range there, which is an error
        table = make(store, f"t{number}", **options, **LATER, **NO_LOG)
        for at, row in enumerate(given_rows):
            put(table, row)
            if at in after:
                fold_table(table.filestore, full=True)
        assert [tuple(row.values()) for row in rows(table)] == wanted
        fold_table(table.filestore, full=True)
        assert [tuple(row.values()) for row in assert_whole(table)] == wanted


KINDS = st.sampled_from(["+I", "+U", "-D"])
CHANGE = st.tuples(
    st.integers(0, 6), st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["a", "b", "cc"]), KINDS
)
STEP = st.lists(CHANGE, min_size=1, max_size=8) | st.sampled_from(["fold", "compact"])


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", sampled(ENGINES, 3, test=2))
@settings(deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=7))
def test_merge_on_read_gives_what_merge_on_write_gives(engine: str, steps: list[Any]) -> None:
    """Compares every version, by scans, conditions, look-ups and the overlay, and by every reader after a fold."""
    retracts = engine == "aggregation"
    with warehouse() as store:
        options = {**ENGINES[engine], **NO_LOG, "bucket": "2"}
        if retracts:
            options["fields.t.ignore-retract"] = "true"
        now, later = make(store, "now", **options), make(store, "later", **options, **LATER)
        for step in steps:
            if step == "fold":
                fold_table(later.filestore, full=True)
            elif step == "compact":
                later.compact(full=True)
            else:
                put(now, *step)
                put(later, *step)
            wanted = rows(now)
            assert rows(later) == wanted
            some = later.scan(columns=["t", "id"], where="n >= 0 AND id < 5").to_arrow().to_pylist()
            assert in_order(some) == in_order(
                {"t": r["t"], "id": r["id"]} for r in wanted if r["n"] is not None and r["n"] >= 0 and r["id"] < 5
            )
            assert in_order(later.get([5, 2, 0, 6]).to_pylist()) == [r for r in wanted if r["id"] in (0, 2, 5, 6)]
        if later.filestore.state().pending:
            location = overlay_of(later)
            assert in_order(read_deltalake(location)) == wanted
        fold_table(later.filestore, full=True)
        assert assert_whole(later) == wanted


def test_folded_and_refused_work_leaves_no_file_behind(orders: Table) -> None:
    put(orders, (1, 1, "a"), (2, 2, "b"))
    put(orders, (1, None, None, "-D"), (2, 3, "c", "+U"))
    fold_table(orders.filestore, full=True)
    assert orphans(orders) == []


def test_keys_are_found_in_folded_and_pending_slots_at_once(store: Store) -> None:
    """The two parts had their columns in different orders."""
    table = make(store, bucket="4", **LATER)
    put(table, *((n, n, "a") for n in range(20)))
    table.compact(full=True)
    put(table, (3, 30, "b"))
    assert [row["n"] for row in table.get(list(range(20)), columns=["t", "n"]).to_pylist()] == [
        30 if n == 3 else n for n in range(20)
    ]


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
def test_maps_of_pending_rows_are_maps(store: Store, engine: str) -> None:
    """They were arrays of entries, so a look-up join failed, and so did a scan that also had rows of files."""
    table = make(store, columns="id BIGINT, n BIGINT, t MAP<STRING, INT>", **LATER, **NO_LOG, **ENGINES[engine])
    put(table, (1, 1, [("a", 1)]), (2, 2, None))
    table.compact(full=True)
    put(table, (3, 3, [("b", 2)]), (4, 4, []), (5, 5, None))
    expected = [[("a", 1)], None, [("b", 2)], [], None]
    assert table.lookup(pa.table({"id": range(1, 6)}), columns=["t"]).column("t").to_pylist() == expected
    found = table.scan(where="t IS NOT NULL").to_polars()
    assert isinstance(found.schema["t"], pl.Map)
    assert found.sort("id")["id"].to_list() == [1, 3, 4]
