"""The plan of a view of any query: what is incremental, by which key, and why the rest is not."""

from __future__ import annotations

import pytest
from sqlglot import exp

from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from tablestore.views.plan.functions import ORDERED, ROWS_OF_ROWS
from tablestore.views.plan.join_table import GivenTable
from tablestore.views.plan.nodes import Block, Form
from tablestore.views.plan.view_plan import Incremental, Mode, Whole, check_key, plan_view, with_key
from tablestore.views.plan.with_clause import without_with
from tablestore.views.refresh_order import refresh_order
from tablestore.views.sql.place import Place
from tablestore.views.sql.select_text import SelectText
from tablestore.views.sql.view_query import ViewQuery, parse_view, view_of_statement
from tests.tables import define

TABLES = {
    "shop.orders": define(
        "id BIGINT NOT NULL, planet_id BIGINT, star STRING, Amount INT, at TIMESTAMP, n INT NOT NULL, "
        "address STRUCT<city: STRING>",
        ["id"],
    ),
    "shop.planets": define("id BIGINT NOT NULL, name STRING, size INT, star STRING", ["id"]),
    "shop.stars": define("star STRING NOT NULL, mass INT", ["star"]),
    "sky.parts": define("a STRING NOT NULL, b BIGINT NOT NULL, c INT NOT NULL", ["a", "b"]),
    "shop.events": define("id BIGINT, what STRING"),
    "shop.log": define("id BIGINT NOT NULL, topic STRING NOT NULL, offset BIGINT, limit INT", ["id"]),
    "shop.kinds": define("id BIGINT NOT NULL, RowKind STRING", ["id"]),
}


FIRST = "SELECT star, n AS m, row_number() OVER (PARTITION BY star ORDER BY id) AS place FROM orders"


def definition_of(name: str) -> TableDefinition:
    try:
        return TABLES[name]
    except KeyError:
        raise NotFound(f"there is no table {name}", code="table-not-found") from None


def read(text: str) -> ViewQuery:
    return view_of_statement(text, Place("lake", "shop"), definition_of)


def block(plan: Incremental) -> Block:
    assert isinstance(plan.node, Block)
    return plan.node


def planned(text: str, *key: str) -> Incremental | Whole:
    return plan_view(read(text), TABLES, {}, key)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("SELECT id, amount * 2 AS twice FROM orders WHERE amount > 3 -- only large ones", ["id"]),
        ("SELECT * FROM orders", ["id"]),
        ("SELECT o.*, upper(name) AS name FROM orders o JOIN planets p ON o.planet_id = p.id", ["id"]),
        ("SELECT ID AS order_id, address.city FROM shop.orders", ["order_id"]),
        ("SELECT o.id, `p`.size FROM orders o LEFT JOIN planets p ON (p.id = o.planet_id AND p.size > 2)", ["id"]),
        (
            "SELECT o.id, mass FROM orders o LEFT JOIN planets p ON p.id = planet_id JOIN stars s ON p.star = s.star",
            ["id"],
        ),
        ("SELECT o.id, mass FROM orders o JOIN stars USING (star) LEFT JOIN planets p ON p.id = o.n", ["id"]),
        ("SELECT b, c + 1 AS d, a AS part FROM sky.parts WHERE c IS DISTINCT FROM 3", ["part", "b"]),
        ("SELECT id, CASE WHEN n > 1 THEN 'group by' ELSE `star` END AS k FROM orders", ["id"]),
        ("SELECT id, transform(array(n), id -> id + 1) AS z FROM orders;", ["id"]),
        ("SELECT id, unix_timestamp(at) AS seconds FROM orders", ["id"]),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM planets)", ["id"]),
        ("SELECT id FROM orders WHERE id NOT IN (SELECT id FROM planets)", ["id"]),
        ("SELECT id FROM orders WHERE id NOT IN (SELECT size FROM planets WHERE size IS NOT NULL)", ["id"]),
        ("SELECT id, id IN (SELECT id FROM planets) AS known FROM orders", ["id"]),
        (
            "SELECT id FROM orders o WHERE n IN (SELECT size FROM planets p JOIN stars s ON p.star = s.star "
            "WHERE mass > 1)",
            ["id"],
        ),
        (
            "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT star, mass FROM stars) AS s "
            "LEFT JOIN planets p USING (star) WHERE p.id = o.planet_id AND s.mass > o.n)",
            ["id"],
        ),
        ("SELECT id FROM (SELECT id FROM orders) AS o", ["id"]),
        (
            "SELECT o.id, q.c FROM orders o LEFT JOIN (SELECT size + 1 AS m, count(*) AS c FROM planets "
            "GROUP BY size + 1) q ON q.m = o.planet_id",
            ["id"],
        ),
        ("SELECT o.id FROM orders o LEFT SEMI JOIN planets p ON o.planet_id = p.id", ["id"]),
        ("SELECT o.id FROM planets p RIGHT JOIN orders o ON o.planet_id = p.id", ["id"]),
        ("SELECT o.id, p.id AS p FROM orders o JOIN planets p ON o.star = p.star", ["id", "p"]),
        ("SELECT o.id, p.id AS p FROM orders o, planets p", ["id", "p"]),
        ("WITH x AS (SELECT id AS i, n FROM orders) SELECT i FROM x AS y WHERE n > 1", ["i"]),
        ("SELECT p.id FROM orders o, planets p WHERE o.id = p.id", ["id"]),
        ("SELECT o.id, p.name FROM orders o LEFT JOIN planets p ON o.n + 1 = p.id", ["id"]),
        ("SELECT o.id, mass FROM orders o JOIN stars s ON s.star = split_part(o.star, '|', 2)", ["id"]),
        ("SELECT p.id FROM orders o JOIN planets p ON o.id = p.id * 2", ["id"]),
        ("SELECT o.id, p.name FROM orders o LEFT JOIN planets p ON CAST(o.star AS BIGINT) = p.id", ["id"]),
        ("SELECT o.id, p.name FROM orders o LEFT JOIN planets p ON p.id = o.star::INT - 1L", ["id"]),
        ("SELECT o.id FROM orders o JOIN planets p ON p.id = (o.planet_id)", ["id"]),
        ("SELECT o.id FROM orders o, planets p WHERE p.id = (o.n % 10)", ["id"]),
        ("SELECT * FROM (SELECT *, n + 1 AS m FROM orders) WHERE m > 3", ["id"]),
        (f"SELECT star, m FROM ({FIRST}) WHERE place <= 1 AND star IS NOT NULL", ["star"]),
        (f"SELECT q.star FROM ({FIRST}) AS q WHERE q.star <> '' AND q.place < 2", ["star"]),
        (f"SELECT star, o.id FROM orders o JOIN ({FIRST}) AS f USING (star) WHERE f.place = 1", ["id"]),
        (
            "SELECT id FROM (SELECT *, row_number() OVER (PARTITION BY star ORDER BY id) AS p FROM orders) WHERE p = 1",
            ["id"],
        ),
        (
            "SELECT o.id, s.n FROM orders o LEFT JOIN (SELECT size, count(*) AS n FROM planets GROUP BY size) s "
            "ON s.size = o.n",
            ["id"],
        ),
    ],
)
def test_rows_of_a_keyed_table_and_of_joins_by_keys(text: str, key: list[str]) -> None:
    plan = planned(text)
    assert isinstance(plan, Incremental), plan
    assert (block(plan).form, list(plan.key)) == (Form.ROWS, key)


