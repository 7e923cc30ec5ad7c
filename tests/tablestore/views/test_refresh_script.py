"""The script of a refresh, run by SQLite and by DuckDB: over any history the result equals the query, computed again.

What it has to equal is always SQLite's.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise

import pyarrow as pa
import pytest

from filestore.errors import NotFound
from filestore.model.definition import TableDefinition
from tablestore.local_sql.database import Database
from tablestore.local_sql.programs import Read, translated
from tablestore.views.engines.local_engine import Relation, relations_of
from tablestore.views.plan.nodes import Block, Form
from tablestore.views.plan.refresh_script import check_script, refresh_script
from tablestore.views.plan.script import Changed, Matching, Rows, Script
from tablestore.views.plan.view_plan import Incremental, plan_view
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import ViewQuery, view_of_statement
from tests.depth import Depth
from tests.tablestore.views.by_sqlite import Row, State, make_relations, result
from tests.tablestore.views.script_shapes import COLUMNS, TABLES, Shape, row_of, shape

Run = Callable[[sqlite3.Connection, Script, State, State, Sequence[str]], tuple[set[Row], Counter[Row]]]
"""Runs a script, in a database, over the old rows and the new ones; returns the keys that it finds and the new rows."""

_STEPS = 4
_REPEATED = "the key that was given is none"


@pytest.mark.few(4)
@pytest.mark.parametrize("part", range(8))
def test_a_refresh_equals_the_query_computed_again(part: int, depth: Depth) -> None:
    ends: Counter[str] = Counter()
    number = depth.times(40, deep=4000)
    for seed in range(number):
        ends[_history(random.Random(f"scripts {part} {seed}"), _run)] += 1
    assert ends[""] > number // 2, ends


@pytest.mark.few(2)
@pytest.mark.parametrize("part", range(4))
def test_a_refresh_without_spark_equals_the_query(part: int, depth: Depth) -> None:
    """Every shape for which there are rules is one that this process computes."""
    ends: Counter[str] = Counter()
    number = depth.times(10, deep=1000)
    for seed in range(number):
        ends[_history(random.Random(f"here {part} {seed}"), _run_here)] += 1
    assert ends[""] > number // 2, ends


@pytest.mark.parametrize(
    ("query", "key", "states"),
    [
        # a group that is null belongs to rows without a partner, and to those whose partner has a null
        (
            "SELECT b.v AS g, count(*) AS n, min(a.y) AS l FROM a LEFT JOIN b ON a.x = b.k GROUP BY b.v",
            ("g",),
            [
                {"s.a": [(1, 1, 1, None), (2, 9, 2, None), (3, 2, 3, None)], "s.b": [(1, None, None), (2, 5, None)]},
                {"s.a": [(1, 1, 1, None), (2, 9, 2, None), (3, 2, 3, None)], "s.b": [(1, 5, None), (2, 5, None)]},
                {"s.a": [(1, 1, 1, None), (2, 9, 0, None), (3, 2, 3, None)], "s.b": [(1, 5, None), (2, 5, None)]},
            ],
        ),
        # both sides of a join of a table with itself change at once
        (
            "SELECT l.id AS k, r.id AS j FROM a AS l JOIN a AS r ON l.x = r.y",
            (),
            [
                {"s.a": [(1, 1, 2, None), (2, 2, 1, None)]},
                {"s.a": [(1, 3, 2, None), (2, 2, 3, None)]},
                {"s.a": [(1, 3, 3, None), (2, 2, 3, None)]},
            ],
        ),
        # a row that WHERE hides while it has a partner, and whose partner comes and goes
        (
            "SELECT a.id FROM a LEFT JOIN b ON a.x = b.k WHERE b.v IS NULL",
            (),
            [
                {"s.a": [(1, 1, 0, None)], "s.b": []},
                {"s.a": [(1, 1, 0, None)], "s.b": [(1, 1, None)]},
                {"s.a": [(1, 1, 0, None)], "s.b": [(1, None, None)]},
                {"s.a": [(1, 1, 0, None)], "s.b": []},
            ],
        ),
        # both tables of a subquery change, so its changed rows come twice
        (
            "SELECT s.id, s.v FROM (SELECT a.id, b.v FROM a JOIN b ON a.x = b.k) AS s",
            (),
            [
                {"s.a": [(1, 1, 0, None)], "s.b": [(1, 1, None)]},
                {"s.a": [(1, 2, 0, None)], "s.b": [(2, 2, None)]},
            ],
        ),
        # both columns of a key are one column of the result
        (
            "SELECT a.id, c.v FROM c JOIN a ON c.p = a.id AND c.q = a.id",
            (),
            [
                {"s.a": [(1, 0, 0, None)], "s.c": [(1, 1, 5), (1, 2, 6)]},
                {"s.a": [(1, 0, 0, None)], "s.c": [(1, 1, 7), (1, 2, 6)]},
            ],
        ),
        # such a key has a column more
        (
            "SELECT a.id, c.v FROM c JOIN a ON c.p = a.id AND c.q = a.id",
            ("id", "v"),
            [
                {"s.a": [(1, 0, 0, None)], "s.c": [(1, 1, 5), (1, 2, 6)]},
                {"s.a": [(1, 0, 0, None)], "s.c": [(1, 1, 7), (1, 2, 6)]},
            ],
        ),
        # a row leaves its group, and nothing else is left in it
        (
            "SELECT x AS g, count(*) AS n FROM a GROUP BY x",
            ("g",),
            [{"s.a": [(1, 1, 0, None)]}, {"s.a": [(1, 2, 0, None)]}, {"s.a": []}],
        ),
        # a row of a subquery is another one's partner, and both have changed
        (
            "SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b JOIN c ON b.v = c.p WHERE b.k = a.x AND c.v > 0)",
            (),
            [
                {"s.a": [(1, 1, 0, None), (2, 2, 0, None)], "s.b": [(1, 3, None)], "s.c": [(3, 1, 1)]},
                {"s.a": [(1, 1, 0, None), (2, 2, 0, None)], "s.b": [(2, 2, None)], "s.c": [(2, 1, 1)]},
                {"s.a": [(1, 1, 0, None), (2, 2, 0, None)], "s.b": [(2, 2, None)], "s.c": [(2, 1, 0)]},
            ],
        ),
        # the first value that NOT IN knows, and the last one
        (
            "SELECT id FROM a WHERE id NOT IN (SELECT v FROM b WHERE v IS NOT NULL)",
            (),
            [
                {"s.a": [(1, 1, 0, None), (2, 2, 0, None)]},
                {"s.a": [(1, 1, 0, None), (2, 2, 0, None)], "s.b": [(1, 2, None), (2, None, None)]},
                {"s.a": [(1, 1, 0, None), (2, 2, 0, None)], "s.b": [(1, None, None), (2, None, None)]},
            ],
        ),
        # several flips of one partner between two refreshes are none
        (
            "SELECT a.id, a.y FROM a WHERE NOT EXISTS (SELECT 1 FROM e WHERE e.x = a.x)",
            (),
            [
                {"s.a": [(1, 1, 0, None)], "s.e": [(1, 0), (1, 0)]},
                {"s.a": [(1, 1, 5, None)], "s.e": [(1, 1)]},
                {"s.a": [(1, 1, 5, None)], "s.e": []},
            ],
        ),
    ],
    ids=[
        "null-groups",
        "self-join",
        "hidden-partner",
        "twice-in-a-subquery",
        "one-column",
        "more-columns",
        "left-group",
        "joined-subquery",
        "not-in",
        "flips",
    ],
)
def test_a_history(query: str, key: tuple[str, ...], states: Sequence[State]) -> None:
    full = [{table: state.get(table, []) for table in TABLES} for state in states]
    for run in (_run, _run_here):
        assert _refreshes(Shape(query, key), full, run) == ""


@pytest.mark.parametrize(
    "query",
    [
        "id NOT IN ((SELECT k FROM b WHERE b.k = a.y), 5)",
        "id IN ((SELECT k FROM b WHERE b.k = a.y), 5)",
        "(SELECT k FROM b WHERE b.k = a.y) NOT IN (2, 5)",
    ],
)
def test_regression_a_subquery_that_is_one_value_of_a_list(query: str) -> None:
    """It was taken for all that NOT IN compares. It is null where there is no row."""
    rows = [(id, 0, 1, None) for id in range(5)]
    states = [
        {"s.a": rows, "s.b": [(k, None, None) for k in there], "s.c": [], "s.e": []}
        for there in (range(5), [0, 2, 3, 4], range(1, 5), [])
    ]
    assert _refreshes(Shape(f"SELECT id FROM a WHERE {query}"), states, _run) == ""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT v, x FROM e",
        "SELECT v, count(*) OVER (PARTITION BY x) AS n FROM e",
        "SELECT min(v) AS v, count(*) AS n FROM e GROUP BY x",
        "SELECT v, 1 AS branch FROM e WHERE x < 2 UNION ALL SELECT v, 2 AS branch FROM e WHERE x > 1",
    ],
    ids=["rows", "partitions", "groups", "union"],
)
def test_a_key_that_two_rows_have_is_noticed_though_one_has_not_changed(query: str) -> None:
    """All rows of a key that the user gave are computed again, and the write refuses two of one key."""
    states = [{table: rows if table == "s.e" else [] for table in TABLES} for rows in ([(1, 10)], [(1, 10), (2, 10)])]
    assert _refreshes(Shape(query, ("v",)), states, _run) == _REPEATED


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT a.id, e.v FROM a JOIN e ON e.x = a.id", ("id", "v")),
        ("SELECT id, x FROM a", ()),
        ("SELECT id, count(*) OVER (PARTITION BY x) AS n FROM a", ()),
        ("SELECT x AS g, count(*) AS n FROM a WHERE x IS NOT NULL GROUP BY x", ()),
        ("SELECT DISTINCT x, y FROM a", ("x", "y")),
        ("SELECT id, x, 1 AS branch FROM a UNION ALL SELECT id, y, 2 AS branch FROM a", ("id", "branch")),
    ],
    ids=["given", "rows", "partitions", "groups", "distinct", "union"],
)
def test_a_change_of_a_table_of_which_the_result_has_nothing(query: str, key: tuple[str, ...]) -> None:
    """WITH may name a query that nothing reads. Its table is one of the view's, and its changes reach no row."""
    states = [
        {"s.a": [(1, 1, 5, None), (2, 2, 6, None)], "s.b": [], "s.c": [], "s.e": [(1, 3)]},
        {"s.a": [(1, 1, 5, None), (2, 2, 6, None)], "s.b": [(1, 2, None)], "s.c": [], "s.e": [(1, 3)]},
        {"s.a": [(1, 1, 5, None), (2, 3, 6, None)], "s.b": [(1, 3, None)], "s.c": [], "s.e": [(1, 3)]},
    ]
    for run in (_run, _run_here):
        assert _refreshes(Shape(f"WITH unread AS (SELECT * FROM b) {query}", key), states, run) == ""


