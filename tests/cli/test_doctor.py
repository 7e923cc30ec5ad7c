"""``doctor`` as a process, on tables that were damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tablestore import Table
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
