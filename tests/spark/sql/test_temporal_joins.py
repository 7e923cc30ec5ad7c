"""``JOIN … FOR SYSTEM_TIME AS OF`` a column: each row meets the version of its time, whatever the statement is like."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tablestore import Store, Table
from tests.depth import sampled
from tests.spark.sql.conftest import Row, Sql
from tests.tablestore.lookup.oracle import begins
from tests.warehouses import rows, to_arrow

pytestmark = pytest.mark.slow

Fields = dict[str, Any]
LONG_AGO = datetime(1999, 1, 1, tzinfo=UTC)


# ------------------------------------------------------------------------------------------------ against an oracle

CONDITIONS: dict[str, Callable[[Fields, Fields], bool]] = {
    "o.a = d.a AND d.b = o.b": lambda o, d: o["a"] == d["a"] and o["b"] == d["b"],
    "d.a = o.a AND d.b = 2": lambda o, d: o["a"] == d["a"] and d["b"] == 2,
    "d.b = o.b AND d.a = o.a AND d.n > o.n % 4 AND o.n <> 3": (
        lambda o, d: o["a"] == d["a"] and o["b"] == d["b"] and d["n"] is not None and d["n"] > o["n"] % 4 != o["n"] - 3
    ),
    "o.a = d.a": lambda o, d: o["a"] == d["a"],
    "o.v = d.w": lambda o, d: o["v"] is not None and o["v"] == d["w"],
    "o.v = d.extra AND d.a = o.a": lambda o, d: o["v"] is not None and o["v"] == d["extra"] and o["a"] == d["a"],
}
SEVERAL: dict[str, Callable[[Fields, Fields], bool]] = {
    "o.a = d.a AND d.n > o.b": lambda o, d: o["a"] == d["a"] and None not in (d["n"], o["b"]) and d["n"] > o["b"]
}
"""Of a left join it is refused: the key is not whole, so a row may have several matches."""


def a_history(store: Store, chance: random.Random) -> Table:
    """A dimension whose versions have other rows, and from the third one on a further column."""
    columns = "a INT, b BIGINT, v STRING, n INT"
    table = store.create_table("shop.dim", columns, primary_key=["a", "b"], options={"bucket": "2"})
    for number in range(5):
        found = {}
        for a, b in (divmod(i, 4) for i in chance.sample(range(12), 7)):
            row = {"a": a, "b": b, "v": chance.choice("xyz"), "n": chance.choice([None, 1, 2, 3]), "_kind": "+U"}
            found[a, b] = row | ({"extra": chance.choice("xyz")} if number > 1 else {})
        gone = chance.choice(list(found))
        found[gone] = {"a": gone[0], "b": gone[1], "_kind": "-D"}
        table.write(to_arrow(table, list(found.values())))
        if number == 1:
            table.alter("ADD COLUMN extra STRING", "ALTER COLUMN n TYPE BIGINT")
    table.rollback(6)
    table.alter("RENAME COLUMN v TO w")
    return table


def the_rows(store: Store, table: Table, chance: random.Random) -> list[Fields]:
    """Rows with the times at which versions begin, a microsecond before, and others."""
    times: list[datetime | None] = [None, LONG_AGO, max(begins(table).values()) + timedelta(hours=1)]
    for begin in begins(table).values():
        times += [begin, begin - timedelta(microseconds=1)]
    found = [
        {
            "n": number,
            "a": chance.choice([None, 0, 1, 2, 2**40]),
            "b": chance.choice([None, 0, 1, 2, 3]),
            "v": chance.choice([None, "x", "y", "q"]),
            "ts": chance.choice(times),
        }
        for number in range(60)
    ]
    orders = store.create_table("shop.o", "n BIGINT, a BIGINT, b INT, v STRING, ts TIMESTAMP", primary_key=["n"])
    orders.write(to_arrow(orders, found))
    return found


def stored_at(table: Table, time: datetime | None) -> list[Fields]:
    versions = [v for v, begin in begins(table).items() if time is not None and begin <= time]
    none = dict.fromkeys(table.schema.names)
    found = rows(table, max(versions)) if versions else []
    return [none | {"w" if name == "v" else name: value for name, value in row.items()} for row in found]


@pytest.mark.parametrize("seed", sampled(range(8), 8, test=8))
def test_what_the_version_of_each_time_has(sql: Sql, store: Store, seed: int) -> None:
    chance = random.Random(seed)
    table = a_history(store, chance)
    given = the_rows(store, table, chance)
    at = {row["n"]: stored_at(table, row["ts"]) for row in given}
    for kind, conditions in (("LEFT JOIN", CONDITIONS), ("JOIN", CONDITIONS | SEVERAL)):
        for condition, matches in conditions.items():
            found = sql(
                f"SELECT o.n, o.v, d.w, d.n, d.extra FROM lake.shop.o {kind} lake.shop.dim "
                f"FOR SYSTEM_TIME AS OF o.ts d ON {condition}"
            )
            wanted: list[Row] = []
            for o in given:
                matched = [d for d in at[o["n"]] if matches(o, d)]
                if not matched and kind == "LEFT JOIN":
                    matched = [dict.fromkeys(table.schema.names)]
                wanted += [(o["n"], o["v"], d["w"], d["n"], d["extra"]) for d in matched]
            assert found == sorted(wanted, key=repr), (kind, condition)


# ------------------------------------------------------------------------------------------------ places in statements


@pytest.fixture
def dim(store: Store) -> Table:
    table = store.create_table("shop.dim", "id INT, name STRING, size INT", primary_key=["id"])
    table.write(pa.table({"id": [1, 2], "name": ["a1", "a2"], "size": [2, 1]}))
    table.write(pa.table({"id": [1, 3], "name": ["b1", "b3"], "size": [3, 3]}))
    return table


@pytest.fixture
def times(session: SparkSession, store: Store, dim: Table) -> dict[int, datetime]:
    """The times of the dimension's versions, and rows with them in the table ``o``."""
    found = begins(dim)
    table = store.create_table("shop.o", "n BIGINT, k BIGINT, ts TIMESTAMP", primary_key=["n"])
    keys = [(1, found[1]), (1, found[2]), (3, found[1]), (3, found[2]), (2, None), (None, found[2])]
    table.write(to_arrow(table, [{"n": n, "k": k, "ts": ts} for n, (k, ts) in enumerate(keys)]))
    session.sql("USE lake.shop")
    return found


