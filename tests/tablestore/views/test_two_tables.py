"""Queries that join two tables by the primary key of one, and those that do more."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import NotFound, TableStoreError, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.schema import Column, Schema
from tablestore.views.plan.join_query import JoinColumn, JoinKind, JoinQuery, Side, SystemTime
from tablestore.views.plan.scope import NotPlainError
from tablestore.views.plan.two_tables import join_of
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import parse_view, view_of_statement
from tests.tables import define

TABLES = {
    "shop.orders": define("id BIGINT NOT NULL, planet_id BIGINT, star STRING, Amount INT", ["id"]),
    "shop.planets": define("id BIGINT NOT NULL, name STRING, size INT", ["id"]),
    "sky.stars": define("star STRING NOT NULL, planet_id BIGINT NOT NULL, mass INT", ["star", "planet_id"]),
    "shop.events": define("id BIGINT, what STRING, At TIMESTAMP"),
}
HERE = Place("lake", "shop")


def definition_of(name: str) -> TableDefinition:
    try:
        return TABLES[name]
    except KeyError:
        raise NotFound(f"there is no table {name}", code="table-not-found") from None


def read(text: str, place: Place = HERE) -> JoinQuery:
    return join_of(view_of_statement(text, place, definition_of), TABLES)


def names(query: JoinQuery) -> list[str]:
    return [f"{column.side}.{column.source} {column.name}" for column in query.columns]


def test_a_join_with_aliases() -> None:
    query = read("SELECT o.id, p.name AS planet FROM orders AS o LEFT JOIN planets p ON o.planet_id = p.id")
    assert (query.left, query.right, query.kind) == ("shop.orders", "shop.planets", JoinKind.LEFT)
    assert query.on == (("planet_id", "id"),)
    assert names(query) == ["l.id id", "r.name planet"]
    assert join_of(parse_view(query.sql()), TABLES) == query


@pytest.mark.parametrize(
    "text",
    [
        "SELECT orders.id, name FROM shop.orders JOIN lake.shop.planets ON planets.id = planet_id",
        "select O.ID as id, P.Name as name from orders o inner join planets p on (o.PLANET_ID = p.Id)",
        "SELECT a.id, b.name FROM orders a JOIN planets b ON (a.planet_id = b.id)",
    ],
)
def test_names_may_be_short_and_of_any_case(text: str) -> None:
    assert read(text) == read("SELECT o.id, p.name FROM orders o JOIN planets p ON o.planet_id = p.id")


def test_a_right_join_changes_the_tables_places() -> None:
    right = read("SELECT o.id, p.name FROM planets p RIGHT OUTER JOIN orders o ON o.planet_id = p.id")
    assert right == read("SELECT o.id, p.name FROM orders o LEFT JOIN planets p ON o.planet_id = p.id")


def test_a_key_of_two_columns_in_any_order() -> None:
    query = read("SELECT id, mass FROM orders o JOIN sky.stars s ON s.planet_id = o.planet_id AND o.star = s.star")
    assert query.on == (("star", "star"), ("planet_id", "planet_id"))
    assert query == read("SELECT id, mass FROM orders JOIN sky.stars USING (planet_id, star)")


def test_stars_stand_for_all_columns() -> None:
    query = read("SELECT o.*, p.size FROM orders o JOIN planets p ON o.planet_id = p.id")
    assert names(query) == ["l.id id", "l.planet_id planet_id", "l.star star", "l.Amount Amount", "r.size size"]


def test_a_name_without_a_database_is_in_that_of_the_session() -> None:
    text = "SELECT o.id, s.mass FROM shop.orders o JOIN stars s USING (planet_id, star)"
    assert read(text, Place("lake", "sky")).right == "sky.stars"
    with pytest.raises(NotFound, match=r"shop\.stars"):
        read(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SELECT id FROM orders", "does not join two tables"),
        ("SELECT count(*) AS n FROM orders o JOIN planets p ON o.planet_id = p.id", "aggregates all rows"),
        ("SELECT o.id + 1 AS id FROM orders o JOIN planets p ON o.planet_id = p.id", "is no column"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id WHERE size > 1", "has WHERE"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id GROUP BY o.id", "has GROUP"),
        ("SELECT DISTINCT o.id FROM orders o JOIN planets p ON planet_id = p.id", "has DISTINCT"),
        ("WITH x AS (SELECT 1) SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id", "has WITH"),
        ("SELECT o.id FROM orders o FULL JOIN planets p ON o.planet_id = p.id", "a FULL JOIN"),
        ("SELECT o.id FROM orders o LEFT SEMI JOIN planets p ON o.planet_id = p.id", "does not join two tables"),
        ("SELECT o.id FROM orders o, planets p", "by no columns"),
        ("SELECT o.id FROM orders o CROSS JOIN events e", "by no columns of shop.events"),
        ("SELECT o.id FROM events e, orders o", "by no columns of shop.orders"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id > p.id", "is no equality"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id <=> p.id", "is no equality"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.id = o.planet_id", "of one table"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id AND o.id > 1", "is no equality"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id OR o.id = p.id", "is no equality"),
        ("SELECT o.id FROM orders o JOIN (SELECT 1 AS id) p ON o.id = p.id", "does not read plain tables"),
        ("SELECT o.id FROM orders o JOIN (SELECT id FROM planets) p ON o.id = p.id", "does not join two tables"),
        ("SELECT a.id FROM orders a JOIN planets b ON a.id = b.id JOIN planets c ON a.id = c.id", "join two tables"),
        ("SELECT o.id FROM orders o JOIN other.shop.planets p ON o.planet_id = p.id", "another catalog"),
        ("SELECT o.* EXCEPT (star) FROM orders o JOIN planets p ON o.planet_id = p.id", "cannot be taken apart"),
        ("SELECT o.id FROM orders VERSION AS OF 3 o JOIN planets p ON o.planet_id = p.id", "all rows"),
        ("SELECT o.id FROM orders TABLESAMPLE (5 ROWS) o JOIN planets p ON planet_id = p.id", "all rows|chooses other"),
        ("SELECT o.a FROM orders AS o(a, b, c, d) JOIN planets p ON o.b = p.id", "other names"),
        ("SELECT o.id, o.p.name FROM orders o JOIN planets p ON o.planet_id = p.id", "is no column"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id AND o.id = p.id", "has to equal several"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.size", "join is by size"),
        ("SELECT o.id FROM orders o JOIN events e ON o.star = e.what", "is missing"),
        ("SELECT id FROM orders o JOIN planets p ON o.planet_id = p.id", "both tables have a column 'id'"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = id", "both tables have a column 'id'"),
        ("SELECT * FROM orders o JOIN planets p ON o.planet_id = p.id", "have one name"),
        ("SELECT orders.id FROM orders JOIN orders ON planet_id = id", "have one name"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.star = p.id", "star is STRING"),
        ("SELECT o.id FROM orders o LEFT JOIN planets p ON o.star = p.id", "is joined by id, which is int64"),
        ("SELECT o.nothing FROM orders o JOIN planets p ON o.planet_id = p.id", "is no column"),
        ("SELECT x.id FROM orders o JOIN planets p ON o.planet_id = p.id", "is no column"),
        ("SELECT o.id, p.name FROM orders o JOIN planets p ON o.planet_id = p.id UNION ALL SELECT id, star FROM orders",
         "does not join two tables"),
    ],
)  # fmt: skip
def test_another_query_is_not_taken_for_such_a_join(text: str, sentence: str) -> None:
    with pytest.raises((NotPlainError, TableStoreError), match=sentence):
        read(text)


def test_in_an_inner_join_the_table_with_the_key_may_come_first() -> None:
    query = read("SELECT o.id, p.name FROM planets p JOIN orders o ON o.planet_id = p.id")
    assert query == read("SELECT o.id, p.name FROM orders o JOIN planets p ON o.planet_id = p.id")
    left = read("SELECT p.id, o.star FROM planets p LEFT JOIN orders o ON o.id = p.size")
    assert (left.left, left.right, left.on) == ("shop.planets", "shop.orders", (("size", "id"),))


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5).filter(str.strip)


@given(st.data(), st.lists(NAMES, min_size=4, max_size=8, unique_by=str.lower), st.sampled_from(JoinKind))
def test_a_join_comes_back_from_its_text(data: st.DataObject, names: list[str], kind: JoinKind) -> None:
    left = TableDefinition(Schema(tuple(Column(name, pa.int64()) for name in names)), (names[0],))
    right = TableDefinition(Schema(tuple(Column(name, pa.int32()) for name in reversed(names))), (names[1], names[2]))
    pairs = tuple((data.draw(st.sampled_from(names)), name) for name in right.primary_key)
    made = data.draw(st.lists(NAMES, min_size=1, max_size=5, unique_by=str.lower))
    columns = tuple(
        JoinColumn(name, data.draw(st.sampled_from(Side)), data.draw(st.sampled_from(names))) for name in made
    )
    query = JoinQuery("d.l", "d.r", kind, pairs, columns)
    assert join_of(parse_view(query.sql()), {"d.l": left, "d.r": right}) == query


EVENTS = "SELECT e.what, p.name FROM events e LEFT JOIN planets {} AS p ON e.id = p.id"


@pytest.mark.parametrize("clause", ["FOR SYSTEM_TIME AS OF", "for system_time as of", "TIMESTAMP AS OF"])
@pytest.mark.parametrize(("time", "column"), [("current_timestamp()", None), ("e.at", "At"), ("what", "what")])
def test_events_are_looked_up_as_of_a_time(clause: str, time: str, column: str | None) -> None:
    text = EVENTS.format(f"{clause} {time}")
    if column == "what":
        with pytest.raises(NotPlainError, match="is STRING, and events are looked up as of a TIMESTAMP"):
            read(text)
        return
    query = read(text)
    assert (query.left, query.right, query.kind, query.time) == (
        "shop.events", "shop.planets", JoinKind.LEFT, SystemTime(column)
    )  # fmt: skip
    assert query.left_columns == ("what", "id", *([] if column is None else [column]))
    assert join_of(parse_view(query.sql()), TABLES) == query


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (EVENTS.format("FOR SYSTEM_TIME AS OF '2026-01-01'"), "all rows"),
        (EVENTS.format("FOR SYSTEM_TIME AS OF p.name"), "is no time of shop.events"),
        (EVENTS.format("FOR SYSTEM_TIME AS OF id"), "both tables have a column"),
        (EVENTS.format("FOR SYSTEM_TIME AS OF nothing"), "is no column"),
        (EVENTS.format("VERSION AS OF 3"), "all rows"),
        (
            "SELECT e.what FROM planets p RIGHT JOIN events FOR SYSTEM_TIME AS OF current_timestamp() e ON e.id = p.id",
            "is behind shop.events, which is not joined by its primary key",
        ),
        (
            "SELECT e.what FROM planets p JOIN events FOR SYSTEM_TIME AS OF current_timestamp() e ON e.id = p.id",
            "is behind shop.events, which is not joined by its primary key",
        ),
        ("SELECT * FROM planets FOR SYSTEM_TIME AS OF current_timestamp() p", "all rows"),
        (
            "SELECT upper(e.what) AS w FROM events e JOIN planets FOR SYSTEM_TIME AS OF e.at p ON e.id = p.id",
            "is no column",
        ),
    ],
)
def test_other_look_ups_of_events_are_refused(text: str, sentence: str) -> None:
    with pytest.raises((NotPlainError, TableStoreError), match=sentence):
        read(text)


def test_only_a_statement_with_such_a_time_looks_up() -> None:
    assert view_of_statement(EVENTS.format("FOR SYSTEM_TIME AS OF e.At"), HERE, definition_of).looks_up
    assert not view_of_statement(EVENTS.format(""), HERE, definition_of).looks_up
    with pytest.raises(Unsupported, match="current_timestamp"):
        view_of_statement("SELECT current_timestamp() AS t FROM orders", HERE, definition_of)


def test_a_table_is_joined_with_itself() -> None:
    query = read("SELECT a.id, b.Amount FROM orders a JOIN orders b ON a.planet_id = b.id")
    assert (query.left, query.right) == ("shop.orders", "shop.orders")
    with pytest.raises(NotPlainError, match="have one name"):
        read("SELECT a.id, b.id FROM orders a JOIN orders b ON a.planet_id = b.id")
