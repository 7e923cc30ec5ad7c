"""What differs between two versions: before + changes = after, for any history, in bounded pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import filestore.reading.difference
from compaction.compact import compact_table
from filestore.commit.proposal import FileChanges, Proposal
from filestore.model.partition_set import PartitionSet
from filestore.model.snapshot import Operation
from filestore.operations.fold import fold_slots, fold_table, plan_folds
from filestore.reading.difference import VersionPair, changed_rows, differences
from filestore.reading.scan import plan_scan, scan_table
from filestore.sorting.runs import local_runs
from filestore.table import FileStore
from tests.depth import Depth, sampled
from tests.folders import memory_folder
from tests.model.model import SHAPES, Shape, tiny_row_groups
from tests.model.steps import rows_of
from tests.proposals import commit_folds
from tests.tables import create, define, in_order, prepare, read, seeded, write

Row = dict[str, Any]


def reported(store: FileStore, before: int, after: int) -> list[Row]:
    """The changes from one version to another."""
    old, new = store.state(before), store.state(after)
    compared = VersionPair(store.table_files(old), store.table_files(new), store.state().definition.schema)
    found = differences(old, new)
    return [row for one in found for rows in changed_rows(compared, one, local_runs) for row in rows.to_pylist()]


def applied(rows: list[Row], changes: list[Row]) -> list[Row]:
    """Rows as a multiset, changed: each image that leaves has to be there, exactly so."""
    held = Counter(repr(sorted(row.items())) for row in rows)
    kept = {repr(sorted(row.items())): row for row in rows}
    for change in changes:
        kind = change["_kind"]
        row = {name: value for name, value in change.items() if name != "_kind"}
        name = repr(sorted(row.items()))
        kept[name] = row
        held[name] += 1 if kind in ("+I", "+U") else -1
        assert held[name] >= 0, f"{kind} of a row that is not there: {row}"
    return in_order(kept[name] for name, count in held.items() for _ in range(count))


def drop(store: FileStore, specs: list[tuple[tuple[str, str | None], ...]]) -> None:
    state = store.state()
    files = FileChanges(replaces=PartitionSet.of(specs))
    proposal = Proposal(Operation.DROP_PARTITION, store.ambient.new_id(), state.version, files=files)
    store.commit_version(state, proposal, lambda *_: pytest.fail("a drop is never rebased"))


def check(store: FileStore, keyed: bool, read: Callable[[FileStore, int], list[Row]] = read) -> None:
    """Every pair of versions, forwards and backwards."""
    states = [read(store, version) for version in store.delta_log.versions()]
    for before, old in enumerate(states):
        for after, new in enumerate(states):
            changes = reported(store, before, after)
            assert applied(old, changes) == new, (before, after)
            if keyed:
                check_least(store, changes)
            if before == after:
                assert changes == []


def check_least(store: FileStore, changes: list[Row]) -> None:
    """No row comes and goes unchanged; an update is one -U and then its +U."""
    key = store.state().definition.primary_key
    open_: dict[Any, Row] = {}
    seen = set()
    for change in changes:
        at = tuple(change[name] for name in key)
        if change["_kind"] == "-U":
            open_[at] = change
        elif change["_kind"] == "+U":
            before = open_.pop(at)
            assert {**before, "_kind": ""} != {**change, "_kind": ""}
        else:
            assert at not in seen
        seen.add(at)
    assert not open_


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("shape", sampled(SHAPES.values(), 3, test=3), ids=list(SHAPES))
@given(data=st.data())
def test_before_and_changes_are_after(shape: Shape, data: st.DataObject) -> None:
    with tiny_row_groups(), memory_folder() as folder:
        store = create(folder / "t", shape.define(), ambient=seeded(1))
        for _ in range(data.draw(st.integers(1, 5), label="versions")):
            match data.draw(st.sampled_from(["write", "write", "overwrite", "compact", "drop"]), label="what"):
                case "compact":
                    compact_table(store, full=data.draw(st.booleans()))
                case "drop" if shape.partition_by and store.state().files:
                    partitions = sorted(store.state().files.partitions, key=repr)
                    drop(store, [data.draw(st.sampled_from(partitions))])
                case what:
                    write(store, data.draw(rows_of(shape), label="rows"), overwrite=what == "overwrite")
        check(store, keyed=True)


@pytest.mark.slow
@given(st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=5), st.booleans()), min_size=1, max_size=4))
def test_without_a_key_rows_of_files_come_and_go(history: list[tuple[list[int], bool]]) -> None:
    with tiny_row_groups(), memory_folder() as folder:
        store = create(folder / "t", define("v INT", bucket=2), ambient=seeded(1))
        for values, overwrite in history:
            write(store, [{"v": value} for value in values], overwrite=overwrite)
        compact_table(store, full=True)
        check(store, keyed=False)


@pytest.mark.slow
def test_many_files_that_overlap_are_merged_by_way_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filestore.reading.difference, "_OPEN_ROW_GROUPS", 3)
    with memory_folder() as folder:
        store = create(folder / "t", define("name STRING, n INT, v INT", ["name", "n"]), ambient=seeded(1))
        for version in range(12):
            write(store, [{"name": f"k{n % 7}", "n": n, "v": version} for n in range(version, 400, version + 1)])
        middle = store.state().version
        for version in range(5):
            write(store, [{"name": f"k{n % 7}", "n": n, "v": -version} for n in range(version, 400, 3)])
        last = store.state().version
        for before, after in ((0, last), (middle, last), (last, middle), (1, middle)):
            changes = reported(store, before, after)
            assert applied(read(store, before), changes) == read(store, after)
            keys = [(change["name"], change["n"]) for change in changes]
            assert keys == sorted(keys)
            check_least(store, changes)


# ---------------------------------------------------------------------------------------------------- pending runs

LATER: Mapping[str, Mapping[str, object]] = {
    "deduplicate": {},
    "sequence": {"sequence_field": "s"},
    "partial-update": {
        "merge__engine": "partial-update",
        "partial__update_remove__record__on__delete": "true",
        "fields_s_sequence__group": "v",
    },
    "aggregation": {
        "merge__engine": "aggregation",
        "aggregation_remove__record__on__delete": "true",
        "fields_v_aggregate__function": "max",
        "fields_s_aggregate__function": "sum",
    },
    "first-row": {"merge__engine": "first-row", "ignore__delete": "true"},
}
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 9),
            "p": st.sampled_from("xy"),
            "s": st.none() | st.integers(0, 3),
            "v": st.none() | st.sampled_from("ab"),
        },
        optional={"_kind": st.sampled_from(["+I", "+U", "-D"])},
    ),
    min_size=1,
    max_size=6,
)
_STEPS = st.lists(
    st.tuples(st.sampled_from(["run", "run", "run", "fold", "fold some", "compact", "overwrite", "drop"]), _ROWS),
    min_size=2,
    max_size=7,
)


def seen(store: FileStore, version: int) -> list[Row]:
    """A version's rows as our readers see them."""
    state = store.state(version)
    return in_order(scan_table(store.table_files(state), plan_scan(state)).to_pylist())