LEFT = [(0, "a1"), (1, "b1"), (2, None), (3, "b3"), (4, None), (5, None)]
INNER = [row for row in LEFT if row[1] is not None]
DIM = "dim FOR SYSTEM_TIME AS OF"
WITH_ID = "(SELECT n, CAST(k AS INT) AS id, ts FROM o)"

STATEMENTS: dict[str, list[Row]] = {
    f"SELECT n, d.name FROM o LEFT OUTER JOIN {DIM} o.ts AS d ON o.k = d.id": LEFT,
    f"SELECT n, name FROM o LEFT JOIN lake.shop.{DIM} ts ON k = id": LEFT,
    "SELECT n, `t t`.`x y` FROM o JOIN `dim` SYSTEM_TIME AS OF `o`.`ts` `t t`(`i d`, `x y`, z) ON k = `i d`": INNER,
    f"SELECT n, name FROM {WITH_ID} s JOIN {DIM} s.ts USING (id)": INNER,
    f"SELECT n, name FROM {WITH_ID} s NATURAL LEFT JOIN {DIM} ts": LEFT,
    f"SELECT n, name FROM (SELECT n, k, ts AS timestamp FROM o) JOIN {DIM} timestamp ON k = id": INNER,
    f"SELECT n, name FROM (SELECT n, k, struct(ts AS at) AS `order` FROM o) s JOIN {DIM} s.`order`.at ON k = id": INNER,
    f"SELECT n, name FROM (SELECT n, k, to_timestamp_ntz(date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS')) AS ts FROM o) "
    f"JOIN {DIM} ts ON k = id": INNER,
    f"SELECT n, name FROM (SELECT n, k, CAST(ts AS STRING) AS ts FROM o) JOIN {DIM} CAST(ts AS TIMESTAMP) ON k = id": (
        INNER
    ),
    f"WITH s AS (SELECT * FROM o WHERE n < 2) SELECT n, d.name FROM s JOIN {DIM} s.ts AS d ON s.k = d.id": INNER[:2],
    f"SELECT n, d.called FROM o LEFT JOIN (SELECT name AS called, id FROM {DIM} o.ts) AS d ON o.k = d.id": LEFT,
    f"SELECT n, (SELECT max(name) FROM o p JOIN {DIM} p.ts ON k = id WHERE p.n = o.n) FROM o": LEFT,
    f"SELECT n FROM o WHERE EXISTS (SELECT 1 FROM o p JOIN {DIM} p.ts ON k = id WHERE p.n = o.n)": (
        [row[:1] for row in INNER]
    ),
    f"SELECT n, d.name FROM o JOIN {DIM} o.ts d ON o.k = d.id WHERE n % 3 > 0 AND d.size > 0": INNER[1:2],
    f"SELECT n, a.name, b.name FROM o LEFT JOIN {DIM} o.ts a ON o.k = a.id JOIN {DIM} o.ts AS b ON b.id = a.size": [
        (0, "a1", "a2"), (1, "b1", "b3"), (3, "b3", "b3"),
    ],
    f"SELECT n, b.name FROM o JOIN {DIM} o.ts a ON o.k = a.id JOIN o p USING (n) "
    f"LEFT JOIN {DIM} p.ts b ON b.id = p.k": (
        INNER
    ),
    f"SELECT count(*), sum(d.size) FROM o LEFT JOIN {DIM} o.ts d ON o.k = d.id": [(6, 8)],
    f"SELECT /*+ BROADCAST(d) */ n, d.name FROM o JOIN {DIM} o.ts d ON o.k = d.id": INNER,
    f"SELECT n, d.name FROM o JOIN {DIM} o.ts d ON o.k = d.id UNION ALL SELECT n, d.name FROM o JOIN {DIM} o.ts d "
    "ON o.k = d.id": sorted([*INNER, *INNER], key=repr),
    f"SELECT a.id, b.name FROM (SELECT *, timestamp(now()) AS t FROM dim) a JOIN {DIM} a.t b ON a.id = b.id": [
        (1, "b1"), (2, "a2"), (3, "b3"),
    ],
    "SELECT * FROM o JOIN empty FOR SYSTEM_TIME AS OF o.ts e ON e.id = o.k": [],
    f"SELECT e.id, d.id FROM empty e LEFT JOIN {DIM} (now() - make_dt_interval(e.id)) d ON d.id = e.id": [],
    "SELECT n, e.name FROM o LEFT JOIN empty FOR SYSTEM_TIME AS OF (o.ts + INTERVAL 1 DAY) e ON e.id = k WHERE n < 2": [
        (0, None), (1, None),
    ],
}  # fmt: skip


