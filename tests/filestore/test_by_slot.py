"""Files by slot are those of a plain dict by path, after any history; earlier versions stay as they were."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.delta.actions import add_action, data_file
from filestore.delta.add_files import check_statistics, files_of
from filestore.delta.adds import ADD, totals_of
from filestore.delta.by_slot import BySlot, LookupFiles
from filestore.delta.columns import ColumnFiles
from filestore.delta.pages import Page, Pages
from filestore.delta.slot_hashes import buckets_in, hashes_of, slot_hashes
from filestore.delta.totals import FileTotals
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
    files: BySlot[DataFile] = BySlot() if begun is None else BySlot.on(columns)
    versions = [(files, FileTotals() if begun is None else totals_of(arrow(first.values())), first)]
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


@pytest.mark.few(2)
@pytest.mark.parametrize("page_rows", [1, 2, 3, 256])
@pytest.mark.parametrize("few_hashes", [False, True])
@given(CHANGES, st.lists(FILES), st.lists(st.integers(0, 5)))
def test_columns_take_up_what_changed_since(
    page_rows: int,
    few_hashes: bool,
    history: list[tuple[set[Slot], set[str], list[DataFile]]],
    begun: list[DataFile],
    taken_up: list[int],
) -> None:
    """As a writer does beside its commits; slots with the same hash are kept apart, and files cross pages."""
    with pytest.MonkeyPatch.context() as patched:
        tiny_pages(patched, page_rows)
        if few_hashes:
            patched.setattr("filestore.delta.slot_hashes._text_hashes", none)
        first = {file.path: file for file in begun}
        columns = ColumnFiles(arrow(first.values()), ["p"], sorted_by_key=False)
        versions = [(BySlot.on(columns), first)]
        for number, (slots, names, added) in enumerate(history):
            files, expected = versions[-1]
            gone = {f"{SLOTS.index(slot)}/{name}": slot for slot in slots for name in names}
            after = files.changed(gone.items(), added)
            oracle = {path: file for path, file in expected.items() if path not in gone}
            oracle |= {file.path: file for file in added}
            for back in taken_up[number::3]:
                earlier, of_earlier = versions[-1 - back % len(versions)]
                base = ColumnFiles.of(earlier, ["p"])
                again = ColumnFiles(arrow(of_earlier.values()), ["p"], sorted_by_key=False)
                assert not list(base.differing(again)) and not list(again.differing(base))
                changed = {file.slot for path, file in oracle.items() if of_earlier.get(path) != file}
                changed |= {file.slot for path, file in of_earlier.items() if oracle.get(path) != file}
                assert set(base.differing(ColumnFiles.of(after, ["p"]))) == changed
                assert set(again.differing(ColumnFiles.of(after, ["p"]))) == changed
                assert totals_of(pa.concat_arrays([arrow(()), *base.batches(3)])) == FileTotals.of(of_earlier.values())
                after = after.rebased(base, earlier)
            versions.append((after, oracle))
        for files, expected in versions:
            check(files, FileTotals.of(expected.values()), expected)
            columns = ColumnFiles.of(files, ["p"])
            assert BySlot.on(columns) == files


def tiny_pages(patched: pytest.MonkeyPatch, page_rows: int) -> None:
    """Has packed pages of so few files, which are made objects few at a time."""
    if page_rows == 256:
        return
    patched.setattr("filestore.delta.pages.PAGE_ROWS", page_rows)
    patched.setattr("filestore.delta.pages._SMALL", page_rows)
    patched.setattr("filestore.delta.pages._TOGETHER", 2)
    patched.setattr("filestore.delta.columns.FEW_FILES", 0)
    patched.setattr("filestore.delta.columns.KEPT_FILES", 2)
    patched.setattr("filestore.delta.columns._FEW_TO_JUDGE", 0)
    patched.setattr("filestore.delta.columns._TOGETHER", page_rows)


def none(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """Hashes that all partitions share."""
    return np.zeros(len(texts), np.uint64)


def _alike(one: DataFile | None, other: DataFile | None) -> bool:
    return one is not None and other is not None and one.vector == other.vector


def check(files: BySlot[DataFile], totals: FileTotals, expected: dict[str, DataFile]) -> None:
    assert {file.path: file for file in files} == expected
    assert sorted(itertools.chain.from_iterable(files.paths())) == sorted(expected)
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
    for least in (1, 2, 3):
        crowded = {slot: {file.path for file in some} for slot, some in files.crowded(least)}
        for slot in {file.slot for file in expected.values()}:
            some = {path: file for path, file in expected.items() if file.slot == slot}
            needed = len(some) >= least or any(file.vector for file in some.values())
            assert crowded.get(slot, set()) == set(some) if needed else crowded.get(slot) in (None, set(some))
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
    some = BySlot.on(columns)
    for number in range(9):
        assert some.of(files[number].slot) == (files[number],)
    kept = len(columns._objects or ()), len(columns._asked)
    assert some.of(files[70].slot) == (files[70],)
    assert (kept, len(columns._objects or ()), columns._asked) == ((0, 9), 80, {})
    assert some == BySlot(files)


def test_slots_with_few_files_and_no_deleted_row_are_left_out() -> None:
    """A compactor that first sees a table made objects of all its files."""
    slots = [Slot((("p", f"{number}"),), number % 3) for number in range(9)]
    files = [file_of(f"{s}/{n}", slots[s], 5, int(s == 3)) for s in range(9) for n in range(3 if s == 4 else 1)]
    columns = BySlot.on(ColumnFiles(arrow(files), ["p"], sorted_by_key=False))
    assert {slot for slot, _ in columns.crowded(3)} == {slots[3], slots[4]}
    assert {slot for slot, _ in columns.crowded(4)} == {slots[3]}
    assert not list(BySlot.on(ColumnFiles(arrow([]), ["p"], sorted_by_key=False)).crowded(1))


def test_slots_without_files_are_not_kept_for_ever() -> None:
    """A service that looks keys up in partitions that do not exist needed more and more memory."""
    files = [file_of(f"{number}/a", Slot((("p", f"{number}"),), 0), 1, 0) for number in range(9)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("filestore.delta.columns.KEPT_FILES", 5)
        columns = ColumnFiles(arrow(files), ["p"], sorted_by_key=False)
        for number in range(100):
            assert not columns.get(Slot((("p", f"none {number}"),), 0))
            assert len(columns.get(Slot((("p", f"{number % 9}"),), 0))) == 1
        assert len(columns._asked) <= 5


def test_objects_and_columns_are_compared_without_a_look_up_of_each_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor compared a version of many files with its checkpoint in minutes."""
    files = [file_of(f"{number}/a", Slot((("p", f"{number}"),), 0), 1, 0) for number in range(50)]
    columns = ColumnFiles(arrow(files), ["p"], sorted_by_key=False)
    objects, _ = BySlot(
        [*files[1:40], *(replace(file, size=7) for file in files[40:]), file_of("x", SLOTS[0], 1, 0)]
    ).parts()
    for find in ("get", "ask"):
        monkeypatch.setattr(columns, find, lambda _: pytest.fail("one by one"))
    expected = {file.slot for file in (files[0], *files[40:])} | {SLOTS[0]}
    assert set(columns.differing(objects)) == set(objects.differing(columns)) == expected


