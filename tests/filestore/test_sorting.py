"""External sort: whatever the memory, it returns rows in the order of a single sort in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import filestore.sorting.order
import filestore.sorting.runs
from filestore.errors import Unavailable
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.sorting.external import sorted_batches
from filestore.sorting.runs import RunFiles
from filestore.sorting.sorted_runs import SortedRuns
from filestore.storage.local import LocalStorage
from tests.faults import FailAt, FaultyStorage
from tests.folders import memory_folder

SCHEMA = pa.schema([("a", pa.int32()), ("s", pa.string()), ("n", pa.int64())])


class Spill:
    """A folder for runs that counts how often it was opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened = 0
        names = itertools.count()
        self.files = RunFiles(LocalStorage(), str(folder), lambda: f"{next(names)}.parquet")

    @contextmanager
    def __call__(self) -> Iterator[RunFiles]:
        self.opened += 1
        yield self.files
        for path in self.folder.glob("*"):
            path.unlink()


def batches(rows: list[dict[str, Any]], size: int) -> Iterator[pa.RecordBatch]:
    return iter(pa.Table.from_pylist(rows, SCHEMA).to_batches(max_chunksize=size))


def listed(stream: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in stream for row in batch.to_pylist()]


def place(row: dict[str, Any]) -> tuple[tuple[bool, Any], ...]:
    return tuple((row[name] is not None, row[name]) for name in ("a", "s"))


ROWS = st.lists(
    st.fixed_dictionaries(
        {"a": st.none() | st.integers(-3, 3), "s": st.none() | st.sampled_from(["", "a", "ä", "b", "\U0001f600"])}
    ),
    max_size=60,
)


@given(ROWS, st.integers(1, 9), st.integers(1, 3000), st.integers(2, 5))
def test_any_memory_gives_the_order_of_one_sort(rows: list[dict[str, Any]], size: int, memory: int, most: int) -> None:
    numbered = [{**row, "n": number} for number, row in enumerate(rows)]
    with memory_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(filestore.sorting.runs, "_GROUP_ROWS", 4)
        patch.setattr(filestore.sorting.runs, "_OPEN_RUNS", most)
        patch.setattr(filestore.sorting.order, "_SLICE_ROWS", 5)
        spill = Spill(folder)
        found = listed(sorted_batches(batches(numbered, size), ["a", "s"], memory, spill))
        assert [place(row) for row in found] == sorted(map(place, rows))
        assert sorted(row["n"] for row in found) == list(range(len(rows)))
        assert all(row == numbered[row["n"]] for row in found)
        assert not list(folder.iterdir())


@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 9), st.integers(1, 3000), st.integers(2, 5))
def test_rows_of_a_key_are_in_the_order_of_their_numbers(
    rows: list[dict[str, Any]], dice: Random, size: int, memory: int, most: int
) -> None:
    ordinals = list(range(len(rows)))
    if dice.random() < 0.5:  # rows that are fitted again come in any order, all others as they arrived
        dice.shuffle(ordinals)
    given_rows = pa.Table.from_pylist([{**row, "n": 0} for row in rows], SCHEMA).append_column(
        ORDINAL_COLUMN, pa.array(ordinals, pa.int64())
    )
    by = ["a", "s", ORDINAL_COLUMN]
    with memory_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(filestore.sorting.runs, "_GROUP_ROWS", 4)
        patch.setattr(filestore.sorting.runs, "_OPEN_RUNS", most)
        found = listed(sorted_batches(iter(given_rows.to_batches(max_chunksize=size)), by, memory, Spill(folder)))
    assert found == sorted(given_rows.to_pylist(), key=lambda row: (place(row), row[ORDINAL_COLUMN]))


@pytest.mark.parametrize(("share", "opened"), [(0.9, 0), (1.0, 0), (1.4, 0), (1.8, 1), (5.0, 1)])
def test_the_first_runs_stay_in_memory(tmp_path: Path, share: float, opened: int) -> None:
    """A row more than fits into memory once sent all of them to the disk."""
    rows = pa.Table.from_pylist([{"a": -n, "s": "x", "n": n} for n in range(1000)], SCHEMA)
    spill = Spill(tmp_path)
    found = sorted_batches(iter(rows.to_batches(max_chunksize=10)), ["a"], int(rows.nbytes / share), spill)
    assert [row["n"] for row in listed(found)] == [*range(999, -1, -1)]
    assert spill.opened == opened