def put(store: FileStore, rows: list[Row]) -> None:
    prepare(store, rows, later=True).commit()


def pending_table(folder: Path, **options: object) -> FileStore:
    definition = define(
        "id BIGINT, p STRING, s INT, v STRING",
        ["id", "p"],
        ["p"],
        bucket=2,
        target__file__size="1 b",
        write__mode="merge-on-read",
        **options,
    )
    return create(folder / "t", definition, ambient=seeded(1))


@pytest.mark.few(2)
@pytest.mark.parametrize("engine", LATER)
def test_before_and_changes_are_after_with_pending_runs(engine: str) -> None:
    """On either side, on both, or folded in between: the rows of all versions are those that our readers see."""

    @settings(max_examples=(settings.default.max_examples + 1) // 4)
    @given(steps=_STEPS)
    def holds(steps: list[tuple[str, list[Row]]]) -> None:
        with tiny_row_groups(), memory_folder() as folder:
            store = pending_table(folder, row__group_rows=3, **LATER[engine])
            for kind, rows in steps:
                live(store, kind, rows)
            check(store, keyed=True, read=seen)

    holds()


def live(store: FileStore, kind: str, rows: list[Row]) -> None:
    match kind:
        case "run":
            put(store, rows)
        case "fold":
            fold_table(store, full=True)
        case "fold some":
            if tasks := plan_folds(store.state(), store.ambient.now_ms(), full=True)[:1]:
                commit_folds(store, store.state(), tasks, fold_slots(store.table_files(store.state()), tasks))
        case "compact":
            compact_table(store, full=True)
        case "drop":
            drop(store, [(("p", rows[0]["p"]),)])
        case _:
            write(store, [row | {"_kind": "+I"} for row in rows], overwrite=True)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("engine", sampled(["aggregation", "deduplicate"], 2, test=2))
def test_many_runs_are_merged_by_way_of_the_disk(engine: str, monkeypatch: pytest.MonkeyPatch, depth: Depth) -> None:
    monkeypatch.setattr(filestore.reading.difference, "_OPEN_ROW_GROUPS", 2)
    with tiny_row_groups(), memory_folder() as folder:
        store = pending_table(folder, row__group_rows=3, **LATER[engine])
        for version in range(depth.times(4, deep=6)):
            put(store, [{"id": n, "p": "x", "s": version, "v": "a"} for n in range(version, 18, version + 1)])
            if version == 2:
                fold_table(store, full=True)
        check(store, keyed=True, read=seen)


def test_slots_whose_runs_are_the_same_are_not_read() -> None:
    with memory_folder() as folder:
        store = pending_table(folder)
        put(store, [{"id": n, "p": "x", "s": 0, "v": "a"} for n in range(50)])
        put(store, [{"id": 1, "p": "y", "s": 0, "v": "a"}])
        assert {one.slot.partition for one in differences(store.state(1), store.state(2))} == {(("p", "y"),)}
        assert differences(store.state(2), store.state(2)) == []
        assert [row["_kind"] for row in reported(store, 2, 1)] == ["-D"]


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_a_fold_is_no_change_whatever_the_types(engine: str) -> None:
    columns = "id BIGINT, f DOUBLE, l ARRAY<INT>, m MAP<STRING, INT>, s STRUCT<a: INT, b: STRING>, d DECIMAL(20,2)"
    row = {"f": float("nan"), "l": [1, None], "m": {"k": 1}, "s": {"a": None, "b": "x"}, "d": None}
    with memory_folder() as folder:
        options = {"write__mode": "merge-on-read", "merge__engine": engine}
        store = create(folder / "t", define(columns, ["id"], **options), ambient=seeded(1))
        prepare(store, _typed(store, [{"id": n, **row} for n in range(3)]), later=True).commit()
        fold_table(store, full=True)
        prepare(store, _typed(store, [{"id": 0, **row}, {"id": 1, **row, "l": [1]}]), later=True).commit()
        fold_table(store, full=True)
        assert reported(store, 1, 2) == reported(store, 3, 4) == []
        kinds = ["-U", "+U"]
        assert [(r["_kind"], r["id"]) for r in reported(store, 1, 3)] == [(kind, 1) for kind in kinds]
        assert [(r["_kind"], r["id"]) for r in reported(store, 2, 3)] == [(kind, 1) for kind in kinds]
        assert [(r["_kind"], r["id"]) for r in reported(store, 4, 1)] == [(kind, 1) for kind in kinds]


# ---------------------------------------------------------------------------------------------------- what is read


def test_what_both_versions_have_is_not_read() -> None:
    with memory_folder() as folder:
        store = create(folder / "t", define("id BIGINT, v INT", ["id"], bucket=4), ambient=seeded(1))
        write(store, [{"id": n, "v": 0} for n in range(100)])
        write(store, [{"id": 5, "v": 1}])
        (one,) = differences(store.state(1), store.state(2))
        assert [len(one.before), len(one.after)] == [1, 2]
        assert [row["_kind"] for row in reported(store, 1, 2)] == ["-U", "+U"]
        assert reported(store, 2, 1) == [{"id": 5, "v": 1, "_kind": "-U"}, {"id": 5, "v": 0, "_kind": "+U"}]


def test_equal_rows_are_no_change_whatever_their_type() -> None:
    columns = (
        "id BIGINT, f DOUBLE, l ARRAY<INT>, m MAP<STRING, INT>, s STRUCT<a: INT, b: STRING>, d DECIMAL(20,2), b BINARY"
    )
    row = {"f": float("nan"), "l": [1, None], "m": {"k": 1}, "s": {"a": None, "b": "x"}, "d": None, "b": b"\xff"}
    with memory_folder() as folder:
        store = create(folder / "t", define(columns, ["id"]), ambient=seeded(1))
        write(store, _typed(store, [{"id": n, **row} for n in range(3)]))
        write(store, _typed(store, [{"id": 0, **row}, {"id": 1, **row, "l": [1]}, {"id": 2, **row, "m": None}]))
        assert [(r["_kind"], r["id"]) for r in reported(store, 1, 2)] == [("-U", 1), ("+U", 1), ("-U", 2), ("+U", 2)]


def _typed(store: FileStore, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=store.state().definition.schema.to_arrow())
