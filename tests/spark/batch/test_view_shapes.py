"""Views of random queries: a refresh finds all rows that a change affects, in whichever version their partners are."""

from __future__ import annotations

import random

import pytest

from tablestore import Store
from tablestore.spark import SparkStore
from tests.depth import Depth
from tests.spark.batch.view_cases import COLUMNS, Case, by_spark, changed, created, values
from tests.spark.batch.view_shapes import moved, shape
from tests.tables import assert_healthy

pytestmark = pytest.mark.slow


_FOUND = (22, 12)
"""Rows that nobody searched for were found by these in one step."""
_SEEDS = [_FOUND[0], *(seed for seed in range(24) if seed not in _FOUND), _FOUND[1]]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", _SEEDS)
def test_a_view_of_a_random_query_equals_it(lake: SparkStore, store: Store, seed: int, depth: Depth) -> None:
    dice = random.Random(f"shapes {seed}")
    tables = created(store, Case(" ".join(COLUMNS)))
    for table in tables:
        changed(table, dice, 40)
    cases = {f"shop.v{number}": shape(dice) for number in range(depth.times(1, deep=4))}
    views = {}
    for name, case in cases.items():
        views[name] = lake.create_materialized_view(name, case.query, primary_key=case.primary_key)
        assert "incrementally" in views[name].explain()[0], (case.query, views[name].explain())
        views[name].refresh()
    for _ in range(depth.times(1, deep=5)):
        for table in dice.choice([tables[:2], tables[1:2], tables[1:], tables]):
            moved(table, dice, 4)
        for name, view in views.items():
            done = view.refresh()
            assert done is None or not done.whole
            versions = {table.identifier: table.filestore.state().version for table in tables}
            found, expected = values(lake.read(name).collect()), by_spark(lake, cases[name], versions)
            assert repr(found) == repr(expected), cases[name].query  # in which NaN equals NaN
    for view in views.values():
        assert_healthy(view.table.filestore)