@pytest.mark.parametrize(
    ("joins", "equal"),
    [
        ("LEFT JOIN planets p ON (p.id = o.planet_id AND p.size > 2)", [{"id": ("o", "planet_id")}]),
        (
            "JOIN planets p ON planet_id = p.ID LEFT JOIN stars s ON s.star = p.star",
            [{"id": ("o", "planet_id")}, {"star": ("p", "star")}],
        ),
        (
            "LEFT JOIN stars USING (star) LEFT JOIN planets p ON p.id = n",
            [{"star": ("o", "star")}, {"id": ("o", "n")}],
        ),
        (
            "LEFT JOIN sky.parts q ON o.id = q.b AND q.a = o.star AND q.c > o.n",
            [{"b": ("o", "id"), "a": ("o", "star")}],
        ),
        ("LEFT JOIN orders q ON q.id = o.planet_id AND q.id = o.n", [{"id": ("o", "n")}]),
        ("LEFT SEMI JOIN events e ON e.id = o.planet_id", [{"id": ("o", "planet_id")}]),
        ("WHERE EXISTS (SELECT 1 FROM planets p WHERE p.id = planet_id AND size > 2)", [{"id": ("o", "planet_id")}]),
        ("WHERE n > 3 OR (planet_id IN (SELECT p.id FROM planets p))", [{"id": ("o", "planet_id")}]),
    ],
)
def test_a_joined_row_is_named_by_columns_of_earlier_tables(joins: str, equal: list[list[tuple[str, str]]]) -> None:
    """A row that is not there has no columns of its own by which it could be searched for."""
    plan = planned(f"SELECT o.id FROM orders o {joins}")
    assert isinstance(plan, Incremental), plan
    inputs = block(plan).inputs
    named = [{own: (inputs[name.source].alias, name.column) for own, name in one.equal} for one in inputs]
    assert named == [{}, *equal]


@pytest.mark.parametrize(
    ("setting", "usual", "other"),
    [
        ("caseSensitive", "false", "TRUE"),
        ("groupByOrdinal", "true", "false"),
        ("groupByAliases", " True", "false"),
        ("ansi.doubleQuotedIdentifiers", "false", "true"),
        ("parser.escapedStringLiterals", "false", "true"),
        ("parser.quotedRegexColumnNames", "false", "true"),
    ],
)
def test_a_text_that_means_something_else_to_spark_is_not_taken_apart(setting: str, usual: str, other: str) -> None:
    query, name = read("SELECT n, count(*) AS c FROM orders GROUP BY 1"), f"spark.sql.{setting}"
    assert isinstance(plan_view(query, TABLES, {name: usual, "spark.sql.session.timeZone": "UTC"}), Incremental)
    plan = plan_view(query, TABLES, {name: other})
    assert isinstance(plan, Whole)
    assert plan.reason == f"it runs with {name} = {other}, by which its text has another meaning"


