"""Fault test 15: the driver dies in the middle of a batch; the query that is restarted loses and doubles nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tablestore import Store
from tests.depth import Depth
from tests.integration.crashing import after, batch
from tests.spark.streaming import dying_query
from tests.spark.streaming.dying_query import DIED
from tests.tables import assert_healthy
from tests.warehouses import assert_whole, open_in_log, rows

BATCHES_A_ROUND = 2


def run(store: Store, folder: Path, call: int) -> int:
    """Runs the query in a process; returns its exit code."""
    command = [sys.executable, "-m", "tests.spark.streaming.dying_query", store.target, str(folder / "inbox")]
    done = subprocess.run(
        [*command, str(folder / "checkpoint"), str(call)],
        timeout=900,
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode in (0, DIED), done.stderr[-3000:]
    return done.returncode


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_deaths_of_a_streaming_driver(spark: SparkSession, store: Store, folder: Path, depth: Depth) -> None:
    rounds = depth.times(1, deep=5)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    table = store.create_table("shop.orders", "id BIGINT, batch BIGINT", primary_key=["id"], options={"bucket": "2"})
    (folder / "inbox").mkdir()
    written = died = 0
    for number in range(rounds):
        for _ in range(BATCHES_A_ROUND):
            (folder / "draft").write_text("".join(json.dumps(row) + "\n" for row in batch(seed, written)))
            os.utime(folder / "draft", (1_700_000_000 + written,) * 2)  # Spark takes the oldest first
            (folder / "draft").rename(folder / "inbox" / f"{written:05d}.json")
            written += 1
        call = dice.randint(1, 20 if number == 0 else 45)  # the first one dies for certain
        died += run(store, folder, call) == DIED
        version = table.filestore.state().version
        where = f"seed {seed}, round {number}, call {call}"
        assert version <= written, where
        found = {row["id"]: row["batch"] for row in rows(table)}
        assert found == {row["id"]: row["batch"] for row in after(seed, range(version))}, where
        assert_healthy(table.filestore)
    assert died >= max(1, rounds // 2)
    dying_query.run(spark, store.target, str(folder / "inbox"), str(folder / "checkpoint"))
    assert table.filestore.state().version == written, "one commit a batch, also of those that were repeated"
    assert {r["id"]: r["batch"] for r in assert_whole(table)} == {
        r["id"]: r["batch"] for r in after(seed, range(written))
    }
    assert open_in_log(table) == []
