"""The query of CREATE MATERIALIZED VIEW: what it means, and what is refused."""

from __future__ import annotations

import pytest

from filestore.errors import InvalidRequest, NotFound, TableStoreError
from filestore.model.definition import TableDefinition
from tablestore.views.joins.join_query import JoinKind, JoinQuery, SystemTime, parse_join
from tablestore.views.joins.statement import join_of_statement, looks_up_events
from tablestore.views.sql.place import Place
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
    return join_of_statement(text, place, definition_of)


def names(query: JoinQuery) -> list[str]:
    return [f"{column.side}.{column.source} {column.name}" for column in query.columns]


def test_a_join_with_aliases() -> None:
    query = read("SELECT o.id, p.name AS planet FROM orders AS o LEFT JOIN planets p ON o.planet_id = p.id")
    assert (query.left, query.right, query.kind) == ("shop.orders", "shop.planets", JoinKind.LEFT)
    assert query.on == (("planet_id", "id"),)
    assert names(query) == ["l.id id", "r.name planet"]
    assert parse_join(query.sql()) == query


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
    ("text", "code", "sentence"),
    [
        ("SELECT id FROM orders", "view-query", "does not join two tables"),
        ("SELECT count(*) FROM orders o JOIN planets p ON o.planet_id = p.id", "view-query", "is no column"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id WHERE size > 1", "view-query", "has WHERE"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id GROUP BY id", "view-query", "has GROUP"),
        ("SELECT DISTINCT o.id FROM orders o JOIN planets p ON planet_id = p.id", "view-query", "has DISTINCT"),
        (
            "WITH x AS (SELECT 1) SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id",
            "view-query",
            "has WITH",
        ),
        ("SELECT o.id FROM orders o FULL JOIN planets p ON o.planet_id = p.id", "view-query", "a FULL JOIN"),
        ("SELECT o.id FROM orders o, planets p", "view-query", "a CROSS JOIN"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id > p.id", "view-query", "is no equality"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.id = o.planet_id", "view-query", "of one table"),
        ("SELECT o.id FROM orders o JOIN (SELECT 1) p ON o.id = p.id", "view-query", "does not join two tables"),
        ("SELECT o.id FROM orders o JOIN other.shop.planets p ON o.planet_id = p.id", "view-query", "another catalog"),
        ("INSERT INTO orders SELECT 1", "view-query", "has INSERT"),
        ("SELECT o.* EXCEPT (star) FROM orders o JOIN planets p ON o.planet_id = p.id", "view-query", "is no column"),
        ("SELECT o.id FROM orders VERSION AS OF 3 o JOIN planets p ON o.planet_id = p.id", "view-query", "all rows"),
        ("SELECT o.id FROM orders TABLESAMPLE (5 ROWS) o JOIN planets p ON planet_id = p.id", "view-query", "all rows"),
        ("SELECT o.a FROM orders AS o(a, b, c, d) JOIN planets p ON o.b = p.id", "view-query", "all rows"),
        ("SELECT o.id, o.p.name FROM orders o JOIN planets p ON o.planet_id = p.id", "view-query", "is no column"),
        (
            "SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.id AND o.id = p.id",
            "view-query",
            "has to equal several",
        ),
        ("SELECT o.id FROM orders o JOIN planets p ON o.planet_id = p.size", "bad-join", "join is by size"),
        ("SELECT o.id FROM orders o JOIN events e ON o.id = e.id", "bad-join", "is missing"),
        ("SELECT id FROM orders o JOIN planets p ON o.planet_id = p.id", "bad-join", "both tables have a column"),
        ("SELECT p.name FROM orders o JOIN planets p ON o.planet_id = p.id", "bad-join", "lacks id"),
        ("SELECT * FROM orders o JOIN planets p ON o.planet_id = p.id", "bad-join", "two columns 'id'"),
        ("SELECT orders.id FROM orders JOIN orders ON planet_id = id", "bad-join", "both tables are called orders"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.star = p.id", "bad-join", "is string"),
        ("SELECT o.id, planet_id FROM orders o |> JOIN planets p ON planet_id = p.id", "view-query", "join two tables"),
        ("SELECT FROM WHERE", "bad-join", "cannot be parsed"),
        ("SELECT o.nothing FROM orders o JOIN planets p ON o.planet_id = p.id", "unknown-column", "no column"),
        ("SELECT x.id FROM orders o JOIN planets p ON o.planet_id = p.id", "unknown-column", "is called 'x'"),
    ],
)
def test_what_cannot_be_kept_up_to_date_is_refused_with_a_sentence(text: str, code: str, sentence: str) -> None:
    with pytest.raises(TableStoreError, match=sentence) as caught:
        read(text)
    assert caught.value.code == code


