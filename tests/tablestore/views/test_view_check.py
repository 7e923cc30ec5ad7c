"""``view.check = sample``: a refresh computes a few rows anew, and all of them if one is wrong."""

from __future__ import annotations

import itertools
import logging
import re
from dataclasses import replace
from decimal import Decimal

import pytest

from filestore.ambient import system_ambient
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tablestore.views.engines.query_work import DRAWN_ROWS
from tests.tables import assert_healthy
from tests.tablestore.views.own_tasks import WAYS, forged
from tests.warehouses import Row, rows

QUERIES = {
    "groups": "SELECT kind, count(*) AS n, sum(amount) AS total FROM shop.orders WHERE kind IS NOT NULL GROUP BY kind",
    "rows": "SELECT o.id, o.amount + 1 AS more, p.name FROM shop.orders AS o LEFT JOIN shop.products AS p "
    "ON o.product = p.id",
    "partitions": "SELECT id, kind, count(*) OVER (PARTITION BY kind) AS n FROM shop.orders",
    "join": "SELECT o.id, o.amount, p.name FROM shop.orders AS o LEFT JOIN shop.products AS p ON o.product = p.id",
    "union": "SELECT id, 1 AS branch FROM shop.orders UNION ALL SELECT id, 2 AS branch FROM shop.products",
}
WRONG: dict[str, Row] = {
    "groups": {"kind": "a", "n": 99, "total": Decimal(1)},
    "rows": {"id": 3, "more": None, "name": "?"},
    "partitions": {"id": 3, "kind": "b", "n": 99},
    "join": {"id": 3, "amount": None, "name": "?"},
    "union": {"id": 3, "branch": 1, "_kind": "-D"},
}
KEYS = {"union": ["id", "branch"]}
IN_EACH_WAY = [
    pytest.param(way, kind, marks=[] if way == "here" else [pytest.mark.slow] + [pytest.mark.deep] * (kind != "rows"))
    for way in WAYS
    for kind in QUERIES
    if way != "compared here" or kind != "join"
]
"""A join by a primary key is not computed by Spark, and so not compared here."""


@pytest.fixture
def drawing(store: Store) -> Store:
    """A store that draws rows in turn, so that each of twenty is drawn."""
    turn = itertools.cycle([number / DRAWN_ROWS for number in range(DRAWN_ROWS)])
    return Store(store._address, replace(system_ambient(), chance=turn.__next__))


@pytest.fixture
def orders(drawing: Store) -> Table:
    table = drawing.create_table(
        "shop.orders", "id BIGINT, kind STRING, amount BIGINT, product BIGINT", primary_key=["id"]
    )
    table.write([{"id": n, "kind": "ab"[n % 2], "amount": n, "product": n % 3} for n in range(DRAWN_ROWS)])
    products = drawing.create_table("shop.products", "id BIGINT, name STRING", primary_key=["id"])
    products.write([{"id": n, "name": f"product {n}"} for n in range(2)])
    return table


@pytest.mark.parametrize(("way", "kind"), IN_EACH_WAY)
def test_a_wrong_row_is_found_by_the_next_refresh(
    request: pytest.FixtureRequest,
    drawing: Store,
    orders: Table,
    caplog: pytest.LogCaptureFixture,
    way: str,
    kind: str,
) -> None:
    lake = drawing if way == "here" else SparkStore(request.getfixturevalue("spark"), drawing)
    options = {**WAYS[way], "view.check": "sample"}
    view = lake.create_materialized_view("shop.v", QUERIES[kind], primary_key=KEYS.get(kind, ()), options=options)
    view.refresh()
    orders.write([{"id": 0, "kind": "a", "amount": 5, "product": 1}])
    done = view.refresh()
    assert done is not None
    assert done.wrong == 0
    forged(view, WRONG[kind])
    assert view.compare() != []
    orders.write([{"id": 1, "kind": "a", "amount": 7, "product": 1}])
    with caplog.at_level(logging.WARNING):
        done = view.refresh()
    assert done is not None
    assert (done.whole, done.wrong > 0) == (True, True)
    assert "of shop.v that were checked at version 3 are wrong: all rows are computed" in caplog.text
    text = view.table.snapshots(1)[0].parameters["refresh"]
    assert re.fullmatch(r"as a whole, (by|without) Spark, since \d+ of the rows that were checked were wrong", text)
    assert view.compare() == []
    assert_healthy(view.table.filestore)


