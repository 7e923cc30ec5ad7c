"""Staged runs: sorted pieces of a write, read back as the one sorted stream that a fold wants."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import filestore.sorting.runs
from filestore.errors import Unavailable
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.spark.batch.sink import merged, remove, stage
from tablestore.writing.write_job import WriteJob
from tests.depth import sampled
from tests.faults import FailAt, FaultyStorage
from tests.warehouses import assert_whole, orphans, to_arrow

SHAPES: dict[str, dict[str, Any]] = {
    "one-key": {"primary_key": ["id"]},
    "composite": {"primary_key": ["name", "id"], "partition_by": []},
    "partitioned": {"primary_key": ["day", "id"], "partition_by": ["day"]},
    "append": {"partition_by": ["day"]},
    "append-unpartitioned": {},
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filestore.sorting.runs, "_GROUP_ROWS", 7)


def rows_of(dice: random.Random, count: int, nulls: bool) -> Iterator[dict[str, Any]]:
    for i in range(count):
        day = None if nulls and dice.random() < 0.2 else dice.randrange(3)
        yield {"id": dice.randrange(60), "name": dice.choice("aäb"), "day": day, "n": i, "tags": [i, None]}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("open_runs", sampled([2, 64], 2, test=2), ids=["in-passes", "at-once"])
@pytest.mark.parametrize("shape", SHAPES)
def test_runs_of_many_tasks_are_one_sorted_stream(
    store: Store, shape: str, open_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filestore.sorting.runs, "_OPEN_RUNS", open_runs)
    dice = random.Random(7)
    columns = "id BIGINT, name STRING, day INT, n INT, tags ARRAY<INT>"
    options = {"bucket": "3", "write-buffer-size": "2 kb"}
    table: Table = store.create_table("shop.t", columns, options=options, **SHAPES[shape])
    files: TableFiles = table.filestore.table_files(table.filestore.state())
    everything: list[dict[str, Any]] = []
    runs: list[str] = []
    for task in range(4):
        batches = [
            list(rows_of(dice, dice.choice([0, 3, 90, 200]), not table.definition.primary_key)) for _ in range(2)
        ]
        everything += [row for batch in batches for row in batch]
        runs += stage(files, (to_arrow(table, batch) for batch in batches if batch), task)
    assert len(runs) > 4
    found = [row for batch in merged(files, runs) for row in batch.to_pylist()]
    assert len(found) == len(everything)
    order = [*table.definition.partition_by, BUCKET_COLUMN, *table.definition.sort_key]
    places = [tuple((row[c] is not None, row[c]) for c in order) for row in found]
    assert places == sorted(places)
    assert len({row[ORDINAL_COLUMN] for row in found}) == len(found)

    table.writer().write(lambda job: [fold(job, files, runs)])
    remove(files, runs)
    assert orphans(table) == []
    after = assert_whole(table)
    if table.definition.primary_key:
        last = {tuple(row[k] for k in table.definition.primary_key): row["n"] for row in everything}
        assert {tuple(row[k] for k in table.definition.primary_key): row["n"] for row in after} == last
    else:
        assert len(after) == len(everything)


def fold(job: WriteJob, files: TableFiles, runs: list[str]) -> Any:
    return job.run(merged(files, runs), "0.0")


def test_no_rows_are_no_runs(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
    files = table.filestore.table_files(table.filestore.state())
    assert stage(files, [], 0) == ()
    assert list(merged(files, [])) == []


def test_after_an_error_nothing_stays(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT", primary_key=["id"], options={"write-buffer-size": "480"})
    files = table.filestore.table_files(table.filestore.state())

    def batches() -> Iterator[Any]:
        for _ in range(3):
            yield to_arrow(table, [{"id": i} for i in range(60)])
        assert in_runs(table), "each batch is a run by now"
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        stage(files, batches(), 0)
    assert orphans(table) == []
    assert not list(Path(table.location).rglob("staged-*"))


def staged(table: Table, tasks: int, rows: int) -> tuple[TableFiles, list[str]]:
    """Runs of as many tasks, each of the same keys."""
    files = table.filestore.table_files(table.filestore.state())
    return files, [
        path
        for task in range(tasks)
        for path in stage(files, [to_arrow(table, [{"id": i, "v": task} for i in range(rows)])], task)
    ]


def in_runs(table: Table) -> set[str]:
    return {path.name for path in Path(table.location, "_runs").glob("*")}


@pytest.mark.slow
@pytest.mark.parametrize("rows", [5, 40], ids=["of-one-row-group", "of-many-row-groups"])
def test_only_so_many_runs_are_open_at_once(store: Store, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,100 tasks once were 1,100 open files, and memory for a row group of each."""
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"])
    files, runs = staged(table, 23, rows)
    before = in_runs(table)
    open_now = most = 0

    class Counting(ParquetReader):
        def __enter__(self) -> Any:
            nonlocal open_now, most
            open_now += 1
            most = max(most, open_now)
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            nonlocal open_now
            open_now -= 1
            super().__exit__(*error)

    monkeypatch.setattr(filestore.sorting.runs, "ParquetReader", Counting)
    monkeypatch.setattr(filestore.sorting.runs, "_OPEN_RUNS", 4)
    found = [row for batch in merged(files, runs) for row in batch.to_pylist()]
    assert [(row["id"], row["v"]) for row in found] == [(i, task) for i in range(rows) for task in range(23)]
    assert most <= 4
    assert open_now == 0
    assert in_runs(table) == before, "what the passes made is gone, the staged runs stay"


