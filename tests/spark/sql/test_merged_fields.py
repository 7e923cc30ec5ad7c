"""A MERGE that sets fields of a STRUCT, whatever else in it is cast."""

from __future__ import annotations

import itertools

import pytest
from pyspark.errors import AnalysisException

from tests.depth import Depth
from tests.spark.sql.conftest import Sql

SOURCE = "(SELECT * FROM VALUES (1{0}, {1}), (2{0}, {1}) v(id, n)) s"
CONDITIONS = ["", " AND t.id % 5 = 1", " AND s.n > 0.5", " AND t.s.a < '9'"]
SETS = {
    "s.a = 7": ((7, "x", (1, 2)), 1),
    "t.s.a = s.n": ((5, "x", (1, 2)), 1),
    "S.A = t.id + 1, t.s.in.Y = 9": ((2, "x", (1, 9)), 1),
    "t.s.in.x = s.n + 1, s.b = t.id, n = 8": ((3, "1", (6, 2)), 8),
}
"""By assignments, the struct and the number of the first row."""
TYPES = [("L", "5"), ("", "5"), ("", "5L"), ("L", "CAST(5 AS SMALLINT)")]


def test_fields_are_set(sql: Sql, depth: Depth) -> None:
    """Delta's rule took the statement for one of its own: DELTA_MERGE_UNEXPECTED_ASSIGNMENT_KEY."""
    struct = "STRUCT<a: INT, b: STRING, in: STRUCT<x: INT, y: INT>>"
    sql(f"CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, s {struct}, n INT)")
    stored = "(1, named_struct('a', 3, 'b', 'x', 'in', named_struct('x', 1, 'y', 2)), 1), (3, NULL, 3)"
    for sets, condition, (key, number) in depth.sample(itertools.product(SETS, CONDITIONS, TYPES), 4):
        sql(f"INSERT INTO lake.shop.t VALUES {stored}")
        sql(
            f"MERGE INTO lake.shop.t t USING {SOURCE.format(key, number)} ON t.id = s.id WHEN MATCHED{condition} "
            f"THEN UPDATE SET {sets} WHEN NOT MATCHED BY SOURCE AND t.id > 2 THEN UPDATE SET t.s.b = t.id"
        )
        (found, n), other = (
            sql("SELECT s, n FROM lake.shop.t WHERE id = 1")[0],
            sql("SELECT s.b FROM lake.shop.t WHERE id = 3")[0],
        )
        assert ((found.a, found.b, tuple(found["in"])), n) == SETS[sets], (sets, condition)
        assert other == ("3",)


@pytest.mark.deep
def test_names_of_the_target(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, s STRUCT<a: INT>, t STRUCT<a: INT, s: STRUCT<a: INT>>)")
    sql("INSERT INTO lake.shop.t VALUES (1, named_struct('a', 1), named_struct('a', 1, 's', named_struct('a', 1)))")
    sql("USE lake.shop")
    for number, key in enumerate(("s.a", "t.s.a", "shop.t.s.a", "lake.shop.t.s.a"), 2):
        merge = f"MERGE INTO t USING (SELECT 1 AS id) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET {key} = {number}L"
        sql(merge)
        assert sql("SELECT s.a FROM t") == [(number,)], key
    with pytest.raises(AnalysisException, match=r"(?i)conflict|multiple"):
        sql("MERGE INTO t USING (SELECT 1 AS id) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET s.a = 1, s.a = 2")


@pytest.mark.slow
def test_names_that_differ_in_case(sql: Sql) -> None:
    """With `caseSensitive` a name in the other case is none, as in all else of the statement."""
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, s STRUCT<a: INT>)")
    sql("INSERT INTO lake.shop.t VALUES (1, named_struct('a', 1))")
    merge = "MERGE INTO lake.shop.t t USING (SELECT 1 AS id) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET {0} = 2L"
    sql("SET spark.sql.caseSensitive = true")
    for key in ("S.a", "s.A", "T.s.a"):
        with pytest.raises(AnalysisException, match=r"UNRESOLVED_COLUMN|FIELD_NOT_FOUND"):
            sql(merge.format(key))
    sql(merge.format("t.s.a"))
    sql("SET spark.sql.caseSensitive = false")
    sql(merge.format("T.S.A"))
    assert sql("SELECT s.a FROM lake.shop.t") == [(2,)]
