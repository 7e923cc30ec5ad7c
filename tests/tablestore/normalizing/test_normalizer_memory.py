"""A normalizer with a million keys needs the memory of a batch, which does not grow with the keys."""

from __future__ import annotations

import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tablestore import Normalizer

MB = 1 << 20
KEYS = 1_000_000
BATCH = 20_000


def upserts(ids: np.ndarray, value: int) -> pa.Table:
    notes = pa.array(ids).cast(pa.string())
    return pa.table({"id": ids, "v": np.full(len(ids), value), "w": ids * 7919 % 10_007, "note": notes})


def normalized(state: str, begin: int, batches: int) -> tuple[int, int, int]:
    """Loads keys, batch by batch, and changes a part of them all over; the most memory, and rows by kind."""
    dice = np.random.default_rng(1)
    arrived = replaced = 0
    with Normalizer.open(state, "id BIGINT, v BIGINT, w BIGINT, note STRING", ["id"]) as normalizer:
        for number in range(begin, begin + batches):
            start = number * BATCH
            new = np.arange(start, min(start + BATCH, KEYS))
            ids = new if len(new) else dice.choice(KEYS, BATCH, replace=False)
            changes = normalizer.apply(upserts(ids, number), {"0": number})
            kinds = pa.chunked_array([batch.column("_kind") for batch in changes], pa.string()).value_counts()
            counted = {pair["values"]: pair["counts"] for pair in kinds.to_pylist()}
            arrived += counted.get("+I", 0)
            replaced += counted.get("-U", 0)
            assert counted.get("-U") == counted.get("+U")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, arrived, replaced


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_keys_take_the_memory_of_few(tmp_path: Path) -> None:
    most: list[int] = []
    for begin, batches, wanted in ((0, 5, (100_000, 0)), (5, 45, (900_000, 0)), (50, 10, (0, 10 * BATCH))):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # a fresh process each, to measure alone
            memory, *found = pool.submit(normalized, str(tmp_path / "s"), begin, batches).result()
        assert tuple(found) == wanted
        most.append(memory)
    print("most memory", [f"{memory / MB:.0f} MB" for memory in most])
    assert most[-1] - most[0] < 350 * MB, most
