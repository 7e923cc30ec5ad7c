"""Found by random histories of views: rows whose partner appeared or was deleted were neither added nor removed."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tablestore import Store
from tablestore.spark import SparkStore
from tests.warehouses import rows

pytestmark = pytest.mark.slow

_JOINED = "FROM shop.orders o LEFT JOIN shop.customers c ON o.customer = c.id LEFT JOIN shop.tiers t ON c.tier = t.tier"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("query", "before", "moved", "left"),
    [
        (f"SELECT o.id {_JOINED} WHERE c.id IS NULL", [{"id": 3}], [{"id": 4}], [{"id": 3}, {"id": 4}]),
        (
            f"SELECT coalesce(o.kind, '-') AS kind, count(*) AS n {_JOINED} WHERE coalesce(t.bonus, 7) > 1 "
            "GROUP BY coalesce(o.kind, '-')",
            [{"kind": "-", "n": 1}],
            [{"kind": "a", "n": 1}],
            [{"kind": "-", "n": 1}, {"kind": "a", "n": 1}],
        ),
        (f"SELECT o.id {_JOINED} WHERE c.tier IS NULL OR c.tier > 5", [{"id": 3}], [{"id": 4}], [{"id": 3}, {"id": 4}]),
        (f"SELECT o.id {_JOINED} WHERE coalesce(c.tier, 7) > 5", [{"id": 3}], [{"id": 4}], [{"id": 3}, {"id": 4}]),
        (f"SELECT o.id {_JOINED} WHERE t.tier IS NULL", [{"id": 3}], [{"id": 4}], [{"id": 3}, {"id": 4}]),
    ],
)
def test_rows_are_found_though_where_asks_for_their_partner(
    spark: SparkSession,
    store: Store,
    query: str,
    before: list[dict[str, object]],
    moved: list[dict[str, object]],
    left: list[dict[str, object]],
) -> None:
    """One version had no partner to search for, and in the other one WHERE left the row out."""
    lake = SparkStore(spark, store)
    orders = store.create_table("shop.orders", "id BIGINT, kind STRING, customer BIGINT", primary_key=["id"])
    customers = store.create_table("shop.customers", "id BIGINT, tier INT", primary_key=["id"])
    tiers = store.create_table("shop.tiers", "tier INT, bonus INT", primary_key=["tier"])
    orders.write([{"id": 3, "kind": None, "customer": 30}, {"id": 4, "kind": "a", "customer": 40}])
    customers.write([{"id": 40, "tier": 4}])
    tiers.write([{"tier": number, "bonus": 0} for number in (3, 4)])
    view = lake.create_materialized_view("shop.v", query)
    view.refresh()
    assert rows(view.table) == before
    customers.write([{"id": 30, "tier": 3, "_kind": "+I"}, {"id": 40, "tier": None, "_kind": "-D"}])
    done = view.refresh()
    assert done is not None
    assert not done.whole
    assert rows(view.table) == moved
    customers.write([{"id": 30, "tier": None, "_kind": "-D"}])
    view.refresh()
    assert rows(view.table) == left
    assert lake.examine("shop.v").findings == ()


@pytest.mark.parametrize("join", ["ON customer = cid", pytest.param("USING (cid)", marks=pytest.mark.deep)])
def test_the_query_may_name_a_joined_key_without_its_table(spark: SparkSession, store: Store, join: str) -> None:
    """The changed keys had that name, too: a view was made, and each refresh after a change of customers failed."""
    lake = SparkStore(spark, store)
    customer = "cid" if join.startswith("USING") else "customer"
    orders = store.create_table("shop.orders", f"id BIGINT, {customer} BIGINT", primary_key=["id"])
    customers = store.create_table("shop.customers", "cid BIGINT, name STRING", primary_key=["cid"])
    orders.write([{"id": 1, customer: 10}, {"id": 2, customer: 20}])
    customers.write([{"cid": 10, "name": "Ann"}])
    query = f"SELECT id, name FROM shop.orders LEFT JOIN shop.customers {join} WHERE cid IS NULL OR cid > 0"
    view = lake.create_materialized_view("shop.v", query)
    view.refresh()
    customers.write([{"cid": 10, "name": "Bob"}, {"cid": 20, "name": "Eve"}])
    done = view.refresh()
    assert done is not None
    assert not done.whole
    assert rows(view.table) == [{"id": 1, "name": "Bob"}, {"id": 2, "name": "Eve"}]