@pytest.mark.parametrize(
    ("text", "key", "groups"),
    [
        ("SELECT n, count(*) AS c FROM orders GROUP BY n", ["n"], ["n"]),
        ("SELECT n, count(*) AS c FROM orders o GROUP BY n, o.n, (1)", ["n"], ["n"]),
        ("SELECT year(at) AS y FROM orders WHERE at IS NOT NULL GROUP BY year(at)", ["y"], ["year(at)"]),
        ("SELECT DISTINCT n, hypot(n, 1) AS h FROM orders WHERE hypot(n, 1) > 2", ["n", "h"], ["n", "hypot(n, 1)"]),
        (
            "SELECT count(*) AS c, star FROM orders WHERE star IS NOT NULL GROUP BY 2 HAVING count(*) > 1",
            ["star"],
            ["star"],
        ),
        ("SELECT to_date(at) AS d FROM orders WHERE at IS NOT NULL GROUP BY to_date(at)", ["d"], ["to_date(at)"]),
        ("SELECT hour(at) AS h FROM orders WHERE at > '2026-01-01' GROUP BY hour(at)", ["h"], ["hour(at)"]),
        ("SELECT n * 2 - id AS m FROM orders GROUP BY n * 2 - id", ["m"], ["n * 2 - id"]),
        ("SELECT star AS s, max(n) AS m FROM orders WHERE n > 2 AND (star = 'x') GROUP BY s", ["s"], ["star"]),
        (
            "SELECT coalesce(star, '-') AS st, n FROM orders o GROUP BY st, o.n",
            ["st", "n"],
            ["coalesce(star, '-')", "o.n"],
        ),
        (
            "SELECT coalesce(amount, -1) AS a, IF(amount IS NULL, 'none', upper('x')) AS b FROM orders o "
            "GROUP BY coalesce(amount, -1), b",
            ["a", "b"],
            ["coalesce(amount, -1)", "IF(amount IS NULL, 'none', upper('x'))"],
        ),
        (
            "SELECT date_trunc('DAY', at) AS d, avg(n) AS a FROM orders WHERE at > '2026-01-01' "
            "GROUP BY date_trunc('day', AT)",
            ["d"],
            ["date_trunc('day', AT)"],
        ),
        (
            "SELECT window(at, '1 hour').start AS begin, n FROM orders GROUP BY n, window(at, '1 hour')",
            ["n", "begin"],
            ["n", "window(at, '1 hour')"],
        ),
        (
            "SELECT window(at, '1 hour').END AS until, n FROM orders GROUP BY n, window(at, '1 hour')",
            ["n", "until"],
            ["n", "window(at, '1 hour').end"],
        ),
        (
            "SELECT window.start, sum(n) AS s FROM orders GROUP BY window(at, '1 day')",
            ["start"],
            ["window(at, '1 day')"],
        ),
        (
            "SELECT p.star, sum(amount) AS a FROM orders o JOIN planets p ON planet_id = p.id WHERE p.star <> '' "
            "GROUP BY p.star",
            ["star"],
            ["p.star"],
        ),
    ],
)
def test_groups(text: str, key: list[str], groups: list[str]) -> None:
    query = read(text)
    plan = plan_view(query, TABLES, {})
    assert isinstance(plan, Incremental), plan
    assert (block(plan).form, list(plan.key)) == (Form.GROUPS, key)
    assert [group.text.removesuffix(".start") for group in block(plan).address] == groups


