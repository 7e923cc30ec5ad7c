"""``doctor`` as a process, on tables that were damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.layout import log_entry_path
from tablestore import Store, Table
from tests.cli.conftest import Run
from tests.cli.programs import Program

Start = Callable[..., Program]


def damaged(table: Table) -> str:
    """Cuts a live data file short; gives its path in the table."""
    table.write(pa.table({"id": range(1000), "status": ["OPEN"] * 1000}))
    path = table.files()[0].path
    file = Path(table.location, path)
    file.write_bytes(file.read_bytes()[:-100])
    return path


@pytest.mark.slow
def test_a_truncated_file_is_found_and_named(start: Start, orders: Table) -> None:
    path = damaged(orders)
    program = start("doctor", "shop.orders")
    assert program.wait() == 1
    shown = "\n".join(program.out.lines)
    assert path in shown
    assert "file-size" in shown
    assert "problem" in program.out.lines[-1]
    assert program.err.lines == []


@pytest.mark.deep
@pytest.mark.slow
def test_the_same_as_json(start: Start, orders: Table) -> None:
    path = damaged(orders)
    program = start("doctor", "shop.orders", "--format", "json")
    assert program.wait() == 1
    report = json.loads("\n".join(program.out.lines))
    assert report["healthy"] is False
    assert {f["path"] for f in report["findings"] if f["severity"] == "problem"} == {path}


@pytest.mark.deep
@pytest.mark.slow
def test_leftovers_are_listed_and_are_no_problem(start: Start, orders: Table) -> None:
    orders.write(pa.table({"id": [1], "status": ["OPEN"]}))
    live = Path(orders.location, orders.files()[0].path)
    live.with_name("left-behind.parquet").write_bytes(live.read_bytes())
    program = start("doctor", "shop.orders")
    assert program.wait() == 0
    assert "left-behind.parquet" in "\n".join(program.out.lines)
    assert "healthy" in program.out.lines[-1]


def test_all_tables_are_examined_behind_a_damaged_one_and_one_that_is_gone(
    store: Store, orders: Table, run: Run
) -> None:
    tables = {name: store.create_table(f"shop.{name}", "id BIGINT") for name in ("a_damaged", "b_gone", "z_healthy")}
    store.create_database("other")
    Path(tables["a_damaged"].location, log_entry_path(0)).write_text("")
    shutil.rmtree(tables["b_gone"].location)
    done = run("doctor")
    assert done.exit_code == 1
    assert "shop.a_damaged cannot be read: 1 problem\n" in done.stdout and "log-entry" in done.stdout
    assert "shop.orders at version 0: healthy (0 files, 0 rows)\n" in done.stdout
    assert "shop.z_healthy at version 0: healthy (0 files, 0 rows)\n" in done.stdout
    assert "shop.b_gone: error[no-table]" in done.stderr
    assert done.stderr.endswith("4 tables: 1 with problems, 1 not examined\n")
    as_json = run("doctor", "shop", "--format", "json")
    assert as_json.exit_code == 1
    healthy = {report["table"]: report["healthy"] for report in map(json.loads, as_json.stdout.splitlines())}
    assert healthy == {"shop.a_damaged": False, "shop.orders": True, "shop.z_healthy": True}


def test_a_database_without_tables_is_healthy_and_one_that_is_not_there_is_an_error(store: Store, run: Run) -> None:
    store.create_database("empty")
    assert (run("doctor", "empty").exit_code, run("doctor", "empty").stderr) == (0, "there are no tables\n")
    assert "error[database-not-found]" in run("doctor", "nodb").stderr
