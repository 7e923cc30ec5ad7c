"""Views of every shape for which there are rules, over tables of this store: a refresh equals the query in Spark."""

from __future__ import annotations

import random

import pytest

from filestore.errors import InvalidRequest
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.depth import Depth
from tests.spark.batch.view_cases import Case, by_spark, values
from tests.tables import assert_healthy
from tests.tablestore.views.own_tasks import WAYS
from tests.tablestore.views.script_shapes import shape
from tests.tablestore.views.script_tables import change, created_tables

pytestmark = pytest.mark.slow


@pytest.fixture
def tables(store: Store) -> dict[str, Table]:
    return created_tables(store)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(32))
def test_a_view_of_every_shape_equals_its_query(
    lake: SparkStore, tables: dict[str, Table], seed: int, depth: Depth
) -> None:
    dice = random.Random(f"rules {seed}")
    change(tables, dice, 8)
    views = {}
    while len(views) < depth.times(2, deep=6):
        one, name = shape(dice), f"s.v{len(views)}"
        options = WAYS[dice.choice(list(WAYS))]
        try:
            view = lake.create_materialized_view(name, one.query, primary_key=one.primary_key, options=options)
        except InvalidRequest as error:
            assert error.code == "view-key", one.query  # another key follows from the query
            view = lake.create_materialized_view(name, one.query, options=options)
        if "incrementally" not in view.explain()[0]:
            lake.store.drop_table(name)
            continue
        views[name] = (Case(one.query), view)
    for _ in range(depth.times(3, deep=8)):
        for name, (case, view) in list(views.items()):
            try:
                view.refresh()
            except InvalidRequest as error:
                assert error.code in ("null-key", "repeated-key"), case.query  # of those that the user gave
                del views[name]
                continue
            versions = {table.identifier: table.filestore.state().version for table in tables.values()}
            found, expected = values(lake.read(name).collect()), by_spark(lake, case, versions)
            assert repr(found) == repr(expected), case.query
        change(tables, dice, 3)
    for _, view in views.values():
        assert_healthy(view.table.filestore)
