"""A MERGE writes each key once: it does what it does to a plain Delta table, or is refused if that has a key twice."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from filestore.errors import InvalidRequest
from filestore.merge.deduplicate import ORDINAL_COLUMN, reduce
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from tablestore import Store
from tablestore.spark.batch.writing import each_once
from tests.depth import Depth, sampled
from tests.spark.sql.conftest import Sql
from tests.spark.sql.plain_readers import assert_all_readers_see
from tests.spark.sql.random_statements import COLUMNS, rows, values
from tests.tables import assert_healthy

FAILURES = (PySparkException, Py4JJavaError)
REPEATED = r"(?s)repeated-key"
TABLES = {
    "keyed": f"({COLUMNS}, PRIMARY KEY (id)) TBLPROPERTIES ('bucket' = '2', 'changelog-producer' = 'lookup')",
    "later": f"({COLUMNS}, PRIMARY KEY (id)) TBLPROPERTIES ('write-mode' = 'merge-on-read')",
    "partitioned": f"({COLUMNS}, PRIMARY KEY (p, id)) PARTITIONED BY (p)",
}
CONDITIONS = (
    "t.id = s.id AND t.p = s.p",
    "t.id = s.id",
    "s.id = t.id AND t.n > {n}",
    "t.id = s.id AND s.n > {n}",
    "t.id = s.id AND t.v = s.v",
    "t.n = s.n",
    "t.id = s.id + 1",
    "false",
)
MATCHED = (
    "WHEN MATCHED THEN UPDATE SET n = s.n + t.n, v = s.v",
    "WHEN MATCHED AND s.n > {n} THEN UPDATE SET n = s.n WHEN MATCHED THEN DELETE",
    "WHEN MATCHED THEN DELETE",
    "",
)
NOT_MATCHED = (
    "WHEN NOT MATCHED THEN INSERT *",
    "WHEN NOT MATCHED AND s.n > {n} THEN INSERT *",
    "WHEN NOT MATCHED AND s.n > {n} THEN INSERT * "
    "WHEN NOT MATCHED THEN INSERT (id, p, n, v) VALUES (s.id + 1, s.p, s.n, s.v)",
    "",
)
LEFT = (
    "WHEN NOT MATCHED BY SOURCE AND t.n > {n} THEN UPDATE SET v = 'left'",
    "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "",
    "",
)


def merge(chance: random.Random) -> str:
    """Returns a MERGE into ``{t}``, perhaps with a key twice in its source."""
    filled = {"n": chance.randrange(9)}
    ids = range(8)
    source = rows(chance, chance.choice([chance.choices(ids, k=4), chance.sample(ids, 3), chance.sample(ids, 6)]))
    actions = [chance.choice(choices).format(**filled) for choices in (MATCHED, NOT_MATCHED, LEFT)]
    if not any(actions):
        actions[1] = NOT_MATCHED[0]
    return (
        f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {values(source)} AS s(id, p, n, v)) s "
        f"ON {chance.choice(CONDITIONS).format(**filled)} {' '.join(actions)}"
    )


@pytest.mark.parametrize("name", sampled(TABLES, len(TABLES), test=len(TABLES)))
def test_a_merge_does_what_delta_does_or_is_refused(
    sql: Sql, store: Store, folder: Path, name: str, depth: Depth
) -> None:
    chance = random.Random(random.randrange(1 << 30))
    sql(f"CREATE TABLE lake.shop.t {TABLES[name]}")
    sql(f"INSERT INTO lake.shop.t VALUES {values(rows(chance, range(5)))}")
    theirs = f"delta.`{folder}/theirs`"
    table = store.table("shop.t")
    key = [["id", "p", "n", "v"].index(column) for column in table.definition.primary_key]
    for number in range(depth.times(3, deep=40)):
        sql(f"CREATE OR REPLACE TABLE {theirs} USING delta AS SELECT * FROM lake.shop.t")
        text, version = merge(chance), table.filestore.state().version
        before = sql("SELECT * FROM lake.shop.t")
        try:
            sql(text.replace("{t}", theirs))
        except FAILURES:  # two rows of the source match one row
            expected = None
        else:
            found = sql(f"SELECT * FROM {theirs}")
            once = max(Counter(tuple(row[at] for at in key) for row in found).values(), default=1) == 1
            expected = found if once else None
        if expected is None:
            with pytest.raises(FAILURES):
                sql(text.replace("{t}", "lake.shop.t"))
            assert table.filestore.state().version == version, f"statement {number}: {text}"
        else:
            sql(text.replace("{t}", "lake.shop.t"))
        assert sql("SELECT * FROM lake.shop.t") == (before if expected is None else expected), f"{number}: {text}"
    assert_healthy(table.filestore)
    assert_all_readers_see(sql, table, sql("SELECT * FROM lake.shop.t"))


# ----------------------------------------------------------------------------------------------- one by one


@pytest.fixture
def sums(sql: Sql) -> None:
    sql("CREATE TABLE lake.shop.sums (id BIGINT, a INT, PRIMARY KEY (id)) WITH ('bucket' = '2')")
    sql("INSERT INTO lake.shop.sums VALUES (1, 10), (2, 20), (3, 30)")


def into_sums(source: str, on: str, actions: str) -> str:
    return f"MERGE INTO lake.shop.sums t USING (SELECT * FROM VALUES {source} AS s(id, a)) s ON {on} {actions}"


INSERTS = "WHEN NOT MATCHED THEN INSERT *"


@pytest.mark.few(2)
@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize(
    ("source", "on", "actions"),
    [
        pytest.param(
            "(6L, 1), (6L, 2)", "t.id = s.id", f"WHEN MATCHED THEN UPDATE SET a = t.a + s.a {INSERTS}", id="both"
        ),
        pytest.param("(6L, 1), (6L, 2)", "t.id = s.id", INSERTS, id="only inserts"),
        pytest.param(
            "(6L, 1), (6L, 2)", "t.a = s.a", f"WHEN MATCHED THEN UPDATE SET a = 0 {INSERTS}", id="no key in ON"
        ),
        pytest.param("(2L, 10)", "t.a + 1 = s.a", INSERTS, id="a stored key that does not match"),
        pytest.param("(2L, 7)", "t.id = s.id AND t.a > 20", INSERTS, id="a stored key that is left out"),
        pytest.param(
            "(2L, 7)", "t.id = s.id AND t.a > 20", f"WHEN MATCHED THEN UPDATE SET * {INSERTS}", id="whole rows"
        ),
        pytest.param(
            "(9L, 10), (1L, 99)", "t.a = s.a", f"WHEN MATCHED THEN UPDATE SET a = 0 {INSERTS}", id="an updated key"
        ),
    ],
)
def test_a_key_that_would_be_written_twice_is_refused(sql: Sql, source: str, on: str, actions: str) -> None:
    """One of two rows of the source was left, or a stored row that the condition leaves alone was replaced."""
    with pytest.raises(FAILURES, match=REPEATED):
        sql(into_sums(source, on, actions))
    assert sql("SELECT * FROM lake.shop.sums") == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.usefixtures("sums")
def test_keys_that_are_equal_as_floating_numbers_are_different_keys(sql: Sql) -> None:
    """A cast to DOUBLE was passed by, so a row that ON matches with one of another key was inserted beside it."""
    sql("INSERT INTO lake.shop.sums VALUES (9007199254740993, 1)")
    alike = "CAST(t.id AS DOUBLE) = CAST(s.id AS DOUBLE)"
    with pytest.raises(FAILURES, match="key-change"):
        sql(into_sums("(9007199254740992L, 2)", alike, f"WHEN MATCHED THEN UPDATE SET * {INSERTS}"))
    assert sql("SELECT * FROM lake.shop.sums WHERE id > 3") == [(9007199254740993, 1)]


@pytest.mark.usefixtures("sums")
def test_a_row_that_is_deleted_gives_its_key_to_one_that_is_inserted(sql: Sql) -> None:
    """Either of the two rows was left."""
    on = "t.id = s.id AND t.a = s.a"
    sql(into_sums("(1L, 11), (2L, 20), (4L, 40)", on, f"{INSERTS} WHEN NOT MATCHED BY SOURCE THEN DELETE"))
    assert sql("SELECT * FROM lake.shop.sums") == [(1, 11), (2, 20), (4, 40)]
    with pytest.raises(FAILURES, match=REPEATED):
        sql(into_sums("(1L, 12), (1L, 13)", on, f"{INSERTS} WHEN NOT MATCHED BY SOURCE THEN DELETE"))


def test_engines_that_merge_values_merge_the_rows_of_a_merge(sql: Sql) -> None:
    """With them a MERGE only inserts, and is an INSERT."""
    options = "'merge-engine' = 'aggregation', 'fields.a.aggregate-function' = 'sum'"
    sql(f"CREATE TABLE lake.shop.sums (id BIGINT, a INT, PRIMARY KEY (id)) WITH ({options})")
    sql("INSERT INTO lake.shop.sums VALUES (1, 10)")
    sql(into_sums("(1L, 1), (2L, 1), (2L, 2)", "t.a = s.a", INSERTS))
    assert sql("SELECT * FROM lake.shop.sums") == [(1, 11), (2, 3)]


# -------------------------------------------------------------------------------------------------- pure


DEFINITION = TableDefinition.of(Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), False)])), ["id"])
ROWS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["+I", "+U", "-D"])), max_size=8)


@given(rows=ROWS, cuts=st.lists(st.integers(0, 8), max_size=3))
def test_the_last_row_of_a_key_is_its_put(rows: list[tuple[int, str]], cuts: list[int]) -> None:
    ordered = sorted((key, ordinal, kind) for ordinal, (key, kind) in enumerate(rows))
    columns = {"id": [row[0] for row in ordered], ORDINAL_COLUMN: [row[1] for row in ordered]}
    whole = pa.record_batch({**columns, "_kind": pa.array([row[2] for row in ordered], pa.string())})
    ends = sorted({0, whole.num_rows, *(min(cut, whole.num_rows) for cut in cuts)})
    batches = [whole.slice(start, end - start) for start, end in pairwise(ends)]
    puts = Counter(key for key, kind in rows if kind != "-D")
    if max(puts.values(), default=0) > 1:
        with pytest.raises(InvalidRequest, match="two rows have the key") as refused:
            list(each_once(batches, DEFINITION))
        assert refused.value.code == "repeated-key"
        return
    found = list(each_once(batches, DEFINITION))
    assert sum(batch.num_rows for batch in found) == len(rows)
    if found:
        kept = reduce(pa.Table.from_batches(found), ["id"], None)
        expected = {key: {kind for other, kind in rows if other == key} for key, _ in rows}
        last = dict(zip(kept["id"].to_pylist(), kept["_kind"].to_pylist(), strict=True))
        assert {key: kind == "-D" for key, kind in last.items()} == {
            k: kinds == {"-D"} for k, kinds in expected.items()
        }
