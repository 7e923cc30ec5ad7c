"""Fault test 4: two writers and two compactors work on the same buckets at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from compaction.compact import compact_table
from filestore.errors import Conflict
from filestore.table import FileStore
from tests.depth import Depth
from tests.tables import assert_healthy, create, define, read, read_deltalake, read_polars, reopen, write
from tests.waiting import until

COMMITS = 25
KEYS = 3000


@pytest.mark.slow
def test_two_writers_and_two_compactors_lose_nothing(folder: Path, depth: Depth) -> None:
    race(folder, depth.times(10, deep=COMMITS))


@pytest.mark.deep
def test_two_writers_and_two_compactors_lose_nothing_in_s3(
    s3_places: Callable[[], AbstractContextManager[str]],
) -> None:
    with s3_places() as folder:
        race(folder, COMMITS // 2)


def race(folder: Path | str, commits: int) -> None:
    store = create(
        f"{folder}/t", define("id BIGINT, v BIGINT", ("id",), bucket=2, num__sorted__run_compaction__trigger=3)
    )
    write(store, [{"id": i, "v": -1} for i in range(KEYS)])
    done: dict[int, dict[int, int | None]] = {}
    compactions: list[bool] = []
    lost: list[str] = []
    ended = threading.Event()

    def writer(seed: int, opened: FileStore) -> int:
        dice = random.Random(seed)
        number = 0
        while not ended.is_set():
            number += 1
            ids = [dice.randrange(KEYS) for _ in range(dice.choice([3, 300]))]
            deletes = dice.random() < 0.2
            value = None if deletes else seed * 1_000_000 + number
            kind = "-D" if deletes else "+U"
            committed = write(opened, [{"id": i, "v": value, "_kind": kind} for i in ids])
            done[committed.snapshot.version] = dict.fromkeys(ids, value)
        return number

    def compactor(seed: int, opened: FileStore) -> None:
        dice = random.Random(seed)
        while not ended.is_set():
            try:
                compactions.append(compact_table(opened, full=dice.random() < 0.3) is not None)
            except Conflict as error:
                lost.append(str(error))

    jobs: list[Callable[[int, FileStore], Any]] = [writer, writer, compactor, compactor]
    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(job, seed, reopen(store)) for seed, job in enumerate(jobs, start=1)]
        try:
            until(
                lambda: (len(done) > commits and sum(compactions) > 2) or any(future.done() for future in futures),
                what="commits of all, and none that starves",
            )
        finally:
            ended.set()
            print(f"{len(done)} commits, {sum(compactions)} of {len(compactions)} compactions; lost: {lost[-5:]}")
    writes = [future.result() for future in futures[:2]]

    expected: dict[int, int | None] = dict.fromkeys(range(KEYS), -1)
    for version in sorted(done):
        expected |= done[version]
    wanted = {i: v for i, v in expected.items() if v is not None}
    rows = read(store)
    assert {row["id"]: row["v"] for row in rows} == wanted
    assert rows == read_polars(store.location) == read_deltalake(store.location)
    assert_healthy(reopen(store))
    assert len(done) == sum(writes), "a write was reported that is in no version"
    assert all(future.exception() is None for future in futures)


@pytest.mark.slow
def test_a_compactor_keeps_up_with_a_hot_stream(folder: Path) -> None:
    """Every commit kills all rows of the one before, so inputs die out under the compaction; it still commits."""
    store = create(folder / "t", define("id BIGINT, v BIGINT", ("id",), num__sorted__run_compaction__trigger=2))
    write(store, [{"id": i, "v": -1} for i in range(KEYS)])
    ended = threading.Event()

    def stream(opened: FileStore) -> int:
        number = 0
        while not ended.is_set():
            number += 1
            write(opened, [{"id": i, "v": number} for i in range(100)])
        return number

    with ThreadPoolExecutor(1) as pool:
        writes = pool.submit(stream, reopen(store))
        opened = reopen(store)
        try:
            for _ in range(3):
                until(lambda: compact_table(opened) is not None, what="a compaction that commits")
        finally:
            ended.set()
    assert {row["v"] for row in read(store) if row["id"] < 100} == {writes.result()}
    assert len(read(store)) == KEYS
    assert_healthy(reopen(store))
