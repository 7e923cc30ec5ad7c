"""Our names, and the same names in Spark's own catalog: no statement about one reaches what has the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tablestore import Store
from tests.spark.sql.conftest import Row, Sql

MODES = ("EVOLUTION", "TYPE EVOLUTION")


def state_of(session: SparkSession, catalog: str) -> list[object]:
    """Returns all that a catalog says of the view and the table in its database default."""
    found: list[object] = []
    for statement in ("SHOW CREATE TABLE {}.default.v", "DESCRIBE TABLE EXTENDED {}.default.t",
                      "SELECT * FROM {}.default.v", "SELECT * FROM {}.default.t", "SHOW TABLES IN {}.default",
                      "SHOW VIEWS IN {}.default"):  # fmt: skip
        rows = session.sql(statement.format(catalog)).collect()
        found.append(sorted(map(repr, rows)))
    return found


@pytest.fixture
def theirs(session: SparkSession, sql: Sql, store: Store, tmp_path: Path) -> Iterator[Callable[[], list[object]]]:
    """Objects of Spark's catalog with the names of ours; returns what that catalog says of them.

    The table has a place of its own: in the session's warehouse another test may have left a folder of that name.
    """
    sql("CREATE TABLE lake.default.t (id INT)")
    sql("INSERT INTO lake.default.t VALUES (1), (2)")
    sql(f"CREATE TABLE spark_catalog.default.t (other STRING) USING parquet LOCATION '{tmp_path / 'theirs'}'")
    sql("INSERT INTO spark_catalog.default.t VALUES ('theirs')")
    sql("CREATE VIEW spark_catalog.default.v AS SELECT 'theirs' AS other")
    yield lambda: state_of(session, "spark_catalog")
    sql("DROP VIEW IF EXISTS spark_catalog.default.v")
    sql("DROP TABLE IF EXISTS spark_catalog.default.t")


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", MODES)
def test_a_view_whose_columns_follow_its_query_is_refused(sql: Sql, store: Store, mode: str) -> None:
    sql("CREATE TABLE lake.default.t (id INT)")
    sql("CREATE VIEW lake.default.v AS SELECT * FROM lake.default.t")
    for statement in (
        f"CREATE VIEW lake.default.w WITH SCHEMA {mode} AS SELECT * FROM lake.default.t",
        f"CREATE OR REPLACE VIEW lake.default.v WITH SCHEMA {mode} AS SELECT 1 AS one",
        f"ALTER VIEW lake.default.v WITH SCHEMA {mode}",
    ):
        with pytest.raises(AnalysisException, match=r"view-schema-mode.*COMPENSATION"):
            sql(statement)
    assert store.list_views("default") == ["v"]
    for other in ("COMPENSATION", "BINDING"):
        sql(f"ALTER VIEW lake.default.v WITH SCHEMA {other}")
        assert sql("SELECT * FROM lake.default.v") == []


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", MODES)
def test_a_select_of_such_a_view_leaves_another_catalog_alone(
    session: SparkSession, sql: Sql, store: Store, theirs: Callable[[], list[object]], mode: str
) -> None:
    """It was made before it was refused: Spark wrote our columns and our query over the view of its own catalog."""
    sql("CREATE VIEW lake.default.v AS SELECT * FROM lake.default.t")
    kept = store.view("default.v")
    sql("CREATE VIEW lake.default.outer AS SELECT count(*) AS n FROM lake.default.v")
    context = dict(kept.context) | {"schema_mode": mode}
    if mode == "EVOLUTION":
        context["query_columns"] = []
    store.create_view("default.v", kept.query, columns=kept.columns, context=context, or_replace=True)
    sql("DROP TABLE lake.default.t")
    sql("CREATE TABLE lake.default.t (id BIGINT, more STRING)")
    before = theirs()
    session.sql("USE lake.default")
    for statement in (
        "SELECT * FROM lake.default.v",
        "SELECT n FROM outer",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM v)",
        "INSERT INTO t SELECT id, 'x' FROM v",
        "CREATE TEMPORARY VIEW of_this_session AS SELECT * FROM v",
        "CREATE OR REPLACE VIEW outer AS SELECT * FROM v",
        "CREATE VIEW spark_catalog.default.w AS SELECT * FROM lake.default.v",
        "CACHE TABLE lake.default.v",
    ):
        with pytest.raises(AnalysisException, match=r"view-schema-mode.*ALTER VIEW"):
            sql(statement)
        assert theirs() == before
    assert f"WITH SCHEMA {mode}" in sql("SHOW CREATE TABLE lake.default.v")[0][0]
    sql("ALTER VIEW lake.default.v WITH SCHEMA COMPENSATION")
    assert sql("SELECT * FROM lake.default.v") == []
    assert theirs() == before
    session.sql("USE spark_catalog.default")


def test_a_view_of_metrics_is_refused(sql: Sql, store: Store) -> None:
    """It was kept as a view whose query is YAML."""
    sql("CREATE TABLE lake.default.t (id INT)")
    metrics = (
        "version: 0.1\nsource: lake.default.t\ndimensions:\n  - name: id\n    expr: id\nmeasures:\n  - name: n\n"
        "    expr: count(id)\n"
    )
    with pytest.raises(AnalysisException, match="METRIC_VIEW"):
        sql(f"CREATE VIEW lake.default.m WITH METRICS LANGUAGE YAML AS $$\n{metrics}$$")
    assert store.list_views("default") == []


STATEMENTS = (
    "ALTER VIEW lake.default.v AS SELECT 3 AS three",
    "ALTER VIEW lake.default.v SET TBLPROPERTIES ('a' = 'b')",
    "ALTER VIEW lake.default.v UNSET TBLPROPERTIES ('a')",
    "ALTER VIEW lake.default.v RENAME TO lake.default.u",
    "ALTER VIEW lake.default.u RENAME TO v",
    "CREATE OR REPLACE VIEW lake.default.v AS SELECT id FROM lake.default.t",
    "CREATE VIEW IF NOT EXISTS lake.default.v AS SELECT 7 AS seven",
    "COMMENT ON TABLE lake.default.v IS 'ours'",
    "COMMENT ON TABLE lake.default.t IS 'ours'",
    "REFRESH TABLE lake.default.v",
    "REFRESH TABLE lake.default.t",
    "CACHE TABLE lake.default.v",
    "UNCACHE TABLE lake.default.v",
    "CACHE TABLE lake.default.t",
    "UNCACHE TABLE lake.default.t",
    "ANALYZE TABLE lake.default.t COMPUTE STATISTICS",
    "ANALYZE TABLE lake.default.t COMPUTE STATISTICS FOR ALL COLUMNS",
    "ANALYZE TABLE lake.default.v COMPUTE STATISTICS",
    "ANALYZE TABLES IN lake.default COMPUTE STATISTICS",
    "ALTER TABLE lake.default.v SET TBLPROPERTIES ('c' = 'd')",
    "ALTER TABLE lake.default.v RENAME TO lake.default.x",
    "ALTER TABLE lake.default.t ADD COLUMN more STRING",
    "ALTER TABLE lake.default.t SET LOCATION 'file:///nowhere'",
    "ALTER TABLE lake.default.t RECOVER PARTITIONS",
    "MSCK REPAIR TABLE lake.default.t",
    "LOAD DATA LOCAL INPATH 'file:///nothing' INTO TABLE lake.default.t",
    "CREATE TABLE lake.default.alike LIKE lake.default.t",
    "CREATE TABLE lake.default.of_a_view LIKE lake.default.v",
    "INSERT INTO lake.default.v VALUES (1)",
    "INSERT OVERWRITE lake.default.v VALUES (1)",
    "DELETE FROM lake.default.v WHERE id = 1",
    "UPDATE lake.default.v SET id = 1",
    "MERGE INTO lake.default.v USING (SELECT 1 AS id) s ON v.id = s.id WHEN NOT MATCHED THEN INSERT *",
    "TRUNCATE TABLE lake.default.v",
    "DROP VIEW lake.default.t",
    "DESCRIBE lake.default.v id",
    "SHOW COLUMNS IN lake.default.v",
    "SHOW PARTITIONS lake.default.v",
    "SHOW TBLPROPERTIES lake.default.v",
    "TRUNCATE TABLE lake.default.t",
    "DROP VIEW lake.default.v",
    "DROP TABLE lake.default.t",
    "DROP VIEW IF EXISTS lake.default.v",
    "DROP TABLE IF EXISTS lake.default.t",
)


def test_statements_about_our_objects_leave_those_of_another_catalog_alone(
    session: SparkSession, sql: Sql, theirs: Callable[[], list[object]]
) -> None:
    """Whether Spark runs a statement or refuses it."""
    sql("CREATE VIEW lake.default.v AS SELECT id FROM lake.default.t")
    before = theirs()
    reached = []
    for statement in STATEMENTS:
        with contextlib.suppress(PySparkException, Py4JJavaError):
            sql(statement)
        if theirs() != before:
            reached.append(statement)
            break
    assert reached == []


@pytest.mark.deep
def test_statements_about_objects_of_another_catalog_leave_ours_alone(
    session: SparkSession, sql: Sql, theirs: Callable[[], list[object]]
) -> None:
    sql("CREATE VIEW lake.default.v AS SELECT id FROM lake.default.t")
    before = state_of(session, "lake")
    session.sql("USE lake.default")
    for statement in STATEMENTS:
        with contextlib.suppress(PySparkException, Py4JJavaError):
            sql(statement.replace("lake.default", "spark_catalog.default").replace("(1)", "('x')"))
        assert state_of(session, "lake") == before, statement
    session.sql("USE spark_catalog.default")


def calls(session: SparkSession) -> dict[str, Callable[[], object]]:
    """Returns the functions of Spark's catalog that take a name."""
    catalog, ours = session.catalog, ("lake.default.v", "lake.default.t")
    found: dict[str, Callable[[], object]] = {}
    for name in ours:
        for function in (
            catalog.cacheTable,
            catalog.isCached,
            catalog.uncacheTable,
            catalog.refreshTable,
            catalog.listColumns,
            catalog.getTable,
            catalog.tableExists,
        ):
            found[f"{function.__name__}({name})"] = partial(function, name)
    return found


def test_functions_of_sparks_catalog_work_for_our_names(
    session: SparkSession, sql: Sql, theirs: Callable[[], list[object]]
) -> None:
    sql("CREATE VIEW lake.default.v AS SELECT id FROM lake.default.t")
    before = theirs()
    for name, call in calls(session).items():
        call()
        assert theirs() == before, name
    columns = {column.name for name in ("v", "t") for column in session.catalog.listColumns(f"lake.default.{name}")}
    assert columns == {"id"}
    rows: list[Row] = sql("SELECT * FROM lake.default.v")
    assert rows == [(1,), (2,)]
