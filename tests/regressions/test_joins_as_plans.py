"""Found by a review of joins as plans of the one tree: queries that were taken for one by key, or were one no more."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import tablestore
from filestore.errors import InvalidRequest, TableStoreError
from tablestore.views.view import View
from tests.warehouses import Row, in_order, rows, warehouse


@pytest.fixture
def shop() -> Iterator[tablestore.Store]:
    with warehouse() as store:
        orders = store.create_table("shop.o", "id BIGINT, p INT, amount INT", primary_key=["id"])
        orders.write([{"id": 1, "p": 1, "amount": 10}, {"id": 2, "p": 2, "amount": 20}])
        store.create_table("shop.p", "id BIGINT, name STRING", primary_key=["id"]).write([{"id": 1, "name": "one"}])
        store.create_table("shop.k", "y INT, z INT").write([{"y": 1, "z": 1}, {"y": 2, "z": 2}])
        yield store


def lived(view: View, expected: list[Row]) -> None:
    view.refresh()
    assert in_order(rows(view.table)) == in_order(expected)
    assert view.compare() == []


@pytest.mark.parametrize(
    "tables", ["shop.o AS o CROSS JOIN shop.k AS k", "shop.k AS k CROSS JOIN shop.o AS o", "shop.o AS o, shop.k AS k"]
)
def test_a_cross_join_with_a_table_without_a_key_is_no_join_by_one(shop: tablestore.Store, tables: str) -> None:
    """No columns are all of no key, so each row was taken for one without a partner, or for one of several."""
    view = shop.create_materialized_view("shop.v", f"SELECT o.id, k.y, k.z FROM {tables}", primary_key=["id", "z"])
    lived(view, [{"id": n, "y": z, "z": z} for n in (1, 2) for z in (1, 2)])
    shop.table("shop.k").write([{"y": 3, "z": 3}])
    lived(view, [{"id": n, "y": z, "z": z} for n in (1, 2) for z in (1, 2, 3)])


@pytest.mark.parametrize("join", ["CROSS JOIN shop.k {} AS f", "JOIN shop.p {} AS f ON f.id > e.y"])
def test_only_by_a_key_events_are_looked_up(shop: tablestore.Store, join: str) -> None:
    join = join.format("FOR SYSTEM_TIME AS OF current_timestamp()")
    with pytest.raises(TableStoreError, match="events cannot be looked up by this query") as caught:
        shop.create_materialized_view("shop.v", f"SELECT e.y FROM shop.k AS e {join}")
    assert caught.value.code == "view-query"
    assert "v" not in shop.list_tables("shop")


@pytest.mark.parametrize(
    ("narrow", "wide", "beyond"),
    [("INT", "BIGINT", 3_000_000_000), ("TINYINT", "INT", 1000), ("DECIMAL(4, 2)", "DECIMAL(12, 3)", Decimal("1.005"))],
)
@pytest.mark.parametrize("composite", [False, True])
def test_a_key_that_a_foreign_key_cannot_have_is_named_by_no_row(
    shop: tablestore.Store, narrow: str, wide: str, beyond: Any, composite: bool
) -> None:
    """Keys were cast to the type of the foreign key, and a refresh failed as soon as one did not fit."""
    more, key = (", s STRING", ["k", "s"]) if composite else ("", ["k"])
    left = shop.create_table("shop.l", f"id BIGINT, x {narrow}{more}", primary_key=["id"], options={"bucket": "2"})
    right = shop.create_table("shop.r", f"k {wide}{more}, name STRING", primary_key=key)
    one = type(beyond)(1)
    extra = {"s": "a"} if composite else {}
    left.write([{"id": 1, "x": one} | extra, {"id": 2, "x": None} | extra])
    on = "l.x = r.k" + (" AND l.s = r.s" if composite else "")
    view = shop.create_materialized_view("shop.v", f"SELECT l.id, r.name FROM shop.l l LEFT JOIN shop.r r ON {on}")
    assert "bucket by bucket" in view.explain()[2]
    view.refresh()
    right.write([{"k": beyond, "name": "beyond"} | extra, {"k": one, "name": "one"} | extra])
    lived(view, [{"id": 1, "name": "one"}, {"id": 2, "name": None}])
    right.write([{"k": beyond, "_kind": "-D"} | extra])
    lived(view, [{"id": 1, "name": "one"}, {"id": 2, "name": None}])


def existing(store: tablestore.Store, query: str, columns: str, key: list[str], **options: str) -> View:
    """A view as the version before has created it, which took its query for any other one."""
    own = {"view.query": query, "view.engine": "spark"} | {f"view.{name}": value for name, value in options.items()}
    store.create_table("shop.v", columns, primary_key=key, options=own)
    return store.maintained_view("shop.v")


@pytest.mark.parametrize(
    ("query", "columns", "key"),
    [
        (
            "SELECT o.id, o.AMOUNT, p.NAME FROM `shop`.`p` AS p JOIN `shop`.`o` AS o ON o.p = p.id",
            "id BIGINT, AMOUNT INT, NAME STRING",
            ["id"],
        ),
        (
            "SELECT o.ID, o.amount, p.name FROM `shop`.`p` AS p JOIN `shop`.`o` AS o ON o.p = p.id",
            "ID BIGINT, amount INT, name STRING",
            ["ID"],
        ),
    ],
    ids=["columns", "key"],
)
def test_a_view_has_the_spelling_with_which_it_was_created(
    shop: tablestore.Store, query: str, columns: str, key: list[str]
) -> None:
    view = existing(shop, query, columns, key, incremental="required")
    assert view.explain()[0] == "shop.v is refreshed incrementally, without Spark"
    names = view.table.schema.names
    lived(view, [dict(zip(names, (1, 10, "one"), strict=True))])
    shop.table("shop.p").write([{"id": 1, "name": "two"}])
    lived(view, [dict(zip(names, (1, 10, "two"), strict=True))])
    assert view.rebuild().whole


def test_a_view_has_the_key_with_which_it_was_created(shop: tablestore.Store) -> None:
    """Of a join of two keys one is chosen, and it was another one."""
    query = "SELECT p.id AS pid, o.id, p.name FROM `shop`.`o` AS o JOIN `shop`.`p` AS p ON o.id = p.id"
    view = existing(shop, query, "pid BIGINT, id BIGINT, name STRING", ["pid"], incremental="required")
    assert view.explain()[0] == "shop.v is refreshed incrementally, without Spark"
    lived(view, [{"pid": 1, "id": 1, "name": "one"}])
    shop.table("shop.p").write([{"id": 2, "name": "two"}])
    lived(view, [{"pid": 1, "id": 1, "name": "one"}, {"pid": 2, "id": 2, "name": "two"}])


@pytest.mark.parametrize(("key", "options"), [(["pid"], {}), ([], {"bucket": "4"})])
def test_a_statement_may_choose_the_key_and_the_buckets(
    shop: tablestore.Store, key: list[str], options: dict[str, str]
) -> None:
    """It was refused, since a join by a key has those of its left table."""
    query = "SELECT p.id AS pid, o.id, p.name FROM shop.o AS o JOIN shop.p AS p ON o.id = p.id"
    view = shop.create_materialized_view("shop.v", query, primary_key=key, options=options)
    assert view.table.definition.buckets == int(options.get("bucket", "1"))
    assert view.table.definition.primary_key == ("pid",), "that of the table which follows from the other's key"
    lived(view, [{"pid": 1, "id": 1, "name": "one"}])
    shop.table("shop.p").write([{"id": 2, "name": "two"}])
    lived(view, [{"pid": 1, "id": 1, "name": "one"}, {"pid": 2, "id": 2, "name": "two"}])


@pytest.mark.parametrize("select", [None, "l.*", ["l.*"]])
def test_a_join_is_opened_again_after_its_tables_have_got_columns(shop: tablestore.Store, select: Any) -> None:
    """A side of which the view has no column was taken for one of which nothing is known."""
    shop.create_table("shop.only", "id INT", primary_key=["id"])
    asked = {"left": "shop.o", "right": "shop.only", "on": "p", "select": select}
    view = shop.maintain_join("shop.v", **asked)
    shop.table("shop.only").alter("ADD COLUMN amount STRING")
    shop.table("shop.o").alter("ADD COLUMN later INT")
    assert shop.maintain_join("shop.v", **asked).table.definition == view.table.definition
    with pytest.raises(TableStoreError) as caught:
        shop.maintain_join("shop.v", **asked | {"select": "l.id, l.p"})
    assert caught.value.code == "table-exists"


def test_a_join_of_a_table_with_itself_is_opened_again(shop: tablestore.Store) -> None:
    asked = {"left": "shop.o", "right": "shop.o", "on": "amount", "select": "l.id, r.p AS other"}
    shop.drop_table("shop.o")
    shop.create_table("shop.o", "id INT, p INT, amount INT", primary_key=["id"])
    view = shop.maintain_join("shop.v", **asked)
    shop.table("shop.o").alter("ADD COLUMN later INT")
    assert shop.maintain_join("shop.v", **asked).query == view.query


def test_the_doctor_compares_look_ups_by_the_columns_of_then(shop: tablestore.Store) -> None:
    """A column was renamed after the last refresh, and the doctor compared nothing."""
    view = shop.maintain_join("shop.v", left="shop.k", right="shop.p", on="y", kind="left", select="l.z, r.name")
    view.refresh()
    shop.table("shop.k").alter("RENAME COLUMN z TO other")
    assert shop.maintained_view("shop.v").compare() == []


@pytest.mark.parametrize("select", ["l.id, r.name /*", "l.id, r.name '", []])
def test_a_list_that_cannot_be_read_is_an_error_of_ours(shop: tablestore.Store, select: Any) -> None:
    """A comment without an end was an error of the parser."""
    with pytest.raises(InvalidRequest) as caught:
        shop.maintain_join("shop.v", left="shop.o", right="shop.p", on="p", select=select)
    assert caught.value.code == "bad-join"
    assert "\x1b" not in caught.value.message


def test_a_query_that_cannot_be_read_shows_the_place(shop: tablestore.Store) -> None:
    """The message had the codes by which a terminal underlines."""
    for query in ("SELECT id FROM shop.o WHERE AND amount > 1", "SELECT id, FROM shop.o /*", "SELECT FROM WHERE"):
        with pytest.raises(InvalidRequest, match="the query cannot be parsed: ") as caught:
            shop.create_materialized_view("shop.v", query)
        assert caught.value.code == "view-query"
        assert "\x1b" not in caught.value.message


def test_explain_says_that_a_column_is_gone_also_without_spark(shop: tablestore.Store) -> None:
    """It said that Spark computes the view, since the column is none of its tables."""
    view = shop.maintain_join("shop.v", left="shop.o", right="shop.p", on="p", select="l.id, r.name")
    shop.table("shop.p").alter("RENAME COLUMN name TO title")
    [line] = view.explain()
    assert line.startswith("shop.v cannot be refreshed: shop.v does not fit the tables of its query any more: the ")
    assert "r.`name` in it is no column of its tables. Give the tables back what they lack" in line


def test_one_equality_may_be_written_twice(shop: tablestore.Store) -> None:
    query = "SELECT o.id, p.name FROM shop.o o JOIN shop.p p ON o.p = p.id AND p.id = o.p"
    assert "bucket by bucket" in shop.create_materialized_view("shop.v", query).explain()[2]