@pytest.mark.parametrize(
    ("group", "direct"),
    [
        ("o.n", True),
        ("window(o.at, '1 hour')", True),
        ("window(o.at, '1 hour', '5 minutes')", False),
        ("s.star", True),
        ("coalesce(o.n, 0)", True),
        ("coalesce(o.n, -1)", True),
        ("coalesce(-o.n, 0)", False),
        ("date_trunc('DAY', o.at)", True),
        ("CAST(o.star AS INT)", False),
        ("date_trunc('DAY', o.star)", False),
        ("date_trunc(n, o.at)", False),
        ("coalesce(o.star, 0)", False),
        ("coalesce(o.star, '-')", True),
        ("window(o.star, '1 hour')", False),
        ("10 / o.n", False),
    ],
)
def test_a_group_may_follow_from_the_driving_row_alone(group: str, direct: bool) -> None:
    column = f"{group}.start AS begin" if "window" in group else f"{group} AS star"
    plan = planned(f"SELECT {column} FROM orders o JOIN stars s ON o.star = s.star GROUP BY {group}", "star")
    assert isinstance(plan, Incremental), plan
    assert [found.local is not None for found in block(plan).address] == [direct]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT star, count(*) AS c FROM orders GROUP BY star", "the group star may be null"),
        (
            "SELECT s.star, count(*) AS c FROM orders o LEFT JOIN stars s ON o.star = s.star GROUP BY s.star",
            "may be null",
        ),
        ("SELECT coalesce(star, -amount) AS k FROM orders GROUP BY coalesce(star, -amount)", "may be null"),
        ("SELECT if(n > 1, 1, NULL) AS k FROM orders GROUP BY if(n > 1, 1, NULL)", "may be null"),
        ("SELECT CASE WHEN n > 1 THEN 1 END AS k FROM orders GROUP BY CASE WHEN n > 1 THEN 1 END", "may be null"),
        ("SELECT s.star COLLATE UTF8_LCASE AS k FROM stars s GROUP BY s.star COLLATE UTF8_LCASE", "has a collation"),
        ("SELECT count(*) AS c FROM orders GROUP BY n", "its columns lack the group n"),
        (
            "SELECT sum(n) AS s FROM orders GROUP BY window(at, '1 hour')",
            r"lack the start of the group window\(",
        ),
        ("SELECT n, star FROM orders GROUP BY ROLLUP (n, star)", "GROUP BY has ALL, ROLLUP"),
        ("SELECT n, count(*) AS c FROM orders GROUP BY n WITH CUBE", "CUBE"),
        ("SELECT n, star FROM orders GROUP BY GROUPING SETS ((n), (star))", "GROUP BY has ALL, ROLLUP"),
        ("SELECT n, star FROM orders GROUP BY n, CUBE (star)", "GROUP BY has ALL, ROLLUP"),
        ("SELECT n FROM orders GROUP BY ALL", "ALL, ROLLUP"),
        ("SELECT n FROM orders GROUP BY 7", "GROUP BY has 7"),
        ("SELECT amount FROM orders", "lack id of the primary key of shop.orders"),
        ("SELECT id + 1 AS id FROM orders", "lack id of the primary key"),
        ("SELECT p.id FROM orders o JOIN planets p ON o.planet_id = p.id", "lack id of the primary key of shop.orders"),
        ("SELECT id FROM kinds", "a column rowkind"),
        ("SELECT o.id FROM orders o JOIN events e ON e.id = o.id", "shop.events has no primary key"),
        ("SELECT what FROM events", "shop.events has no primary key"),
        ("SELECT o.id FROM orders o JOIN planets p ON o.star = p.star", "lack id of the primary key of shop.planets"),
        ("SELECT o.id FROM orders o JOIN sky.parts p ON o.star = p.a", "lack a of the primary key of sky.parts"),
        ("SELECT o.id FROM orders o, planets p", "lack id of the primary key of shop.planets"),
        ("SELECT o.id, p.id AS p FROM orders o LEFT JOIN planets p ON o.star = p.star", "p, which may be null"),
        ("SELECT o.id FROM orders o LEFT JOIN planets p ON o.star = p.id", "int64, with a column that is string"),
        ("SELECT o.id FROM orders o LEFT JOIN planets p ON o.n + 0.5 = p.id", "joined without a column that has to"),
        ("SELECT o.id FROM orders o LEFT JOIN planets p ON p.id = p.size + o.n", "joined without a column that has to"),
        ("SELECT o.id FROM orders o JOIN planets p ON p.id = abs(o.n)", "lack id of the primary key of shop.planets"),
        (
            "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM planets p WHERE p.star = concat(star, o.star))",
            "has to equal one of the query around it",
        ),
        (f"SELECT star, m FROM ({FIRST}) WHERE place <= 2 AND star IS NOT NULL", "has no primary key"),
        (f"SELECT star, m FROM ({FIRST}) WHERE place = 1 OR star IS NOT NULL", "has no primary key"),
        (f"SELECT star, m FROM ({FIRST}) WHERE place = 1", "star, which may be null"),
        (
            f"SELECT star FROM ({FIRST.replace('row_number', 'rank')}) WHERE place = 1 AND star IS NOT NULL",
            "has no primary key",
        ),
        (
            f"SELECT m FROM ({FIRST.replace('star, n', 'n')}) WHERE place = 1",
            "has no primary key",
        ),
        (
            "SELECT o.id FROM orders o LEFT JOIN stars s ON s.star = concat(o.star, 'it''s')",
            "joined without a column that has to",
        ),
        (
            "SELECT o.id FROM orders o LEFT JOIN stars s ON s.star = CAST(o.n AS VARCHAR(3))",
            "joined without a column that has to",
        ),
        ("SELECT o.id FROM orders o LEFT JOIN stars s ON s.star = +o.star", r"\+ before a value"),
        (
            f"SELECT f.star, e.what FROM ({FIRST}) AS f JOIN events e ON e.id = f.m WHERE f.place = 1",
            "shop.events has no primary key",
        ),
        (f"SELECT n * {10**37} AS m FROM orders GROUP BY n * {10**37}", "may be null"),
        ("SELECT -star AS m FROM stars GROUP BY -star", "may be null"),
        (
            "SELECT o.id FROM orders o LEFT JOIN (SELECT window(star, '1 day').start AS s, count(*) AS n FROM stars "
            "GROUP BY window(star, '1 day')) w ON w.s = o.star",
            "joined without a column that has to",
        ),
        ("SELECT to_date(star) AS d FROM stars GROUP BY to_date(star)", "may be null"),
        ("SELECT amount + 1 AS m FROM orders GROUP BY amount + 1", "may be null"),
        ("SELECT n + 0.5 AS m FROM orders GROUP BY n + 0.5", "may be null"),
        ("SELECT n % 3 AS m FROM orders GROUP BY n % 3", "may be null"),
        (
            "SELECT o.id FROM orders o JOIN stars s ON s.star = o.star RIGHT JOIN planets p ON o.n = p.id",
            "a RIGHT JOIN",
        ),
        ("SELECT id FROM orders UNION SELECT id FROM planets", "UNION without ALL"),
        ("SELECT id FROM orders INTERSECT SELECT id FROM planets", "an? INTERSECT of queries"),
        ("SELECT id FROM orders UNION ALL SELECT id FROM planets", "give PRIMARY KEY"),
        ("WITH x(a) AS (SELECT id FROM orders) SELECT a FROM x", "names of columns in WITH"),
        ("SELECT id FROM (WITH x AS (SELECT id FROM orders) SELECT id FROM x) AS y", "has WITH"),
        ("WITH x AS (SELECT id FROM orders LIMIT 3) SELECT id FROM x", "LIMIT"),
        ("SELECT DISTINCT planet_id FROM orders", "planet_id may be null"),
        ("SELECT o.id FROM orders o JOIN (SELECT mean(n) AS m FROM orders) q ON n > m", r"mean\(\) may aggregate"),
        ("SELECT DISTINCT try_sum(n) AS s FROM orders", r"try_sum\(\) may aggregate"),
        (
            "SELECT date_trunc('M', at) AS m, count(*) AS n FROM orders WHERE id > 0 GROUP BY date_trunc('M', at)",
            r"it has date_trunc\(\) with the unit 'M', which Spark does not know",
        ),
        (
            "SELECT id, date_trunc(day, at) AS m FROM (SELECT id, at, star AS day FROM orders)",
            r"date_trunc\(\) with day, which is a column and no unit",
        ),
        ("SELECT id, TRUNC(at, 'Q') AS q FROM orders", r"it has TRUNC\(\) with the unit 'Q'"),
        (
            "SELECT id, row_number() OVER (PARTITION BY n ORDER BY id) AS star FROM orders QUALIFY EXISTS "
            "(SELECT 1 FROM stars s WHERE s.star = star)",
            "a subquery in QUALIFY",
        ),
        ("SELECT n, count(*) AS c FROM orders GROUP BY n HAVING n IN (SELECT size FROM planets)", "subquery in HAVING"),
        (
            "SELECT id, star AS n FROM orders QUALIFY row_number() OVER (PARTITION BY n ORDER BY id) = 1",
            "n in QUALIFY is a column of the result, and another one",
        ),
        ("SELECT n, 1 AS one, count(*) AS c FROM orders GROUP BY (1), (7)", "GROUP BY has 7"),
        (
            "SELECT date_trunc('foo', at) AS d FROM orders WHERE at IS NOT NULL GROUP BY date_trunc('foo', at)",
            "may be null",
        ),
        ("SELECT year(star) AS y FROM orders WHERE star <> '' GROUP BY year(star)", "may be null"),
        ("SELECT q.n FROM (SELECT id, n, n + 1 FROM orders) AS q GROUP BY q.n", "has no name"),
        ("SELECT id, n FROM orders UNION ALL SELECT id, size + 1 FROM planets", "has no name"),
        (
            "SELECT q.s FROM (SELECT star COLLATE UTF8_LCASE AS s FROM stars) AS q GROUP BY q.s",
            "has a collation|may be null",
        ),
        ("SELECT DISTINCT s.n FROM (SELECT n, star COLLATE UTF8_LCASE AS t FROM orders) s", "has a collation"),
        (
            "SELECT o.id FROM orders o LEFT SEMI JOIN stars s ON s.star = o.star AND EXISTS (SELECT 1 FROM planets p "
            "WHERE p.star = o.star)",
            "condition of another join",
        ),
        ("SELECT DISTINCT n, count(*) AS c FROM orders GROUP BY n", "DISTINCT over groups"),
        ("SELECT n, sum(count(*)) OVER (PARTITION BY n % 2) AS c FROM orders GROUP BY n", "OVER over groups"),
        ("SELECT n FROM orders GROUP BY n QUALIFY rank() OVER (ORDER BY count(*)) < 3", "OVER over groups"),
        ("SELECT s.star FROM orders o RIGHT JOIN stars s USING (star)", "a RIGHT JOIN"),
        ("SELECT id FROM orders WHERE n NOT IN (SELECT size FROM planets)", "NOT IN"),
        ("SELECT id, n IN (SELECT size FROM planets) AS i FROM orders", "IN as a value"),
        ("SELECT id FROM orders WHERE planet_id NOT IN (SELECT id FROM planets)", "of the compared values may be null"),
        ("SELECT id FROM orders WHERE id NOT IN (SELECT size FROM planets WHERE size > 1 OR id > 1)", "may be null"),
        ("SELECT id FROM orders WHERE (id, n) NOT IN (SELECT id, id FROM planets)", "may be null"),
        (
            "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM planets p, stars s WHERE p.star = s.star "
            "AND p.id = o.n)",
            "s is joined in a subquery without a column that has to equal another one",
        ),
        (
            "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM planets p JOIN stars s ON s.star = o.star "
            "WHERE p.id = o.n)",
            "no column of its tables",
        ),
        ("SELECT id FROM orders WHERE n NOT IN (SELECT id FROM planets GROUP BY ROLLUP (id))", "ROLLUP"),
        ("SELECT id, n IN (SELECT id FROM planets GROUP BY id WITH CUBE) AS i FROM orders", "CUBE"),
        ("SELECT id FROM orders WHERE n IN (SELECT col1 FROM VALUES (1), (2))", "no plain table"),
        ("SELECT id FROM orders WHERE n IN (SELECT q.q FROM (SELECT 1 AS q) AS q)", "no plain table"),
        (
            "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT id, name FROM planets p WHERE p.size = o.n) "
            "AS q WHERE q.id = o.planet_id)",
            "o.n in WHERE p.size = o.n is no column of its tables",
        ),
        (
            "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT z.id FROM (SELECT id FROM planets p "
            "WHERE p.size = o.n) AS z) AS q WHERE q.id = o.planet_id)",
            "o.n in WHERE p.size = o.n is no column of its tables",
        ),
        (
            "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT id, n AS m FROM planets p) AS q "
            "WHERE q.id = o.planet_id)",
            "n in n AS m is no column of its tables",
        ),
        (
            "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT id FROM planets p WHERE EXISTS (SELECT 1 "
            "FROM stars s WHERE s.star = p.star AND s.mass > o.n)) AS q WHERE q.id = o.planet_id)",
            "a subquery within one of an expression",
        ),
        (
            "SELECT o.id FROM orders o WHERE n IN (SELECT size FROM planets UNION ALL SELECT id FROM planets)",
            "a subquery in an expression that is no plain SELECT",
        ),
        (
            "SELECT o.id FROM orders o WHERE n IN (SELECT size FROM planets p WHERE EXISTS (SELECT 1 FROM stars s "
            "WHERE s.star = p.star))",
            "a subquery within one of an expression",
        ),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM planets)", "has to equal one of the query around it"),
        ("SELECT id FROM orders WHERE n = (SELECT max(size) FROM planets)", "has to equal one of the query around it"),
        ("SELECT id FROM orders WHERE n IN (SELECT size FROM planets LIMIT 3)", "LIMIT"),
        ("SELECT * FROM (SELECT * EXCEPT (n) FROM orders) AS o", "cannot be taken apart"),
        ("SELECT a FROM (SELECT id FROM orders) AS o(a)", "other names"),
        ("SELECT id, row_number() OVER (ORDER BY id) AS r FROM orders", "OVER without PARTITION BY"),
        ("SELECT id, row_number() OVER (PARTITION BY n ORDER BY star) AS r FROM orders", "ORDER BY lacks the key"),
        ("SELECT id, sum(n) OVER w AS s FROM orders WINDOW w AS (PARTITION BY n)", "WINDOW"),
        ("SELECT o.id FROM orders o FULL JOIN planets p ON o.id = p.id", "a FULL JOIN"),
        ("SELECT o.id FROM orders o JOIN orders o ON o.id = o.id", "two of its tables have one name"),
        ("SELECT id FROM orders ORDER BY n LIMIT 3", "LIMIT|ORDER BY"),
        ("SELECT id, explode(array(1, 2)) AS e FROM orders", r"explode\(\)"),
        ("SELECT id, e FROM orders LATERAL VIEW explode(array(1)) AS e", r"explode\(\)"),
        ("SELECT n, collect_list(id) AS ids FROM orders GROUP BY n", "order of rows"),
        ("SELECT count(*) AS c FROM orders", "without GROUP BY"),
        ("FROM orders SELECT id", "no plain SELECT"),
        ("SELECT * FROM orders PIVOT (max(n) FOR star IN ('a', 'b'))", "PIVOT or UNPIVOT"),
        ("SELECT id, v FROM planets AS p UNPIVOT (v FOR k IN (size, id)) AS u", "PIVOT or UNPIVOT"),
        ("FROM orders |> WHERE n > 1", "a pipe"),
        ("SELECT id, n FROM orders |> WHERE n > 1", "a pipe"),
        ("TABLE orders |> AGGREGATE sum(n) AS s GROUP BY star", "a pipe"),
        ("FROM orders |> SET n = n + 1 |> DROP star, at |> JOIN planets ON planet_id = planets.id", "a pipe"),
        ("SELECT id FROM (FROM orders |> LIMIT 3 |> WHERE n > 1) AS o", "a pipe"),
    ],
)
def test_the_rest_is_computed_as_a_whole(text: str, reason: str) -> None:
    plan = planned(text)
    assert isinstance(plan, Whole), plan
    with pytest.raises(Unsupported, match=reason) as caught:
        with_key(plan, TABLES["shop.orders"].schema, (), Mode.REQUIRED)
    assert caught.value.code == "view-not-incremental"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SELECT id, rand() AS r FROM orders", r"rand\(\) has another value each time"),
        ("SELECT id, uuid() AS r FROM orders", "each time"),
        ("SELECT id, now() AS r FROM orders", "with the time"),
        ("SELECT id, uuid() AS r FROM orders |> SELECT r", "each time"),
        ("FROM orders |> SET n = n + 1, at = now() |> SELECT id", "with the time"),
        ("FROM orders |> TABLESAMPLE (5 ROWS)", "other rows"),
        ("FROM orders |> RENAME n AS m", "cannot be parsed"),
        ("FROM orders |>", "cannot be parsed"),
        ("SELECT id FROM orders WHERE at > current_timestamp - INTERVAL 1 DAY", "with the time"),
        ("SELECT id, unix_timestamp() AS u FROM orders", "with the time"),
        ("SELECT id, current_user() AS u FROM orders", "the session"),
        ("SELECT id, user AS u FROM orders", "the session"),
        ("SELECT id, current_path() AS u FROM orders", "the session"),
        ("SELECT id, Current_Path AS u FROM orders", "the session"),
        ("SELECT id FROM orders WHERE hour(at) > hour(current_time)", "with the time"),
        ("SELECT id FROM orders WHERE at >= TIMESTAMP 'today'", "with the time"),
        ("SELECT id FROM orders WHERE at >= ' Now UTC'", "with the time"),
        ("SELECT t.id FROM stars AS t(n, id)", "other names"),
        ("SELECT id FROM orders TABLESAMPLE (5 ROWS)", "all rows"),
        ("SELECT id FROM orders VERSION AS OF 3", "all rows"),
        ("SELECT record_count FROM `orders$files`", "all rows"),
        ("SELECT id FROM other.shop.orders", "another catalog"),
        ("SELECT 1 AS one", "reads no table"),
        ("WITH orders AS (SELECT id FROM planets) SELECT id FROM orders", "the name 'orders' of a table"),
        ("INSERT INTO orders SELECT 1", "no SELECT but INSERT"),
        ("SELECT FROM WHERE", "cannot be parsed"),
        ("SELECT count(*) FROM orders", "has no name"),
    ],
)
def test_a_result_that_does_not_follow_from_rows_is_refused(text: str, sentence: str) -> None:
    with pytest.raises((InvalidRequest, Unsupported), match=sentence) as caught:
        read(text)
    assert caught.value.code == "view-query"


