"""What is compacted: decided from metadata alone."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.choice import Choice, chains, choose, sorted_runs
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, DeletionVector, Slot
from filestore.rows.keys import encode_key
from tests.tables import define

SLOT = Slot((), 0)
KEYED = define("id BIGINT, v STRING", ("id",), target__file__size="1000 b")
APPENDED = define("v STRING", target__file__size="1000 b")
_names = itertools.count()


def file(
    low: Any = 0, high: Any = 99, *, size: int = 100, rows: int = 100, dead: int = 0, level: int = 0, written: int = 0
) -> DataFile:
    vector = DeletionVector("u", "x" * 20, 1, 1, dead) if dead else None
    low, high = ((low,), (high,)) if not isinstance(low, tuple) else (low, high)
    return DataFile(
        path=f"{next(_names):05}.parquet",
        slot=SLOT,
        size=size,
        rows=rows,
        modified_ms=written,
        stats=json.dumps({"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}),
        level=level,
        min_key=encode_key(low),
        max_key=encode_key(high),
        vector=vector,
    )


def piece(*, size: int = 100, dead: int = 0, written: int = 0) -> DataFile:
    """A file of a table without a key."""
    vector = DeletionVector("u", "x" * 20, 1, 1, dead) if dead else None
    stats = json.dumps({"numRecords": 100, "minValues": {}, "maxValues": {}, "nullCount": {}})
    return DataFile(f"{next(_names):05}.parquet", SLOT, size, 100, written, stats, vector=vector)


def merged(choice: Choice | None) -> set[str]:
    assert choice is not None
    return {f.path for f in choice.files}


def paths(files: Sequence[DataFile]) -> set[str]:
    return {f.path for f in files}


# ------------------------------------------------------------------------------------------------ runs


def test_a_rolled_write_is_one_run_and_small_files_are_runs_of_their_own() -> None:
    rolled = [file(0, 9, size=1000), file(10, 19, size=1200), file(20, 29, size=50)]
    small = [file(30, 39), file(40, 49)]
    assert [paths(run) for run in sorted_runs([*small, *rolled], KEYED)] == [
        paths(rolled),
        paths(small[:1]),
        paths(small[1:]),
    ]


def test_overlapping_files_and_other_levels_are_other_runs() -> None:
    big = [file(0, 10, size=1000), file(10, 20, size=1000), file(30, 40, size=1000, level=1)]
    assert len(sorted_runs(big, KEYED)) == 3


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.sampled_from([10, 1000]), st.integers(0, 1))))
def test_runs_hold_each_file_once_and_do_not_overlap(spans: list[tuple[int, int, int, int]]) -> None:
    files = [file(low, low + length, size=size, level=level) for low, length, size, level in spans]
    runs = sorted_runs(files, KEYED)
    assert sorted(f.path for run in runs for f in run) == sorted(f.path for f in files)
    for run in runs:
        bounds = [json.loads(key)[0] for f in run for key in (f.min_key or "", f.max_key or "")]
        assert bounds == sorted(bounds)
        assert all(high < low for high, low in zip(bounds[1:-1:2], bounds[2::2], strict=True))
        assert len({f.level for f in run}) == 1
        assert sum(f.size < 1000 for f in run) <= 1


def test_keys_are_compared_as_values_not_as_text() -> None:
    definition = define("d DECIMAL(9,2), n INT", ("d", "n"), target__file__size="1 b")
    first, second = file((Decimal("2.00"), 1), (Decimal("9.00"), 1)), file((Decimal("10.00"), 1), (Decimal("11.00"), 0))
    assert [paths(run) for run in sorted_runs([second, first], definition)] == [paths([first, second])]


# ------------------------------------------------------------------------------------------------ with a key


def test_few_runs_are_left_alone() -> None:
    assert choose([], KEYED) is None
    assert choose([file() for _ in range(4)], KEYED) is None


def test_as_many_runs_as_the_trigger_are_merged() -> None:
    files = [file(level=2), *(file() for _ in range(4))]
    choice = choose(files, KEYED)
    assert merged(choice) == paths(files)
    assert choice is not None
    assert choice.level == 3


def test_a_large_run_stays_until_the_small_ones_have_grown() -> None:
    large, small = file(size=5000, level=1), [file(size=100) for _ in range(4)]
    assert merged(choose([large, *small], KEYED)) == paths(small)
    grown = [file(size=size) for size in (100, 200, 300, 600)]
    assert merged(choose([file(size=1200, level=1), *grown], KEYED)) >= paths(grown)


def test_a_backlog_is_merged_below_the_trigger_at_once() -> None:
    files = [file(size=100 * 3**n) for n in range(12)]
    taken = merged(choose(files, KEYED))
    assert taken == paths(files[:9])  # 12 - 9 + 1 = 4 runs stay


def test_dead_rows_count_from_a_third_of_the_slot() -> None:
    worn, fresh = file(dead=60), file()
    assert choose([worn, fresh], KEYED) is None
    assert merged(choose([worn, file(dead=20), fresh, file(dead=60)], KEYED)) > paths([worn])
    assert merged(choose([file(dead=34)], KEYED))
    assert choose([file(dead=33)], KEYED) is None
    assert merged(choose([fresh, dying := file(rows=300, dead=200)], KEYED)) == paths([dying])


def test_dead_rows_make_a_run_smaller() -> None:
    """A run of 5000 bytes of which nine tenths are dead goes with the small ones."""
    files = [file(size=5000, dead=98), *(file(size=100) for _ in range(4))]
    assert merged(choose(files, KEYED)) == paths(files)


@pytest.mark.parametrize(
    "files",
    [
        [file()],
        [file(0, 9, size=1000), file(10, 19, size=1000), file(20, 29)],
        [],
    ],
    ids=["one file", "one run", "nothing"],
)
def test_a_clean_run_is_left_alone_even_in_full(files: list[DataFile]) -> None:
    assert choose(files, KEYED, full=True) is None


@pytest.mark.parametrize(
    "files",
    [[file(dead=1)], [file(0, 9), file(10, 19)], [file(0, 9, size=1000), file(5, 19, size=1000)]],
    ids=["a dead row", "two small files", "overlapping"],
)
def test_full_makes_one_clean_run(files: list[DataFile]) -> None:
    assert merged(choose(files, KEYED, full=True)) == paths(files)


# ------------------------------------------------------------------------------------------------ without a key


def test_small_pieces_are_merged_in_the_order_in_which_they_were_written() -> None:
    pieces = [piece(written=t) for t in (5, 3, 4, 1, 2)]
    choice = choose([*pieces, piece(size=1000)], APPENDED)
    assert choice is not None
    assert [f.modified_ms for f in choice.files] == [1, 2, 3, 4, 5]
    assert choose(pieces[:4], APPENDED) is None


def test_full_merges_two_small_pieces_and_worn_ones() -> None:
    assert choose([piece(), piece(size=1000)], APPENDED, full=True) is None
    assert len(merged(choose([piece(), piece()], APPENDED, full=True))) == 2
    worn = piece(size=1000, dead=1)
    assert merged(choose([piece(), worn], APPENDED, full=True)) == paths([worn])
    assert choose([piece(), worn], APPENDED) is None


# ------------------------------------------------------------------------------------------------ amplification


def commit_after_commit(sizes: Sequence[int], trigger: int) -> float:
    """Compacts after each commit; how often a byte is rewritten. The runs stay below the trigger."""
    definition = define("id BIGINT", ("id",), num__sorted__run_compaction__trigger=trigger)
    files: list[DataFile] = []
    work = 0
    for size in sizes:
        files.append(file(size=size * 1000))
        while choice := choose(files, definition):
            total = sum(f.size for f in choice.files)
            work += total
            files = [f for f in files if f not in choice.files] + [file(size=total, level=choice.level)]
        assert len(files) < trigger
    return work / (1000 * sum(sizes))


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=100), st.integers(2, 8))
def test_runs_stay_below_the_trigger(sizes: list[int], trigger: int) -> None:
    commit_after_commit(sizes, trigger)


@pytest.mark.parametrize(("trigger", "commits"), [(3, 100), (5, 100), (5, 500), (8, 500)])
def test_rows_are_not_rewritten_much_more_often_than_they_must(trigger: int, commits: int) -> None:
    """With at most k runs no strategy does better than about k / (k + 1) * (k! * commits) ** (1 / k)."""
    k = trigger - 1
    best = k / (k + 1) * (math.factorial(k) * commits) ** (1 / k)
    assert commit_after_commit([1] * commits, trigger) <= 2 * best


# ------------------------------------------------------------------------------------------------ any slot


@st.composite
def slots(draw: st.DrawFn) -> tuple[list[DataFile], TableDefinition]:
    """Files that a life of writes and deletes may have left, and options."""
    definition = define(
        "id BIGINT",
        ("id",),
        target__file__size="1000 b",
        num__sorted__run_compaction__trigger=draw(st.integers(2, 8)),
        compaction_size__ratio=draw(st.sampled_from([0, 1, 30, 300])),
        **{"compaction_max-size-amplification-percent": draw(st.sampled_from([0, 50, 200]))},
    )
    files = []
    for _ in range(draw(st.integers(0, 20))):
        low, length = draw(st.integers(0, 50)), draw(st.integers(0, 10))
        rows = draw(st.integers(1, 200))
        dead = draw(st.just(0) | st.integers(0, rows - 1))
        size = rows * draw(st.sampled_from([1, 7, 60]))
        files.append(file(low, low + length, size=size, rows=rows, dead=dead, level=draw(st.integers(0, 3))))
    return files, definition


def done(choice: Choice, files: Sequence[DataFile], definition: TableDefinition) -> list[DataFile]:
    """The slot afterwards: the chosen files' live rows in one sorted run of files of the target size."""
    rest = [f for f in files if f not in choice.files]
    size = sum(f.size * f.live_rows // f.rows for f in choice.files)
    lows = [json.loads(f.min_key or "")[0] for f in choice.files]
    target = definition.options["target-file-size"]
    count = max(1, -(-size // target))
    made = [
        file(
            min(lows) + n / count,
            min(lows) + (n + 0.5) / count,
            size=target if n < count - 1 else max(1, size % target),
        )
        for n in range(count)
    ]
    return [*rest, *(replace(f, level=choice.level) for f in made)]


def amplification(files: Sequence[DataFile]) -> float:
    """Percent of the live bytes."""
    live = sum(f.size * f.live_rows // f.rows for f in files)
    return 100 * (sum(f.size for f in files) - live) / live if live else 0.0


@settings(deadline=None)
@given(slots(), st.booleans())
def test_a_choice_is_worth_its_work(slot: tuple[list[DataFile], TableDefinition], full: bool) -> None:
    files, definition = slot
    choice = choose(files, definition, full=full)
    if choice is None:
        return
    assert len(set(merged(choice))) == len(choice.files), "a file is chosen twice"
    assert merged(choice) <= paths(files)
    assert choice.level > max(f.level for f in choice.files)
    worn = any(f.live_rows < f.rows for f in choice.files)
    assert worn or len(sorted_runs(choice.files, definition)) >= 2, "one clean run is written again"
    if full:
        assert merged(choice) == paths(files)


@settings(deadline=None)
@given(slots())
def test_choices_come_to_an_end_with_few_runs_and_few_dead_rows(slot: tuple[list[DataFile], TableDefinition]) -> None:
    files, definition = slot
    for _ in range(3):
        choice = choose(files, definition)
        if choice is None:
            break
        files = done(choice, files, definition)
    assert choose(files, definition) is None
    assert len(sorted_runs(files, definition)) < definition.options["num-sorted-run.compaction-trigger"]
    assert amplification(files) <= definition.options["compaction.max-size-amplification-percent"]


@settings(deadline=None)
@given(slots())
def test_full_leaves_one_clean_run(slot: tuple[list[DataFile], TableDefinition]) -> None:
    files, definition = slot
    choice = choose(files, definition, full=True)
    if choice is not None:
        assert merged(choice) == paths(files)
        files = done(choice, files, definition)
    assert choose(files, definition, full=True) is None
    assert len(sorted_runs(files, definition)) <= 1
    assert amplification(files) == 0


@settings(deadline=None)
@given(slots())
def test_chains_are_as_many_as_files_overlap_at_one_key(slot: tuple[list[DataFile], TableDefinition]) -> None:
    files, definition = slot
    spans = [(json.loads(f.min_key or "")[0], json.loads(f.max_key or "")[0]) for f in files]
    found = chains(files, definition)
    assert sorted(f.path for chain in found for f in chain) == sorted(f.path for f in files)
    assert len(found) == max((sum(low <= at <= high for low, high in spans) for at in range(70)), default=0)


@pytest.mark.parametrize(("ratio", "joined"), [(1, 2), (30, 3)])
def test_the_size_ratio_lets_larger_runs_join(ratio: int, joined: int) -> None:
    files = [file(size=size) for size in (100, 100, 250, 1000, 1000)]
    definition = define("id BIGINT", ("id",), compaction_size__ratio=ratio)
    assert merged(choose(files, definition)) == paths(files[:joined])


@pytest.mark.parametrize(("percent", "chosen"), [(0, True), (50, True), (100, False)])
def test_amplification_is_what_dead_rows_take_beside_living_ones(percent: int, chosen: bool) -> None:
    options: dict[str, object] = {"compaction_max-size-amplification-percent": percent}
    keyed, plain = define("id BIGINT", ("id",), **options), define("v STRING", **options)
    assert bool(choose([file(dead=40)], keyed)) is chosen
    assert bool(choose([piece(dead=40)], plain)) is chosen
