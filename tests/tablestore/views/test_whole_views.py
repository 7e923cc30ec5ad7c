"""Views that are computed as a whole: with a key only rows are written that differ from the stored ones."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from filestore.errors import InvalidRequest
from filestore.model.snapshot import Operation
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tablestore.views.view import View
from tests.depth import Depth
from tests.tables import assert_healthy
from tests.tablestore.views.own_tasks import WAYS
from tests.warehouses import Row, rows

QUERY = "SELECT a.id, a.n, a.d, (SELECT count(*) FROM shop.b) AS b FROM shop.a WHERE NOT a.n <=> -1"
SPECIAL = (0.0, -0.0, math.nan, math.inf, None, 1.5, 5e-324)


@pytest.fixture
def tables(store: Store) -> tuple[Table, Table]:
    columns = "id BIGINT, n BIGINT, d DOUBLE"
    return tuple(store.create_table(f"shop.{name}", columns, primary_key=["id"]) for name in "ab")  # type: ignore[return-value]


MARKS = {"here": [], "in Spark": [pytest.mark.slow], "compared here": [pytest.mark.slow, pytest.mark.deep]}
"""Histories of the third way are in tests/spark/batch/test_view_cost.py each time."""


@pytest.fixture(params=[pytest.param(way, marks=MARKS[way]) for way in WAYS])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def view(request: pytest.FixtureRequest, store: Store, tables: tuple[Table, Table], way: str) -> View:
    """The view, computed in each way."""
    options = WAYS[way]
    if way == "here":
        return store.create_materialized_view("shop.v", QUERY, primary_key=["id"], options=options)
    spark: SparkSession = request.getfixturevalue("spark")
    return SparkStore(spark, store).create_materialized_view("shop.v", QUERY, primary_key=["id"], options=options)


def _expected(tables: tuple[Table, Table]) -> list[Row]:
    one, other = (rows(table) for table in tables)
    return [{**row, "b": len(other)} for row in one if row["n"] != -1]


def _bits(found: list[Row]) -> list[str]:
    """Rows as texts, in which -0.0 is not 0.0, and one NaN is as another."""
    return sorted(repr(tuple(row.values())) for row in found)


def test_only_rows_that_differ_are_written(view: View, tables: tuple[Table, Table]) -> None:
    one, other = tables
    one.write([{"id": n, "n": n, "d": value} for n, value in enumerate(SPECIAL)])
    assert view.refresh() is not None
    before = view.table.filestore.state().version
    one.write([{"id": 0, "n": 0, "d": -0.0}, {"id": 2, "n": 2, "d": math.nan}, {"id": 3, "n": 5, "d": math.inf}])
    one.write([{"id": 5, "n": -1, "d": 1.5}, {"id": 9, "n": None, "d": None}])
    one.write([{"id": 4, "_kind": "-D"}])
    done = view.refresh()
    assert done is not None
    assert done.whole
    assert view.table.snapshots(1)[0].operation is not Operation.OVERWRITE
    assert view.table.snapshots(1)[0].metrics["rows_written"] == 3
    feed = view.table.follow(mode="changelog", version=before, stop=lambda: True)
    found = sorted((row["_kind"], row["id"]) for batch in feed for row in batch.to_pylist())
    assert found == [("+I", 9), ("+U", 0), ("+U", 3), ("-D", 4), ("-D", 5), ("-U", 0), ("-U", 3)]
    assert _bits(rows(view.table)) == _bits(_expected(tables))
    assert view.compare() == []
    other.write([{"id": 1, "n": 1, "d": 1.0}])
    assert view.refresh() is not None, "now all rows differ"
    assert _bits(rows(view.table)) == _bits(_expected(tables))


SAYS = {"here": "incrementally, without Spark", "in Spark": "incrementally, by Spark"}
"""What a commit says of a refresh of changes; of the third way it says what it says of the first refresh."""


@pytest.mark.parametrize(
    "way",
    [
        "here",
        pytest.param("in Spark", marks=[pytest.mark.slow, pytest.mark.deep]),
        pytest.param("compared here", marks=pytest.mark.slow),
    ],
)
def test_a_commit_says_how_it_was_refreshed(
    request: pytest.FixtureRequest, store: Store, tables: tuple[Table, Table], way: str
) -> None:
    one, _ = tables
    lake = store if way == "here" else SparkStore(request.getfixturevalue("spark"), store)
    view = lake.create_materialized_view("shop.w", "SELECT id, n + 1 AS n FROM shop.a", options=WAYS[way])
    by = "without Spark" if way == "here" else "by Spark"
    for expected in (f"as a whole, {by}", SAYS.get(way, f"as a whole, {by}")):
        one.write([{"id": 1, "n": len(expected), "d": 0.0}])
        done = view.refresh()
        assert done is not None
        assert view.table.snapshots(1)[0].parameters == {"refresh": expected}
        assert done.whole == expected.startswith("as a whole")


@pytest.mark.few(1)
def test_nothing_is_written_where_nothing_differs(view: View, tables: tuple[Table, Table]) -> None:
    one, other = tables
    one.write([{"id": n, "n": n, "d": value} for n, value in enumerate(SPECIAL)])
    other.write([{"id": 1, "n": 1, "d": 1.0}])
    view.refresh()
    files = {file.path for file in view.table.filestore.state().files}
    other.write([{"id": 1, "n": 2, "d": 2.0}])
    done = view.refresh()
    assert done is not None
    assert {file.path for file in view.table.filestore.state().files} == files
    assert view.refresh() is None


@pytest.mark.few(1)
def test_all_rows_may_go_and_come_back(view: View, tables: tuple[Table, Table]) -> None:
    one, _ = tables
    view.refresh()
    assert rows(view.table) == []
    for _ in range(2):
        one.write([{"id": n, "n": n, "d": value} for n, value in enumerate(SPECIAL)])
        view.refresh()
        assert _bits(rows(view.table)) == _bits(_expected(tables))
        one.write([{"id": n, "_kind": "-D"} for n in range(len(SPECIAL))])
        view.refresh()
        assert rows(view.table) == []
    assert view.rebuild().whole
    assert view.compare() == []


def test_random_histories(
    view: View, tables: tuple[Table, Table], depth: Depth, request: pytest.FixtureRequest
) -> None:
    dice = random.Random(request.node.name)
    for _ in range(depth.times(3, deep=40)):
        for table in tables:
            some = dice.sample(range(12), dice.randrange(5))
            table.write([_row(dice, key) for key in some]) if some else table.compact(full=True)
        view.refresh()
        assert _bits(rows(view.table)) == _bits(_expected(tables))
        assert view.compare() == []
    assert_healthy(view.table.filestore)


def _row(dice: random.Random, key: int) -> dict[str, Any]:
    if dice.randrange(3) == 0:
        return {"id": key, "_kind": "-D"}
    return {"id": key, "_kind": "+I", "n": dice.choice([-1, 0, None, key]), "d": dice.choice(SPECIAL)}


@pytest.mark.parametrize("rest", ["", " WHERE id < 0"], ids=["as a whole", "by keys"])
def test_nulls_in_a_key_that_was_given_are_refused(store: Store, tables: tuple[Table, Table], rest: str) -> None:
    """Two of them raised what is no error of ours, which ended ``refresh --all --follow``."""
    query = f"SELECT n, d FROM shop.a UNION ALL SELECT n, d FROM shop.b{rest}"
    view = store.create_materialized_view("shop.v", query, primary_key=["n"])
    tables[0].write([{"id": number, "n": number, "d": None} for number in range(2)])
    view.refresh()
    tables[0].write([{"id": number, "n": None, "d": 1.5} for number in range(2, 4)])
    with pytest.raises(InvalidRequest) as caught:
        view.refresh()
    assert caught.value.code == "null-key"
    assert len(rows(view.table)) == 2


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, n FROM shop.a UNION ALL SELECT id, n FROM shop.b",
        "SELECT a.n AS id, (SELECT count(*) FROM shop.a) AS c FROM shop.a RIGHT JOIN shop.b ON a.id = b.n",
    ],
    ids=["by keys", "as a whole"],
)
def test_equal_rows_of_one_key_are_refused(
    store: Store, tables: tuple[Table, Table], spark: SparkSession, way: str, query: str
) -> None:
    """Spark compared each with the stored row, which they equalled: the view had one of them, and the doctor agreed."""
    one, other = tables
    one.write([{"id": 1, "n": 1, "d": None}])
    if "RIGHT" in query:
        other.write([{"id": 5, "n": 1, "d": None}])
    lake = SparkStore(spark, store)
    view = lake.create_materialized_view("shop.v", query, primary_key=["id"], options=WAYS[way])
    view.refresh()
    before = rows(view.table)
    other.write([{"id": 1, "n": 1, "d": None}])
    with pytest.raises(InvalidRequest, match="two rows have the key") as caught:
        view.refresh()
    assert caught.value.code == "repeated-key"
    assert rows(view.table) == before
