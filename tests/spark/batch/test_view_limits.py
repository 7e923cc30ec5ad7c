"""Views that Spark refreshes where something is not as it was: keys, columns, versions, and other processes."""

from __future__ import annotations

import pytest

from filestore.errors import InvalidRequest, TableStoreError
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.opened import again
from tests.tables import assert_healthy
from tests.warehouses import rows

pytestmark = pytest.mark.slow

SUMS = "SELECT kind, sum(amount) AS total FROM shop.orders WHERE kind IS NOT NULL GROUP BY kind"


@pytest.fixture
def orders(store: Store) -> Table:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 ms"}
    store.create_table("shop.orders", "id BIGINT, kind STRING, amount INT", primary_key=["id"], options=options)
    table = store.managed_table("shop.orders")
    table.write([{"id": 1, "kind": "a", "amount": 1}, {"id": 2, "kind": "b", "amount": 2}])
    return table


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT kind, amount FROM shop.orders UNION ALL SELECT kind, amount FROM shop.orders",
        "SELECT nullif(kind, 'a') AS kind, amount FROM shop.orders UNION ALL SELECT 'c', 1",
    ],
    ids=["repeated", "null"],
)
def test_a_key_that_the_result_does_not_have_changes_nothing(lake: SparkStore, orders: Table, query: str) -> None:
    view = lake.create_view("shop.v", query, primary_key=["kind"])
    with pytest.raises(TableStoreError) as caught:
        view.refresh()
    assert isinstance(caught.value, InvalidRequest)
    assert view.table.filestore.state().version == 0
    assert rows(view.table) == []
    assert_healthy(view.table.filestore)


def test_columns_are_added_and_versions_expire(lake: SparkStore, orders: Table) -> None:
    view = lake.create_view("shop.v", SUMS)
    view.refresh()
    orders.alter("ADD COLUMN note STRING")
    orders.write([{"id": 3, "kind": "a", "amount": 4, "note": "x"}])
    done = view.refresh()
    assert done is not None
    assert not done.whole
    assert rows(view.table) == [{"kind": "a", "total": 5}, {"kind": "b", "total": 2}]
    view.drop_holds()
    for number in range(3):
        orders.write([{"id": 2, "kind": "b", "amount": number, "note": None}])
    assert orders.expire().versions
    done = view.refresh()
    assert done is not None
    assert done.whole
    assert rows(view.table) == [{"kind": "a", "total": 5}, {"kind": "b", "total": 2}]
    assert_healthy(view.table.filestore)


@pytest.mark.deep
def test_what_another_process_has_refreshed_is_not_repeated(lake: SparkStore, orders: Table) -> None:
    view = lake.create_view("shop.v", SUMS)
    other = lake.maintained_view("shop.v")
    assert view.refresh() is not None
    assert other.refresh() is None
    orders.write([{"id": 2, "_kind": "-D"}])
    assert other.refresh() is not None
    assert view.refresh() is None
    assert rows(again(view.table)) == [{"kind": "a", "total": 1}]


def test_a_task_that_fails_changes_nothing(lake: SparkStore, orders: Table) -> None:
    view = lake.create_view("shop.v", "SELECT kind, sum(10 / amount) AS total FROM shop.orders GROUP BY kind")
    assert "whole" in view.explain()[0]
    orders.write([{"id": 3, "kind": "a", "amount": 0}])
    with pytest.raises(InvalidRequest, match=r"Spark cannot compute the rows: .*Division by zero") as caught:
        view.refresh()
    assert caught.value.code == "view-query"
    assert view.table.filestore.state().version == 0
    orders.write([{"id": 3, "kind": "a", "amount": 10}])
    assert view.refresh() is not None
    assert rows(view.table) == [{"kind": "a", "total": 11.0}, {"kind": "b", "total": 5.0}]
