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
from tests.tablestore.views.script_shapes import COLUMNS, TABLES, row_of, shape

pytestmark = pytest.mark.slow

_KEYLESS = "s.e"


@pytest.fixture
def tables(store: Store) -> dict[str, Table]:
    store.create_database("s")
    found = {}
    for name, definition in TABLES.items():
        options = {"bucket": "2"} if definition.primary_key else {}
        schema = definition.schema.to_arrow()
        found[name] = store.create_table(name, schema, primary_key=definition.primary_key, options=options)
    return found


def _changed(tables: dict[str, Table], dice: random.Random, most: int) -> None:
    """Writes and deletes a few rows of some tables, and compacts one."""
    for name in dice.sample(list(TABLES), dice.choice([1, 1, 2, 4])):
        key = len(TABLES[name].primary_key)
        given = {
            row[:key] if key else number: row for number, row in enumerate(row_of(name, dice) for _ in range(most))
        }
        rows = [dict(zip(COLUMNS[name], row, strict=True)) for row in given.values()]
        if name == _KEYLESS:
            tables[name].write(rows, overwrite=dice.randrange(4) == 0)
            continue
        tables[name].write([row | {"_kind": dice.choice(["+I", "+I", "-D"])} for row in rows])
    if dice.randrange(3) == 0:
        tables[dice.choice(list(TABLES))].compact(full=True)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(32))
def test_a_view_of_every_shape_equals_its_query(
    lake: SparkStore, tables: dict[str, Table], seed: int, depth: Depth
) -> None:
    dice = random.Random(f"rules {seed}")
    _changed(tables, dice, 8)
    views = {}
    while len(views) < depth.times(2, deep=6):
        one, name = shape(dice), f"s.v{len(views)}"
        try:
            view = lake.create_view(name, one.query, primary_key=one.primary_key)
        except InvalidRequest as error:
            assert error.code == "view-key", one.query  # another key follows from the query
            view = lake.create_view(name, one.query)
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
        _changed(tables, dice, 3)
    for _, view in views.values():
        assert_healthy(view.table.filestore)
