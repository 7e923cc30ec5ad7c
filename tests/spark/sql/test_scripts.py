"""Scripts BEGIN … END: what they return."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.sql.conftest import Sql


def test_commands_of_scripts_return_no_rows_whose_ever_they_are(sql: Sql) -> None:
    """Spark returns the rows of the last query of a script; its own commands are none, and so are ours."""
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    for command in ("SHOW TABLES IN lake.shop", "EXPLAIN SELECT 1", "DESCRIBE DETAIL lake.shop.t"):
        assert sql(command) != []
        assert sql(f"BEGIN {command}; END") == [], command
        assert sql(f"BEGIN SELECT 5; {command}; END") == [(5,)], command


def test_an_error_of_ours_ends_a_script_with_its_sentence_or_is_handled(sql: Sql) -> None:
    """Spark asks each error for its condition and its state, and a script failed with a null pointer without them."""
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    wrong = "SELECT * FROM lake.shop.t WITH ('nothing' = '1')"
    with pytest.raises(AnalysisException, match=r"\[tablestore: unknown-option\]") as raised:
        sql(f"BEGIN {wrong}; END")
    assert raised.value.getSqlState() == "KD000"
    assert sql(f"BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION SELECT 7; {wrong}; END") == [(7,)]


def test_an_error_of_ours_has_its_sentence_in_each_format(session: SparkSession) -> None:
    """Spark and PySpark look up the text of a condition, and there was none for ours."""
    wrong = "SELECT * FROM lake.shop.nothing WITH ('nothing' = '1')"
    session.sql("CREATE TABLE lake.shop.nothing (id BIGINT)")
    for kind in ("PRETTY", "MINIMAL", "STANDARD"):
        with pytest.raises(AnalysisException) as raised:
            session.sql(wrong)
        sentence = str(raised.value.getMessageParameters()["errorMessage"])
        assert sentence.startswith("[tablestore: unknown-option] ")
        assert sentence in str(raised.value.getMessage())
        format_of = session._jvm.org.apache.spark.ErrorMessageFormat.withName(kind)
        text = session._jvm.org.apache.spark.SparkThrowableHelper.getMessage(raised.value._origin, format_of)
        assert sentence in (text if kind == "PRETTY" else json.loads(text)["messageParameters"].values())