@pytest.mark.parametrize("kind", ["groups", "union"])
def test_without_the_option_it_is_not(drawing: Store, orders: Table, kind: str) -> None:
    view = drawing.create_materialized_view("shop.v", QUERIES[kind], primary_key=KEYS.get(kind, ()))
    view.refresh()
    forged(view, WRONG[kind])
    orders.write([{"id": 40, "kind": "z", "amount": 7, "product": 1}])
    done = view.refresh()
    assert done is not None
    assert (done.whole, done.wrong) == (False, 0)
    assert view.compare() != []
    view.table.alter("SET view.check = 'sample'")
    view = drawing.maintained_view("shop.v")
    orders.write([{"id": 41, "kind": "z", "amount": 7, "product": 1}])
    done = view.refresh()
    assert done is not None
    assert done.wrong > 0
    assert view.compare() == []


@pytest.mark.parametrize("table", ["shop.orders", "shop.products"])
def test_tables_that_have_become_empty(drawing: Store, orders: Table, table: str) -> None:
    """No row can be drawn of one of them, or of all; then also the view has none."""
    view = drawing.create_materialized_view("shop.v", QUERIES["rows"], options={"view.check": "sample"})
    view.refresh()
    for name in (table, "shop.orders"):
        drawing.table(name).write([], overwrite=True)
        view.refresh()
        orders.write([{"id": 50, "kind": "z", "amount": 7, "product": 1}])
        done = view.refresh()
        assert done is not None
        assert (done.whole, done.wrong) == (False, 0)
        assert view.compare() == []
    assert len(rows(view.table)) == 1


def test_a_check_that_has_no_room_is_left_out(drawing: Store, orders: Table) -> None:
    """It reads all orders, to find those of a product that is drawn. The refresh reads those that have changed."""
    view = drawing.create_materialized_view("shop.v", QUERIES["rows"], options={"view.check": "sample"})
    orders.write([{"id": n, "kind": "x", "amount": n, "product": 0} for n in range(3000)])
    view.refresh()
    view.table.alter("SET view.local-memory = '20 kb'")
    view = drawing.maintained_view("shop.v")
    forged(view, WRONG["rows"])
    orders.write([{"id": 5, "kind": "x", "amount": 0, "product": 0}])
    done = view.refresh()
    assert done is not None
    assert (done.whole, done.wrong) == (False, 0)


def test_regression_rows_that_were_replaced_are_not_computed(drawing: Store) -> None:
    """A pending run replaces the row for which the query fails. It was drawn, and the refresh failed."""
    table = drawing.create_table(
        "shop.later", "id BIGINT, x BIGINT", primary_key=["id"], options={"write-mode": "merge-on-read"}
    )
    table.write([{"id": 1, "x": 9223372036854775807}])
    table.compact(full=True)
    table.write([{"id": 1, "x": 5}])
    view = drawing.create_materialized_view(
        "shop.v", "SELECT id, x + 1 AS more FROM shop.later", options={"view.check": "sample"}
    )
    view.refresh()
    table.write([{"id": 2, "x": 7}])
    done = view.refresh()
    assert done is not None
    assert (done.whole, done.wrong) == (False, 0)
    assert sorted(row["more"] for row in rows(view.table)) == [6, 8]


def test_regression_sums_that_cancel_are_not_compared(drawing: Store) -> None:
    """Their digits depend on the order of the rows, and each check found a wrong one."""
    table = drawing.create_table("shop.f", "id BIGINT, g BIGINT NOT NULL, f DOUBLE", primary_key=["id"])
    values = itertools.cycle([1e16, 0.1, -1e16, 1.0, 0.1])
    table.write([{"id": n, "g": n % 2, "f": next(values)} for n in range(DRAWN_ROWS)])
    view = drawing.create_materialized_view(
        "shop.v", "SELECT g, sum(f) AS f, count(*) AS n FROM shop.f GROUP BY g", options={"view.check": "sample"}
    )
    view.refresh()
    forged(view, {"g": 1, "f": 77.0, "n": 10})
    for number in range(3):
        table.write([{"id": number * 2, "g": 0, "f": next(values)}])
        done = view.refresh()
        assert done is not None
        assert done.wrong == 0, "only the other columns are compared"
    forged(view, {"g": 1, "f": 77.0, "n": 11})
    table.write([{"id": 0, "g": 0, "f": 0.0}])
    done = view.refresh()
    assert done is not None
    assert done.wrong == 1
