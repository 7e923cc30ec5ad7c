"""All documented statements in a Python driver; and that the list has all that docs/sql.md documents."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tablestore.spark.sql.procedures import PROCEDURES
from tests.docs.pages import blocks_of
from tests.servers.sql_client import plain, text_of
from tests.spark.sql.conftest import Catalogs
from tests.spark.sql.statements import STATEMENTS, differences

ELSEWHERE = {"start_stream"}  # test_streams.py
OF_OTHER_PAGES = ("CREATE TABLE lake.shop.visits", "INSERT INTO lake.shop.visits", "INSERT INTO lake.shop.copy WITH")
"""The beginnings of statements about topics and streams, which have tests of their own."""


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


def kind(statement: str) -> str:
    """The words with which a statement begins; of an ALTER also those behind the name, such as ``ADD COLUMN``."""
    text = re.sub(r"\b(lake|shop|stock|sys)\.[\w.$]+", "…", statement)
    found = re.match(
        r"(?:[A-Z]+ )+(?:… [A-Z]+(?: COLUMN| TO)?)?" if text.startswith("ALTER") else r"(?:[A-Z]+ )+", text
    )
    assert found, statement
    return found[0].strip()


def test_the_list_has_all_that_the_page_documents() -> None:
    documented = [
        statement.strip()
        for block in blocks_of("docs/sql.md")
        if block.language == "sql"
        for statement in re.split(r";\s*$", block.text, flags=re.M)
        if statement.strip() and not statement.strip().startswith(OF_OTHER_PAGES)
    ]
    assert len(documented) > 30
    assert {kind(statement) for statement in documented} - {kind(s.sql) for s in STATEMENTS if not s.refused} == set()
    called = {name for s in STATEMENTS for name in re.findall(r"CALL lake\.sys\.(\w+)", s.sql)}
    called |= {"describe_detail", "describe_history", "show_tables"}  # by DESCRIBE and SHOW
    called |= {"create_materialized_view", "refresh", "drop_materialized_view"}  # by CREATE, REFRESH and DROP
    called |= {"explain_materialized_view"}  # by EXPLAIN
    assert set(PROCEDURES) - called == ELSEWHERE
