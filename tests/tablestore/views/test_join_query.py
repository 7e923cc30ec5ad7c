"""The query of a view: what users may ask for, its text, and its way back from the text."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest, NotFound, Unsupported
from tablestore.views.joins.join_query import JoinColumn, JoinKind, JoinQuery, Side, join_query, parse_join
from tests.tables import define

LEFT = define("id BIGINT NOT NULL, planet BIGINT, star STRING, `from` INT", ["id"])
RIGHT = define("id BIGINT NOT NULL, name STRING, size INT", ["id"])
PAIRS = define("star STRING NOT NULL, id BIGINT NOT NULL, name STRING", ["star", "id"])

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
COLUMNS = st.builds(JoinColumn, NAMES, st.sampled_from(Side), NAMES)
IDENTIFIERS = st.from_regex(r"[a-z_][a-z0-9_]{0,5}\.[a-z_][a-z0-9_]{0,5}", fullmatch=True)
QUERIES = st.builds(
    JoinQuery,
    IDENTIFIERS,
    IDENTIFIERS,
    st.sampled_from(JoinKind),
    st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=3).map(tuple),
    st.lists(COLUMNS, min_size=1, max_size=4).map(tuple),
)


def asked(select: object = None, on: object = "planet", **how: object) -> JoinQuery:
    return join_query(("d.l", LEFT), ("d.r", how.pop("right", RIGHT)), on, JoinKind.LEFT, select, **how)  # type: ignore[arg-type]


def names(query: JoinQuery) -> list[str]:
    return [f"{column.side}.{column.source} {column.name}" for column in query.columns]


@given(QUERIES)
def test_a_query_comes_back_from_its_text(query: JoinQuery) -> None:
    assert parse_join(query.sql()) == query


def test_its_text_is_sql() -> None:
    assert asked(["l.id", "r.name AS planet"]).sql() == (
        "SELECT l.`id` AS `id`, r.`name` AS `planet` FROM `d`.`l` AS l LEFT JOIN `d`.`r` AS r ON l.`planet` = r.`id`"
    )


def test_without_a_list_it_has_all_columns_but_the_key_of_the_right_table() -> None:
    assert names(asked()) == ["l.id id", "l.planet planet", "l.star star", "l.from from", "r.name name", "r.size size"]


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        ("l.id, r.id AS planet", ["l.id id", "r.id planet"]),
        (["l.id", "name", "size AS width"], ["l.id id", "r.name name", "r.size width"]),
        ("l.*, r.name", ["l.id id", "l.planet planet", "l.star star", "l.from from", "r.name name"]),
        ("l.id AS k, l.`from`", ["l.id k", "l.from from"]),
    ],
)
def test_columns_are_named_as_in_sql(select: str | list[str], wanted: list[str]) -> None:
    assert names(asked(select)) == wanted


def test_all_columns_of_a_view_that_exists_are_those_that_it_has() -> None:
    known = asked("l.id, l.star, r.name")
    assert names(asked("l.*, r.name", known=known)) == ["l.id id", "l.star star", "r.name name"]
    assert names(asked(None, known=known)) == ["l.id id", "l.star star", "r.name name"]


def test_a_key_of_two_columns_takes_two_in_its_order() -> None:
    query = asked("l.id, r.name", ["star", "planet"], right=PAIRS)
    assert query.on == (("star", "star"), ("planet", "id"))
    assert query.left_columns == ("id", "star", "planet")
    assert query.right_columns == ("star", "id", "name")


@pytest.mark.parametrize(
    ("select", "on", "sentence"),
    [
        ("l.id, id", "planet", "both tables have a column 'id'"),
        ("name", "planet", "the result lacks id"),
        ("l.id, r.name AS ID", "planet", "two columns 'ID'"),
        ("l.id, upper(r.name)", "planet", "select has"),
        ("l.id, other.name", "planet", "select has"),
        ("*", "planet", "select has"),
        ("l.* EXCEPT (star), r.name", "planet", "select has"),
        ("x.l.id, r.name", "planet", "select has"),
        ("l.id)", "planet", "is no list of columns"),
        ("l.id FROM r", "planet", "is no list of columns"),
        ("DISTINCT l.id", "planet", "is no list of columns"),
        ("l.id, r.name", "star", "is string and d.r.id is int64"),
        ("l.id, r.name", ["planet", "id"], "has 2 columns, and the primary key of d.r has 1"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_a_sentence(select: str, on: str | list[str], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence) as caught:
        asked(select, on)
    assert caught.value.code == "bad-join"


@pytest.mark.parametrize(("select", "on"), [("l.id, l.nam", "planet"), ("l.id, nothing", "planet"), ("l.id", "plan")])
def test_a_column_that_no_table_has_is_not_found(select: str, on: str) -> None:
    with pytest.raises(NotFound):
        asked(select, on)


def test_tables_need_keys() -> None:
    keyless = define("id BIGINT, planet BIGINT")
    with pytest.raises(InvalidRequest, match=r"d\.l has no primary key"):
        join_query(("d.l", keyless), ("d.r", RIGHT), "planet", JoinKind.INNER, "l.id")
    with pytest.raises(InvalidRequest, match=r"the primary key of d\.r has 0 \(none\)"):
        join_query(("d.l", LEFT), ("d.r", keyless), "planet", JoinKind.INNER, "l.id")
    with pytest.raises(InvalidRequest, match="kind='outer'"):
        JoinKind.of("outer")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT l.id FROM d.l AS l",
        "SELECT l.id FROM d.l AS l JOIN d.r AS r ON l.a > r.b",
        "SELECT count(*) FROM d.l AS l JOIN d.r AS r ON l.a = r.b",
        "SELECT x.id FROM d.l AS x JOIN d.r AS r ON x.a = r.b",
        "SELECT l.id AS id FROM d.l AS l JOIN d.r AS r ON l.a = r.b WHERE l.id > 1",
        "SELECT l.id AS id FROM d.l AS l FULL JOIN d.r AS r ON l.a = r.b",
        "SELECT l.id AS id FROM d.l AS l CROSS JOIN d.r AS r",
        "SELECT l.id AS id FROM d.l AS l INNER JOIN d.r AS r ON r.b = l.a",
        "SELECT l.id AS id FROM (SELECT 1) AS l INNER JOIN d.r AS r ON l.a = r.b",
        "DROP TABLE d.l",
        "no query",
    ],
)
def test_another_query_is_not_taken_for_a_join(text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        parse_join(text)
    assert caught.value.code == "view-query"


def test_a_query_is_a_value() -> None:
    query = asked("l.id, r.name")
    assert hash(query) == hash(asked("l.id, r.name"))
    assert dataclasses.replace(query, kind=JoinKind.INNER) != query
