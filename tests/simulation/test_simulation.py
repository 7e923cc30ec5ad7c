"""The seeded simulation of commits, folds, compactions, expiry and all else, interleaved and failing, against a dict.

A failure prints its seed and the command that repeats it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from filestore.commit.conflict import Clear
from filestore.model.snapshot import Operation
from filestore.retention.paths import Paths
from tests.depth import sampled
from tests.simulation.run import SimulationFailed, simulate
from tests.simulation.shapes import SHAPES

ROOT = Path(__file__).parents[2]


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("shape", sampled(SHAPES, 4))
def test_any_life_of_a_table_is_what_the_dict_says(shape: str) -> None:
    assert simulate(shape, seed=1, steps=150).versions > 0


@pytest.mark.deep
@pytest.mark.slow
def test_a_seed_gives_the_same_run_in_another_process_whatever_its_hashes_are() -> None:
    """Or a failure could not be looked into."""
    program = "from tests.simulation.run import simulate; print(simulate('sequence', 3, 300).trace)"
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    other = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    assert other.stdout.split() == [simulate("sequence", 3, 300).trace]
    assert simulate("sequence", 4, 100).trace != simulate("sequence", 5, 100).trace


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "what", "instead"),
    [
        ("deduplicate", "filestore.commit.loop.judge", lambda *_: Clear()),
        ("aggregation", "filestore.commit.loop.judge", lambda *_: Clear()),
        pytest.param("deduplicate", "filestore.life.expiry.holds", lambda *_: [], marks=pytest.mark.slow),
        ("sequence", "filestore.merge.deduplicate.beats", lambda new, _: _all(new)),
        ("partitions", "filestore.life.orphans.paths_until", lambda *_: Paths()),
    ],
    ids=["no look-up after a lost race", "no merge after one", "no holds", "no sequences", "no references"],
)
def test_it_finds_what_is_wrong(shape: str, what: str, instead: Any) -> None:
    """The judge is judged: each of these faults of the store is found within a few seeds, and said how to repeat."""
    with patch(what, instead), pytest.raises(SimulationFailed, match=f"again: .*--shape {shape} --seed"):
        for seed in range(8):
            simulate(shape, seed, 1000)


def _all(new: Any) -> Any:
    return np.ones(len(new), dtype=np.bool_)


@pytest.mark.deep
def test_long_lives_have_everything_in_them() -> None:
    """Each kind of commit, fault and conflict, so that none of them is left out unseen."""
    counts, operations = Counter[str](), Counter[str]()
    for seed, shape in enumerate(SHAPES):
        outcome = simulate(shape, seed=100 + seed, steps=1200)
        counts, operations = counts + outcome.counts, operations + outcome.operations
    # Tables begin before the simulation does, and only a log makes a store publish records again.
    assert {str(operation) for operation in Operation} - set(operations) == {
        str(Operation.CREATE),
        str(Operation.REPUBLISH),
    }
    assert min(counts["kill"], counts["error"], counts["orphans"]) > 0
    conflicts = {"merged-rows-changed", "compaction-conflict", "run-gone", "file-gone", "metadata-changed"}
    assert any(name.rpartition(": ")[2] in conflicts for name in counts)
    assert counts["held read: done"] > 10
