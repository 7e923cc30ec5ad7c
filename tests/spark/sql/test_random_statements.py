"""Random statements do to our tables what they do to a Delta table with the same rows: delta-spark is the judge."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from tablestore import Store
from tests.depth import Depth, sampled
from tests.spark.sql.conftest import Sql
from tests.tables import assert_healthy

TABLES = {
    "keyed": "(id BIGINT, p STRING, n INT, v STRING, PRIMARY KEY (id)) TBLPROPERTIES ('bucket' = '2')",
    "later": "(id BIGINT, p STRING, n INT, v STRING, PRIMARY KEY (id)) TBLPROPERTIES ('write-mode' = 'merge-on-read')",
    "partitioned": "(id BIGINT, p STRING, n INT, v STRING, PRIMARY KEY (p, id)) PARTITIONED BY (p)",
    "without a key": "(id BIGINT, p STRING, n INT, v STRING)",
}
CONDITIONS = (
    "id = {i}",
    "n > {n}",
    "p = '{p}'",
    "v IS NULL",
    "id IN ({i}, {j})",
    "n + id > {n}",
    "id % 3 = 1",
)
SETS = ("n = n + {n}", "v = concat(v, '{p}')", "v = NULL, n = {n}", "n = {n}")
MATCHED = (
    "WHEN MATCHED THEN UPDATE SET *",
    "WHEN MATCHED AND s.n > {n} THEN UPDATE SET n = s.n + t.n",
    "WHEN MATCHED AND t.n > {n} THEN DELETE",
    "WHEN MATCHED THEN DELETE",
    "",
)
NOT_MATCHED = ("WHEN NOT MATCHED THEN INSERT *", "WHEN NOT MATCHED AND s.n > {n} THEN INSERT *", "")
LEFT = (
    "WHEN NOT MATCHED BY SOURCE AND t.n > {n} THEN UPDATE SET v = 'left'",
    "WHEN NOT MATCHED BY SOURCE AND t.id = {i} THEN DELETE",
    "",
    "",
)


def values(chance: random.Random, ids: list[int]) -> str:
    def row(i: int) -> str:
        v = chance.choice(["'a'", "'b'", "NULL"])
        return f"({i}L, 'p{i % 2}', {chance.randrange(9)}, {v})"

    return ", ".join(map(row, ids))


def statement(chance: random.Random) -> str:
    """A statement on ``{t}``. A row's partition follows from its id, so that keys are the same with and without it."""
    filled = {
        "i": chance.randrange(12),
        "j": chance.randrange(12),
        "n": chance.randrange(9),
        "p": f"p{chance.randrange(2)}",
    }

    def some(choices: tuple[str, ...]) -> str:
        return chance.choice(choices).format(**filled)

    kind = chance.choice(["update", "update", "delete", "merge", "merge", "merge"])
    if kind == "update":
        return f"UPDATE {{t}} SET {some(SETS)} WHERE {some(CONDITIONS)}"
    if kind == "delete":
        return f"DELETE FROM {{t}} WHERE {some(CONDITIONS)} AND {some(CONDITIONS)}"
    actions = [some(MATCHED), some(NOT_MATCHED), some(LEFT)]
    if not any(actions):
        actions = [MATCHED[0]]
    ids = sorted(chance.sample(range(14), chance.randrange(1, 6)))
    source = f"(SELECT * FROM VALUES {values(chance, ids)} AS s(id, p, n, v))"
    return f"MERGE INTO {{t}} t USING {source} s ON t.id = s.id AND t.p = s.p {' '.join(actions)}"


@pytest.mark.parametrize("name", sampled(TABLES, len(TABLES), test=len(TABLES)))
def test_statements_do_what_they_do_to_a_delta_table(
    sql: Sql, store: Store, folder: Path, name: str, depth: Depth
) -> None:
    chance = random.Random(random.randrange(1 << 30))
    sql(f"CREATE TABLE lake.shop.t {TABLES[name]}")
    theirs = f"delta.`{folder}/theirs`"
    sql(f"CREATE TABLE {theirs} (id BIGINT, p STRING, n INT, v STRING) USING delta")
    for table in ("lake.shop.t", theirs):
        sql(f"INSERT INTO {table} VALUES {values(random.Random(1), list(range(10)))}")
    for number in range(depth.times(2, deep=50)):
        text = statement(chance)
        for table in ("lake.shop.t", theirs):
            try:
                sql(text.replace("{t}", table))
            except AnalysisException as error:
                raise AssertionError(f"statement {number} on {table}: {text}") from error
        assert sql("SELECT * FROM lake.shop.t") == sql(f"SELECT * FROM {theirs}"), f"after statement {number}: {text}"
    assert_healthy(store.managed_table("shop.t").filestore)
