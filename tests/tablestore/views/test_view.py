"""What all views have in common, whatever computes their rows."""

from __future__ import annotations

from typing import Any

import pytest

from filestore.errors import Conflict, InvalidRequest
from filestore.model.snapshot import Operation
from tablestore import Store
from tablestore.views.view import InputLag, Refreshed, View
from tests.warehouses import rows

QUERIES = {
    "join": "SELECT o.id, o.item, i.name FROM shop.orders AS o JOIN shop.items AS i ON o.item = i.item",
    "events": (
        "SELECT v.item, i.name FROM shop.visits AS v JOIN shop.items FOR SYSTEM_TIME AS OF current_timestamp() AS i "
        "ON v.item = i.item"
    ),
    "keys": "SELECT item, count(*) AS n FROM shop.orders WHERE item IS NOT NULL GROUP BY item",
    "compared": "SELECT id, item, (SELECT count(*) FROM shop.items) AS items FROM shop.orders",
    "whole": "SELECT item, count(*) AS n FROM shop.orders GROUP BY item",
}
KINDS = pytest.mark.parametrize("kind", QUERIES)


@pytest.fixture
def shop(store: Store) -> Store:
    store.create_table("shop.items", "item BIGINT, name STRING", primary_key=["item"]).write([{"item": 1, "name": "a"}])
    store.create_table("shop.orders", "id BIGINT, item BIGINT", primary_key=["id"])
    store.create_table("shop.visits", "item BIGINT")
    _add(store, 1)
    return store


def _add(shop: Store, number: int) -> None:
    shop.table("shop.orders").write([{"id": number, "item": 1}])
    shop.table("shop.visits").write([{"item": 1}])


def _view(shop: Store, kind: str) -> View:
    return shop.create_materialized_view("shop.v", QUERIES[kind], primary_key=["id"] if kind == "compared" else [])


def _overtaken(view: View, other: View, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has another process refresh the view as soon as this one holds what it reads."""
    held = view._held

    def then_refreshed(*args: Any) -> Any:
        found = held(*args)
        other.refresh()
        return found

    monkeypatch.setattr(view, "_held", then_refreshed)


@KINDS
def test_all_are_opened_refreshed_and_compared_alike(shop: Store, kind: str) -> None:
    view = _view(shop, kind)
    read = {f"shop.{name}" for name in ("orders", "visits", "items") if f"shop.{name}" in QUERIES[kind]}
    assert set(view.lag()) == read
    assert all(lag.version is None for lag in view.lag().values())
    done = view.refresh()
    assert isinstance(done, Refreshed)
    assert (done.version, set(done.inputs), done.whole) == (1, read, True)
    opened = shop.maintained_view("shop.v")
    assert opened.lag() == {name: InputLag(version, 0) for name, version in done.inputs.items()}
    assert opened.refresh() is None
    assert opened.query == view.query
    assert "is refreshed" in opened.explain()[0]
    _add(shop, 2)
    assert [done.whole for done in opened.follow(lambda: True)] == [kind in ("whole", "compared")]
    assert opened.compare() == []
    assert shop.refresh("shop.v") == []
    rebuilt = opened.rebuild()
    assert rebuilt.whole
    assert rows(opened.table) == rows(view.table)


@KINDS
def test_a_rebuild_that_was_overtaken_says_so(shop: Store, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh of the same versions passed for the rebuild of a query or a join, which computes all rows again."""
    view, other = _view(shop, kind), shop.maintained_view("shop.v")
    view.refresh()
    _add(shop, 2)
    with monkeypatch.context() as patched:
        _overtaken(view, other, patched)
        if kind == "whole":
            assert view.rebuild().whole, "the other process has computed all rows, too"
            return
        with pytest.raises(Conflict, match=r"another process has refreshed shop\.v meanwhile") as caught:
            view.rebuild()
    assert caught.value.code == "other-refresh"
    done = view.rebuild()
    assert done.whole
    assert view.table.snapshots(1)[0].operation is Operation.OVERWRITE
    assert view.compare() == []


@KINDS
def test_a_refresh_that_was_overtaken_by_its_equal_is_done(
    shop: Store, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has committed the same versions under the same number: they are not added twice."""
    view, other = _view(shop, kind), shop.maintained_view("shop.v")
    _overtaken(view, other, monkeypatch)
    first = view.refresh()
    assert first is not None
    assert first.version == 1
    _add(shop, 2)
    second = view.refresh()
    assert second is not None
    assert second.version == 2
    assert view.compare() == []


@KINDS
def test_a_table_is_no_view(shop: Store, kind: str) -> None:
    with pytest.raises(InvalidRequest, match=r"shop\.orders is a table that is written to") as caught:
        shop.maintained_view("shop.orders")
    assert caught.value.code == "no-view"
    with pytest.raises(InvalidRequest) as caught:
        shop.refresh(_view(shop, kind).table.identifier, "shop.orders")
    assert caught.value.code == "no-view"
    assert rows(shop.table("shop.v")) == [], "nothing is done before all names are known"
