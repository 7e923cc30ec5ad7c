"""Scripts BEGIN … END: what they return."""

from __future__ import annotations

from tests.spark.sql.conftest import Sql


def test_commands_of_scripts_return_no_rows_whose_ever_they_are(sql: Sql) -> None:
    """Spark returns the rows of the last query of a script; its own commands are none, and so are ours."""
    sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY)")
    for command in ("SHOW TABLES IN lake.shop", "EXPLAIN SELECT 1", "DESCRIBE DETAIL lake.shop.t"):
        assert sql(command) != []
        assert sql(f"BEGIN {command}; END") == [], command
        assert sql(f"BEGIN SELECT 5; {command}; END") == [(5,)], command