EVENTS = "SELECT e.what, p.name FROM events e LEFT JOIN planets {} AS p ON e.id = p.id"


@pytest.mark.parametrize("clause", ["FOR SYSTEM_TIME AS OF", "for system_time as of", "TIMESTAMP AS OF"])
@pytest.mark.parametrize(("time", "column"), [("current_timestamp()", None), ("e.at", "At"), ("what", "what")])
def test_events_are_looked_up_as_of_a_time(clause: str, time: str, column: str | None) -> None:
    text = EVENTS.format(f"{clause} {time}")
    assert looks_up_events(text)
    if column == "what":
        with pytest.raises(InvalidRequest, match="is STRING, and events are looked up as of a TIMESTAMP"):
            read(text)
        return
    query = read(text)
    assert (query.left, query.right, query.kind, query.time) == (
        "shop.events", "shop.planets", JoinKind.LEFT, SystemTime(column)
    )  # fmt: skip
    assert query.left_columns == ("what", "id", *([] if column is None else [column]))
    assert parse_join(query.sql()) == query


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        (EVENTS.format(""), "bad-join", "shop.events has no primary key"),
        (EVENTS.format("FOR SYSTEM_TIME AS OF '2026-01-01'"), "view-query", "is no column of a table"),
        (EVENTS.format("FOR SYSTEM_TIME AS OF p.name"), "bad-join", "is no time of shop.events"),
        (EVENTS.format("VERSION AS OF 3"), "view-query", "one version of shop.planets"),
        (
            "SELECT o.id, p.name FROM orders o JOIN planets FOR SYSTEM_TIME AS OF current_timestamp() p "
            "ON o.planet_id = p.id",
            "bad-join",
            "shop.orders has a primary key, so that the result follows each change",
        ),
        (
            "SELECT e.what FROM planets p RIGHT JOIN events FOR SYSTEM_TIME AS OF current_timestamp() e ON e.id = p.id",
            "view-query",
            "does not read all rows",
        ),
        (
            "SELECT count(*) AS n FROM events e JOIN planets FOR SYSTEM_TIME AS OF e.at p ON e.id = p.id",
            "view-query",
            "is no column",
        ),
    ],
)
def test_other_look_ups_of_events_are_refused(text: str, code: str, sentence: str) -> None:
    with pytest.raises(TableStoreError, match=sentence) as caught:
        read(text)
    assert caught.value.code == code


def test_which_queries_look_events_up() -> None:
    assert not looks_up_events("SELECT 1 +")
    assert not looks_up_events(EVENTS.format("VERSION AS OF 3"))
    assert not looks_up_events("SELECT * FROM planets FOR SYSTEM_TIME AS OF current_timestamp() p")


def test_a_table_is_joined_with_itself() -> None:
    query = read("SELECT a.id, b.Amount FROM orders a JOIN orders b ON a.planet_id = b.id")
    assert (query.left, query.right) == ("shop.orders", "shop.orders")
    with pytest.raises(InvalidRequest):
        read("SELECT a.id, b.id FROM orders a JOIN orders b ON a.planet_id = b.id")
