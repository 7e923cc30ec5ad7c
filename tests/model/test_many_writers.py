"""Fault tests 3 and 4: many writers on the same keys, in threads and in processes. Nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from filestore.ambient import system_ambient
from filestore.errors import Conflict
from filestore.model.rowkind import KIND_COLUMN
from filestore.table import FileStore
from tests.depth import Depth, sampled
from tests.model.model import apply_rows, living
from tests.processes import PROCESSES
from tests.servers.s3 import S3Endpoint
from tests.tables import (
    assert_healthy,
    create,
    define,
    in_order,
    prepare,
    read,
    read_deltalake,
    read_polars,
    reopen,
    storage_at,
)

COLUMNS = "id BIGINT, s INT, v STRING"
KEYS = 200
KINDS = ["+I", "+U", "+U", "-D"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One commit of one writer: what it wrote, and its version, or None if it lost with a conflict."""

    commit_id: str
    rows: list[dict[str, Any]]
    overwrite: bool
    version: int | None
    rebases: int


def attempt(store: FileStore, dice: random.Random, name: str) -> Attempt:
    """Commits puts and deletes of a few random keys, or sometimes an overwrite."""
    commit_id, overwrite = store.ambient.new_id(), dice.random() < 0.02
    rows = [
        {
            "id": dice.randrange(KEYS),
            "s": dice.randrange(5),
            "v": name,
            KIND_COLUMN: dice.choice(["+I", "+U", "+U", "-D"]),
        }
        for _ in range(dice.randrange(1, 20))
    ]
    prepared = prepare(store, rows, overwrite=overwrite, commit_id=commit_id)
    try:
        version: int | None = prepared.commit().snapshot.version
    except Conflict:
        version = None
    return Attempt(commit_id, rows, overwrite, version, len(prepared.rebases))


def check(store: FileStore, attempts: list[Attempt], sequence: str | None) -> None:
    """Asserts that the versions are the acknowledged commits without gaps, and the table what these wrote in order."""
    acknowledged = {a.version: a for a in attempts if a.version is not None}
    snapshots = {s.version: s.commit_id for s in store.snapshots() if s.version}
    assert len(acknowledged) == sum(a.version is not None for a in attempts), "two writers were given one version"
    assert {v: a.commit_id for v, a in acknowledged.items()} == snapshots
    assert sorted(snapshots) == list(range(1, len(snapshots) + 1))
    rows: dict[Any, Any] = {}
    for version in sorted(acknowledged):
        done = acknowledged[version]
        before = {} if done.overwrite else rows
        rows = apply_rows(before, done.rows, ["id"], sequence, remember=sequence is not None)
    expected = in_order(living(rows).values())
    fresh = reopen(store)
    assert read(fresh) == expected
    assert read_polars(store.location) == expected
    assert read_deltalake(store.location) == expected
    assert_healthy(fresh)


def run_threads(folder: Path | str, writers: int, commits: int, sequence: str | None, seed: int) -> None:
    print(f"seed {seed}")
    options: dict[str, object] = {"bucket": 2, "checkpoint_interval": 50}
    if sequence:
        options["sequence_field"] = sequence
    store = create(f"{folder}/t", define(COLUMNS, ["id"], **options))

    def work(number: int) -> list[Attempt]:
        own, dice = reopen(store), random.Random(f"{seed}/{number}")
        return [attempt(own, dice, f"{number}/{n}") for n in range(commits)]

    with ThreadPoolExecutor(writers) as pool:
        attempts = [a for done in pool.map(work, range(writers)) for a in done]
    assert all(a.version is not None for a in attempts), "100 retries are enough"
    print(f"most rebases of a commit: {max(a.rebases for a in attempts)}")
    check(store, attempts, sequence)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("sequence", sampled(["s", None], 2, test=2))
def test_sixteen_writers(folder: Path, sequence: str | None, depth: Depth) -> None:
    run_threads(folder, 16, depth.times(2, deep=4), sequence, seed=random.randrange(10**6))


@pytest.mark.deep  # four processes write beside each other in a folder
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_writers_in_s3(s3_places: Callable[[], AbstractContextManager[str]], depth: Depth) -> None:
    with s3_places() as folder:
        run_threads(folder, depth.times(4, deep=16), 2, None, seed=random.randrange(10**6))


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sequence", [None, "s"])
def test_sixteen_writers_with_many_commits(folder: Path, sequence: str | None) -> None:
    commits = 8 if sequence else 50  # each write reads the deletes that all writes before it left
    run_threads(folder, 16, commits, sequence, seed=random.randrange(10**6))


_STARTING_LINE: list[Barrier] = []


def line_up(barrier: Barrier, variables: dict[str, str]) -> None:
    """Initializes a process: processes take seconds to start, but have to write at the same time."""
    os.environ.update(variables)
    _STARTING_LINE.append(barrier)


def process_work(location: str, number: int, commits: int, seed: int) -> list[Attempt]:
    """Does the work of one process."""
    store = FileStore.open(storage_at(location), location, system_ambient())
    _STARTING_LINE[0].wait(timeout=120)
    dice = random.Random(f"{seed}/{number}")
    return [attempt(store, dice, f"{number}/{n}") for n in range(commits)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_processes(folder: Path, depth: Depth) -> None:
    run_processes(folder, depth.times(10, deep=40), {})


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_four_processes_in_s3(s3_places: Callable[[], AbstractContextManager[str]], moto: S3Endpoint) -> None:
    with s3_places() as folder:
        run_processes(folder, 10, moto.environment())


def run_processes(folder: Path | str, commits: int, variables: dict[str, str]) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    store = create(f"{folder}/t", define(COLUMNS, ["id"], bucket=2, sequence_field="s", checkpoint_interval=50))
    with ProcessPoolExecutor(4, PROCESSES, line_up, (PROCESSES.Barrier(4), variables)) as pool:
        futures = [pool.submit(process_work, store.location, number, commits, seed) for number in range(4)]
        attempts = [a for future in futures for a in future.result()]
    print(f"{len(attempts)} commits, {sum(a.version is None for a in attempts)} conflicts")
    check(store, attempts, "s")