def test_tags_may_be_in_any_order() -> None:
    """Each writer of checkpoints has its own, and some files have tags that others lack."""
    files = [file_of(f"{number}/a", SLOTS[0], 1, 0) for number in range(4)]
    adds = [
        add_action(replace(file, edition=1 + number % 3), data_change=True)["add"] for number, file in enumerate(files)
    ]
    adds[2]["tags"] = dict(reversed(adds[2]["tags"].items()))
    adds[1]["tags"] = {"other": "7"} | adds[1]["tags"]
    columns = ColumnFiles(pa.array(adds, ADD), ["p"], sorted_by_key=False)
    assert {file.path: (file.slot, file.edition) for file in BySlot.on(columns)} == {
        file.path: (file.slot, 1 + number % 3) for number, file in enumerate(files)
    }
    others = [file_of(f"other-{number}/a", Slot((("p", f"{number}"),), 0), 1, 0) for number in range(20)]
    alike = [add_action(file, data_change=True)["add"] for file in (*files, *others)]
    alike[3]["tags"] = dict(reversed(alike[3]["tags"].items()))
    columns = ColumnFiles(pa.array(alike, ADD), ["p"], sorted_by_key=False)
    assert {file.path for file in BySlot.on(columns).of(SLOTS[0])} == {file.path for file in files}