def test_parts_that_are_larger_than_the_memory_do_not_stay_in_it(tmp_path: Path) -> None:
    """Three runs stayed in memory whatever their size, and a batch of Spark's has any number of bytes."""
    rows = pa.Table.from_pylist([{"a": -n, "s": "x" * 100, "n": n} for n in range(30)], SCHEMA)
    spill = Spill(tmp_path)
    with SortedRuns((rows.slice(at, 10) for at in (0, 10, 20)), ["a"], rows.nbytes // 12, spill) as runs:
        assert spill.opened == 1
        assert sum(part.nbytes for run in runs._held for part in run) == 0
        assert [row["n"] for row in listed(runs.merged())] == [*range(29, -1, -1)]


def test_what_fits_never_touches_the_disk(tmp_path: Path) -> None:
    spill = Spill(tmp_path)
    rows = [{"a": -n, "s": "x", "n": n} for n in range(100)]
    assert [row["n"] for row in listed(sorted_batches(batches(rows, 7), ["a"], 1 << 20, spill))] == [*range(99, -1, -1)]
    assert spill.opened == 0


def test_equal_rows_that_fit_stay_in_the_order_of_arrival(tmp_path: Path) -> None:
    rows = [{"a": n % 2, "s": None, "n": n} for n in range(40)]
    found = listed(sorted_batches(batches(rows, 7), ["a"], 1 << 20, Spill(tmp_path)))
    assert [row["n"] for row in found] == [*range(0, 40, 2), *range(1, 40, 2)]


def test_without_an_order_the_batches_go_on_at_once(tmp_path: Path) -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        for n in itertools.count():
            yield pa.RecordBatch.from_pylist([{"a": n, "s": "x", "n": n}], SCHEMA)

    stream = sorted_batches(endless(), [], 1, Spill(tmp_path))
    assert [next(stream).to_pylist()[0]["n"] for _ in range(5)] == [0, 1, 2, 3, 4]


def test_no_rows_are_no_batches(tmp_path: Path) -> None:
    assert list(sorted_batches(iter(()), ["a"], 1, Spill(tmp_path))) == []


@pytest.mark.parametrize("number", [1, 3])
def test_a_full_disk_is_an_error_to_retry_and_leaves_no_half_run(tmp_path: Path, number: int) -> None:
    full = FailAt(number, OSError(28, "No space left on device"), operation="append")
    spill = Spill(tmp_path)
    spill.files = replace(spill.files, storage=FaultyStorage(LocalStorage(), full))
    rows = [{"a": n, "s": "x", "n": n} for n in range(300)]
    with pytest.raises(Unavailable, match="No space left"):
        listed(sorted_batches(batches(rows, 10), ["a"], 500, spill))
    for left in tmp_path.iterdir():
        assert pq.read_metadata(left).num_rows, "a run is whole or not there"


def test_empty_batches_are_passed_over(tmp_path: Path) -> None:
    """A row group of empty batches only was taken for the end of the stream."""
    empty = pa.RecordBatch.from_pylist([], SCHEMA)
    some = pa.RecordBatch.from_pylist([{"a": n, "s": "x", "n": n} for n in (2, 1)], SCHEMA)
    found = listed(sorted_batches(iter([empty, some, empty]), ["a"], 1, Spill(tmp_path)))
    assert [row["n"] for row in found] == [1, 2]


def test_wide_rows_side_by_side_make_no_wide_row_group(tmp_path: Path) -> None:
    """Row groups were cut by the mean width of all rows, so one of them had 29 MB."""
    rows = pa.table({"a": range(5000), "s": ["x" * (30_000 if 2000 <= n < 2400 else 1) for n in range(5000)]})
    spill = Spill(tmp_path)
    run = spill.files.put([rows])
    groups = list(spill.files.read(run))
    assert pa.concat_tables(groups).equals(rows)
    assert max(group.nbytes for group in groups) <= 2 << 20
