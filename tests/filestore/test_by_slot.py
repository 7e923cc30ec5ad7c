"""Files by slot are those of a plain dict by path, after any history; earlier versions stay as they were."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.delta.actions import add_action
from filestore.delta.by_slot import BySlot, FileTotals, LookupFiles
from filestore.delta.columns import ADD, ColumnFiles
from filestore.errors import Corrupt
from filestore.model.files import DataFile, DeletionVector, PendingRun, Slot, Tombstones
from filestore.model.partition_set import PartitionSet
from filestore.reading.difference import file_differences

SLOTS = [Slot((("p", value),), bucket) for value in ("x", "y", None) for bucket in range(2)]
NAMES = [f"{number}.parquet" for number in range(4)]
FILES = st.builds(
    lambda slot, name, rows, dead: file_of(f"{SLOTS.index(slot)}/{name}", slot, rows, min(dead, rows)),
    st.sampled_from(SLOTS),
    st.sampled_from(NAMES),
    st.integers(1, 5),
    st.integers(0, 3),
)
KEYS = {"tablestore.minKey": "[1]", "tablestore.maxKey": "[1]"}
CHANGES = st.lists(st.tuples(st.sets(st.sampled_from(SLOTS)), st.sets(st.sampled_from(NAMES)), st.lists(FILES)))


def file_of(path: str, slot: Slot, rows: int, dead: int) -> DataFile:
    vector = DeletionVector("u", "x" * 20, 1, 40, dead) if dead else None
    stats = f'{{"numRecords":{rows},"minValues":{{"v":"é{rows}"}},"maxValues":{{}},"nullCount":{{}}}}'
    return DataFile(path, slot, 10 * rows, rows, 1, stats, vector=vector)


def arrow(files: Iterable[DataFile]) -> pa.StructArray:
    """Returns files as a checkpoint has them."""
    return pa.array([add_action(file, data_change=True)["add"] for file in files], ADD)


@pytest.mark.parametrize("lately", [0, 2, 256])
@given(CHANGES, st.none() | st.lists(FILES))
def test_any_history_is_that_of_a_dict(
    lately: int, history: list[tuple[set[Slot], set[str], list[DataFile]]], begun: list[DataFile] | None
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("filestore.delta.by_slot._LATELY", lately)
        follow(history, begun)


def follow(history: list[tuple[set[Slot], set[str], list[DataFile]]], begun: list[DataFile] | None) -> None:
    first = {file.path: file for file in begun or ()}
    columns = ColumnFiles(arrow(first.values()), ["p"], sorted_by_key=False)
    files: BySlot[DataFile] = BySlot() if begun is None else BySlot.on(columns, columns.count)
    versions = [(files, FileTotals() if begun is None else columns.totals(), first)]
    for slots, names, added in history:
        files, totals, expected = versions[-1]
        gone = {f"{SLOTS.index(slot)}/{name}": slot for slot in slots for name in names}
        named = gone | {file.path: file.slot for file in added}
        after = files.changed(gone.items(), added)
        oracle = {path: file for path, file in expected.items() if path not in gone}
        oracle |= {file.path: file for file in added}
        versions.append((after, totals.changed(files.some(named), after.some(named)), oracle))
    for files, totals, expected in versions:
        check(files, totals, expected)
    for (before, _, former), (after, _, later) in itertools.pairwise(versions):
        changed = {path for path in former.keys() | later.keys() if not _alike(former.get(path), later.get(path))}
        found = file_differences(before, after)
        assert {file.path for one in found for file in (*one.before, *one.after)} == changed
        assert all(file.slot == one.slot for one in found for file in (*one.before, *one.after))


@pytest.mark.parametrize("few_hashes", [False, True])
@given(CHANGES, st.lists(FILES), st.lists(st.integers(0, 5)))
def test_columns_take_up_what_changed_since(
    few_hashes: bool,
    history: list[tuple[set[Slot], set[str], list[DataFile]]],
    begun: list[DataFile],
    taken_up: list[int],
) -> None:
    """As a writer does beside its commits; slots with the same hash are kept apart."""
    with pytest.MonkeyPatch.context() as patched:
        if few_hashes:
            patched.setattr("filestore.delta.columns._hashes", lambda _, buckets: buckets.astype(np.uint64))
        first = {file.path: file for file in begun}
        columns = ColumnFiles(arrow(first.values()), ["p"], sorted_by_key=False)
        versions = [(BySlot.on(columns, columns.count), first)]
        for number, (slots, names, added) in enumerate(history):
            files, expected = versions[-1]
            gone = {f"{SLOTS.index(slot)}/{name}": slot for slot in slots for name in names}
            after = files.changed(gone.items(), added)
            oracle = {path: file for path, file in expected.items() if path not in gone}
            oracle |= {file.path: file for file in added}
            for back in taken_up[number::3]:
                earlier, of_earlier = versions[-1 - back % len(versions)]
                base = ColumnFiles.of(earlier, ["p"])
                assert base.same(ColumnFiles(arrow(of_earlier.values()), ["p"], sorted_by_key=False))
                assert base.same(ColumnFiles.of(after, ["p"])) == (oracle == of_earlier)
                assert base.totals() == FileTotals.of(of_earlier.values())
                after = after.rebased(base, earlier)
            versions.append((after, oracle))
        for files, expected in versions:
            check(files, FileTotals.of(expected.values()), expected)
            columns = ColumnFiles.of(files, ["p"])
            assert BySlot.on(columns, columns.count) == files


def _alike(one: DataFile | None, other: DataFile | None) -> bool:
    return one is not None and other is not None and one.vector == other.vector


def check(files: BySlot[DataFile], totals: FileTotals, expected: dict[str, DataFile]) -> None:
    assert {file.path: file for file in files} == expected
    assert (len(files), bool(files)) == (len(expected), bool(expected))
    assert totals == FileTotals.of(expected.values())
    assert files == BySlot(reversed(list(expected.values())))
    assert files == pickle.loads(pickle.dumps(files))
    assert set(files.slots) == {file.slot for file in expected.values()}
    assert files.partitions == {file.slot.partition for file in expected.values()}
    for slot in SLOTS:
        assert {file.path for file in files.of(slot)} == {p for p, file in expected.items() if file.slot == slot}
    chosen = PartitionSet.of([(("p", "x"),), (("p", None),)])
    inside = {path for path, file in expected.items() if file.slot.partition in chosen}
    assert {file.path for file in files.within(chosen)} == inside
    for bucket in range(2):
        part = files.of_bucket(bucket)
        assert {file.path for file in part} == {p for p, file in expected.items() if file.slot.bucket == bucket}
        assert len(part) == len(list(part))
    for path, file in expected.items():
        assert files.get(path, file.slot) == files.current(file_of(path, file.slot, 9, 0)) == file
        assert files.get(path, Slot((("p", "other"),), 0)) is None


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(NAMES), st.sampled_from(SLOTS))))
def test_runs_of_a_slot_are_in_order_however_they_come(given_runs: list[tuple[int, str, Slot]]) -> None:
    runs: BySlot[PendingRun] = BySlot((), lambda run: (run.version, run.path))
    kept: dict[tuple[str, Slot], PendingRun] = {}
    for version, name, slot in given_runs:
        run = PendingRun(name, slot, 1, 1, 1, "[1]", "[2]", version)
        runs = runs.changed([], [run])
        kept[name, slot] = run
    for slot in SLOTS:
        expected = [run for (_, other), run in kept.items() if other == slot]
        assert list(runs.of(slot)) == sorted(expected, key=lambda run: (run.version, run.path))


def test_forgotten_tombstones_are_not_looked_up() -> None:
    slot = SLOTS[0]
    deleted: BySlot[Tombstones] = BySlot(
        Tombstones(f"{at}.parquet", slot, 1, 1, at, "{}", min_key="[1]", max_key="[1]") for at in (1, 2, 3)
    )
    live = BySlot([file_of("0/a", slot, 1, 0)])
    assert [file.path for file in LookupFiles(live, deleted, 2).of(slot)] == ["0/a", "2.parquet", "3.parquet"]
    assert not LookupFiles(BySlot(), deleted, 4)
    assert LookupFiles(BySlot(), deleted, 3)
    assert LookupFiles(live, deleted, 4).of_bucket(0)
    assert not LookupFiles(live, deleted, 4).of_bucket(1)


@pytest.mark.parametrize(
    ("member", "value", "lacks"),
    [
        ("path", None, "no path"),
        ("size", None, "no size"),
        ("stats", None, "no stats"),
        ("partitionValues", {}, "no value of p"),
        ("tags", {"tablestore.level": "0"}, "no tag tablestore.bucket"),
        ("tags", {"tablestore.bucket": "0"}, "no tag tablestore.level"),
        ("tags", {"tablestore.bucket": "0", "tablestore.level": "0"}, "no tag tablestore.minKey"),
        ("tags", KEYS | {"tablestore.bucket": "0", "tablestore.level": "x"}, "x"),
    ],
)
def test_a_checkpoint_without_what_makes_a_file_is_refused(member: str, value: object, lacks: str) -> None:
    file = replace(file_of("0/a", SLOTS[0], 1, 0), min_key="[1]", max_key="[1]")
    add = add_action(file, data_change=True)["add"] | {member: value}
    with pytest.raises(ValueError, match=lacks):
        ColumnFiles(pa.array([add], ADD), ["p"], sorted_by_key=True)


def test_files_of_a_checkpoint_are_asked_for_one_by_one_or_all_at_once() -> None:
    """Asking for each slot takes eight times as long, and kept all files twice."""
    files = [file_of(f"{number}/a", Slot((("p", f"{number}"),), 0), 1, 0) for number in range(80)]
    columns = ColumnFiles(arrow(files), ["p"], sorted_by_key=False)
    some = BySlot.on(columns, columns.count)
    for number in range(9):
        assert some.of(files[number].slot) == (files[number],)
    assert columns._objects is None
    assert some.of(files[70].slot) == (files[70],)
    assert columns._objects is not None
    assert (columns._asked, some) == ({}, BySlot(files))


def test_tags_may_be_in_any_order() -> None:
    """Each writer of checkpoints has its own, and some files have tags that others lack."""
    files = [file_of(f"{number}/a", SLOTS[0], 1, 0) for number in range(4)]
    adds = [
        add_action(replace(file, edition=1 + number % 3), data_change=True)["add"] for number, file in enumerate(files)
    ]
    adds[2]["tags"] = dict(reversed(adds[2]["tags"].items()))
    adds[1]["tags"] = {"other": "7"} | adds[1]["tags"]
    columns = ColumnFiles(pa.array(adds, ADD), ["p"], sorted_by_key=False)
    assert {file.path: (file.slot, file.edition) for file in BySlot.on(columns, 4)} == {
        file.path: (file.slot, 1 + number % 3) for number, file in enumerate(files)
    }
    others = [file_of(f"other-{number}/a", Slot((("p", f"{number}"),), 0), 1, 0) for number in range(20)]
    alike = [add_action(file, data_change=True)["add"] for file in (*files, *others)]
    alike[3]["tags"] = dict(reversed(alike[3]["tags"].items()))
    columns = ColumnFiles(pa.array(alike, ADD), ["p"], sorted_by_key=False)
    assert {file.path for file in BySlot.on(columns, 24).of(SLOTS[0])} == {file.path for file in files}


def test_rows_are_those_of_the_statistics_wherever_their_number_is() -> None:
    stats = ['{"numRecords":7}', '{"nullCount":{"numRecords":0},"numRecords":5}', '{ "numRecords" : 3 }']
    add = add_action(file_of("0/a", SLOTS[0], 1, 0), data_change=True)["add"]
    rows = pa.array([add | {"path": f"{number}", "stats": text} for number, text in enumerate(stats)], ADD)
    assert ColumnFiles(rows, ["p"], sorted_by_key=False).totals().live_rows == 15


def test_damage_in_one_file_of_a_checkpoint_is_an_error_of_its_slot() -> None:
    """A slot whose file could not be decoded had no file."""
    add = add_action(file_of("0/a", SLOTS[0], 1, 0), data_change=True)["add"] | {"stats": '{"numRecords":1,'}
    columns = ColumnFiles(pa.array([add], ADD), ["p"], sorted_by_key=False)
    with pytest.raises(Corrupt) as refused:
        BySlot.on(columns, 1).of(SLOTS[0])
    assert refused.value.code == "bad-delta-checkpoint"
