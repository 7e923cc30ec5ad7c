"""Found by a review of the rules of views: changes had other types than all rows, and rows other texts than changes."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from tablestore import Store
from tablestore.spark import SparkStore
from tests.tablestore.views.own_tasks import IN_SPARK
from tests.warehouses import rows

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(spark: SparkSession, store: Store) -> SparkStore:
    store.create_table("shop.a", "id BIGINT, x BIGINT", primary_key=["id"]).write([{"id": 1, "x": 2}])
    store.create_table("shop.d", "k BIGINT, n DECIMAL(10, 2)", primary_key=["k"]).write([{"k": 1, "n": Decimal("2")}])
    return SparkStore(spark, store)


def test_changes_of_one_branch_have_the_types_of_all(lake: SparkStore) -> None:
    """Only changed branches were read, so that 2 was no 2.00, and its group was not found."""
    view = lake.create_materialized_view(
        "shop.v",
        "SELECT cast(q.v AS STRING) AS g, count(*) AS c FROM (SELECT x AS v FROM shop.a UNION ALL SELECT n AS v "
        "FROM shop.d) AS q WHERE q.v IS NOT NULL GROUP BY cast(q.v AS STRING)",
        primary_key=["g"],
        options=IN_SPARK,
    )
    view.refresh()
    assert rows(view.table) == [{"g": "2.00", "c": 2}]
    lake.store.table("shop.a").write([{"id": 2, "x": 2}])
    done = view.refresh()
    assert done is not None
    assert not done.whole
    assert rows(view.table) == [{"g": "2.00", "c": 3}]


def test_a_column_that_became_wider_is_computed_again(lake: SparkStore) -> None:
    """Rows that had not changed kept the text of the narrower type."""
    view = lake.create_materialized_view("shop.v", "SELECT k, cast(n AS STRING) AS n FROM shop.d")
    view.refresh()
    lake.store.table("shop.d").alter("ALTER COLUMN n TYPE DECIMAL(12, 4)")
    lake.store.table("shop.d").write([{"k": 2, "n": Decimal("2.5")}])
    done = view.refresh()
    assert done is not None
    assert done.whole
    assert rows(view.table) == [{"k": 1, "n": "2.0000"}, {"k": 2, "n": "2.5000"}]