def test_a_group_is_searched_by_the_part_of_its_window_that_is_a_column() -> None:
    window = "window(at, '1 hour')"
    for items, text in [("{}.end AS e", "end"), ("{0}.end AS e, {0}.start AS s", "start"), ("window.end", "end")]:
        plan = planned(f"SELECT {items.format(window)} FROM orders GROUP BY {window}")
        assert isinstance(plan, Incremental), plan
        assert [group.text for group in block(plan).address] == [f"{window}.{text}"]
    joined = f"SELECT o.id, w.e FROM orders o JOIN (SELECT {window}.end AS e FROM orders GROUP BY {window}) w ON true"
    assert isinstance(plan := planned(joined), Incremental)
    assert plan.key == ("id", "e")


def test_a_sliding_window_makes_several_rows_of_one() -> None:
    """Its start alone counted as one value of a row, so rows of two affected windows were counted twice."""
    window = "window(at, '1 hour', '30 minutes').start"
    plan = planned(f"SELECT {window} AS begin, count(*) AS c FROM orders GROUP BY {window}", "begin")
    assert isinstance(plan, Incremental), plan
    assert [group.local for group in block(plan).address] == [None]
    assert isinstance(planned(f"SELECT id, {window} AS begin FROM orders"), Whole)


@pytest.mark.parametrize("name", sorted(ORDERED | ROWS_OF_ROWS))
def test_every_function_that_is_not_row_by_row_is_recognized(name: str) -> None:
    """sqlglot has names of its own for some, such as APPROX_QUANTILE for percentile_approx."""
    one = name in ("first_value", "last_value", "any_value", "collect_set", "inline")
    plan = planned(f"SELECT n, {name}(Amount{'' if one else ', 1'}) AS x FROM orders GROUP BY n")
    assert isinstance(plan, Whole), plan


