"""Found by dropping, renaming and changing the tables that a view reads: errors did not say which view they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tablestore
from filestore.errors import Conflict, InvalidRequest, NotFound, TableStoreError, Unavailable
from tablestore.views.opening import drop_view, open_view
from tablestore.views.view import View
from tests.warehouses import rows, warehouse

Step = Callable[[tablestore.Store], object]


@pytest.fixture
def shop() -> Iterator[tablestore.Store]:
    with warehouse() as store:
        store.create_table("shop.l", "k BIGINT, x BIGINT", primary_key=["k"]).write([{"k": 1, "x": 5}])
        store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"]).write([{"id": 5, "y": "foo"}])
        yield store


def refreshed(store: tablestore.Store) -> View:
    view = store.maintain_join("shop.v", left="shop.l", right="shop.r", on="x", kind="left", select="l.k, r.y")
    view.refresh()
    return view


def refused(work: Callable[[], object]) -> TableStoreError:
    with pytest.raises(TableStoreError) as caught:
        work()
    return caught.value


@pytest.mark.parametrize(
    "step", [lambda store: store.drop_table("shop.r"), lambda store: store.rename_table("shop.r", "shop.other")]
)
def test_a_view_whose_table_is_gone_is_named(shop: tablestore.Store, step: Step) -> None:
    view = refreshed(shop)
    step(shop)
    for opened in (lambda: open_view(shop, "shop.v"), lambda: shop.maintained_view("shop.v")):
        error = refused(opened)
        assert (type(error), error.code) == (NotFound, "table-not-found")
        assert error.message.startswith("the view shop.v reads shop.r: there is no table 'r'")
    [finding] = shop.examine("shop.v").findings
    assert "the view shop.v reads shop.r" in finding.message
    assert rows(view.table) == [{"k": 1, "y": "foo"}]


@pytest.mark.parametrize("name", ["shop.l", "shop.r", "shop.v"])
def test_a_view_that_was_opened_before_names_the_table_that_is_gone(shop: tablestore.Store, name: str) -> None:
    view = refreshed(shop)
    shop.drop_table(name)
    for work in (view.refresh, view.rebuild, view.lag, view.examine):
        error = refused(work)
        assert (type(error), error.code) == (NotFound, "table-replaced")
        assert error.message == (
            f"{name} was dropped, or dropped and created again, since the view shop.v was opened: open the view again"
        )


@pytest.mark.parametrize("name", ["shop.l", "shop.r"])
def test_a_table_that_is_dropped_during_a_refresh_is_named(
    shop: tablestore.Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = refreshed(shop)
    shop.table("shop.l").write([{"k": 2, "x": 5}])
    before = rows(view.table)
    write = view._writer.write

    def dropped_first(*args: object, **named: object) -> object:
        shop.drop_table(name)
        return write(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(view._writer, "write", dropped_first)
    error = refused(view.refresh)
    assert (type(error), error.code) == (NotFound, "table-replaced")
    assert error.message.startswith(f"{name} was dropped")
    assert rows(view.table) == before


def test_a_column_that_is_gone_is_named_with_the_view(shop: tablestore.Store) -> None:
    view = refreshed(shop)
    shop.table("shop.r").alter("RENAME COLUMN y TO z")
    error = refused(view.refresh)
    assert (type(error), error.code) == (InvalidRequest, "view-outdated")
    assert error.message.startswith("shop.v does not fit the tables of its query any more: ")
    assert "r.`y` in it is no column of its tables" in error.message


def test_a_table_that_has_another_key_now_is_joined_by_any_column(shop: tablestore.Store) -> None:
    """Such a view could not be refreshed any more."""
    view = refreshed(shop)
    shop.drop_table("shop.r")
    other = shop.create_table("shop.r", "id BIGINT, y STRING", primary_key=["y"])
    other.write([{"id": 5, "y": "bar"}])
    view = shop.maintained_view("shop.v")
    assert view.explain()[0] == "shop.v is refreshed incrementally, without Spark"
    assert view.refresh() is not None
    assert rows(view.table) == [{"k": 1, "y": "bar"}]
    other.write([{"id": 5, "y": "two of one key"}])
    error = refused(view.refresh)
    assert (type(error), error.code) == (InvalidRequest, "repeated-key")
    assert "shop.v" in error.message
    assert rows(view.table) == [{"k": 1, "y": "bar"}]


def test_an_error_about_something_is_the_same_error() -> None:
    error = Conflict("wait", code="busy", again=True).about("the view shop.v")
    assert (type(error), error.code, error.again) == (Conflict, "busy", True)
    assert (error.message, str(error)) == ("the view shop.v: wait",) * 2


def refuse_reading(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Takes the right away to read a table's folder."""
    opens = tablestore.Store.table

    def opened(store: tablestore.Store, asked: str) -> tablestore.Table:
        if asked == name:
            raise Unavailable(f"cannot read {name}: Permission denied", code="no-permission")
        return opens(store, asked)

    monkeypatch.setattr(tablestore.Store, "table", opened)


def test_who_may_read_a_view_alone_checks_its_table(shop: tablestore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor of the view gave up, although it can check all but the comparison with the query."""
    view = refreshed(shop)
    refuse_reading(monkeypatch, "shop.r")
    error = refused(lambda: shop.maintained_view("shop.v"))
    assert (error.code, error.message) == (
        "no-permission",
        "the view shop.v reads shop.r: cannot read shop.r: Permission denied",
    )
    report = shop.examine("shop.v")
    assert (report.healthy, report.rows) == (True, 1)
    assert [str(finding.code) for finding in report.findings] == ["view-unchecked"]
    assert rows(view.table) == [{"k": 1, "y": "foo"}]


def test_a_view_is_dropped_without_a_right_to_what_it_reads(
    shop: tablestore.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who might write the view but not its tables could not drop it; what it holds in them expires by itself."""
    refreshed(shop)
    refuse_reading(monkeypatch, "shop.r")
    drop_view(shop, "shop.v")
    assert shop.list_tables("shop") == ["l", "r"]
    assert "held until consumer.expiration-time" in caplog.text