@pytest.mark.deep
def test_wherever_a_query_may_have_it(sql: Sql, store: Store, times: dict[int, datetime]) -> None:
    store.create_table("shop.empty", "id INT, name STRING", primary_key=["id"])
    for statement, wanted in STATEMENTS.items():
        assert sql(statement) == wanted, statement


@pytest.mark.deep
def test_statements_that_keep_the_rows(sql: Sql, session: SparkSession, times: dict[int, datetime]) -> None:
    joined = f"SELECT o.n, d.name FROM o LEFT JOIN {DIM} o.ts AS d ON o.k = d.id"
    sql(f"CREATE TABLE made {joined}")
    sql("CREATE TABLE named (n BIGINT PRIMARY KEY, name STRING)")
    sql(f"INSERT INTO named {joined} WHERE n < 3")
    sql(f"MERGE INTO named t USING ({joined}) s ON t.n = s.n WHEN NOT MATCHED THEN INSERT *")
    sql(f"CREATE VIEW seen AS {joined}")
    session.sql(f"{joined}").createOrReplaceTempView("frame")
    session.sql("USE spark_catalog.default")  # the view's names mean what they meant
    for name in ("lake.shop.made", "lake.shop.named", "lake.shop.seen", "frame"):
        assert sql(f"SELECT * FROM {name}") == LEFT, name
    assert sql("SELECT s.n, f.name FROM lake.shop.seen s JOIN frame f ON s.n = f.n") == LEFT
    sql("CREATE TEMPORARY VIEW dim AS SELECT 1 AS id, 'another' AS name")
    assert sql("SELECT * FROM lake.shop.seen") == LEFT, "the view knows no temporary view of a session"