@pytest.mark.parametrize("part", range(2))
def test_a_check_finds_each_wrong_row(part: int, depth: Depth) -> None:
    """If all rows are drawn: one that is missing, has another value, or is too many; and no row that is right."""
    found: Counter[str] = Counter()
    number = depth.times(20, deep=1000)
    for seed in range(number):
        dice = random.Random(f"check {part} {seed}")
        one, state = shape(dice), _state(dice)
        query = view_of_statement(one.query, Place("", "s"), _definition_of)
        plan = plan_view(query, TABLES, {}, one.primary_key)
        if isinstance(plan, Incremental):
            with closing(sqlite3.connect(":memory:")) as database:
                found.update(_checked(database, query, plan, state, dice))
    assert min(found["missing"], found["more"]) > number // 5, found
    assert found["changed"] > number // 20, "in most shapes all columns are of the key"


def _checked(
    database: sqlite3.Connection, query: ViewQuery, plan: Incremental, state: State, dice: random.Random
) -> list[str]:
    """Checks right rows of a view and wrong ones; returns the kinds of wrong rows that were found."""
    columns, right = query.tree.named_selects, result(database, query, state)
    places = [columns.index(name) for name in plan.key]
    if not right or _has_repeated(right, places):
        return []
    script = check_script(plan, dict.fromkeys(TABLES, 0), Rows("view", 0))

    def differs(stored: Counter[Row]) -> bool:
        def read(what: Rows | Changed) -> tuple[Sequence[str], Sequence[Row]]:
            assert not isinstance(what, Changed)
            if what.table == "view":
                return columns, list(stored.elements())
            return COLUMNS[what.table], state[what.table]

        make_relations(database, script, read)
        one, other = (
            Counter(database.execute(f"SELECT * FROM {name}").fetchall()) for name in (script.rows, script.stored)
        )
        return one != other

    assert not differs(right), (query.text, state)
    row = dice.choice(list(right))
    wrong = {"missing": right - Counter([row])}
    if len(places) < len(columns):
        other = tuple(value if at in places else 77 if value != 77 else 78 for at, value in enumerate(row))
        wrong["changed"] = right - Counter([row]) + Counter([other])
    block = plan.node
    if plan.given or not isinstance(block, Block) or block.form is not Form.PARTITIONS:
        wrong["more"] = right + Counter([tuple(-5 if at in places else value for at, value in enumerate(row))])
    for kind, stored in wrong.items():
        assert differs(stored), (kind, query.text, state)
    return list(wrong)


