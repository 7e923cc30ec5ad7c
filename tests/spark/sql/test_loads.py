"""How often a statement asks Python for one table while it is analyzed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tablestore import Store
from tablestore.spark.sql.requests import Request, name_of
from tablestore.spark.sql.statements import ANSWERS
from tests.spark.sql.conftest import Sql


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """Counts the loads by kind and table."""
    found: Counter[tuple[str, str]] = Counter()

    def counted(operation: str) -> None:
        load = ANSWERS[operation]

        def answer(store: Store, request: Request) -> Any:
            found[operation, name_of(request)] += 1
            return load(store, request)

        monkeypatch.setitem(ANSWERS, operation, answer)

    counted("load_relation")
    counted("load_table")
    return found


STATEMENTS = {
    "MERGE INTO lake.shop.t t USING (SELECT 1 AS id, 2L AS n) s ON t.id = s.id WHEN MATCHED THEN UPDATE "
    "SET t.s.a = s.n WHEN NOT MATCHED BY SOURCE THEN UPDATE SET t.s.a = 0L": {
        ("load_relation", "shop.t"): 1,
        ("load_table", "shop.t"): 1,
    },
    "UPDATE lake.shop.t SET s.a = 1L": {("load_relation", "shop.t"): 1, ("load_table", "shop.t"): 1},
    "INSERT INTO lake.shop.p REPLACE WHERE day = '2026-01-01' SELECT 1, '2026-01-01', 'eu'": {
        ("load_relation", "shop.p"): 1,
        ("load_table", "shop.p"): 1,
    },
    "ALTER TABLE lake.shop.p DROP IF EXISTS PARTITION (day = '2026-01-01')": {("load_relation", "shop.p"): 2},
    "SELECT * FROM lake.shop.t WITH ('fresh' = 'true')": {("load_relation", "shop.t"): 2},
}
"""By statement the loads: one for what the rules ask before Spark finds the names, and Spark's own."""


@pytest.mark.slow
def test_the_rules_of_a_statement_load_a_table_once(sql: Sql, loads: Counter[tuple[str, str]]) -> None:
    """A MERGE that sets a field loaded its table three times before Spark did."""
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, s STRUCT<a: INT>)")
    sql("CREATE TABLE lake.shop.p (id INT, day DATE, r STRING) PARTITIONED BY (day, r)")
    for statement, wanted in STATEMENTS.items():
        loads.clear()
        sql(statement)
        assert dict(loads) == wanted, statement
