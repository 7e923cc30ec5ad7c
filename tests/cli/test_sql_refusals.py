"""What `tablestore sql` refuses before Spark starts; that Spark refuses it, too, is tested in ``test_sql_spark``."""

from __future__ import annotations

import pytest

from filestore.errors import TableStoreError
from tablestore import Store, Table
from tablestore.shell.engines import Engine
from tablestore.shell.refusals import blocks_of, check_beginning, check_columns
from tablestore.shell.session import Session
from tablestore.spark.sql.commands import VERBS
from tests.cli.conftest import Run
from tests.cli.sql_cases import COLUMNS, FOR_POLARS, FOR_SPARK, MISTYPED, NOT_MISTYPED


class Started(Exception):
    """Spark was started."""


def start(_: str | None) -> None:
    raise Started


@pytest.fixture
def table(store: Store) -> Table:
    store.create_table("shop.u", "id BIGINT, total DOUBLE", primary_key=["id"], options={"log.system": "none"})
    return store.create_table("shop.t", COLUMNS, primary_key=["id"], options={"log.system": "none"})


@pytest.mark.parametrize("engine", [Engine.AUTO, Engine.SPARK])
def test_what_is_mistyped_is_refused_without_spark(store: Store, table: Table, engine: Engine) -> None:
    """Found by a stranger: `SELEC 1` and a mistyped column started Spark for half a minute."""
    session = Session(store, start, database="shop", engine=engine)  # type: ignore[arg-type]
    for statement, code in MISTYPED.items():
        with pytest.raises(TableStoreError) as raised:
            session.run(statement)
        assert raised.value.code == code, statement


def test_what_is_not_certain_is_for_spark(store: Store, table: Table) -> None:
    session = Session(store, start, database="shop", engine=Engine.SPARK)  # type: ignore[arg-type]
    wrong = {"SELECT none FROM t", "nonsense", "SELECT id FROM t |> WHERE id > 1", ""}
    for statement in [*NOT_MISTYPED, *FOR_POLARS, *(one for one in FOR_SPARK if one not in wrong)]:
        with pytest.raises(Started):
            session.run(statement)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_statement_that_only_says_what_to_do_instead_can_say_it(verb: str) -> None:
    check_beginning(f"{verb} x")


def test_settings_may_change_what_a_statement_means(store: Store, table: Table) -> None:
    session = Session(store, start, database="shop", plain=False)  # type: ignore[arg-type]
    for statement in MISTYPED:
        with pytest.raises(Started):
            session.run(statement)


def test_the_sentences_say_what_was_meant(run: Run, orders: Table) -> None:
    column = run("sql", "SELECT upper(statsu) AS s FROM shop.orders")
    assert (column.exit_code, column.stdout) == (1, "")
    assert column.stderr == (
        "error[unknown-column]: there is no column 'statsu' (did you mean 'status'?); the columns are id, status\n"
    )
    word = run("sql", "SELEC 1")
    assert word.exit_code == 1
    assert word.stderr.startswith("error[bad-statement]: no statement begins with 'SELEC' (did you mean 'SELECT'?)")
    second = run("sql", "SELECT id FROM shop.orders; INSRET INTO shop.orders VALUES (1, 'a')")
    assert second.stderr.splitlines()[-1].startswith("statement 2 of 2: error[bad-statement]: ")


def test_a_column_is_looked_for_in_its_table() -> None:
    (block,) = blocks_of("SELECT a.total FROM t a JOIN u AS b ON a.id = b.id")
    assert block.sources == {"a": ("t",), "b": ("u",)}
    with pytest.raises(TableStoreError, match="'total'"):
        check_columns(block, {"a": ["id"], "b": ["id", "total"]})
    check_columns(block, {"a": ["ID", "Total"], "b": ["id"]})
    check_columns(block, {"a": ["id"], "b": ["id", "a"]})  # b.a may be a struct
