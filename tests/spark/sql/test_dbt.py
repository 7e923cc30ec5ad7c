"""A project of dbt on our catalog, as its users run it: dbt's own program, by the Thrift server.

The project is in ``dbt_project``. Orders are written by somebody else, into ``raw.orders``; customers are a seed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablestore
from tablestore import Store
from tablestore.spark.settings import catalog_settings
from tablestore.table import Table
from tests.servers.dbt import DbtProject, NotInstalled, dbt_python
from tests.servers.sql_servers import thrift_server
from tests.tables import assert_healthy

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.deep]

MODELS = {"stg_orders", "orders", "days", "changes", "daily_totals", "customer_totals"}
SNAPSHOTS = {"orders_history", "customers_history"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DbtProject, Store]]:
    """A copy of the project, with a server whose default catalog is a warehouse, and the store of that."""
    try:
        dbt_python()
    except NotInstalled as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("dbt")
    shutil.copytree(Path(__file__).with_name("dbt_project"), folder / "project")
    warehouse = str(folder / "warehouse")
    settings = {**catalog_settings({"lake": warehouse}), "spark.sql.defaultCatalog": "lake"}
    with thrift_server(folder, settings, {}) as server, tablestore.connect(warehouse) as store:
        port = server.url.rpartition(":")[2]
        yield DbtProject(folder / "project", {"THRIFT_PORT": port}), store


def at(day: int, hour: int = 10) -> datetime:
    return datetime(2026, 1, day, hour)


def write_orders(store: Store, *rows: tuple[int, int, str, int, datetime]) -> None:
    """Writes rows into ``raw.orders``, as the shop does."""
    names = ("id", "customer", "status", "amount", "changed_at")
    listed = [dict(zip(names, (*row[:-1], row[-1].replace(tzinfo=UTC)), strict=True)) for row in rows]
    store.table("raw.orders").write([{**row, "amount": Decimal(row["amount"])} for row in listed])


def delete_orders(store: Store, *ids: int) -> None:
    store.table("raw.orders").write([{"id": one, "_kind": "-D"} for one in ids])


def table_of(store: Store, name: str) -> Table:
    return store.table(f"analytics.{name}")


def rows_of(store: Store, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a table of dbt's, sorted; times without their zone, since the session's is UTC."""
    rows = table_of(store, name).scan(columns=columns or None).to_polars().rows()
    plain = [tuple(v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in row) for row in rows]
    return sorted(plain, key=repr)


def operations(store: Store, name: str) -> list[str]:
    """What each version did, the first one first."""
    return [str(snapshot.operation) for snapshot in sorted(table_of(store, name).snapshots(), key=lambda s: s.version)]


@pytest.mark.timeout(3600)  # seven commands of dbt's; on a machine with much else to do each takes minutes
def test_a_project_of_dbt(project: tuple[DbtProject, Store]) -> None:
    dbt, store = project
    store.create_database("raw")
    columns = "id BIGINT, customer BIGINT, status STRING, amount DECIMAL(10, 2), changed_at TIMESTAMP"
    store.create_table("raw.orders", columns, primary_key=["id"], options={"bucket": "1"})
    write_orders(store, (1, 1, "open", 10, at(1)), (2, 2, "open", 20, at(1, 11)), (3, 1, "paid", 30, at(2)))
    first_build(dbt, store)
    ids = {name: table_of(store, name).opened.identity.table_id for name in ("orders", "days", *SNAPSHOTS)}
    build_with_changes(dbt, store)
    build_without_changes(dbt, store)
    assert ids == {name: table_of(store, name).opened.identity.table_id for name in ids}
    failing_tests(dbt, store)
    documents(dbt, store)
    full_refresh(dbt, store, ids["orders"])
    for name in store.list_tables("analytics"):
        assert_healthy(table_of(store, name).filestore)


def first_build(dbt: DbtProject, store: Store) -> None:
    built = dbt.run("build")
    assert built.code == 0, built.output
    assert built.named("success") == MODELS | SNAPSHOTS | {"customers"}
    assert len(built.named("pass")) == 11
    assert store.list_views("analytics") == ["stg_orders"]
    assert rows_of(store, "customers", "id", "name", "country") == [
        (1, "Ann", "DE"), (2, "Bob", "FR"), (3, "Cem", "TR"),
    ]  # fmt: skip
    assert table_of(store, "orders").definition.primary_key == ("order_id",)
    assert table_of(store, "daily_totals").definition.partition_by == ("day",)
    assert rows_of(store, "customer_totals", "name", "orders", "total") == [
        ("Ann", 2, Decimal(40)), ("Bob", 1, Decimal(20)), ("Cem", 0, Decimal(0)),
    ]  # fmt: skip
    assert operations(store, "orders") == ["CREATE TABLE", "OVERWRITE", "ALTER TABLE"]  # the last one is its comment
    assert rows_of(store, "orders_history", "id", "status", "dbt_valid_to") == [
        (1, "open", None), (2, "open", None), (3, "paid", None),
    ]  # fmt: skip


