"""Merging one slot: all live rows, in key order, in files of the wanted size, within bounded memory."""

from __future__ import annotations

import datetime as dt
import itertools
import pickle
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction import merge
from compaction.choice import chains
from compaction.merge import CompactionTask, compact_slot
from filestore.files.live_rows import read_file
from filestore.model.files import DataFile
from filestore.table import FileStore
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.tables import by_slot, create, define, in_order, write

KEYS: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.integers(-20, 20) | st.sampled_from([-(2**63), 2**63 - 1]),
    "STRING": st.sampled_from(["", "a", "b", "é", "\ue000", "\U0001f600", "z" * 70]),
    "DECIMAL(20,2)": st.integers(-300, 300).map(lambda n: Decimal(n) / 100),
    "BINARY": st.binary(max_size=2),
    "BOOLEAN": st.booleans(),
    "DATE": st.sampled_from([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "TIMESTAMP": st.integers(-5, 5).map(lambda n: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n)),
}


@pytest.fixture(autouse=True)
def groups() -> Iterator[None]:
    with tiny_row_groups():
        yield


def rows_of(store: FileStore, files: tuple[DataFile, ...]) -> list[dict[str, Any]]:
    table = store.table_files(store.state())
    return [row for file in files for part in read_file(table, file) for row in part.to_pylist()]


def slots(store: FileStore) -> list[tuple[DataFile, ...]]:
    return by_slot(store.state())


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[str], list[list[dict[str, Any]]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2))
    key = {f"k{i}": KEYS[kind] for i, kind in enumerate(kinds)}
    row = st.fixed_dictionaries({**key, "v": st.integers(0, 9), "_kind": st.sampled_from(["+I", "+I", "+I", "-D"])})
    return kinds, draw(st.lists(st.lists(row, min_size=1, max_size=15), min_size=1, max_size=7))


@settings(deadline=None, max_examples=settings.default.max_examples * 3 // 2)
@given(histories(), st.sampled_from(["1 b", "128 mb"]), st.integers(1, 4))
def test_what_lives_comes_out_sorted(
    history: tuple[list[str], list[list[dict[str, Any]]]], size: str, room: int
) -> None:
    kinds, batches = history
    key = [f"k{i}" for i in range(len(kinds))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(key, kinds, strict=True)) + ", v INT"
    with memory_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "_OPEN_ROW_GROUPS", room)  # so little that several passes are needed
        store = create(folder / "t", define(columns, key, row__group_rows=3, target__file__size=size))
        for batch in batches:
            write(store, batch)
        for files in slots(store):
            before = set(folder.rglob("*.parquet"))
            result = compact_slot(store.table_files(store.state()), files, 7)
            found = rows_of(store, result.adds)
            assert in_order(found) == in_order(rows_of(store, files))
            order = [tuple(row[name] for name in key) for row in found]
            assert order == sorted(order)
            assert result.inputs == files
            assert all(file.level == 7 and file.vector is None for file in result.adds)
            assert len(result.adds) == (len(found) + 2) // 3 if size == "1 b" else len(result.adds) <= 1
            there = set(folder.rglob("*.parquet"))
            assert there - before == {folder / "t" / file.path for file in result.adds}, "files of a pass stayed behind"


def test_row_groups_have_the_wanted_size(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ("id",), row__group_rows=7))
    for start in range(5):
        write(store, [{"id": i, "v": start} for i in range(start, 100, 3)])
    (files,) = slots(store)
    (merged,) = compact_slot(store.table_files(store.state()), files, 1).adds
    footer = pq.read_metadata(folder / "t" / merged.path)
    sizes = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    assert sizes[:-1] == [7] * (len(sizes) - 1)
    assert sum(sizes) == merged.rows == 100