def test_distinct_stays_where_a_star_becomes_columns() -> None:
    """The star was taken for the whole list, so the view had repeated rows."""
    query = read("SELECT DISTINCT * FROM events")
    assert query.text == "SELECT DISTINCT `events`.`id`, `events`.`what` FROM `shop`.`events`"


def test_a_star_does_not_stand_for_tables_of_subqueries() -> None:
    query = read("SELECT * FROM stars JOIN events ON id IN (SELECT n FROM orders)")
    assert query.text.startswith("SELECT `stars`.`star`, `stars`.`mass`, `events`.`id`, `events`.`what` FROM")


def test_offset_and_limit_may_be_columns() -> None:
    """They ended the clause in which they are."""
    query = read("SELECT topic, count(*) AS c FROM log WHERE topic <> '' AND offset > limit GROUP BY topic")
    assert isinstance(query.tree, exp.Select)
    select = SelectText(query.tree, query.tokens)
    assert query.part(select.clauses["where"], ["x"]) == "topic <> '' AND offset > limit"
    assert isinstance(plan_view(query, TABLES, {}), Incremental)


def test_a_missing_table_is_an_error() -> None:
    with pytest.raises(NotFound, match=r"shop\.nothing"):
        read("SELECT id FROM nothing")


def test_the_text_stays_but_for_names_and_stars() -> None:
    query = read("SELECT p.*,\n  o.Id /* the order */ FROM orders o JOIN lake.shop.planets AS p ON o.n = p.id")
    assert query.text == (
        "SELECT `p`.`id`, `p`.`name`, `p`.`size`, `p`.`star`,\n  o.Id /* the order */ "
        "FROM `shop`.`orders` o JOIN `shop`.`planets` AS p ON o.n = p.id"
    )
    assert parse_view(query.text).uses == query.uses
    assert query.with_tables(["x", "y"]).endswith("FROM `x` o JOIN `y` AS p ON o.n = p.id")