def build_with_changes(dbt: DbtProject, store: Store) -> None:
    """An order that changed, one that is new, one that was deleted; a customer who moved; a column more."""
    write_orders(store, (1, 1, "paid", 12, at(3)), (4, 3, "open", 40, at(3, 11)))
    delete_orders(store, 2)
    seed = dbt.folder / "seeds" / "customers.csv"
    seed.write_text(seed.read_text().replace("2,Bob,FR", "2,Bob,ES"))
    built = dbt.run("build", "--vars", "{with_largest: true}")
    assert built.code == 0, built.output

    # a merge adds and replaces rows, and keeps those that its source no longer has
    assert rows_of(store, "orders", "order_id", "status", "amount", "changed_at") == [
        (1, "PAID", Decimal(12), at(3)),
        (2, "OPEN", Decimal(20), at(1, 11)),
        (3, "PAID", Decimal(30), at(2)),
        (4, "OPEN", Decimal(40), at(3, 11)),
    ]
    assert operations(store, "orders") == ["CREATE TABLE", "OVERWRITE", "ALTER TABLE", "WRITE"]
    assert rows_of(store, "days", "day", "status", "orders", "total", "largest") == [
        (date(2026, 1, 1), "OPEN", 2, Decimal(30), None),
        (date(2026, 1, 2), "PAID", 1, Decimal(30), Decimal(30)),
        (date(2026, 1, 3), "OPEN", 1, Decimal(40), Decimal(40)),
        (date(2026, 1, 3), "PAID", 1, Decimal(12), Decimal(12)),
    ]
    assert operations(store, "days") == ["CREATE TABLE", "OVERWRITE", "ALTER TABLE", "OVERWRITE"]
    assert rows_of(store, "daily_totals", "day", "total") == [
        (date(2026, 1, 1), Decimal(30)), (date(2026, 1, 2), Decimal(30)), (date(2026, 1, 3), Decimal(52)),
    ]  # fmt: skip
    assert len(rows_of(store, "changes", "order_id")) == 5
    assert rows_of(store, "customer_totals", "name", "orders", "total") == [
        ("Ann", 2, Decimal(42)), ("Bob", 1, Decimal(20)), ("Cem", 1, Decimal(40)),
    ]  # fmt: skip

    history = rows_of(store, "orders_history", "id", "status", "dbt_valid_from", "dbt_valid_to")
    [deleted] = [row for row in history if row[0] == 2]
    assert deleted[:3] == (2, "open", at(1, 11))
    assert deleted[3] is not None
    assert [row for row in history if row[0] != 2] == [
        (1, "open", at(1), at(3)),
        (1, "paid", at(3), None),
        (3, "paid", at(2), None),
        (4, "open", at(3, 11), None),
    ]
    moves = rows_of(store, "customers_history", "id", "country", "dbt_valid_from", "dbt_valid_to")
    assert [(row[0], row[1], row[3] is None) for row in moves] == [
        (1, "DE", True), (2, "ES", True), (2, "FR", False), (3, "TR", True),
    ]  # fmt: skip
    assert moves[1][2] == moves[2][3]
    assert operations(store, "customers_history")[-1] == "WRITE"


def build_without_changes(dbt: DbtProject, store: Store) -> None:
    names = sorted(store.list_tables("analytics"))
    before = {name: rows_of(store, name) for name in names}
    built = dbt.run("build", "--exclude-resource-type", "test", "--vars", "{with_largest: true}")
    assert built.code == 0, built.output
    assert built.named("success") == MODELS | SNAPSHOTS | {"customers"}
    assert {name: rows_of(store, name) for name in names} == before


def failing_tests(dbt: DbtProject, store: Store) -> None:
    """`dbt test` finds what is wrong, and nothing else; then all is right again."""
    seed = dbt.folder / "seeds" / "customers.csv"
    right = seed.read_text()
    seed.write_text(f"{right}3,Dan,US\n,Eva,NL\n")
    write_orders(store, (5, 1, "lost", 5, at(4)), (6, 9, "open", -6, at(4)))
    assert dbt.run("seed").code == 0
    tested = dbt.run("test")
    assert tested.code == 1, tested.output
    assert tested.named("fail") == {
        "unique_customers_id",
        "not_null_customers_id",
        "accepted_values_stg_orders_status__OPEN__PAID__GONE",
        "relationships_stg_orders_customer_id__id__ref_customers_",
        "no_order_is_negative",
    }
    assert len(tested.named("pass")) == 6
    seed.write_text(right)
    delete_orders(store, 5, 6)


def documents(dbt: DbtProject, store: Store) -> None:
    assert dbt.run("docs", "generate").code == 0
    found = dbt.documented()
    assert set(found) == MODELS | SNAPSHOTS | {"customers"} | {"orders"}
    assert found["stg_orders"]["metadata"]["type"] == "view"
    described = found["customer_totals"]["columns"]
    assert {name: column["type"] for name, column in described.items()} == {
        "customer_id": "long", "name": "string", "orders": "long", "total": "decimal(20,2)",
    }  # fmt: skip
    columns = {column.name: column.comment for column in table_of(store, "customer_totals").definition.schema.columns}
    assert columns["total"] == "It's the sum of what is open or paid."
    assert table_of(store, "orders").definition.comment == "Each order as it is now."
    assert store.view("analytics.stg_orders").comment == "The shop's orders with the names of this project."


def full_refresh(dbt: DbtProject, store: Store, merged: str) -> None:
    """Another table takes the place of an incremental one, with what its source has now."""
    ran = dbt.run("run", "--full-refresh", "--select", "orders")
    assert ran.code == 0, ran.output
    assert rows_of(store, "orders", "order_id", "status") == [(1, "PAID"), (3, "PAID"), (4, "OPEN")]
    assert table_of(store, "orders").opened.identity.table_id != merged
    assert operations(store, "orders") == ["CREATE TABLE", "OVERWRITE", "ALTER TABLE"]
