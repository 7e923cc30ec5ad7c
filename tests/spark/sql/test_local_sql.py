"""Queries that this process computes have the values and the types that Spark has, for special values of all types."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tablestore.local_sql.database import Database
from tablestore.local_sql.programs import translated
from tablestore.local_sql.refusal import NotLocalError
from tests.depth import Depth
from tests.tablestore.local_sql.random_expressions import GROUPED, ROWS, Expressions

_AT_ONCE = 25
_CLOSE = 1e-12


@pytest.fixture
def rows(spark: SparkSession) -> SparkSession:
    """A session with Spark's default settings, in which ``r`` has the rows."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.createDataFrame(ROWS).createOrReplaceTempView("r")
    return session


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_expressions(rows: SparkSession, seed: int, depth: Depth) -> None:
    dice = random.Random(f"expressions {seed}")
    for _ in range(depth.times(2, deep=20)):
        texts = [Expressions(dice).value() for _ in range(_AT_ONCE)]
        _compare(rows, [f"SELECT id AS k, {text} AS v FROM r" for text in texts])


@pytest.mark.slow
def test_integers_beside_decimals(rows: SparkSession) -> None:
    """An integer that is written out has its own digits, and a column those of its type."""
    both = [
        f"{one} {sign} {of}" for one in ("a", "h", "i", "l", "7", "100", "(1000)", "0") for sign in "+-*" for of in "mn"
    ]
    texts = [
        *both,
        *(" ".join(reversed(text.split())) for text in both),
        "0.908 * l",
        "m * 2 + n * 3",
        "l + 0.5 * 2 > 3",
    ]
    _compare(rows, [f"SELECT id AS k, {text} AS v FROM r WHERE id > 5" for text in texts])
    assert _here("SELECT id AS k, m * -2 AS v FROM r") is None, "Spark may take it for a literal"


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_groups(rows: SparkSession, seed: int, depth: Depth) -> None:
    dice = random.Random(f"groups {seed}")
    for _ in range(depth.times(1, deep=10)):
        queries = []
        for _ in range(_AT_ONCE // 2):
            some, by = Expressions(dice), dice.choice([*GROUPED, *GROUPED, "i % 3", "length(s)", "coalesce(b, FALSE)"])
            where = f" WHERE {some.condition()}" if dice.randrange(2) else ""
            having = f" HAVING {dice.choice(['count(*) > 1', 'min(id) < 6', 'k IS NOT NULL'])}"
            text = f"SELECT {by} AS k, {some.aggregate()} AS v FROM r{where} GROUP BY {dice.choice([by, 'k', '1'])}"
            queries.append(text + (having if dice.randrange(3) == 0 else ""))
        _compare(rows, queries, zeros=False)  # the greatest of 0.0 and -0.0 is the one that comes first


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_windows(rows: SparkSession, seed: int, depth: Depth) -> None:
    dice = random.Random(f"windows {seed}")
    for _ in range(depth.times(1, deep=10)):
        _compare(rows, [f"SELECT id AS k, {Expressions(dice).window()} AS v FROM r" for _ in range(_AT_ONCE // 2)])


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_queries(rows: SparkSession, seed: int, depth: Depth) -> None:
    dice = random.Random(f"queries {seed}")
    for _ in range(depth.times(1, deep=10)):
        _compare(rows, [_query(dice) for _ in range(_AT_ONCE // 2)])


def _query(dice: random.Random) -> str:
    """Returns a query with a join, a subquery or UNION ALL; rows are compared as bags."""
    some = Expressions(dice)
    one, other = dice.sample(["a", "h", "i", "s", "t", "b", "e", "m"], 1) * 2
    narrow = f"(SELECT id, {one}, {some.value(deep=1)} AS v FROM r WHERE {some.condition(1)})"
    where = f"r1.id IN (SELECT {dice.choice(['l', 'id'])} FROM r WHERE {some.condition(1)})"
    inner = f"SELECT max(r3.id) FROM r AS r3 WHERE r3.{one} = r1.{one}"
    return dice.choice(
        [
            f"SELECT r1.id AS k, r2.v AS v FROM r AS r1 {_join(dice)} {narrow} AS r2 ON r1.{one} = r2.{other}",
            f"SELECT r1.id AS k, r2.v AS v FROM r AS r1 {_join(dice)} {narrow} AS r2 ON r1.{one} = r2.{other} "
            "AND r1.id < r2.id",
            f"SELECT {one} AS k, r2.v AS v FROM r AS r1 {_join(dice)} {narrow} AS r2 USING ({one})",
            f"SELECT r1.id AS k, r1.{one} AS v FROM r AS r1 LEFT {dice.choice(['SEMI', 'ANTI'])} JOIN {narrow} AS r2 "
            f"ON r1.{one} = r2.{other}",
            f"SELECT r1.id AS k, r1.{one} AS v FROM r AS r1 WHERE {dice.choice(['', 'NOT '])}EXISTS "
            f"(SELECT 1 FROM r AS r3 WHERE r3.{one} = r1.{other} AND r3.id <> r1.id)",
            f"SELECT r1.id AS k, r1.{one} AS v FROM r AS r1 WHERE {dice.choice(['', 'NOT '])}({where})",
            f"SELECT r1.id AS k, ({inner}) AS v FROM r AS r1",
            f"SELECT r1.id AS k, EXISTS (SELECT 1 FROM r r3 WHERE r3.{one} = r1.{other} AND r3.id > 3) AS v FROM r r1",
            f"SELECT r1.id AS k, r1.{one} IN (SELECT {one} FROM r) AS v FROM r AS r1",
            f"SELECT r1.id AS k, r1.{one} AS v FROM r AS r1 WHERE r1.id > 9 OR NOT (b AND {where}) OR c",
            f"SELECT r1.id AS k, r2.id AS v FROM r AS r1 LEFT JOIN r AS r2 ON r1.{one} = r2.{other} AND {where}",
            f"SELECT count(*) AS k, max(x) AS v FROM (SELECT * FROM (SELECT {one} x, id {dice.choice('xy')} FROM r))",
            f"SELECT r1.{one} AS k, count(*) AS v FROM r AS r1 WHERE {where} GROUP BY 1 HAVING k IS NOT NULL OR v > 1",
            f"SELECT {one} AS k, {some.value('bool', 1)} AS v FROM r UNION ALL SELECT {one}, b FROM r",
            "SELECT a AS k, h AS v FROM r UNION ALL SELECT l, d FROM r UNION ALL SELECT i, i FROM r",
            f"SELECT DISTINCT {one} AS k, {some.value('int', 1)} AS v FROM r",
            f"WITH w AS (SELECT id, {one} FROM r WHERE {some.condition(1)}) SELECT x.id AS k, y.{one} AS v FROM w AS x "
            "CROSS JOIN w AS y",
        ]
    )


def _join(dice: random.Random) -> str:
    return dice.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL OUTER JOIN"])


def _compare(session: SparkSession, queries: Sequence[str], *, zeros: bool = True) -> None:
    """Compares queries. One that is refused here is for Spark; most are not.

    Args:
        session: Spark.
        queries: The queries.
        zeros: Whether 0.0 has to be no -0.0.
    """
    computed = 0
    for query in queries:
        here = _here(query)
        if here is not None:
            computed += 1
            try:
                there = session.sql(query).toArrow()
            except PySparkException as error:
                raise AssertionError(f"{query} fails in Spark, and has a result here: {error}") from error
            _assert_same(query, here, there, zeros)
    assert computed > len(queries) // 4


def _here(query: str) -> pa.Table | None:
    """Returns the result without Spark; None if it is refused."""
    try:
        program = translated({"r": ROWS.schema, "out": query}, ["out"], in_utc=True)
        with Database(64 << 20) as database:
            database.run(program, lambda name, read: [ROWS.select(read.columns)])
            schema = program.relations["out"].schema
            return pa.concat_tables([schema.empty_table(), *database.rows("SELECT * FROM out", schema)])
    except NotLocalError:
        return None


def _assert_same(query: str, here: pa.Table, there: pa.Table, zeros: bool) -> None:
    kinds = [_plain(kind) for kind in there.schema.types]
    assert (here.schema.names, here.schema.types) == (there.schema.names, kinds), query
    one, other = ([_comparable(row, zeros) for row in _numbered(table).to_pylist()] for table in (here, there))
    assert Counter(one) == Counter(other) or _nearly(one, other), (query, Counter(one) - Counter(other), other)


def _numbered(rows: pa.Table) -> pa.Table:
    """Makes numbers of days and moments, of which Python has none behind the year 9999."""
    kinds = {pa.date32(): pa.int32()} | {pa.timestamp("us", zone): pa.int64() for zone in ("UTC", None)}
    return rows.cast(pa.schema([one.with_type(kinds.get(_plain(one.type), one.type)) for one in rows.schema]))


def _nearly(one: list[tuple[object, ...]], other: list[tuple[object, ...]]) -> bool:
    """Returns whether the rows are the same but for the last digits of sums."""
    if len(one) != len(other):
        return False
    pairs = zip(sorted(one, key=repr), sorted(other, key=repr), strict=True)
    return all(_near(left, right) for rows in pairs for left, right in zip(*rows, strict=True))


def _near(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE)
    return one == other


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type as this package names it: Spark's Arrow has large ones, and the zone of the session."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def _comparable(row: dict[str, object], zeros: bool) -> tuple[object, ...]:
    """Returns a row whose values are equal if their bits are, but for NaN."""
    return tuple(
        ("nan" if math.isnan(v) else v.hex() if v == 0 and zeros else v) if isinstance(v, float) else v
        for v in row.values()
    )