def _history(dice: random.Random, run: Run) -> str:
    """Runs the refreshes of a random query over random changes; returns why it ended early, or ""."""
    states = [_state(dice)]
    one = shape(dice)
    for _ in range(_STEPS):
        states.append(_changed(states[-1], dice))
    return _refreshes(one, states, run)


def _state(dice: random.Random) -> State:
    return {table: _once_a_key(table, [row_of(table, dice) for _ in range(dice.randrange(2, 9))]) for table in TABLES}


def _changed(state: State, dice: random.Random) -> dict[str, Sequence[Row]]:
    """Replaces, adds and removes a few rows of some tables."""
    found = dict(state)
    for table in dice.sample(list(TABLES), dice.choice([1, 1, 2, 4])):
        rows = list(found[table])
        for _ in range(dice.choice([1, 1, 2, 3])):
            if rows and dice.randrange(3) == 0:
                rows.pop(dice.randrange(len(rows)))
            else:
                rows.append(row_of(table, dice))
        found[table] = _once_a_key(table, rows)
    return found


def _once_a_key(table: str, rows: Sequence[Row]) -> list[Row]:
    key = len(TABLES[table].primary_key)
    return list({row[:key]: row for row in rows}.values()) if key else list(rows)


def _refreshes(one: Shape, states: Sequence[State], run: Run) -> str:
    query = view_of_statement(one.query, Place("", "s"), _definition_of)
    plan = plan_view(query, TABLES, {}, one.primary_key)
    if not isinstance(plan, Incremental):
        return plan.reason
    with closing(sqlite3.connect(":memory:")) as database:
        return _refreshes_in(database, query, plan, states, run)