def test_names_of_with_are_written_in_full() -> None:
    text = (
        "WITH x AS (SELECT id, n -- all\n FROM orders), `y z` AS (SELECT id FROM x WHERE n > 1)\n"
        "SELECT a.id FROM `y z` a JOIN X ON a.id = x.id"
    )
    found = without_with(read(text)).text
    x = "(SELECT id, n -- all\n FROM `shop`.`orders`)"
    assert found == f"SELECT a.id FROM (SELECT id FROM {x} AS `x` WHERE n > 1) a JOIN {x} AS `X` ON a.id = x.id"


def test_a_table_without_an_alias_keeps_its_name() -> None:
    query = read("SELECT orders.id FROM shop.orders WHERE orders.n > 1")
    assert query.with_tables(["x"]) == "SELECT orders.id FROM `x` AS `orders` WHERE orders.n > 1"


def test_a_key_that_is_given_has_no_nulls() -> None:
    text = "SELECT star, count(*) AS c FROM orders GROUP BY star"
    assert isinstance(planned(text), Whole)
    plan = planned(text, "STAR")
    schema = define("star STRING, c BIGINT").schema
    assert with_key(plan, schema, ("Star",), Mode.REQUIRED) is plan
    with pytest.raises(InvalidRequest, match=r"the primary key of the result is \(star\)"):
        with_key(plan, schema, ("c",), Mode.AUTO)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("SELECT o.id, p.id AS pid FROM orders o JOIN planets p ON p.id = o.planet_id % 10", ["ID", "pid"]),
        ("SELECT n, count(*) AS c FROM orders GROUP BY n", ["c", "n"]),
        (f"SELECT star, m FROM ({FIRST}) WHERE place = 1 AND star IS NOT NULL", ["star", "m"]),
    ],
)
def test_a_key_with_more_columns_than_needed_is_one(text: str, key: list[str]) -> None:
    """Views of the version before have such keys, where it did not see that fewer columns are enough."""
    plan = planned(text, *key)
    assert isinstance(plan, Incremental), plan
    assert (plan.key, plan.given) == (tuple(name.lower() for name in key), False)
    check_key(plan.key, key)


