"""Memory stays bounded however many rows come: the kernel streams (design: at most 1 GB a worker)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from filestore.ambient import system_ambient
from filestore.commit.proposal import Premises, Proposal
from filestore.doctor import examine
from filestore.model.snapshot import Operation
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from filestore.writing.write import WriteResult, write_sorted
from tests.tables import create, define

BATCH = 65_536
MB = 1 << 20


@dataclass(slots=True)
class Meter:
    """The most memory that this process had since it began to measure."""

    start: int = 0
    most: int = 0

    def begin(self) -> None:
        self.start = self.most = psutil.Process().memory_info().rss

    def look(self) -> None:
        self.most = max(self.most, psutil.Process().memory_info().rss)

    @property
    def growth(self) -> int:
        return self.most - self.start


def stream(ids: Iterator[np.ndarray], meter: Meter) -> Iterator[pa.RecordBatch]:
    """Sorted batches of seven columns, made while they are asked for."""
    dice = np.random.default_rng(1)
    for part in ids:
        meter.look()
        count = len(part)
        columns = {"id": part, BUCKET_COLUMN: np.zeros(count, dtype=np.int32)}
        columns |= {f"n{k}": dice.integers(0, 2**60, count) for k in range(4)}
        texts = pa.array(dice.integers(0, 10**9, count)).cast(pa.string())
        yield pa.record_batch({**columns, "s": texts})


def ranges(count: int, step: int) -> Iterator[np.ndarray]:
    for start in range(0, count, BATCH * step):
        yield np.arange(start, min(count, start + BATCH * step), step)


def commit(store: FileStore, batches: Iterator[pa.RecordBatch]) -> None:
    base = store.state()
    result = WriteResult(tuple(write_sorted(store.table_files(base), base.lookup_files(0), batches)))
    touches = frozenset(r.slot for r in result.results)
    proposal = Proposal(Operation.WRITE, store.ambient.new_id(), base.version, premises=Premises(slots=touches))
    store.commit_version(base, result.apply(proposal), lambda *_: proposal)


def measure(location: str, rows: int) -> dict[str, int]:
    """Loads, upserts a fifth, examines; the growth of each in bytes."""
    store = FileStore.open(LocalStorage(), location, system_ambient())
    growth: dict[str, int] = {}
    commit(store, stream(ranges(BATCH * 4, 1), Meter()))  # what libraries allocate once does not count
    for name, step in (("load", 1), ("upsert", 5)):
        meter = Meter()
        meter.begin()
        commit(store, stream(ranges(rows, step), meter))
        meter.look()
        growth[name] = meter.growth
    meter = Meter()
    meter.begin()
    report = examine(store)
    meter.look()
    assert report.healthy, report.problems
    assert report.rows == rows
    growth["doctor"] = meter.growth
    return growth


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_write_of_many_rows_takes_the_memory_of_few(tmp_path: Path) -> None:
    growth: dict[int, dict[str, int]] = {}
    for rows in (1_000_000, 6_000_000):
        columns = "id BIGINT, n0 BIGINT, n1 BIGINT, n2 BIGINT, n3 BIGINT, s STRING"
        store = create(tmp_path / str(rows), define(columns, ["id"]))
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # a fresh process each, to measure alone
            growth[rows] = pool.submit(measure, store.location, rows).result()
        print(rows, {name: f"{size / MB:.0f} MB" for name, size in growth[rows].items()})
    for name, size in growth[6_000_000].items():
        assert size < 400 * MB, f"{name} of 6 M rows took {size / MB:.0f} MB"