def _refreshes_in(
    database: sqlite3.Connection, query: ViewQuery, plan: Incremental, states: Sequence[State], run: Run
) -> str:
    places = [query.tree.named_selects.index(name) for name in plan.key]
    stored = result(database, query, states[0])
    if _has_repeated(stored, places):
        return _REPEATED
    for old, new in pairwise(states):
        expected = result(database, query, new)
        changed = {table for table in TABLES if Counter(old[table]) != Counter(new[table])}
        if changed & set(query.tables):
            versions = {table: int(table in changed) for table in TABLES}
            script = refresh_script(plan, dict.fromkeys(TABLES, 0), versions)
            keys, rows = run(database, script, old, new, plan.key)
            if _has_repeated(expected, places):
                assert _has_repeated(rows, places), (query.text, old, new)  # else it would be stored
                return _REPEATED
            left = Counter({row: count for row, count in stored.items() if _values(row, places) not in keys})
            assert left + rows == expected, (query.text, old, new)
        stored = expected
    return ""


def _definition_of(table: str) -> TableDefinition:
    if table not in TABLES:
        raise NotFound(table, code="table-not-found")  # as of a name that WITH gives
    return TABLES[table]


def _has_repeated(rows: Counter[Row], places: Sequence[int]) -> bool:
    return len({_values(row, places) for row in rows}) < rows.total()


def _values(row: Row, places: Sequence[int]) -> Row:
    return tuple(row[at] for at in places)


def _run(
    database: sqlite3.Connection, script: Script, old: State, new: State, key: Sequence[str]
) -> tuple[set[Row], Counter[Row]]:
    """Returns the keys that a script finds, and the new rows."""

    def read(what: Rows | Changed) -> tuple[Sequence[str], Sequence[Row]]:
        return COLUMNS[what.table], _read(what, old, new)

    make_relations(database, script, read)
    keys = set(database.execute(f"SELECT {', '.join(key)} FROM {script.keys}").fetchall())
    return keys, Counter(database.execute(f"SELECT * FROM {script.rows}").fetchall())


def _run_here(
    database: sqlite3.Connection, script: Script, old: State, new: State, key: Sequence[str]
) -> tuple[set[Row], Counter[Row]]:
    """Returns the same, as this process computes it."""
    relations = dict(relations_of(script))

    def table_of(relation: Relation) -> str:
        assert isinstance(relation, Rows | Changed | Matching)
        return relation.rows.table if isinstance(relation, Matching) else relation.table

    def read(name: str, one: Read) -> list[pa.Table]:
        relation = relations[name]
        assert isinstance(relation, Rows | Changed | Matching)
        rows = _read(relation.rows if isinstance(relation, Matching) else relation, old, new)
        columns = [[row[COLUMNS[table_of(relation)].index(column)] for row in rows] for column in one.columns]
        kinds = pa.schema([one.schema.field(column).with_nullable(True) for column in one.columns])
        return [pa.table([pa.array(v, kind.type) for v, kind in zip(columns, kinds, strict=True)], schema=kinds)]

    schemas = {
        name: one if isinstance(one, str) else TABLES[table_of(one)].schema.to_arrow()
        for name, one in relations.items()
    }
    program = translated(schemas, [script.keys, script.rows])
    with Database(64 << 20) as own:
        own.run(program, read)
        found = {
            name: [tuple(row.values()) for part in own.rows(f"FROM {name}", made.schema) for row in part.to_pylist()]
            for name, made in program.relations.items()
            if name in (script.keys, script.rows)
        }
    names = program.relations[script.keys].schema.names
    keys = {tuple(row[names.index(column)] for column in key) for row in found[script.keys]}
    return keys, Counter(found[script.rows])


def _read(what: Rows | Changed, old: State, new: State) -> Sequence[Row]:
    if isinstance(what, Rows):
        return (new if what.version else old)[what.table]
    one, other = (new, old) if what.new else (old, new)
    return list((Counter(one[what.table]) - Counter(other[what.table])).elements())
