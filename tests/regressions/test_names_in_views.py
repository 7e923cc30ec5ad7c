"""Found by creating views whose statements write names in another case, or with a catalog, as users of SQL do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import tablestore
from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from tablestore.table_names import split
from tablestore.views.opening import all_views
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import parse_view, view_of_statement
from tests.tables import define
from tests.tablestore.views.view_join import join_of_view
from tests.warehouses import rows, warehouse


@pytest.fixture
def shop() -> Iterator[tablestore.Store]:
    with warehouse() as store:
        store.create_table("shop.l", "k BIGINT, x BIGINT", primary_key=["k"]).write([{"k": 1, "x": 5}])
        store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"]).write([{"id": 5, "y": "foo"}])
        store.create_table("shop.e", "x BIGINT, at TIMESTAMP").write([{"x": 5, "at": None}])
        yield store


@pytest.mark.parametrize(
    ("on", "select"),
    [
        ("x", "l.k, r.y"),
        ("X", ["L.K", "R.Y AS y"]),
        (["X"], ["K", "Y"]),
        ("x", "L.k, r.Y"),
    ],
)
def test_names_of_a_join_are_the_same_in_upper_and_lower_case(
    shop: tablestore.Store, on: str | Sequence[str], select: str | Sequence[str]
) -> None:
    """``select=["L.ID"]`` was refused as no name of a column."""
    view = shop.maintain_join("shop.v", left="shop.l", right="shop.r", on=on, kind="LEFT", select=select)
    assert (
        view.query
        == shop.maintain_join("Shop.V", left="SHOP.L", right="Shop.R", on="x", kind="left", select="l.k, r.y").query
    )
    view.refresh()
    assert rows(view.table) == [{"k": 1, "y": "foo"}]


def test_the_time_of_events_is_named_in_upper_and_lower_case(shop: tablestore.Store) -> None:
    view = shop.maintain_join("shop.v", left="shop.e", right="shop.r", on="X", select="L.*", at="AT")
    assert join_of_view(view).left_columns == ("x", "at")
    assert view.query.endswith("FOR SYSTEM_TIME AS OF l.`at` AS r ON l.`x` = r.`id`")


def test_a_column_that_a_table_lacks_is_refused_with_the_table(shop: tablestore.Store) -> None:
    with pytest.raises(InvalidRequest, match=r"r\.z is no column of shop\.l \(k, x\) or shop\.r \(id, y\)") as caught:
        shop.maintain_join("shop.v", left="shop.l", right="shop.r", on="x", select="l.k, r.z")
    assert caught.value.code == "bad-join"
    with pytest.raises(InvalidRequest, match=r"with on='z': l\.`z` is no column of shop\.l \(k, x\)"):
        shop.maintain_join("shop.v", left="shop.l", right="shop.r", on="z")


def test_a_view_of_a_view_in_another_case_is_behind_it(shop: tablestore.Store) -> None:
    """By the name that the statement had, the order of refreshes did not know the view that is read."""
    shop.maintain_join("shop.v", left="shop.l", right="shop.r", on="x", select="l.k, l.x")
    shop.maintain_join("shop.a", left="SHOP.V", right="shop.r", on="x", select="l.k, r.y")
    assert all_views(shop) == ["shop.v", "shop.a"]


DEFINITION = define("id BIGINT NOT NULL, n INT", ["id"])


def known(name: str) -> TableDefinition:
    if name.lower() != "shop.orders":
        raise NotFound(name, code="table-not-found")
    return DEFINITION


@pytest.mark.parametrize(
    "text", ["SELECT id FROM Shop.ORDERS", "SELECT Orders.id FROM Orders", "SELECT * FROM `SHOP`.orders"]
)
def test_tables_of_a_query_have_the_names_of_the_catalog(text: str) -> None:
    """The refresh of a view looked for ``S.L`` among its tables, and found none: KeyError."""
    query = view_of_statement(text, Place("lake", "Shop"), known)
    assert query.tables == ("shop.orders",)
    assert parse_view("SELECT id FROM SHOP.`Orders`").tables == ("shop.orders",)  # of an older version


@pytest.mark.parametrize(
    ("catalog", "sentence"),
    [
        ("", r"'lake' in lake\.shop\.orders is a catalog of Spark, .* without a catalog: write shop\.orders"),
        (
            "other",
            r"lake\.shop\.orders is in another catalog than the view, which can read tables of the catalog other",
        ),
    ],
)
def test_a_table_with_a_catalog_is_refused_by_its_name(catalog: str, sentence: str) -> None:
    """The error of any query said what a maintained join takes."""
    with pytest.raises(Unsupported, match=sentence) as caught:
        view_of_statement("SELECT id FROM lake.shop.orders", Place(catalog, "shop"), known)
    assert caught.value.code == "view-query"


def test_a_name_with_a_catalog_is_refused_as_a_name() -> None:
    with pytest.raises(InvalidRequest, match=r"'lake\.shop\.v' is not a table name: write database\.table, without"):
        split("lake.shop.v")


def test_a_key_of_another_type_matches_as_spark_says(shop: tablestore.Store) -> None:
    """A right table that was created again with keys of another type matched no row, and the view lost its values."""
    view = shop.maintain_join("shop.v", left="shop.l", right="shop.r", on="x", kind="left", select="l.k, r.y")
    view.refresh()
    shop.drop_table("shop.r")
    shop.create_table("shop.r", "id STRING, y STRING", primary_key=["id"])
    with pytest.raises(Unsupported, match="has values of the types int64 and string") as caught:
        shop.maintained_view("shop.v").refresh()
    assert caught.value.code == "needs-spark"
    assert rows(view.table) == [{"k": 1, "y": "foo"}]