def test_rows_are_those_of_the_statistics_wherever_their_number_is() -> None:
    stats = ['{"numRecords":7}', '{"nullCount":{"numRecords":0},"numRecords":5}', '{ "numRecords" : 3 }']
    stats += [
        f'{{"numRecords":{number},"minValues":{{}},"maxValues":{{}}}}' for number in (0, 1, 12, 10**12, 10**17, 10**18)
    ]
    stats += ['{"numRecords":2.0,"minValues":{},"maxValues":{}}', '{"numRecords":"3","minValues":{},"maxValues":{}}']
    add = add_action(file_of("0/a", SLOTS[0], 1, 0), data_change=True)["add"]
    rows = pa.array([add | {"path": f"{number}", "stats": text} for number, text in enumerate(stats)], ADD)
    assert totals_of(rows).live_rows == 15 + 13 + 10**12 + 10**17 + 10**18 + 5
    assert totals_of(rows.slice(4, 2)).live_rows == 13
    assert totals_of(rows.slice(0, 0)).live_rows == 0


def test_damage_in_one_file_of_a_checkpoint_is_an_error_of_its_slot() -> None:
    """A slot whose file could not be decoded had no file."""
    add = add_action(file_of("0/a", SLOTS[0], 1, 0), data_change=True)["add"] | {"stats": '{"numRecords":1,'}
    columns = ColumnFiles(pa.array([add], ADD), ["p"], sorted_by_key=False)
    with pytest.raises(Corrupt) as refused:
        BySlot.on(columns).of(SLOTS[0])
    assert refused.value.code == "bad-delta-checkpoint"


HASHES = [
    208507602727,
    4502708623345447,
    452493615168,
    4502952609357888,
    599243990576,
    4503099359733296,
    538617140582,
    4503038732883302,
]

STATISTICS = st.sampled_from(
    [
        '{"numRecords":4,"minValues":{"v":"é"},"maxValues":{},"nullCount":{},"tightBounds":true}',
        '{"numRecords":4,"minValues":{"v":"\\u00e9"},"maxValues":{},"nullCount":{},"tightBounds":false}',
        '{"tightBounds":true,"numRecords":4,"minValues":{"tightBounds":true}}',
        '{"numRecords": 4, "minValues": {"v": "a, b"}, "maxValues": {}, "nullCount": {}, "tightBounds": true}',
        '{"numRecords":4,"minValues":{"v":"a, \\"tightBounds\\":true}"},"nullCount":{},"tightBounds":true}',
        '{"numRecords":4}',
        '{"numRecords":0,"tightBounds":true}',
    ]
)


@given(st.lists(st.tuples(FILES, STATISTICS, st.sampled_from([None, "1", "3"]), st.booleans()), max_size=9))
def test_files_are_the_same_made_at_once_and_one_by_one(drawn: list[tuple[DataFile, str, str | None, bool]]) -> None:
    adds = []
    for number, (file, stats, edition, keyed) in enumerate(drawn):
        add = add_action(replace(file, path=f"ä %/{number}"), data_change=True)["add"] | {"stats": stats}
        add["tags"] = (
            (KEYS if keyed else {}) | add["tags"] | ({} if edition is None else {"tablestore.edition": edition})
        )
        adds.append(add)
    one_by_one = [data_file(add, ["p"]) for add in adds]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("filestore.delta.add_files._FEW", 0)
        assert files_of(pa.array(adds, ADD), ["p"]) == one_by_one
        assert files_of(pa.array(adds, ADD).slice(1), ["p"]) == one_by_one[1:]


@pytest.mark.parametrize("damaged", ['{"numRecords":1,', "", "[]", '{"minValues":{}}', '{"numRecords":1,"a":\x01}'])
def test_statistics_that_cannot_be_decoded_are_found_at_once(damaged: str) -> None:
    """In a checkpoint without checksums: a file whose statistics look as usual is made without parsing them."""
    files = [add_action(file_of(f"0/{number}", SLOTS[0], 1, 0), data_change=True)["add"] for number in range(100)]
    check_statistics(pa.array(files, ADD), ["p"])
    files[70]["stats"] = damaged
    with pytest.raises(Corrupt) as refused:
        check_statistics(pa.array(files, ADD), ["p"])
    assert refused.value.code == "bad-delta-checkpoint"


