"""All documented statements in a Python driver; and that the list has all that docs/sql.md documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tablestore.spark.sql.procedures import PROCEDURES
from tests.docs.pages import blocks_of
from tests.servers.sql_client import plain, text_of
from tests.spark.sql.conftest import Catalogs
from tests.spark.sql.statements import STATEMENTS, differences

ELSEWHERE = {"start_stream"}  # test_streams.py
OF_OTHER_PAGES = (
    "CREATE TABLE lake.shop.visits",
    "CREATE TABLE lake.shop.dbz_users",
    "INSERT INTO lake.shop.visits",
    "INSERT INTO lake.shop.copy WITH",
)
"""The beginnings of statements about topics and streams, which have tests of their own."""

TYPES = {"BIGINT", "DATE", "DECIMAL", "DOUBLE", "INT", "STRING", "TIMESTAMP"}


@pytest.mark.slow
@pytest.mark.parametrize("catalog", ["lake", pytest.param("served", marks=pytest.mark.deep)])
def test_a_driver_runs_all_statements(spark: SparkSession, catalogs: Catalogs, catalog: str) -> None:
    session = spark.newSession()
    for name, value in catalogs.settings.items():
        session.conf.set(name, value)

    def run(statement: str) -> list[str]:
        try:
            rows = session.sql(statement).collect()
        except PySparkException as error:
            return [str(error)]
        return [line for row in rows for line in text_of(map(plain, row))]

    assert differences(catalog, lambda statements: [run(statement) for statement in statements]) == []


def clauses(statement: str) -> list[str]:
    """The words of the grammar in a statement, in their order; words in a row that are the same count once."""
    text = re.sub(r"'[^']*'|`[^`]*`|--[^\n]*", "", statement)
    words = [word for word in re.findall(r"\b[A-Z][A-Z_]+\b", text) if word not in TYPES]
    return [word for word, _ in groupby(words)]


def has(statement: str, wanted: Sequence[str]) -> bool:
    """Whether a statement has some words of the grammar, in their order, and perhaps others between them."""
    left = iter(clauses(statement))
    return all(word in left for word in wanted)


def test_the_list_has_all_that_the_page_documents() -> None:
    documented = [
        statement.strip()
        for block in blocks_of("docs/sql.md")
        if block.language == "sql"
        for statement in re.split(r";\s*$", block.text, flags=re.M)
        if statement.strip() and not statement.strip().startswith(OF_OTHER_PAGES)
    ]
    assert len(documented) > 30
    done = [s.sql for s in STATEMENTS if not s.refused]
    assert [statement for statement in documented if not any(has(sql, clauses(statement)) for sql in done)] == []
    called = {name for s in STATEMENTS for name in re.findall(r"CALL lake\.sys\.(\w+)", s.sql)}
    called |= {"describe_detail", "describe_history"}  # by DESCRIBE
    called |= {"describe_as_delta", "vacuum", "analyze"}  # by the commands of these names
    called |= {"create_materialized_view", "refresh", "drop_materialized_view"}  # by CREATE, REFRESH and DROP
    called |= {"explain_materialized_view"}  # by EXPLAIN
    assert set(PROCEDURES) - called == ELSEWHERE