@pytest.mark.parametrize("joins", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_a_stream_meets_the_versions_of_its_times(
    sql: Sql, store: Store, dim: Table, times: dict[int, datetime], folder: Path, joins: int
) -> None:
    sql("CREATE TABLE named (n BIGINT PRIMARY KEY, name STRING, size INT)")
    stream = (
        f"INSERT INTO named WITH ('checkpoint' = '{folder}/c', 'trigger' = 'available-now') "
        f"SELECT o.n, d.name, {'d' if joins == 1 else 'e'}.size "
        f"FROM STREAM o LEFT JOIN {DIM} o.ts AS d ON o.k = d.id AND d.name <> 'b3'"
    )
    if joins == 2:
        stream += f" LEFT JOIN {DIM} o.ts e ON d.id = e.id AND d.size = e.size"
    sql(stream)
    first = [(0, "a1", 2), (1, "b1", 3), *((n, None, None) for n in range(2, 6))]
    assert sql("SELECT * FROM named") == first
    dim.write(pa.table({"id": [1], "name": ["c1"], "size": [1]}))
    late = store.table("shop.o")
    late.write(to_arrow(late, [{"n": 6, "k": 1, "ts": begins(dim)[3]}, {"n": 7, "k": 1, "ts": times[2]}]))
    sql(stream)
    assert sql("SELECT * FROM named") == [*first, (6, "c1", 1), (7, "b1", 3)]


@pytest.mark.deep
@pytest.mark.usefixtures("times")
def test_each_micro_batch_of_a_stream_meets_the_newest_version(
    sql: Sql, store: Store, dim: Table, folder: Path
) -> None:
    sql("CREATE TABLE named (n BIGINT PRIMARY KEY, name STRING, size INT)")
    stream = (
        f"INSERT INTO named WITH ('checkpoint' = '{folder}/c', 'trigger' = 'available-now') "
        "SELECT o.n, d.name, d.size FROM STREAM o JOIN dim FOR SYSTEM_TIME AS OF current_timestamp() AS d ON o.k = d.id"
    )
    sql(stream)
    newest = "SELECT o.n, d.name, d.size FROM o JOIN dim AS d ON o.k = d.id"
    first = sql("SELECT * FROM named")
    assert first == sql(f"{newest} ORDER BY n")
    dim.write(pa.table({"id": [1], "name": ["c1"], "size": [1]}))
    late = store.table("shop.o")
    late.write(to_arrow(late, [{"n": 6, "k": 1, "ts": None}]))
    sql(stream)
    assert sql("SELECT * FROM named") == [*first, (6, "c1", 1)]


@pytest.mark.deep
@pytest.mark.usefixtures("times")
def test_the_progress_of_a_stream_says_the_versions(sql: Sql, session: SparkSession, dim: Table) -> None:
    version = dim.filestore.state().version
    stream = session.sql(
        f"SELECT o.n, d.name, e.size FROM STREAM o LEFT JOIN {DIM} o.ts AS d ON o.k = d.id "
        "JOIN dim FOR SYSTEM_TIME AS OF current_timestamp() AS e ON o.k = e.id"
    )
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.lastProgress is not None
    metrics = query.lastProgress.observedMetrics
    names = ["lookup shop.dim", "lookup shop.dim 2"]
    assert {name: row.version for name, row in metrics.items()} == dict.fromkeys(names, version)
    joined = f"SELECT o.n, d.name FROM STREAM o LEFT JOIN {DIM} o.ts AS d ON o.k = d.id"
    session.sql(f"CREATE TEMPORARY VIEW named AS {joined}")
    twice = session.sql(f"SELECT * FROM named UNION ALL {joined}").union(session.sql("SELECT * FROM named"))
    assert all(f"CollectMetrics lookup shop.dim{n}," in plan_of(twice) for n in ("", " 2", " 3")), plan_of(twice)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().analyzed().toString())


