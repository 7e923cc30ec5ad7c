"""Which statements polars may run, and that it makes of them what the whitelist says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import NotFound, Unsupported
from tablestore import Store, Table
from tablestore.shell.engines import Engine
from tablestore.shell.polars_engine import run_plan
from tablestore.shell.selects import Plan, plan, select_of
from tablestore.shell.session import Session
from tablestore.shell.spark_engine import SparkEngine
from tests.cli.sql_cases import COLUMNS, FOR_POLARS, FOR_SPARK, ROWS
from tests.warehouses import warehouse


def filled(store: Store) -> Table:
    table = store.create_table("shop.t", COLUMNS, primary_key=["id"], options={"bucket": "2", "log.system": "none"})
    assert isinstance(table, Table)
    table.write(ROWS)
    return table


@pytest.fixture
def table(store: Store) -> Table:
    return filled(store)


@pytest.fixture(scope="module")
def kept() -> Iterator[Session]:
    """A session whose table no test changes."""
    with warehouse() as store:
        filled(store)
        yield Session(store, no_spark, database="shop", engine=Engine.POLARS)


def no_spark(_: str | None) -> SparkEngine:
    raise AssertionError("Spark is not needed")


@pytest.fixture
def session(store: Store, table: Table) -> Session:
    return Session(store, no_spark, database="shop", engine=Engine.POLARS)


Rows = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def rows(kept: Session) -> Rows:
    def run(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for part in kept.run(statement).batches for row in part.to_pylist()]

    return run


@pytest.mark.parametrize("statement", FOR_POLARS)
def test_polars_runs_a_plain_select(kept: Session, statement: str) -> None:
    result = kept.run(statement)
    assert result.engine == "polars"
    assert all(part.schema == result.schema for part in result.batches)


@pytest.mark.parametrize("statement", FOR_SPARK)
def test_all_else_is_for_spark(kept: Session, statement: str) -> None:
    with pytest.raises(Unsupported) as raised:
        kept.run(statement)
    assert raised.value.code == "not-for-polars"


def test_null_values_have_sparks_place(rows: Rows) -> None:
    assert [s for (s,) in rows("SELECT s FROM t ORDER BY s")] == [None, "", "B", "a", "it's", "ä"]
    assert [s for (s,) in rows("SELECT s FROM t ORDER BY s DESC LIMIT 2")] == ["ä", "it's"]
    assert rows("SELECT s FROM t ORDER BY s DESC LIMIT 9")[-1] == (None,)


def test_names_and_types_are_sparks(kept: Session) -> None:
    schema = kept.run("SELECT count(*), sum(n), min(tiny), count(DISTINCT s) FROM t").schema
    assert schema is not None
    assert schema.names == ["count(1)", "sum(n)", "min(tiny)", "count(DISTINCT s)"]
    assert schema.types == [pa.int64(), pa.int64(), pa.int8(), pa.int64()]


def test_what_polars_sql_reads_is_written_anew() -> None:
    schema = pa.schema([('a"b', pa.string())])
    written = plan(select_of('SELECT `a"b` FROM t WHERE `a"b` = "o\'x"'), schema)
    assert written == Plan("""SELECT "a""b" AS "a""b" FROM t WHERE ("a""b" = 'o''x')""", schema)


def test_a_sum_that_overflows_is_for_spark(session: Session, table: Table) -> None:
    table.write(pa.table({"id": pa.array([1 << 62, (1 << 62) + 1], pa.int64())}))
    with pytest.raises(Unsupported, match="polars says"):
        session.run("SELECT sum(id) FROM t")


def test_only_what_a_statement_needs_is_read(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, str]] = []
    scan = Table.scan

    def spied(table: Table, columns: Any, where: Any, version: int) -> Any:
        asked.append((columns, "" if where is None else str(where)))
        return scan(table, columns, where, version)

    monkeypatch.setattr(Table, "scan", spied)
    schema = table.definition.schema.to_arrow()
    for statement in ("SELECT s FROM t WHERE id = 4", "SELECT count(*) FROM t", "SELECT s FROM t ORDER BY n LIMIT 1"):
        result = run_plan(plan(select_of(statement), schema), table, table.filestore.state().version)
        assert sum(part.num_rows for part in result.batches) == 1
    (first, where), (counted, _), (sorted_by, _) = asked
    assert set(first) <= {"id", "s"}
    assert "4" in where
    assert len(counted) == 1
    assert set(sorted_by) == {"s", "n"}


def test_a_statement_reads_one_version(session: Session, table: Table) -> None:
    result = session.run("SELECT id FROM t")
    table.write(pa.table({"id": pa.array([99], pa.int64())}))
    assert sum(part.num_rows for part in result.batches) == 6


def test_a_condition_that_a_scan_does_not_take_is_evaluated_here(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from tablestore.shell.polars_engine import _Source

    monkeypatch.setattr(_Source, "_takes", lambda *_: False)
    statement = plan(select_of("SELECT s FROM t WHERE n = 10"), table.definition.schema.to_arrow())
    result = run_plan(statement, table, 1)
    found = pl.from_arrow(pa.concat_tables(result.batches))
    assert isinstance(found, pl.DataFrame)
    assert sorted(found["s"].to_list()) == ["a", "it's"]


def test_a_missing_table_is_missed_without_spark(store: Store, table: Table) -> None:
    session = Session(store, no_spark, database="shop")
    with pytest.raises(NotFound) as raised:
        session.run("SELECT id FROM orders")
    assert raised.value.code == "table-not-found"
    with pytest.raises(NotFound) as raised:
        Session(store, no_spark, database="none")
    assert raised.value.code == "database-not-found"


def test_views_and_odd_names_are_for_spark(store: Store, session: Session) -> None:
    store.create_view("shop.v", "SELECT id FROM t", columns='{"type":"struct","fields":[]}')
    for name, reason in (("v", "view"), ("V", "view"), ("a.b.c.d", "not a table")):
        with pytest.raises(Unsupported, match=reason):
            session.run(f"SELECT id FROM {name}")


def test_use_needs_no_spark(store: Store, table: Table) -> None:
    session = Session(store, no_spark)
    for statement in ("USE shop", "USE lake.shop", "USE DATABASE shop"):
        session.database = None
        assert session.run(statement).schema is None
        assert session.database == "shop"
    assert session.run("SELECT count(*) FROM t").engine == "polars"
