"""Queries that this process computes: their values, what they read, and what is left to Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tablestore.local_sql.database import Database
from tablestore.local_sql.programs import Program, Read, translated
from tablestore.local_sql.refusal import NotLocalError
from tests.tablestore.local_sql.random_expressions import ROWS

_NESTED = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("tags", pa.list_(pa.string())), ("name", pa.string())])
_SUM = "SELECT v, count(*) AS n, sum(id) AS total FROM r GROUP BY v"


def _result(query: str, rows: pa.Table = ROWS) -> list[tuple[object, ...]]:
    program = translated({"r": rows.schema, "out": query}, ["out"], in_utc=True)
    return _run(program, rows, "out")


def _run(program: Program, rows: pa.Table, name: str) -> list[tuple[object, ...]]:
    with Database(64 << 20) as database:
        database.run(program, lambda _, read: [rows.select(read.columns)])
        found = database.rows(f"SELECT * FROM {name}", program.relations[name].schema)
        return [tuple(row.values()) for part in found for row in part.to_pylist()]


@pytest.mark.parametrize(
    ("expression", "precision", "scale"),
    [
        ("m * 2", 12, 2),
        ("m + 100", 11, 2),
        ("0.908 * l", 24, 3),
        ("i - n", 18, 5),
        ("(007) * m", 12, 2),
        ("m * a", 14, 2),
    ],
)
def test_an_integer_beside_a_decimal_has_its_digits(expression: str, precision: int, scale: int) -> None:
    query = f"SELECT {expression} AS v FROM r"
    program = translated({"r": ROWS.schema, "out": query}, ["out"], in_utc=True)
    assert program.relations["out"].schema.field("v").type == pa.decimal128(precision, scale)


@pytest.mark.parametrize("integer", ["5L", "-5", "-(5)", "CAST(5 AS BIGINT)", "5Y", "(-5L)"])
def test_an_integer_beside_a_decimal_is_a_literal_or_none(integer: str) -> None:
    """5L and CAST(5 AS BIGINT) are one tree, and have different types beside a DECIMAL."""
    with pytest.raises(NotLocalError, match="with a DECIMAL"):
        translated({"r": ROWS.schema, "out": f"SELECT m * {integer} AS v FROM r"}, ["out"], in_utc=True)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 / 4", 0.25),
        ("7 DIV -2", -3),
        ("-7 % 3", -1),
        ("2147483648", 2**31),
        ("concat('a', nullif(s, s))", None),
        ("NULL <=> id", False),
        ("1 IN (2, NULL)", None),
        ("coalesce(NULL, 2, 3)", 2),
        ("greatest(1, NULL, 3)", 3),
        ("CASE 1 WHEN 2 THEN 'a' END", None),
        ("length('\U0001f600é')", 2),
        ("DATE '2024-02-28'", date(2024, 2, 28)),
        ("'a' < 'B'", False),
        ("CAST(3 AS BIGINT) * 2", 6),
        ("1 - -1", 2),
        ("year(DATE '2024-02-28')", 2024),
        ("dayofweek(DATE '2024-02-25')", 1),
        ("weekofyear(DATE '2021-01-03')", 53),
        ("last_day(DATE '2024-02-01')", date(2024, 2, 29)),
        ("date_sub(DATE '2024-03-01', 1)", date(2024, 2, 29)),
        ("datediff(DATE '2024-03-01', DATE '2024-02-28')", 2),
        ("to_date(TIMESTAMP '1969-12-28 23:59:59')", date(1969, 12, 28)),
        ("date_trunc('WEEK', TIMESTAMP '2024-02-28 10:11:12')", datetime(2024, 2, 26, tzinfo=UTC)),
        ("extract(DAY FROM TIMESTAMP '2024-02-28 10:11:12')", 28),
        ("second(TIMESTAMP '2024-02-28 10:11:12')", 12),
        ("substring('\U0001f600éa', 2, 1)", "é"),
        ("substr('abc', 2)", "bc"),
        ("left('abc', 0)", ""),
        ("ltrim('  a ')", "a "),
        ("trim(' \n ')", "\n"),
        ("replace('aXbX', 'X')", "ab"),
        ("contains('abc', '')", True),
        ("startswith('abc', 'b')", False),
    ],
)
def test_values(expression: str, expected: object) -> None:
    assert _result(f"SELECT {expression} AS v FROM r WHERE id = 1") == [(expected,)]


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(127 AS TINYINT) + CAST(1 AS TINYINT)",
        "2147483647 + i FROM r WHERE i > 0",
        "1 / (id - id)",
        "1 DIV (id - id)",
        "1 % (id - id)",
        "sum(l)",
        "(SELECT id FROM r)",
    ],
)
def test_errors_are_left_to_spark(expression: str) -> None:
    """There is a value for none of them in Spark."""
    head, _, rest = expression.partition(" FROM ")
    query = f"SELECT {expression} AS v FROM r" if not rest or "(" in head else f"SELECT {head} AS v FROM {rest}"
    rows = ROWS.filter(pc.greater(ROWS["l"], 0)) if "sum" in expression else ROWS
    with pytest.raises(NotLocalError, match="DuckDB cannot compute it"):
        _result(query, rows)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT CASE 3000000000 WHEN CAST(5 AS BIGINT) THEN l WHEN (-l) THEN l END AS v FROM r",
        "SELECT h AS k, max(l) AS v FROM r WHERE (3000000000 > (-1 * l)) GROUP BY k",
        "SELECT r1.id FROM r AS r1 LEFT SEMI JOIN (SELECT id, a, (-h) AS v FROM r WHERE (e <= e)) AS r2 ON r1.a = r2.a",
        "SELECT id FROM r WHERE l + 1 > l",
    ],
)
def test_an_error_is_one_whether_its_value_matters_or_not(query: str) -> None:
    """DuckDB compared with another constant instead, or left out what the result did not need; Spark fails."""
    with pytest.raises(NotLocalError, match="DuckDB cannot compute it"):
        _result(query)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT upper(s) AS v FROM r", r"it has upper\(s\)"),
        ("SELECT date_trunc(day, u) AS v FROM (SELECT u, s AS day FROM r) AS q", "a unit that is not written out"),
        ("SELECT date_trunc('decade', u) AS v FROM r", "a unit that is not written out"),
        ("SELECT date_trunc('M', u) AS v FROM r", "a unit that is not written out"),
        ("SELECT DATE_TRUNC ('Q', u) AS v FROM r", "a unit that is not written out"),
        ("SELECT date_trunc('DAY', u, 1) AS v FROM r", "with another number of arguments"),
        ("SELECT date_sub(e, 1, 2) AS v FROM r", "with another number of arguments"),
        ("SELECT date_sub(e, length(concat(s, t)), 2) AS v FROM r", "with another number of arguments"),
        ("SELECT timestamp_trunc(u, DAY) AS v FROM r", r"it has timestamp_trunc\("),
        ("SELECT starts_with(s, 'a') AS v FROM r", r"it has starts_with\("),
        ("SELECT ts_or_ds_to_date(u) AS v FROM r", r"it has ts_or_ds_to_date\("),
        ("SELECT day_of_week(e) AS v FROM r", r"it has day_of_week\("),
        ("SELECT `year`(e) AS v FROM r", r"it has `year`\(e\)"),
        ("SELECT extract('year' FROM u) AS v FROM r", "it has EXTRACT"),
        ("SELECT substring(s, 3000000000) AS v FROM r", "it has SUBSTRING"),
        ("SELECT left(s, 3000000000) AS v FROM r", "it has LEFT"),
        ("SELECT date_trunc('day', w) AS v FROM r", "it has DATE_TRUNC"),
        ("SELECT trunc(e, 'month') AS v FROM r", "it has trunc"),
        ("SELECT to_date(s, 'yyyy') AS v FROM r", "with another number of arguments"),
        ("SELECT to_date(s) AS v FROM r", "no DATE and no TIMESTAMP"),
        ("SELECT date_add(e, l) AS v FROM r", "it has DATE_ADD"),
        ("SELECT dateadd(MONTH, 1, e) AS v FROM r", "it has"),
        ("SELECT datediff(MONTH, e, e) AS v FROM r", "with another number of arguments"),
        ("SELECT extract(SECOND FROM u) AS v FROM r", "it has EXTRACT"),
        ("SELECT date_format(u, 'yyyy') AS v FROM r", "it has date_format"),
        ("SELECT u > TIMESTAMP '2024-02-30 00:00:00' AS v FROM r", "it has the TIMESTAMP"),
        ("SELECT substring(s, 0, 2) AS v FROM r", "it has SUBSTRING"),
        ("SELECT substring(s, -2) AS v FROM r", "it has SUBSTRING"),
        ("SELECT substring(s, i) AS v FROM r", "it has SUBSTRING"),
        ("SELECT left(s, -1) AS v FROM r", "it has LEFT"),
        ("SELECT trim('a' FROM s) AS v FROM r", "EXPRESSION"),
        ("SELECT replace(s, '', 'b') AS v FROM r", "it has REPLACE"),
        ("SELECT replace(s, t, 'b') AS v FROM r", "not written out"),
        (r"SELECT 'a\nb' AS v FROM r", "it has a backslash"),
        ("SELECT 'it''s' AS v FROM r", "two texts side by side"),
        ("SELECT b = c = TRUE AS v FROM r", "without parentheses in another comparison"),
        ("SELECT id FROM r LIMIT 1", "it has LIMIT in SELECT"),
        ("SELECT id FROM r ORDER BY id", "it has ORDER in SELECT"),
        ("SELECT a + 1 AS b2, b2 + 1 AS c2 FROM r", "b2 in it is no column"),
        ("SELECT id AS v FROM r GROUP BY d", "d as a group, whose values are not exact"),
        ("SELECT DISTINCT d FROM r", "DISTINCT over values that are not exact"),
        ("SELECT avg(m) AS v FROM r", r"AVG\(m\) of values of type decimal"),
        ("SELECT i = s AS v FROM r", "int32 and string where they have to be of one type"),
        ("SELECT id FROM r AS x, r AS y", "id in it may be several columns"),
        ("SELECT x.id FROM r AS x, r AS z RIGHT JOIN r AS y ON z.id = y.id", "RIGHT or FULL JOIN behind a comma"),
        ("SELECT id FROM r |> WHERE id > 1", "it has a pipe"),
        ("SELECT id + 1 FROM r", "has no name"),
        ("SELECT sum(id) OVER () AS v FROM r", r"it has SUM\(id\) OVER \(\)"),
        ("SELECT a AS k FROM r GROUP BY a HAVING k2 > 1", "k2 in it is no column"),
        ("SELECT i AS a, count(*) AS n FROM r GROUP BY i HAVING a > 1", "may be that of a table or of the result"),
        ("SELECT id FROM r UNION SELECT id FROM r", "UNION without ALL"),
        ("SELECT id FROM s", "it reads s, which is no table"),
        ("SELECT m * n * m * n AS v FROM r", "DECIMAL with more than 38 digits"),
        ("SELECT count(*) AS n FROM (SELECT a AS x, id AS X FROM r) AS v", "have one name"),
        ("SELECT v.x FROM (SELECT * FROM (SELECT p.id, q.id FROM r AS p, r AS q) AS u) AS v", "have one name"),
        ("SELECT i IN (SELECT a FROM r) AS v FROM r", "IN with a subquery elsewhere than in WHERE"),
        ("SELECT id FROM r WHERE (id IN (SELECT id FROM r)) IS NULL", "IN with a subquery elsewhere than in WHERE"),
        ("SELECT b, count(id IN (SELECT id FROM r)) AS v FROM r GROUP BY b", "subquery"),
        ("SELECT id FROM r WHERE id IN ((SELECT id FROM r))", "in two parentheses"),
        ("SELECT b < c NOT IN (FALSE, NULL) AS v FROM r", "without parentheses in another comparison"),
        ("SELECT b = NOT c AS v FROM r", "without parentheses in another comparison|cannot be read"),
        ("SELECT +s AS v FROM r", "a plus before a value"),
        ("SELECT -0::double AS v FROM r", "a cast by ::"),
        ("SELECT '${foo}' AS v FROM r", "a brace"),
        ("SELECT v.id FROM (WITH r2 AS (SELECT id FROM r) SELECT id FROM r2) AS v, r2", "r2, which is no table"),
        ("SELECT id FROM r GROUP BY 1.5", "GROUP BY 1.5"),
        ("SELECT id FROM r GROUP BY -1", "GROUP BY -1"),
        ("SELECT count() AS n FROM r", r"count\(\), with another number"),
        ("SELECT if(b, 1) AS v FROM r", r"it has if\(b, 1\), with another number"),
        (
            "SELECT a, (SELECT max(q.i) FROM r AS q WHERE q.a = p.a) AS v FROM r AS p GROUP BY a",
            "in a column of groups",
        ),
        ("SELECT a AS k FROM r GROUP BY a HAVING max(k) > 1", "k in HAVING of it"),
        ("SELECT id FROM r AS x JOIN r AS y USING (id) CROSS JOIN r AS z", "beside the column of USING"),
        ("SELECT x.id FROM r AS x JOIN r AS y USING (id)", "beside the column of USING"),
        ("SELECT " + " + ".join(["id"] * 900) + " AS v FROM r", "hundreds of operators"),
    ],
)
def test_what_is_not_known_is_left_to_spark(query: str, why: str) -> None:
    with pytest.raises(NotLocalError, match=why):
        _result(query)


@pytest.mark.parametrize(
    "expression", ["hour(u)", "to_date(u)", "year(u)", "date_trunc('day', u)", "u > TIMESTAMP '2024-02-28 00:00:00'"]
)
def test_what_depends_on_the_zone_is_computed_in_utc_alone(expression: str) -> None:
    relations: dict[str, pa.Schema | str] = {"r": ROWS.schema, "out": f"SELECT {expression} AS v FROM r"}
    assert translated(relations, ["out"], in_utc=True).relations
    with pytest.raises(NotLocalError, match="does not run in UTC"):
        translated(relations, ["out"])
    assert translated(relations | {"out": "SELECT year(e) AS a, hour(w) AS b FROM r"}, ["out"]).relations


def _reads(relations: dict[str, pa.Schema | str], wanted: Iterable[str]) -> dict[str, tuple[str, ...]]:
    program = translated(relations, wanted)
    return {name: one.columns for name, one in program.relations.items() if isinstance(one, Read)}


def test_only_columns_that_are_needed_are_read() -> None:
    """A table may have columns that are not computed here, as long as the result does not need them."""
    tables: dict[str, pa.Schema | str] = {"r": _NESTED}
    assert _reads({**tables, "out": "SELECT id AS a FROM r WHERE v > 1"}, ["out"]) == {"r": ("id", "v")}
    all_of = {**tables, "all": "SELECT * FROM r AS x", "out": "SELECT v, count(*) AS n FROM all GROUP BY v"}
    assert _reads(all_of, ["out"]) == {"r": ("v",)}
    assert _reads({**tables, "out": "SELECT count(*) AS n FROM r"}, ["out"]) == {"r": ("id",)}
    distinct = {**tables, "d": "SELECT DISTINCT id, v FROM r", "out": "SELECT id FROM d"}
    assert _reads(distinct, ["out"]) == {"r": ("id", "v")}
    unused = {**tables, "s": _NESTED, "unused": "SELECT id FROM s", "out": "SELECT id FROM r"}
    assert _reads(unused, ["out"]) == {"r": ("id",)}
    with pytest.raises(NotLocalError, match="its column tags has the type"):
        _reads(all_of, ["all"])


def test_columns_that_nothing_needs_are_null() -> None:
    rows = pa.table({"id": [1, 2], "v": [5, 5], "tags": [["a"], None], "name": ["x", "y"]}, schema=_NESTED)
    program = translated({"r": _NESTED, "all": "SELECT * FROM r AS x", "out": _SUM.replace("r ", "all ")}, ["out"])
    assert _run(program, rows, "out") == [(5, 2, 3)]


def test_names_of_with_are_those_of_their_query() -> None:
    """The name of an inner WITH hid a table outside."""
    query = "SELECT u.id FROM (WITH r AS (SELECT id FROM s) SELECT id FROM r) AS v RIGHT JOIN r AS u ON v.id = u.id"
    program = translated({"r": ROWS.schema, "s": ROWS.schema, "out": query}, ["out"])
    with Database(64 << 20) as database:
        database.run(program, lambda name, read: [ROWS.select(read.columns)] if name == "r" else [])
        assert sum(part.num_rows for part in database.rows("FROM out", ROWS.select(["id"]).schema)) == ROWS.num_rows


def test_an_error_while_rows_are_read_leaves_nothing_behind() -> None:
    """A program that ended within its result hid the error, and stayed."""
    program = translated({"r": ROWS.schema, "out": "SELECT x.id FROM r AS x, r AS y, r AS z, r AS u"}, ["out"])
    with pytest.raises(KeyError), Database(64 << 20) as database:
        database.run(program, lambda _, read: [ROWS.select(read.columns)])
        next(database.rows("FROM out", ROWS.select(["id"]).schema))
        raise KeyError
    with Database(64 << 20) as other:
        names = other.rows("SELECT database_name FROM duckdb_databases()", pa.schema([("name", pa.string())]))
        found = [name for part in names for name in part["name"].to_pylist() if name.startswith("program")]
        assert len(found) == 1


def test_programs_do_not_see_each_other() -> None:
    program = translated({"r": ROWS.schema, "out": "SELECT id FROM r"}, ["out"])
    with Database(64 << 20) as one, Database(64 << 20) as other:
        one.run(program, lambda _, read: [ROWS.select(read.columns)])
        other.run(program, lambda _, read: [])
        counts = [
            sum(part.num_rows for part in each.rows("FROM out", ROWS.select(["id"]).schema)) for each in (one, other)
        ]
    assert counts == [ROWS.num_rows, 0]


def test_an_error_of_who_reads_rows_stays_what_it_is() -> None:
    program = translated({"r": ROWS.schema, "out": "SELECT id FROM r"}, ["out"])

    def read(name: str, read: Read) -> Iterable[pa.Table]:
        yield ROWS.select(read.columns)
        raise KeyError(name)

    with Database(64 << 20) as database, pytest.raises(KeyError, match="r"):
        database.run(program, read)