@pytest.mark.parametrize("number", [1, 3], ids=["the-first-pass", "a-later-pass"])
def test_a_pass_that_fails_leaves_nothing(store: Store, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filestore.sorting.runs, "_OPEN_RUNS", 4)
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"])
    files, runs = staged(table, 23, 40)
    before = in_runs(table)
    full = FailAt(number, OSError(28, "No space left on device"), operation="append")
    with pytest.raises(Unavailable, match="No space left"):
        list(merged(replace(files, storage=FaultyStorage(LocalStorage(), full)), runs))
    assert in_runs(table) == before


@pytest.mark.slow
def test_a_reader_that_gives_up_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filestore.sorting.runs, "_OPEN_RUNS", 4)
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"])
    files, runs = staged(table, 23, 40)
    before = in_runs(table)
    stream = merged(files, runs)
    next(stream)
    assert in_runs(table) > before
    del stream
    assert in_runs(table) == before


KEYS: dict[str, tuple[Any, ...]] = {
    "TINYINT": (-128, -1, 0, 127),
    "BOOLEAN": (False, True),
    "STRING": ("", "a", "aa", "ä", "\U0001f600"),
    "BINARY": (b"", b"\x00", b"\x7f", b"\xff"),
    "DECIMAL(20,2)": tuple(map(Decimal, ("-99999999999999999.99", "-0.01", "0.10", "7.00"))),
    "DATE": (date(1, 1, 1), date(1969, 12, 31), date(2026, 2, 28), date(9999, 12, 31)),
    "TIMESTAMP": tuple(datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1969, 1970, 9999)),
    "TIMESTAMP_NTZ": tuple(datetime(year, 1, 1) for year in (1, 1969, 1970, 9999)),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", sampled(KEYS, 3))
def test_keys_of_all_types_keep_their_order(store: Store, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filestore.sorting.runs, "_OPEN_RUNS", 3)
    dice = random.Random(3)
    table = store.create_table("shop.t", f"k {kind}, n INT", primary_key=["k", "n"], options={"bucket": "2"})
    files = table.filestore.table_files(table.filestore.state())
    runs = [
        path
        for task in range(8)
        for path in stage(
            files, [to_arrow(table, [{"k": dice.choice(KEYS[kind]), "n": dice.randrange(9)} for _ in range(45)])], task
        )
    ]
    found = [row for batch in merged(files, runs) for row in batch.to_pylist()]
    places = [(row[BUCKET_COLUMN], row["k"], row["n"], row[ORDINAL_COLUMN]) for row in found]
    assert len(places) == 8 * 45
    assert places == sorted(places)


def test_a_run_that_cannot_be_removed_is_no_error(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """It once failed a job whose commit stood: its retry doubled the rows of an append table."""
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"])
    files, runs = staged(table, 3, 5)
    storage = FaultyStorage(LocalStorage(), FailAt(1, Unavailable("a disk that is read-only"), operation="delete"))
    with caplog.at_level(logging.WARNING):
        remove(replace(files, storage=storage), runs)
    assert "a disk that is read-only" in caplog.text
    assert in_runs(table) == {Path(runs[0]).name}, "the others are gone"
