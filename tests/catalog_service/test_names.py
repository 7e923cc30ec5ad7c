"""Tables are renamed, staged, published and replaced: folder and log stay, and no name ever shows half a table."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from catalog_service.client import Catalog, CreateTable, CreateView
from catalog_service.model.names import NAME_LENGTH_MAX, fold_table, hidden_name
from catalog_service.tables.lifecycle import STAGED_MAX_MS
from catalog_service.use_cases.service import CatalogService
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, TableStoreError, Unavailable
from tests.catalog_service.faults import (
    REPLACED,
    Fault,
    act,
    check,
    orders,
    restarted,
    run_and_die,
    running_service,
    with_database,
)
from tests.depth import sampled

UUID = "6f1c2f0e-9d3b-4c39-8a53-0c7f0a2d7c11"


def columns_of(catalog: Catalog, name: str) -> list[str]:
    return [column.name for column in catalog.get_table("shop", name, with_snapshot=True).columns]


# ------------------------------------------------------------------------------------------ names


def test_no_user_can_give_a_hidden_name() -> None:
    hidden = hidden_name("orders", UUID)
    assert hidden == "orders-6f1c2f0e"
    assert fold_table(hidden) == hidden
    assert fold_table("Orders") == "orders"
    longest = hidden_name("x" * NAME_LENGTH_MAX, UUID)
    assert len(longest) == NAME_LENGTH_MAX
    assert fold_table(longest) == longest
    for strange in ("orders-", "orders-6f1c2f0", "orders-6F1C2F0E", "-6f1c2f0e", "a/b-6f1c2f0e", "x" * 100 + hidden):
        with pytest.raises(InvalidRequest):
            fold_table(strange)


def test_nobody_creates_a_table_with_a_hidden_name(catalog: Catalog) -> None:
    catalog.create_database("shop")
    with pytest.raises(InvalidRequest):
        catalog.create_table("shop", orders(name="orders-6f1c2f0e"))
    catalog.create_table("shop", orders())
    with pytest.raises(InvalidRequest):
        catalog.rename_table("shop", "orders", "orders-6f1c2f0e")


# ------------------------------------------------------------------------------------------ renaming


def test_a_renamed_table_keeps_its_id_and_its_folder(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    before = catalog.create_table("shop", orders())
    after = catalog.rename_table("shop", "Orders", "Sales")
    assert (after.name, after.table_id, after.location) == ("sales", before.table_id, before.location)
    assert catalog.list_tables("shop") == ["sales"]
    assert catalog.get_table("shop", "sales", with_snapshot=True).current_snapshot is not None
    with pytest.raises(NotFound):
        catalog.get_table("shop", "orders")
    assert check(warehouse) == ["shop.sales"]


def test_the_old_name_is_free_for_another_table(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    first = catalog.create_table("shop", orders())
    catalog.rename_table("shop", "orders", "sales")
    second = catalog.create_table("shop", orders(sql_schema=REPLACED))
    assert second.location == f"{first.location}-{second.table_id[:8]}"
    assert columns_of(catalog, "sales") == ["id", "name"]
    assert columns_of(catalog, "orders") == ["id", "other"]
    catalog.drop_table("shop", "sales")
    assert columns_of(catalog, "orders") == ["id", "other"]
    third = catalog.create_table("shop", orders(name="third"))
    catalog.rename_table("shop", "third", "sales")
    assert third.location == f"{warehouse}/shop/third"
    assert check(warehouse) == ["shop.orders", "shop.sales"]
    catalog.drop_database("shop", cascade=True)
    assert check(warehouse) == []


def test_two_tables_exchange_their_names(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    catalog.create_table("shop", orders())
    catalog.create_table("shop", orders(name="sales", sql_schema=REPLACED))
    for old, new in (("orders", "third"), ("sales", "orders"), ("third", "sales")):
        catalog.rename_table("shop", old, new)
    assert columns_of(catalog, "orders") == ["id", "other"]
    assert columns_of(catalog, "sales") == ["id", "name"]
    assert check(warehouse) == ["shop.orders", "shop.sales"]


@pytest.mark.few(6)
@pytest.mark.parametrize("old", ["orders", "large"])
@pytest.mark.parametrize("taken", ["orders", "sales", "large"])
def test_a_taken_name_is_refused(catalog: Catalog, old: str, taken: str) -> None:
    catalog.create_database("shop")
    catalog.create_table("shop", orders())
    catalog.create_table("shop", orders(name="sales"))
    catalog.create_view("shop", CreateView(name="large", query="SELECT 1", columns="{}"))
    rename = catalog.rename_view if old == "large" else catalog.rename_table
    with pytest.raises(AlreadyExists) as caught:
        rename("shop", old, taken)
    assert caught.value.code == "table-exists"
    assert (catalog.list_tables("shop"), catalog.list_views("shop")) == (["orders", "sales"], ["large"])


def test_what_is_not_there_cannot_be_renamed(catalog: Catalog) -> None:
    with pytest.raises(NotFound) as caught:
        catalog.rename_table("shop", "orders", "sales")
    assert caught.value.code == "database-not-found"
    catalog.create_database("shop")
    with pytest.raises(NotFound) as caught:
        catalog.rename_table("shop", "orders", "sales")
    assert caught.value.code == "table-not-found"
    catalog.create_table("shop", orders())
    with pytest.raises(NotFound) as caught:
        catalog.rename_view("shop", "orders", "sales")
    assert caught.value.code == "view-not-found"


def test_the_topic_of_a_log_keeps_its_name(warehouse: str) -> None:
    with_database(warehouse, orders("kafka"))
    service = running_service(warehouse)
    service.rename_table("shop", "orders", "sales")
    service.create_table("shop", orders("kafka"))
    assert check(warehouse) == ["shop.orders", "shop.sales"]  # with both topics
    service.drop_table("shop", "sales")
    assert check(warehouse) == ["shop.orders"]
    service.drop_database("shop", cascade=True)
    assert check(warehouse) == []


# ------------------------------------------------------------------------------------------ staging


def test_nobody_sees_a_staged_table_before_it_is_published(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    staged = catalog.create_table("shop", orders(), staged=True)
    assert staged.name == f"orders-{staged.table_id[:8]}"
    assert staged.location == f"{warehouse}/shop/orders"
    assert catalog.list_tables("shop") == []
    with pytest.raises(NotFound):
        catalog.get_table("shop", "orders")
    assert catalog.get_table("shop", staged.name).table_id == staged.table_id

    published = catalog.rename_table("shop", staged.name, "orders")
    assert (published.table_id, published.location) == (staged.table_id, staged.location)
    assert catalog.list_tables("shop") == ["orders"]
    assert check(warehouse) == ["shop.orders"]


def test_a_staged_table_is_given_up(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    staged = catalog.create_table("shop", orders(), staged=True)
    catalog.drop_table("shop", staged.name)
    assert check(warehouse) == []
    with pytest.raises(NotFound):
        catalog.rename_table("shop", staged.name, "orders")
    again = catalog.create_table("shop", orders(), staged=True)
    assert catalog.create_table("shop", orders()).location == f"{warehouse}/shop/orders-{_id(catalog, 'orders')}"
    catalog.drop_database("shop", cascade=True)
    assert check(warehouse) == []
    with pytest.raises(NotFound):
        catalog.get_table("shop", again.name)


def _id(catalog: Catalog, name: str) -> str:
    return catalog.get_table("shop", name).table_id[:8]


def test_a_published_table_takes_the_place_of_another(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    old = catalog.create_table("shop", orders())
    staged = catalog.create_table("shop", orders(sql_schema=REPLACED), staged=True)
    with pytest.raises(AlreadyExists):
        catalog.rename_table("shop", staged.name, "orders")
    assert columns_of(catalog, "orders") == ["id", "name"]
    catalog.rename_table("shop", staged.name, "orders", replace=True)
    assert columns_of(catalog, "orders") == ["id", "other"]
    assert catalog.list_tables("shop") == ["orders"]
    assert not Path(old.location).exists()
    assert check(warehouse) == ["shop.orders"]


def test_a_table_does_not_take_the_place_of_a_view(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    catalog.create_view("shop", CreateView(name="orders", query="SELECT 1", columns="{}"))
    staged = catalog.create_table("shop", orders(), staged=True)
    with pytest.raises(AlreadyExists):
        catalog.rename_table("shop", staged.name, "orders", replace=True)
    catalog.drop_table("shop", staged.name)
    assert (catalog.list_tables("shop"), catalog.list_views("shop")) == ([], ["orders"])
    assert check(warehouse) == ["shop.orders"]


def test_a_table_that_nobody_publishes_is_dropped_after_a_day(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_database(warehouse)
    service = running_service(warehouse)
    staged, _ = service.create_table("shop", orders("kafka"), staged=True)
    other, report = restarted(warehouse)
    assert report == []
    assert other.get_table("shop", staged.name).table_id == staged.table_id
    with service._engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE tables SET created_at_ms = created_at_ms - {STAGED_MAX_MS + 1}")
    _, report = restarted(warehouse)
    assert report == [f"dropped table shop.{staged.name}, which was staged and never published"]
    assert check(warehouse) == []


# ------------------------------------------------------------------------------------------ crashes

_STAGE = ("has_folder", "check_new", "add_table", "create_log", "create_files", "set_state")
_REPLACE = ("rename", "drop_log", "delete_files", "remove_table")
_KILLS = [*(("stage", m) for m in _STAGE), ("rename", "rename"), *(("replace", m) for m in _REPLACE)]


@pytest.mark.few(4)
@pytest.mark.parametrize("log", ["embedded", "kafka"])
@pytest.mark.parametrize(("action", "method"), sampled(_KILLS, 4, test=2, names=2))
def test_a_kill_leaves_the_old_table_or_the_new_one(warehouse: str, action: str, method: str, log: str) -> None:
    with_database(warehouse, *([] if action == "stage" else [orders(log)]))
    run_and_die(warehouse, action, log, Fault(method, after=True, crash=True))
    _expire_staged(warehouse)
    service, _ = restarted(warehouse)
    tables = check(warehouse)
    if action == "stage":
        assert tables == []
    elif action == "rename":
        assert tables == ["shop.sales"]
    else:
        assert tables == ["shop.orders"]
        assert [c.name for c in service.get_table("shop", "orders").columns] == ["id", "other"]
    assert service._lifecycle.recover() == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rename", "table"])
def test_a_kill_before_the_rename_leaves_the_old_table(warehouse: str, method: str) -> None:
    with_database(warehouse, orders("kafka"))
    run_and_die(warehouse, "replace", "kafka", Fault(method, crash=True))
    _expire_staged(warehouse)
    service, _ = restarted(warehouse)
    assert check(warehouse) == ["shop.orders"]
    assert [c.name for c in service.get_table("shop", "orders").columns] == ["id", "name"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("action", "method"), [("stage", m) for m in _STAGE] + [("rename", "rename")])
def test_an_error_changes_nothing_or_all(warehouse: str, action: str, method: str, after: bool) -> None:
    with_database(warehouse, *([] if action == "stage" else [orders("kafka")]))
    service = running_service(warehouse, Fault(method, after=after))
    with pytest.raises(Unavailable):
        act(service, action, "kafka")
    assert check(warehouse) in ([], ["shop.orders"], ["shop.sales"])
    service.close()
    if action == "rename" and after:
        assert check(warehouse) == ["shop.sales"]
    elif action == "rename":
        act(running_service(warehouse), action, "kafka")
        assert check(warehouse) == ["shop.sales"]
    else:
        assert check(warehouse) == []


@pytest.mark.parametrize("method", ["drop_log", "delete_files", "remove_table"])
def test_what_was_replaced_is_removed_later_if_it_cannot_be_now(warehouse: str, method: str) -> None:
    with_database(warehouse, orders("kafka"))
    act(running_service(warehouse, Fault(method)), "replace", "kafka")
    service = running_service(warehouse)
    assert [t.name for t in service.list_tables("shop").tables] == ["orders"]
    assert [c.name for c in service.get_table("shop", "orders").columns] == ["id", "other"]
    _make_debts_due(service)
    assert len(restarted(warehouse)[1]) == 1
    assert check(warehouse) == ["shop.orders"]


def _expire_staged(warehouse: str) -> None:
    service = running_service(warehouse)
    with service._engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE tables SET created_at_ms = created_at_ms - {STAGED_MAX_MS + 1} WHERE state = 'STAGED'"
        )
    service.close()


def _make_debts_due(service: CatalogService) -> None:
    with service._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE log_debts SET retry_at_ms = 0")


# ------------------------------------------------------------------------------------------ races


def test_of_renames_at_once_one_wins(warehouse: str) -> None:
    with_database(warehouse, *(orders(name=f"t{n}") for n in range(4)))
    services = [running_service(warehouse) for _ in range(4)]
    outcomes: list[str] = []

    def rename(number: int) -> None:
        try:
            services[number].rename_table("shop", f"t{number}", "orders")
            outcomes.append("renamed")
        except TableStoreError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=rename, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["renamed", *["table-exists"] * 3]
    assert len(check(warehouse)) == 4


def test_renames_in_a_circle_do_not_wait_for_each_other_for_ever(warehouse: str) -> None:
    with_database(warehouse, orders(name="a"), orders(name="b", sql_schema=REPLACED))
    services = [running_service(warehouse) for _ in range(2)]
    outcomes: list[str] = []

    def rename(service: CatalogService, old: str, new: str) -> None:
        for _ in range(10):
            try:
                service.rename_table("shop", old, new, replace=False)
            except TableStoreError as error:
                outcomes.append(error.code)

    threads = [
        threading.Thread(target=rename, args=(services[0], "a", "b")),
        threading.Thread(target=rename, args=(services[1], "b", "a")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes == ["table-exists"] * 20
    assert check(warehouse) == ["shop.a", "shop.b"]


# ------------------------------------------------------------------------------------------ views


def view(name: str = "large", **changes: object) -> CreateView:
    arguments = {"name": name, "query": "SELECT * FROM orders WHERE amount > 100", "columns": '{"type":"struct"}'}
    return CreateView(**(arguments | changes))


def test_a_view_is_created_listed_replaced_renamed_and_dropped(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    made = catalog.create_view(
        "shop", view("Large", context={"namespace": ["shop"]}, properties={"a": "b"}, comment="Large ones")
    )
    assert (made.database, made.name, made.query) == ("shop", "large", "SELECT * FROM orders WHERE amount > 100")
    assert (made.context, made.properties, made.comment) == ({"namespace": ["shop"]}, {"a": "b"}, "Large ones")
    assert catalog.get_view("shop", "LARGE") == made
    assert (catalog.list_views("shop"), catalog.list_tables("shop")) == (["large"], [])

    assert catalog.create_view("shop", view(query="SELECT 2"), if_not_exists=True) == made
    replaced = catalog.create_view("shop", view(query="SELECT 2"), or_replace=True)
    assert (replaced.query, replaced.view_id) == ("SELECT 2", made.view_id)
    assert catalog.get_view("shop", "large") == replaced
    assert catalog.rename_view("shop", "large", "small").view_id == made.view_id
    assert catalog.list_views("shop") == ["small"]
    assert check(warehouse) == ["shop.small"]
    catalog.drop_view("shop", "small")
    assert catalog.list_views("shop") == []
    assert check(warehouse) == []


def test_a_view_and_a_table_are_different_things(catalog: Catalog) -> None:
    catalog.create_database("shop")
    catalog.create_table("shop", orders())
    catalog.create_view("shop", view())
    for request, options in ((view("orders"), {}), (view("orders"), {"or_replace": True}), (view(), {})):
        with pytest.raises(AlreadyExists) as taken:
            catalog.create_view("shop", request, **options)
        assert taken.value.code == "table-exists"
    for if_not_exists in (False, True):
        with pytest.raises(AlreadyExists) as taken:
            catalog.create_table("shop", orders(name="large"), if_not_exists=if_not_exists)
        assert taken.value.code == "table-exists"
    for call in (
        lambda: catalog.get_table("shop", "large"),
        lambda: catalog.drop_table("shop", "large"),
        lambda: catalog.rename_table("shop", "large", "small"),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.code == "is-view"
    for call in (lambda: catalog.get_view("shop", "orders"), lambda: catalog.drop_view("shop", "orders")):
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.code == "view-not-found"
    assert (catalog.list_tables("shop"), catalog.list_views("shop")) == (["orders"], ["large"])


def test_a_missing_view(catalog: Catalog) -> None:
    for call in (
        lambda: catalog.create_view("shop", view()),
        lambda: catalog.get_view("shop", "large"),
        lambda: catalog.list_views("shop"),
        lambda: catalog.drop_view("shop", "large"),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.code == "database-not-found"
    catalog.drop_view("shop", "large", if_exists=True)
    catalog.create_database("shop")
    with pytest.raises(NotFound) as caught:
        catalog.drop_view("shop", "large")
    assert caught.value.code == "view-not-found"
    catalog.drop_view("shop", "large", if_exists=True)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"query": "  "}, "empty-query"),
        ({"query": "SELECT '" + "x" * 250_001 + "'"}, "too-long"),
        ({"comment": "x" * 5_000}, "too-long"),
        ({"name": "no-name"}, "bad-name"),
        ({"properties": {"a": "\0"}}, "bad-text"),
    ],
)
def test_a_view_that_cannot_be(catalog: Catalog, changes: dict[str, object], code: str) -> None:
    catalog.create_database("shop")
    with pytest.raises(InvalidRequest) as caught:
        catalog.create_view("shop", view(**changes))
    assert caught.value.code == code
    assert catalog.list_views("shop") == []


def test_views_keep_a_database_from_being_dropped_and_go_with_it(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    catalog.create_view("shop", view())
    with pytest.raises(TableStoreError, match="large") as caught:
        catalog.drop_database("shop")
    assert caught.value.code == "database-not-empty"
    catalog.drop_database("shop", cascade=True)
    assert check(warehouse) == []


def test_a_long_list_of_views_has_pages(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.create_database("shop")
    catalog.create_table("shop", CreateTable.of("v3x", "id BIGINT"))
    for number in range(5):
        catalog.create_view("shop", view(f"v{number}"))
    for module in ("catalog_service.client.remote", "catalog_service.client.embedded"):
        monkeypatch.setattr(f"{module}.PAGE_SIZE_MAX", 2)
    assert catalog.list_views("shop") == [f"v{number}" for number in range(5)]
    assert catalog.list_tables("shop") == ["v3x"]
