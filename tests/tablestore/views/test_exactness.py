"""Queries that have the same values each time, to the last bit; of all others the doctor compares sums nearly."""

from __future__ import annotations

import pytest

from tablestore.views.plan.exactness import is_exact
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import view_of_statement
from tests.tables import define

TABLES = {
    "s.a": define("id BIGINT NOT NULL, n INT, m DECIMAL(10, 2), t STRING, at TIMESTAMP", ["id"]),
    "s.f": define("id BIGINT NOT NULL, d DOUBLE, n INT", ["id"]),
    "s.deep": define("id BIGINT NOT NULL, n INT, x ARRAY<STRUCT<y: FLOAT>>", ["id"]),
}


@pytest.mark.parametrize(
    ("query", "exact"),
    [
        ("SELECT id, d / 3 AS x FROM s.f", True),
        ("SELECT n, count(*) AS c, sum(m) AS s, max(t) AS t, min(at) AS at FROM s.a GROUP BY n", True),
        ("SELECT n, sum(CASE WHEN t = 'x' THEN m * 2 ELSE -1 END) AS s FROM s.a GROUP BY n", True),
        ("SELECT id, sum(n) OVER (PARTITION BY t) AS s FROM s.a", True),
        ("SELECT f.n, sum(a.n) AS s FROM s.f JOIN s.a ON f.id = a.id GROUP BY f.n", True),
        ("SELECT n, sum(d) AS s FROM s.f GROUP BY n", False),
        ("SELECT n, max(d) AS s FROM s.f GROUP BY n", False),
        ("SELECT * FROM (SELECT f.*, count(*) OVER (PARTITION BY n) AS c FROM s.f)", False),
        ("SELECT n, avg(n) AS s FROM s.a GROUP BY n", False),
        ("SELECT n, sum(n / 3) AS s FROM s.a GROUP BY n", False),
        ("SELECT n, sum(CAST(t AS DOUBLE)) AS s FROM s.a GROUP BY n", False),
        ("SELECT n, sum(n * 1.5D) AS s FROM s.a GROUP BY n", False),
        ("SELECT n, sum(n * 1e0) AS s FROM s.a GROUP BY n", False),
        ("SELECT n, sum(sqrt(n)) AS s FROM s.a GROUP BY n", False),
        ("SELECT n, sum(x) AS s FROM (SELECT n, n / 3 AS x FROM s.a) GROUP BY n", False),
        ("SELECT n, sum(y) AS s FROM (SELECT n, x + 1 AS y FROM (SELECT n, n / 3 AS x FROM s.a)) GROUP BY n", False),
        ("SELECT c, sum(c) AS t FROM (SELECT n, count(*) AS c FROM s.a GROUP BY n) GROUP BY c", True),
        ("SELECT n, mine(n) AS s FROM s.a GROUP BY n", False),
        ("SELECT n, sum(x[0].y) AS s FROM s.deep GROUP BY n", False),
        ("SELECT id, (SELECT sum(d) FROM s.f WHERE f.id = a.id) AS s FROM s.a", False),
        ("SELECT n, first(t) AS t FROM s.a GROUP BY n", False),
    ],
)
def test_exactness(query: str, exact: bool) -> None:
    read = view_of_statement(query, Place("", "s"), TABLES.__getitem__)
    assert is_exact(read, {name: TABLES[name] for name in read.tables}) is exact