def test_a_slot_has_the_same_hash_for_ever() -> None:
    """Our checkpoints have files in this order: with other hashes each opening would sort them."""
    slots = [Slot((("p", value), ("q", "1")), bucket) for value in ("x", "", None, "é" * 50) for bucket in (0, 4095)]
    assert hashes_of(slots).tolist() == HASHES
    assert list(buckets_in(hashes_of(slots))) == [0, 4095]
    assert hashes_of([Slot((), 3)]).tolist() == [3 << 40]


def test_slots_are_spread_over_the_hashes() -> None:
    """So hardly two of them share one, and a page has about as many files as another."""
    many = pa.array([f"2026-{number % 12:02d}-{number}" for number in range(100_000)])
    hashes = slot_hashes([many, pa.array([None] * len(many), pa.string())], np.zeros(len(many), np.int64))
    assert len(np.unique(hashes)) > len(many) - 3
    counts = np.bincount((hashes >> np.uint64(32)).astype(np.int64), minlength=256)
    assert counts.min() > 250 and counts.max() < 550


@pytest.mark.parametrize(
    "member",
    [
        {"size": 7},
        {"modified_ms": 7},
        {"level": 7},
        {"edition": 1},
        {"min_key": "[7]"},
        {"stats": '{"numRecords":5,"minValues":{"v":"x"},"maxValues":{},"nullCount":{}}'},
        {"vector": None},
        {"vector": DeletionVector("u", "x" * 20, 1, 40, 2)},
        {"vector": DeletionVector("u", "y" * 20, 1, 40, 1)},
        {"vector": DeletionVector("u", "x" * 20, 2, 40, 1)},
    ],
    ids=str,
)
def test_a_file_in_another_state_is_another_one(member: dict[str, Any]) -> None:
    file = replace(file_of("0/a", SLOTS[0], 5, 1), min_key="[1]", max_key="[9]")
    others = [file_of(f"{number}/b", SLOTS[number], 5, 1) for number in range(1, 6)]
    one, other = (
        ColumnFiles(arrow([some, *others]), ["p"], sorted_by_key=False) for some in (file, replace(file, **member))
    )
    assert list(one.differing(other)) == list(other.differing(one)) == [SLOTS[0]]
    assert not list(one.differing(ColumnFiles(arrow([*others, file]), ["p"], sorted_by_key=False)))


@pytest.mark.parametrize("page_rows", [1, 2, 3])
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())), st.lists(st.integers(0, 9)))
def test_pages_stay_in_the_order_of_their_keys(page_rows: int, there: list[tuple[int, bool]], come: list[int]) -> None:
    """Pages in which nothing changes are shared, and none is larger than two."""
    with pytest.MonkeyPatch.context() as patched:
        tiny_pages(patched, page_rows)
        there, come = sorted(there), sorted(come)
        old = arrow(file_of(f"{key}/old {n}", SLOTS[0], 1, 0) for n, (key, _) in enumerate(there))
        new = arrow(file_of(f"{key}/new {n}", SLOTS[0], 1, 0) for n, key in enumerate(come))
        pages = Pages([Page.of(old)]).pack()
        keys = np.array([key for key, _ in there], np.uint64)
        stay = np.array([stays for _, stays in there], np.bool_)
        changed, ordered = pages.changed(keys, stay, new, np.array(come, np.uint64), plain=0)
        paths = pc.struct_field(changed.between(0, len(changed)), "path").to_pylist()
        assert [int(path.partition("/")[0]) for path in paths] == ordered.tolist() == sorted(ordered.tolist())
        kept = [path for path, (_, stays) in zip(pc.struct_field(old, "path").to_pylist(), there, strict=True) if stays]
        assert sorted(paths) == sorted([*kept, *pc.struct_field(new, "path").to_pylist()])
        assert all(page.rows <= 2 * page_rows for page in changed.pages)
        untouched = [
            page
            for page, start, end in zip(pages.pages, pages.starts, pages.starts[1:], strict=False)
            if stay[start:end].all() and not come and page.rows == page_rows
        ]
        assert all(any(page is one for one in changed.pages) for page in untouched)
