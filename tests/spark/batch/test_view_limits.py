"""Views that Spark refreshes where something is not as it was: keys, columns, versions, and other processes."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from filestore.errors import InvalidRequest, NotFound, TableStoreError
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
    table = store.table("shop.orders")
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
    view = lake.create_materialized_view("shop.v", query, primary_key=["kind"])
    with pytest.raises(TableStoreError) as caught:
        view.refresh()
    assert isinstance(caught.value, InvalidRequest)
    assert view.table.filestore.state().version == 0
    assert rows(view.table) == []
    assert_healthy(view.table.filestore)


def test_names_of_tables_are_the_same_in_upper_and_lower_case(lake: SparkStore, orders: Table) -> None:
    view = lake.create_materialized_view(
        "shop.V", "SELECT Kind, sum(Orders.Amount) AS total FROM Shop.Orders WHERE kind > '' GROUP BY kind"
    )
    assert "incrementally" in view.explain()[0]
    view.refresh()
    orders.write([{"id": 3, "kind": "a", "amount": 4}])
    [(refreshed, done)] = lake.refresh("SHOP.v")
    assert (refreshed.table.identifier, done.whole) == ("shop.v", False)
    assert {row["total"] for row in rows(view.table)} == {5, 2}


@pytest.mark.few(1)
@pytest.mark.parametrize("step", ["renamed", "dropped"])
def test_another_table_that_gets_the_name_during_a_refresh_is_not_read(
    lake: SparkStore, store: Store, orders: Table, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Tables were found by their names, so the rows of the other one became those of a version of the former one."""
    view = lake.create_materialized_view("shop.v", SUMS)
    view.refresh()
    orders.write([{"id": 3, "kind": "a", "amount": 4}])
    held = view._held

    def then_replaced(*args: Any) -> Any:
        found = held(*args)
        if step == "renamed":
            store.rename_table("shop.orders", "shop.former")
        else:
            store.drop_table("shop.orders")
        other = store.create_table("shop.orders", "id BIGINT, kind STRING, amount INT", primary_key=["id"])
        for number in range(3):
            other.write([{"id": 9 + number, "kind": "other", "amount": 100}])
        return found

    monkeypatch.setattr(view, "_held", then_replaced)
    if step == "renamed":
        view.refresh()
        assert rows(view.table) == [{"kind": "a", "total": 5}, {"kind": "b", "total": 2}]
        return
    with pytest.raises(NotFound, match=r"shop\.orders was dropped, .* since the view shop\.v was opened") as caught:
        view.refresh()
    assert caught.value.code == "table-replaced"
    assert rows(view.table) == [{"kind": "a", "total": 1}, {"kind": "b", "total": 2}]


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["rewrite", "metadata"])
def test_a_column_that_is_replaced_during_a_refresh_has_its_former_values(
    lake: SparkStore, orders: Table, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Changes had the newest columns, so the view had nulls of the later one for a version that has the former one."""
    orders.alter(f"SET ('schema.evolution-mode' = '{mode}')")
    view = lake.create_materialized_view("shop.v", "SELECT id, amount + 1 AS more FROM shop.orders")
    view.refresh()
    orders.write([{"id": 3, "kind": "a", "amount": 4}])
    held = view._held

    def then_replaced(*args: Any) -> Any:
        found = held(*args)
        orders.alter("DROP COLUMN amount", "ADD COLUMN amount INT")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(view, "_held", then_replaced)
        view.refresh()
    assert {row["id"]: row["more"] for row in rows(view.table)} == {1: 2, 2: 3, 3: 5}
    done = view.refresh()
    assert done is not None
    assert done.whole
    assert {row["more"] for row in rows(view.table)} == {None}


def test_columns_are_added_and_versions_expire(lake: SparkStore, orders: Table) -> None:
    view = lake.create_materialized_view("shop.v", SUMS)
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
    view = lake.create_materialized_view("shop.v", SUMS)
    other = lake.maintained_view("shop.v")
    assert view.refresh() is not None
    assert other.refresh() is None
    orders.write([{"id": 2, "_kind": "-D"}])
    assert other.refresh() is not None
    assert view.refresh() is None
    assert rows(again(view.table)) == [{"kind": "a", "total": 1}]


def test_a_task_that_fails_changes_nothing(lake: SparkStore, orders: Table) -> None:
    view = lake.create_materialized_view(
        "shop.v", "SELECT kind, sum(10 / amount) AS total FROM shop.orders GROUP BY kind"
    )
    assert "whole" in view.explain()[0]
    orders.write([{"id": 3, "kind": "a", "amount": 0}])
    with pytest.raises(InvalidRequest, match=r"Spark cannot compute the rows: .*Division by zero") as caught:
        view.refresh()
    assert caught.value.code == "view-query"
    assert view.table.filestore.state().version == 0
    orders.write([{"id": 3, "kind": "a", "amount": 10}])
    assert view.refresh() is not None
    assert rows(view.table) == [{"kind": "a", "total": 11.0}, {"kind": "b", "total": 5.0}]


def test_settings_are_those_of_the_session_that_created_the_view(lake: SparkStore, store: Store, orders: Table) -> None:
    """Quotes meant a column to the refresh of another session, and another type of timestamps made a view outdated."""
    query = """SELECT id, "kind" AS k, '${spark.sql.session.timeZone}' AS s, to_timestamp('2026', 'yyyy') AS t
        FROM shop.orders"""
    lake.create_materialized_view("shop.v", query).refresh()
    orders.write([{"id": 3, "kind": "c", "amount": 3}])
    other = SparkStore(lake.spark.newSession(), store)
    other.spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    other.spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    view = other.maintained_view("shop.v")
    assert view.refresh() is not None
    assert {(row["k"], row["s"]) for row in rows(view.table)} == {("kind", "${spark.sql.session.timeZone}")}
    ours = other.create_materialized_view("shop.w", 'SELECT id, "kind" AS k FROM shop.orders')
    kept = ours.table.definition.options.as_dict()
    assert kept["view.setting.spark.sql.ansi.doubleQuotedIdentifiers"] == "true"


@pytest.mark.deep
def test_groups_of_all_types_are_found_again(lake: SparkStore, store: Store) -> None:
    """Days that only the Gregorian calendar has and the ends of ranges, too: keys pass through objects of Java."""
    keys: dict[str, tuple[str, list[Any]]] = {
        "d": ("DATE", [date(1582, 10, 10), date(1, 1, 1), date(9999, 12, 31)]),
        "t": ("TIMESTAMP", [datetime(1582, 10, 10, 1, tzinfo=UTC), datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
        "z": ("TIMESTAMP_NTZ", [datetime(1582, 10, 10, 1), datetime(2026, 3, 29, 2, 30)]),
        "b": ("BINARY", [b"", b"\x00\xff"]),
        "m": ("DECIMAL(38, 10)", [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001")]),
        "s": ("STRING", ["", "\U0001f600 \0"]),
        "f": ("BOOLEAN", [True, False]),
        "i": ("TINYINT", [-128, 127]),
    }
    columns = ", ".join(f"{name} {kind} NOT NULL" for name, (kind, _) in keys.items())
    store.create_table("shop.t", f"id BIGINT, {columns}, amount INT", primary_key=["id"])
    table = store.table("shop.t")
    given = [
        {"id": n, "amount": n} | {name: values[n % len(values)] for name, (_, values) in keys.items()}
        for n in range(12)
    ]
    table.write(given)
    names = ", ".join(keys)
    view = lake.create_materialized_view("shop.v", f"SELECT {names}, sum(amount) AS total FROM shop.t GROUP BY {names}")
    view.refresh()
    table.write([row | {"amount": 100} for row in given[:6]])
    done = view.refresh()
    assert done is not None
    assert not done.whole
    wanted: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in given:
        wanted[tuple(row[name] for name in keys)] += 100 if row["id"] < 6 else row["id"]
    assert {tuple(row[name] for name in keys): row["total"] for row in rows(view.table)} == wanted
    assert lake.examine("shop.v").findings == ()


def test_few_changes_are_few_tasks(lake: SparkStore, orders: Table) -> None:
    """Keys of changes that were kept in memory had as many partitions as shuffles have: 200, several times."""
    view = lake.create_materialized_view("shop.v", SUMS)
    view.refresh()
    orders.write([{"id": 3, "kind": "a", "amount": 4}])
    before, shuffled = tasks(lake), lake.spark.conf.get("spark.sql.shuffle.partitions")
    lake.spark.conf.set("spark.sql.shuffle.partitions", "60")
    try:
        assert view.refresh() is not None
    finally:
        lake.spark.conf.set("spark.sql.shuffle.partitions", shuffled)
    assert tasks(lake) - before < 60


def tasks(lake: SparkStore) -> int:
    """Returns how many tasks the session's jobs have had, but for those that Spark skipped."""
    jobs = lake.spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    return sum(jobs.apply(n).numTasks() - jobs.apply(n).numSkippedTasks() for n in range(jobs.size()))
