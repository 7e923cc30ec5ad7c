"""External sort: whatever the memory, it returns rows in the order of a single sort in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import filestore.sorting.order
import filestore.sorting.runs
from filestore.errors import Unavailable
from filestore.sorting.external import sorted_batches
from filestore.sorting.runs import RunFiles
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
