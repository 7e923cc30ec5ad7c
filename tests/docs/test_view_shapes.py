"""Each form of query in docs/view-queries.md is what the page says of it: by its plan, and by its refreshes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from filestore.checks.report import Invariant
from filestore.errors import InvalidRequest, TableStoreError
from tablestore import Store
from tablestore.spark import SparkStore
from tablestore.views.view import View
from tests.depth import Depth
from tests.docs.view_shapes import PAGE, SHAPES, Shape, cells_of_page, create_tables, table_of
from tests.warehouses import warehouse

CELLS = cells_of_page()
HERE = [shape for shape in SHAPES if CELLS[shape.title].where == "no"]
MOMENTS = [None, datetime(2024, 2, 28, 23, 59, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC)]
BY_SPARK = [shape for shape in SHAPES if CELLS[shape.title].where == "yes"]


def _title(shape: Shape) -> str:
    return shape.title


@pytest.fixture
def store() -> Iterator[Store]:
    with warehouse() as made:
        create_tables(made)
        yield made


def _sentence(shape: Shape, where: str) -> str:
    return f"incrementally, {where}" if CELLS[shape.title].how == "incremental" else f"as a whole, {where}"


def _change(store: Store, dice: random.Random) -> None:
    """Inserts, replaces and deletes a few rows of all tables, so that partners and groups come and go."""
    orders, items = store.table("shop.orders"), store.table("shop.items")
    for _ in range(dice.randrange(1, 4)):
        key = dice.randrange(8)
        kind = {"_kind": dice.choice(["+I", "+I", "+I", "-D"])}
        row = {
            "kind": dice.choice("ab"),
            "item": dice.choice([None, 0, 1, 2, 3]),
            "amount": dice.randrange(5),
            "at": dice.choice(MOMENTS),
        }
        orders.write([{"id": key} | row | kind])
    kind = {"_kind": dice.choice(["+I", "+I", "-D"])}
    items.write([{"id": dice.randrange(4), "name": dice.choice("xyz"), "price": dice.randrange(4)} | kind])
    if dice.randrange(2):
        store.table("shop.visits").write([{"page": dice.choice("pq"), "item": dice.randrange(3)}])


def _lives(store: Store, view: View, shape: Shape, rounds: int) -> None:
    dice = random.Random(shape.title)
    for number in range(rounds):
        _change(store, dice)
        try:
            done = view.refresh()
        except InvalidRequest as error:  # the key that was given may not be one
            assert shape.primary_key, error
            assert error.code in ("repeated-key", "null-key"), error
            continue
        if number and done is not None:
            assert done.whole == (CELLS[shape.title].how == "whole")
        assert [one.code for one in view.compare()] in ([], [Invariant.VIEW_UNCHECKED] if shape in BY_SPARK else [])


def test_the_table_is_that_of_the_page(store: Store) -> None:
    """Repair it by ``python -m tests.docs.view_shapes``."""
    assert f"<!-- shapes -->\n{table_of(store)}<!-- end of shapes -->" in PAGE.read_text(encoding="utf-8")


def test_each_cell_has_a_form() -> None:
    assert {(found.how, found.where) for found in CELLS.values()} == {
        ("incremental", "no"),
        ("incremental", "yes"),
        ("whole", "no"),
        ("whole", "yes"),
        ("refused", "-"),
    }


@pytest.mark.few(12)
@pytest.mark.parametrize("shape", HERE, ids=_title)
def test_forms_that_need_no_spark(store: Store, shape: Shape, depth: Depth) -> None:
    view = store.create_materialized_view("shop.v", shape.query, primary_key=shape.primary_key)
    assert _sentence(shape, "without Spark") in view.explain()[0]
    _lives(store, view, shape, depth.times(4, deep=20))


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize("shape", BY_SPARK, ids=_title)
def test_forms_that_need_spark(store: Store, spark: SparkSession, shape: Shape, depth: Depth) -> None:
    with pytest.raises(TableStoreError) as caught:
        store.create_materialized_view("shop.v", shape.query, primary_key=shape.primary_key)
    assert caught.value.code == "needs-spark"
    lake = SparkStore(spark, store)
    own = {"view.whole-size": "0"}  # else all rows are computed, as long as they are few
    view = lake.create_materialized_view("shop.v", shape.query, primary_key=shape.primary_key, options=own)
    assert _sentence(shape, "by Spark") in view.explain()[0]
    _lives(store, view, shape, depth.times(2, deep=10))


@pytest.mark.parametrize("shape", [one for one in SHAPES if CELLS[one.title].how == "refused"], ids=_title)
def test_forms_that_are_refused(store: Store, shape: Shape) -> None:
    with pytest.raises(TableStoreError, match=r"rand\(\) has another value each time") as caught:
        store.create_materialized_view("shop.v", shape.query)
    assert caught.value.code == "view-query"


@pytest.mark.parametrize("shape", [one for one in HERE if CELLS[one.title].how == "whole"], ids=_title)
def test_a_view_that_has_to_be_incremental_is_refused(store: Store, shape: Shape) -> None:
    with pytest.raises(TableStoreError) as caught:
        store.create_materialized_view(
            "shop.v", shape.query, primary_key=shape.primary_key, options={"view.incremental": "required"}
        )
    assert caught.value.code == "view-not-incremental"
    assert "v" not in store.list_tables("shop")