def test_runs_that_do_not_overlap_are_not_open_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory follows how deep files overlap, not how many there are."""
    store = create(folder / "t", define("id BIGINT, v INT", ("id",), row__group_rows=11))
    for start in range(0, 200, 10):
        write(store, [{"id": start + i, "v": i} for i in range(10)])
    open_now: list[str] = []
    live_rows = merge._live_rows

    def tracked(table: Any, file: DataFile) -> Iterator[pl.DataFrame]:
        open_now.append(file.path)
        yield from live_rows(table, file)
        open_now.remove(file.path)

    monkeypatch.setattr(merge, "_live_rows", tracked)
    (files,) = slots(store)
    table = store.table_files(store.state())
    heights = []
    for frame in merge._merged(table, chains(files, table.definition)):
        heights.append(frame.height)
        assert len(open_now) <= 1
    assert heights == [10] * 20


def test_small_runs_pass_first_when_not_all_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ("id",), row__group_rows=10))
    write(store, [{"id": i, "v": 0} for i in range(100)])
    for v in range(1, 8):
        write(store, [{"id": i, "v": v} for i in range(v, 100, 10)])
    monkeypatch.setattr(merge, "_OPEN_ROW_GROUPS", 4)
    opened: list[str] = []
    live_rows = merge._live_rows

    def recording(table: Any, file: DataFile) -> Any:
        opened.append(file.path)
        return live_rows(table, file)

    monkeypatch.setattr(merge, "_live_rows", recording)
    (files,) = slots(store)
    compact_slot(store.table_files(store.state()), files, 1)
    large = max(files, key=lambda f: f.rows)
    assert opened.count(large.path) == 1
    assert len(opened) > len(files)


def test_pieces_without_a_key_keep_their_order(folder: Path) -> None:
    store = create(folder / "t", define("v INT", row__group_rows=4))
    for start in range(0, 30, 10):
        write(store, [{"v": start + i} for i in range(10)])
    (files,) = slots(store)
    result = compact_slot(store.table_files(store.state()), files, 1)
    assert [row["v"] for row in rows_of(store, result.adds)] == list(range(30))


def test_a_slot_in_which_all_is_dead_gives_no_file(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ("id",)))
    write(store, [{"id": 1, "v": 1}, {"id": 2, "v": 1}])
    before = slots(store)[0]
    write(store, [{"id": 1, "v": 2}])
    (worn,) = (f for f in slots(store)[0] if f.path == before[0].path)
    assert rows_of(store, compact_slot(store.table_files(store.state()), (worn,), 1).adds) == [{"id": 2, "v": 1}]


def test_partition_columns_are_kept(folder: Path) -> None:
    store = create(folder / "t", define("p STRING, id BIGINT, v INT", ("p", "id"), ("p",)))
    for v in range(3):
        write(store, [{"p": p, "id": i, "v": v} for p in ("a b", "%/ü=:") for i in range(v, 5)])
    for files in slots(store):
        result = compact_slot(store.table_files(store.state()), files, 1)
        assert in_order(rows_of(store, result.adds)) == in_order(rows_of(store, files))
        assert {file.slot for file in result.adds} == {files[0].slot}


def test_a_task_travels_to_another_process(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ("id",)))
    write(store, [{"id": 1, "v": 1}])
    (files,) = slots(store)
    task = CompactionTask(files[0].slot, files, 1)
    assert pickle.loads(pickle.dumps(task)) == task
    result = compact_slot(store.table_files(store.state()), files, 1)
    assert pickle.loads(pickle.dumps(result)) == result


_BIG = """
import resource, sys
import numpy as np, pyarrow as pa
from compaction.merge import compact_slot
from tests.tables import by_slot, create, define, write

rows, files = 60_000, 12
store = create(sys.argv[1], define("id BIGINT, v STRING", ("id",), row__group_rows=sys.argv[2]))
text = pa.array(["x" * 900 + str(i) for i in range(rows)])
for n in range(files):
    ids = pa.array(np.arange(rows) * files + n)
    write(store, pa.table({"id": ids, "v": text}))
del text, ids
(slot,) = by_slot(store.state())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = compact_slot(store.table_files(store.state()), slot, 1)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sum(f.rows for f in result.adds) == rows * files
print((after - before) // 1024, rows * files * 900 // 1_000_000)
"""


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize(("row_group", "most_mb"), [(4096, 250), (131_072, 700)], ids=["small groups", "wide rows"])
def test_memory_does_not_grow_with_the_slot(folder: Path, row_group: int, most_mb: int) -> None:
    """650 MB of rows in twelve overlapping runs, beside what a write takes.

    With row groups of 4 MB all runs are open at once. Of groups of 54 MB only some fit into `write-buffer-size`.
    """
    command = [sys.executable, "-c", _BIG, str(folder / "t"), str(row_group)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown_mb, total_mb = map(int, done.stdout.split())
    print(f"{grown_mb} MB for {total_mb} MB of rows")
    assert total_mb > 600
    assert grown_mb < most_mb


def test_every_pair_of_files_is_merged_once(folder: Path) -> None:
    """The merge is one pass: no file's rows are read twice when all fit."""
    store = create(folder / "t", define("id BIGINT, v INT", ("id",), row__group_rows=5))
    for v in range(6):
        write(store, [{"id": i, "v": v} for i in range(v, 60, 6)])
    table = store.table_files(store.state())
    (files,) = slots(store)
    frames = list(merge._merged(table, [(file,) for file in files]))
    keys = list(itertools.chain.from_iterable(frame["id"].to_list() for frame in frames))
    assert keys == list(range(60))