def test_tables_in_hints_are_their_aliases() -> None:
    """Their positions were those within the hint, and other names in the text were replaced."""
    query = read("SELECT id, n + 1 AS m FROM (SELECT /*+ BROADCAST(planets) */ planets.id, size AS n FROM planets) q")
    assert query.text == (
        "SELECT id, n + 1 AS m FROM (SELECT /*+ BROADCAST(planets) */ planets.id, size AS n FROM `shop`.`planets`) q"
    )
    assert query.tables == ("shop.planets",)


def test_a_key_has_to_be_exact() -> None:
    plan = planned("SELECT n / 2 AS half FROM orders GROUP BY n / 2", "half")
    found = with_key(plan, define("half DOUBLE").schema, (), Mode.AUTO)
    assert isinstance(found, Whole)
    assert "half, which is double" in found.reason


def test_a_table_is_a_query() -> None:
    assert read("TABLE stars").text == "SELECT `stars`.`star`, `stars`.`mass` FROM `shop`.`stars`"
    assert isinstance(planned("TABLE stars"), Incremental)


def test_tables_of_every_step_of_a_pipe_are_found() -> None:
    text = "SELECT (SELECT max(id) FROM events) AS e FROM orders |> SELECT e |> UNION ALL (SELECT size FROM planets)"
    query = read(text)
    assert query.tables == ("shop.events", "shop.orders", "shop.planets")
    assert query.with_tables(["a", "b", "c"]) == (
        "SELECT (SELECT max(id) FROM `a` AS `events`) AS e FROM `b` AS `orders` |> SELECT e "
        "|> UNION ALL (SELECT size FROM `c` AS `planets`)"
    )


def test_all_columns_count_for_pivot() -> None:
    """It groups by those that it does not name."""
    assert read("SELECT a FROM orders PIVOT (max(n) FOR star IN ('a'))").names is None


def test_what_depends_on_order_is_not_repeatable() -> None:
    for text, repeatable in (
        ("SELECT DISTINCT star FROM orders", True),
        ("SELECT id FROM orders LIMIT 2", False),
        ("SELECT n, first(id) AS f FROM orders GROUP BY n", False),
        ("SELECT n, approx_top_k(star) AS f FROM orders GROUP BY n", False),
    ):
        assert planned(text).repeatable is repeatable


def test_views_are_refreshed_behind_those_that_they_read() -> None:
    graph = {"a": ["t"], "b": ["a", "t"], "c": ["b", "a"], "d": ["t"]}
    order = refresh_order(["c"], graph.get)
    assert order == ["a", "b", "c"]
    assert set(refresh_order(graph, graph.get)) == set(graph)
    assert refresh_order([], graph.get) == []


def test_a_view_cannot_read_itself() -> None:
    graph = {"a": ["b"], "b": ["t", "c"], "c": ["a"]}
    with pytest.raises(InvalidRequest, match="cannot read its own rows") as caught:
        refresh_order(["a"], graph.get)
    assert caught.value.code == "view-cycle"
    with pytest.raises(InvalidRequest, match="x reads x"):
        refresh_order(["x"], {"x": ["x"]}.get)


def test_a_join_needs_the_buckets_of_its_table() -> None:
    """A bucket of it is joined with the rows of the left table in that bucket."""
    columns = "id BIGINT NOT NULL, other BIGINT NOT NULL, x BIGINT, y STRING"
    left = define(columns, ["id", "other"], bucket=4, bucket__key="other")
    tables = {"d.l": left, "d.r": define("k BIGINT NOT NULL, v INT", ["k"])}
    query = parse_view("SELECT l.id AS a, l.other AS b, r.v FROM d.l AS l LEFT JOIN d.r AS r ON l.x = r.k")
    plan = plan_view(query, tables, {})
    assert isinstance(plan, Incremental)
    assert plan.join is not None
    assert plan.key == ("a", "b")
    made = "a BIGINT NOT NULL, b BIGINT NOT NULL, v INT"
    for key, options, fits in (
        (["a", "b"], {"bucket": 4, "bucket__key": "b"}, True),
        (["a", "b"], {"bucket": 4, "bucket__key": "a"}, False),
        (["a", "b"], {"bucket": 2, "bucket__key": "b"}, False),
        (["b", "a"], {"bucket": 4, "bucket__key": "b"}, False),
    ):
        found = plan_view(query, tables, {}, key, GivenTable.of(define(made, key, **options)))
        assert isinstance(found, Incremental)
        assert (found.join is not None) == fits, (key, options)
    other = GivenTable.of(define(made.replace(" v ", " V "), ["a", "b"], bucket=4, bucket__key="b"))
    found = plan_view(query, tables, {}, ["a", "b"], other)
    assert isinstance(found, Incremental)
    assert found.join is None, "its column has another spelling"