# ------------------------------------------------------------------------------------------------ limits


@pytest.mark.usefixtures("times")
def test_a_type_that_python_cannot_have_is_refused(sql: Sql) -> None:
    joined = f"SELECT i, d.name FROM (SELECT *, {{}} AS i FROM o) o JOIN {DIM} o.ts AS d ON o.k = d.id WHERE n = 0"
    assert sql(joined.format("INTERVAL '1' DAY")) == [(timedelta(days=1), "a1")]
    for value in ("INTERVAL '1' MONTH", "array(make_interval(1, 2))"):
        with pytest.raises(AnalysisException, match=r"bad-lookup\] the rows have a column of type .*INTERVAL"):
            sql(joined.format(value))


def test_a_version_that_has_expired(sql: Sql, store: Store) -> None:
    kept = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}
    table = store.create_table("shop.t", "id BIGINT, name STRING", primary_key=["id"], options=kept)
    for name in "abcd":
        table.write(pa.table({"id": [1], "name": [name]}))
    given = ", ".join(f"({n}, TIMESTAMP '{time}')" for n, time in begins(table).items() if n > 0)
    table.expire()
    query = (
        f"SELECT n, name FROM VALUES {given} AS s (n, ts) JOIN lake.shop.t FOR SYSTEM_TIME AS OF s.ts {{}} ON id = 1"
    )
    with pytest.raises(PySparkException, match="snapshot-expired"):
        sql(query.format(""))
    oldest = query.format("WITH ('expired' = 'oldest')")
    assert sql(oldest) == [(1, "c"), (2, "c"), (3, "c"), (4, "d")]
    assert sql(f"{query.format('')} WHERE n > 2") == [(3, "c"), (4, "d")], "rows are filtered before they are looked up"


