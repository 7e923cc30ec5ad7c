"""Views that Spark refreshes: after any history, each equals its query run by Spark over the versions that it names."""

from __future__ import annotations

import random

import pytest

from tablestore import Store
from tablestore.spark import SparkStore
from tablestore.spark.batch import view_rows
from tests.depth import Depth
from tests.spark.batch.view_cases import (
    CASES,
    assert_no_empty_update,
    by_spark,
    changed,
    created,
    keyed_rows,
    values,
)
from tests.tables import assert_healthy

pytestmark = pytest.mark.slow


@pytest.mark.few(1)
@pytest.mark.parametrize("form", CASES)
def test_a_view_equals_its_query(
    lake: SparkStore, store: Store, form: str, depth: Depth, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(depth.times(1, deep=3)):
        if (seed + list(CASES).index(form)) % 3 == 1:  # as if there were many keys
            monkeypatch.setattr(view_rows, "_IN_PLAN", -1)
        lived(lake, store, form, seed, rounds=depth.times(2, deep=8))
        monkeypatch.undo()
        store.drop_table("shop.v")
        for name in CASES[form].tables:
            store.drop_table(name)


def lived(lake: SparkStore, store: Store, form: str, seed: int, rounds: int) -> None:
    """Runs a history of a view and its tables."""
    case, dice = CASES[form], random.Random(f"{form} {seed}")
    tables = created(store, case)
    for table in tables:
        changed(table, dice, 30)
    view = lake.create_materialized_view(
        "shop.v", case.query, primary_key=case.primary_key, options={"changelog-producer": "lookup"}
    )
    assert ("incrementally" in view.explain()[0]) is not case.whole, view.explain()
    for number in range(rounds):
        before = {} if number == 0 else keyed_rows(view)
        done = view.refresh()
        assert done is not None
        assert done.whole is (case.whole or number == 0)
        versions = {name: lag.version for name, lag in view.lag().items()}
        found, expected = values(lake.read("shop.v").collect()), by_spark(lake, case, versions)
        assert repr(found) == repr(expected), versions  # in which NaN equals NaN
        if number:
            assert_no_empty_update(view, before, done.version)
        assert view.refresh() is None
        for table in dice.sample(tables, dice.randrange(1, len(tables) + 1)):
            changed(table, dice)
    assert lake.examine("shop.v").findings == ()
    assert_healthy(view.table.filestore)
