"""Found by histories of views: rows with a MAP that a compaction took from several files were broken."""

from __future__ import annotations

import random

import polars as pl
import pytest

from filestore.rows.frames import gatherable
from tablestore import Store
from tests.spark.batch.view_cases import CASES, changed, created
from tests.tables import assert_healthy


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [34, 71])
def test_a_history_with_compactions_of_a_map(store: Store, seed: int) -> None:
    """polars had taken rows from several chunks, and Arrow found buffers that were too short."""
    tables, dice = created(store, CASES["join_of_three"]), random.Random(seed)
    for table in tables:
        changed(table, dice, 30)
    for _ in range(12):
        for table in tables:
            changed(table, dice)
    for table in tables:
        assert_healthy(table.filestore)


def test_nested_columns_are_in_one_chunk() -> None:
    for kind in (pl.Map(pl.String, pl.Int32), pl.List(pl.String), pl.Struct({"a": pl.Map(pl.Int32, pl.Int32)})):
        part = pl.DataFrame({"v": [None]}, schema={"v": kind})
        assert gatherable(pl.concat([part, part], rechunk=False)).n_chunks() == 1
