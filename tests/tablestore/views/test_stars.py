"""What stars in the queries of views stand for."""

from __future__ import annotations

import pytest

from filestore.errors import NotFound
from filestore.model.definition import TableDefinition
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import view_of_statement
from tests.tables import define

TABLES = {
    "shop.a": define("id BIGINT NOT NULL, n INT, s STRUCT<x: INT>", ["id"]),
    "shop.b": define("id BIGINT NOT NULL, m INT", ["id"]),
}
A, B, OF = "`a`.`id`, `a`.`n`, `a`.`s`", "`b`.`id`, `b`.`m`", "`o`.`id`, `o`.`n`, `o`.`s`"


def expanded(text: str) -> str:
    """The query of a view, with names of tables as they were written."""

    def definition_of(name: str) -> TableDefinition:
        if name not in TABLES:
            raise NotFound(f"there is no table {name}", code="table-not-found")
        return TABLES[name]

    found = view_of_statement(text, Place("lake", "shop"), definition_of)
    return found.text.replace("`shop`.`a`", "a").replace("`shop`.`b`", "b")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("SELECT * FROM a", f"SELECT {A} FROM a"),
        ("SELECT *, n + 1 AS m FROM a", f"SELECT {A}, n + 1 AS m FROM a"),
        ("SELECT DISTINCT o.* FROM a o", f"SELECT DISTINCT {OF} FROM a o"),
        ("SELECT * FROM (SELECT * FROM a) AS o", f"SELECT {OF} FROM (SELECT {A} FROM a) AS o"),
        ("SELECT * FROM (SELECT id, n AS m FROM a)", "SELECT `id`, `m` FROM (SELECT id, n AS m FROM a)"),
        ("SELECT * FROM (SELECT *, 1 AS x FROM b)", f"SELECT `id`, `m`, `x` FROM (SELECT {B}, 1 AS x FROM b)"),
        (
            "SELECT b.m, q.* FROM b JOIN (SELECT id AS i FROM a) q ON q.i = b.id",
            "SELECT b.m, `q`.`i` FROM b JOIN (SELECT id AS i FROM a) q ON q.i = b.id",
        ),
        ("SELECT * FROM a LEFT SEMI JOIN b ON a.id = b.id", f"SELECT {A} FROM a LEFT SEMI JOIN b ON a.id = b.id"),
        ("SELECT shop.a.*, Shop.B.* FROM a JOIN b ON a.id = b.id", f"SELECT {A}, {B} FROM a JOIN b ON a.id = b.id"),
        ("SELECT lake.shop.a.* FROM a", f"SELECT {A} FROM a"),
        ("SELECT * FROM b UNION ALL SELECT * FROM b", f"SELECT {B} FROM b UNION ALL SELECT {B} FROM b"),
        (
            "SELECT * FROM (SELECT id FROM a UNION ALL (SELECT m FROM b)) u",
            "SELECT `u`.`id` FROM (SELECT id FROM a UNION ALL (SELECT m FROM b)) u",
        ),
        (
            "WITH o AS (SELECT * FROM a), p AS (SELECT *, 1 AS x FROM o) SELECT * FROM p",
            f"WITH o AS (SELECT {A} FROM a), p AS (SELECT {OF}, 1 AS x FROM o) "
            "SELECT `p`.`id`, `p`.`n`, `p`.`s`, `p`.`x` FROM p",
        ),
        (
            "SELECT * FROM (WITH o AS (SELECT id FROM a) SELECT * FROM o) q",
            "SELECT `q`.`id` FROM (WITH o AS (SELECT id FROM a) SELECT `o`.`id` FROM o) q",
        ),
        (
            "SELECT *, CASE WHEN n > 1 THEN 'from' END AS c FROM (SELECT * FROM a WHERE n IN (1, 2)) AS o WHERE id > 0",
            f"SELECT {OF}, CASE WHEN n > 1 THEN 'from' END AS c FROM (SELECT {A} FROM a WHERE n IN (1, 2)) AS o WHERE "
            "id > 0",
        ),
    ],
)
def test_a_star_stands_for_columns_wherever_it_is(text: str, result: str) -> None:
    assert expanded(text) == result


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM a JOIN b USING (id)",
        "SELECT b.* FROM a JOIN b USING (id)",
        "SELECT a.* FROM a LEFT SEMI JOIN b USING (id)",
        "SELECT b.* FROM a NATURAL JOIN b",
        "SELECT shop.a.* FROM a AS shop",
        "SELECT * FROM (SELECT array(s)[0].x FROM a) q",
        "SELECT * FROM b UNION ALL SELECT id, count(*) FROM a GROUP BY id",
        "SELECT * FROM b UNION ALL SELECT * FROM b ORDER BY id, m",
        "SELECT * EXCEPT (n) FROM a",
        "SELECT a.s.* FROM a",
        "SELECT * FROM a JOIN VALUES (1) AS v(x) ON v.x = a.id",
        "SELECT * FROM (SELECT a.id, b.id FROM a JOIN b ON a.id = b.id) q",
        "SELECT * FROM (SELECT id FROM a) JOIN (SELECT m FROM b) ON id = m",
        "SELECT * FROM (SELECT id FROM a) AS q(x)",
        "SELECT * FROM (SELECT count(*) FROM a) q",
        "SELECT * FROM a AS q JOIN b AS q ON true",
        "SELECT id, (SELECT count(*) FROM b) AS c FROM a WHERE EXISTS (SELECT * FROM b)",
        "SELECT * FROM (SELECT id FROM a INTERSECT SELECT id FROM b) q",
        "SELECT * FROM a PIVOT (max(n) FOR id IN (1, 2))",
        "SELECT * FROM a LATERAL VIEW explode(array(1)) v AS x",
        "FROM a |> SELECT *",
        "WITH o(x) AS (SELECT id FROM a) SELECT * FROM o",
        "WITH RECURSIVE o AS (SELECT id FROM a UNION ALL SELECT id + 1 FROM o WHERE id < 9) SELECT * FROM o",
    ],
)
def test_a_star_whose_columns_have_no_names_stays(text: str) -> None:
    assert expanded(text) == text
