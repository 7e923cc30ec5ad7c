"""The arguments of `maintain_join`: what users may ask for, and the text that it becomes."""

from __future__ import annotations

import pytest

from filestore.errors import InvalidRequest
from tablestore.views.join_arguments import asks_for, join_of_arguments, ordered
from tablestore.views.plan.join_query import JoinKind, JoinQuery
from tests.tables import define

LEFT = define("id BIGINT NOT NULL, planet BIGINT, star STRING, `from` INT", ["id"])
RIGHT = define("id BIGINT NOT NULL, name STRING, size INT", ["id"])
PAIRS = define("star STRING NOT NULL, id BIGINT NOT NULL, name STRING", ["star", "id"])


def asked(select: object = None, on: object = "planet", *, right: object = RIGHT, known: object = None) -> JoinQuery:
    sides = ordered("d.l", "d.r", {"d.l": LEFT, "d.r": right})  # type: ignore[dict-item]
    return join_of_arguments(sides, on, JoinKind.LEFT, select, None, known)  # type: ignore[arg-type]


def names(query: JoinQuery) -> list[str]:
    return [f"{column.side}.{column.source} {column.name}" for column in query.columns]


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
    assert names(asked(None, known=known)) == ["l.id id", "l.star star", "r.name name"]
    assert asks_for("l.*, r.name", asked("l.*, r.name"), known)
    assert asks_for(None, asked(None, known=known), known)
    assert not asks_for("l.id, l.star, l.planet, r.name", asked("l.id, l.star, l.planet, r.name"), known)
    assert not asks_for("l.*", asked("l.*"), known), "it has a column more"


def test_a_key_of_two_columns_takes_two_in_its_order() -> None:
    query = asked("l.id, r.name", ["star", "planet"], right=PAIRS)
    assert query.on == (("star", "star"), ("planet", "id"))
    assert query.left_columns == ("id", "star", "planet")
    assert query.right_columns == ("star", "id", "name")


@pytest.mark.parametrize(
    ("select", "on", "sentence"),
    [
        ("l.id, id AS other", "planet", "both tables have a column 'id'"),
        ("name", "planet", "the result lacks id"),
        ("l.id, r.name AS ID", "planet", "two of its columns have one name"),
        ("l.id, upper(r.name)", "planet", "has no name"),
        (
            "l.id, upper(r.name) AS u",
            "planet",
            r"UPPER\(r.name\) is no column of d.l \(id, planet, star, from\) or d.r",
        ),
        ("l.id, other.name", "planet", "other.name is no column of d.l"),
        ("*", "planet", "two of its columns have one name"),
        ("l.* EXCEPT (star), r.name", "planet", "cannot be taken apart"),
        ("x.l.id, r.name", "planet", "x.l.id is no column"),
        ("l.id)", "planet", "cannot be parsed"),
        ("l.id FROM r", "planet", "cannot be parsed"),
        ("l.id FROM d.other AS l UNION ALL SELECT r.id", "planet", "d.other is no table of the join"),
        ("l.id FROM d.l AS l UNION ALL SELECT r.id", "planet", "does not join two tables|no column"),
        ("l.id -- all of them", "planet", None),
        ("DISTINCT l.id", "planet", "has DISTINCT"),
        ("l.id, r.name", "star", "is joined by id, which is int64, with a column that is string"),
        ("l.id, r.name", ["planet", "id"], "has 2 columns, and the primary key of d.r has 1"),
        ("l.id, l.nam", "planet", "l.nam is no column of d.l"),
        ("l.id, nothing", "planet", "nothing is no column of d.l"),
        ("l.id", "plan", "l.`?plan`? is no column|joined without a column"),
        ("", "planet", "names no column"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_a_sentence(
    select: str, on: str | list[str], sentence: str | None
) -> None:
    if sentence is None:
        assert names(asked(select, on)) == ["l.id id"]
        return
    with pytest.raises(InvalidRequest, match=sentence) as caught:
        asked(select, on)
    assert caught.value.code == "bad-join"


def test_tables_need_keys() -> None:
    keyless = define("id BIGINT, planet BIGINT")
    with pytest.raises(InvalidRequest, match=r"d\.l and d\.r have no primary key"):
        ordered("d.l", "d.r", {"d.l": keyless, "d.r": keyless})
    with pytest.raises(InvalidRequest, match="kind='outer'"):
        JoinKind.of("outer")


def test_a_table_of_events_is_the_left_one_wherever_it_was_named() -> None:
    events = define("what STRING, planet BIGINT, at TIMESTAMP")
    sides = ordered("d.r", "d.e", {"d.r": RIGHT, "d.e": events})
    query = join_of_arguments(sides, "planet", JoinKind.INNER, "r.what, l.name", "AT", None)
    assert names(query) == ["l.what what", "r.name name"]
    assert (query.left, query.right) == ("d.e", "d.r")
    assert query.time is not None
    assert query.time.column == "at"