REFUSED = {
    f"SELECT * FROM {DIM} ts": "the right of JOIN",
    f"SELECT * FROM {DIM} ts JOIN o ON k = id": "the right of JOIN",
    f"SELECT * FROM o RIGHT JOIN {DIM} o.ts ON k = id": "not RIGHT OUTER",
    f"SELECT * FROM o FULL JOIN {DIM} o.ts ON k = id": "not FULL OUTER",
    f"SELECT * FROM o LEFT ANTI JOIN {DIM} o.ts ON k = id": "not LEFT ANTI",
    f"SELECT * FROM o CROSS JOIN {DIM} o.ts": "needs an equality",
    f"SELECT * FROM o, {DIM} o.ts WHERE k = id": "needs an equality",
    f"SELECT * FROM o JOIN {DIM} o.ts ON k < id": "needs an equality",
    f"SELECT * FROM o JOIN {DIM} o.ts ON name = CAST(k AS DOUBLE)": "cast the value",
    f"SELECT * FROM o LEFT JOIN {DIM} o.ts ON k = size AND id > 1": "the whole primary key",
    f"SELECT * FROM o JOIN {DIM} o.n ON k = id": "needs a TIMESTAMP, and not BIGINT: write CAST(o.n AS TIMESTAMP)",
    f"SELECT * FROM o JOIN {DIM} date(ts) ON k = id": "not DATE",
    f"SELECT * FROM o JOIN {DIM} CAST(ts AS STRING) ON k = id": "not STRING",
    f"SELECT * FROM o JOIN {DIM} max(ts) ON k = id": "of one row",
    f"SELECT * FROM o JOIN (SELECT upper(name) AS n, id FROM {DIM} o.ts) d ON k = id": "only choose columns",
    f"SELECT * FROM o JOIN {DIM} o.ts TABLESAMPLE (1 ROWS) d ON k = id": "between the table and the join",
    f"SELECT (SELECT max(name) FROM o p JOIN {DIM} p.ts ON k = id AND p.n = o.n) FROM o": "outside of the subquery",
    f"WITH dim AS (SELECT 1 AS id) SELECT * FROM o JOIN {DIM} o.ts ON k = id": "dim is a query of WITH",
    f"WITH dim (SELECT 1 AS id) SELECT * FROM o JOIN {DIM} o.ts ON k = id": "dim is a query of WITH",
    f"SELECT * FROM o LEFT JOIN {DIM} o.ts ON k = id AND EXISTS (SELECT 1 FROM o p WHERE p.k = size)": "ON of a left",
    f"SELECT * FROM o JOIN {DIM} o.ts ON id = CAST(rand() * 3 AS BIGINT)": "another value each time",
    "SELECT * FROM o JOIN STREAM dim WITH ('system_time' = 'o.ts') ON k = id": "dim is a stream",
    "SELECT * FROM o JOIN shown FOR SYSTEM_TIME AS OF o.ts ON k = id": "shown is a view",
    "SELECT * FROM o JOIN temporary FOR SYSTEM_TIME AS OF o.ts ON k = id": "temporary is a temporary view",
    "SELECT * FROM o JOIN dim$files FOR SYSTEM_TIME AS OF o.ts ON k = id": "is a system table",
    f"CREATE MATERIALIZED VIEW v AS SELECT n FROM o JOIN {DIM} o.ts ON k = id": "bad-join",
    f"SELECT * FROM o JOIN {DIM} o.ts WITH ('expired' = 'never') ON k = id": "unknown-option",
    f"SELECT * FROM o JOIN {DIM} o.ts WITH ('fresh' = 'true') ON k = id": "unknown-option",
}


def test_what_is_refused(sql: Sql, store: Store, times: dict[int, datetime]) -> None:
    sql("CREATE VIEW shown AS SELECT * FROM dim")
    sql("CREATE TEMPORARY VIEW temporary AS SELECT * FROM dim")
    for statement, reason in REFUSED.items():
        with pytest.raises(AnalysisException) as caught:
            sql(statement)
        message = str(caught.value)
        assert "[tablestore: " in message, statement
        assert reason in message, statement
    for statement, name in (
        (f"SELECT * FROM o JOIN {DIM} d.ts AS d ON k = id", "`d`.`ts`"),
        (f"SELECT * FROM o JOIN {DIM} o.ts AS d ON d.nope = k", "`d`.`nope`"),
        (f"SELECT d.nope FROM o JOIN {DIM} o.ts AS d ON d.id = k", "`d`.`nope`"),
        ("SELECT * FROM o JOIN nope FOR SYSTEM_TIME AS OF o.ts ON k = id", "nope cannot be found"),
    ):
        with pytest.raises(AnalysisException) as caught:
            sql(statement)
        assert name in str(caught.value), statement


def test_only_what_is_needed_passes_through_python(session: SparkSession, times: dict[int, datetime]) -> None:
    found = session.sql(f"SELECT n FROM o JOIN {DIM} o.ts d ON k = id WHERE n > 1 AND d.size > 1")
    plan = found._jdf.queryExecution().optimizedPlan().toString()
    python = next(line for line in plan.splitlines() if "MapInArrow" in line)
    assert "found_size" in python
    assert "found_name" not in python
    assert plan.index("MapInArrow") < plan.index("> 1", plan.index("MapInArrow")), "the rows are filtered before"
