"""``follow`` as a process prints at once what is written meanwhile, and Ctrl-C ends it cleanly."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest
from typer.testing import Result

from tablestore import Store, Table
from tests.cli.conftest import Run
from tests.cli.programs import ROOT, Program
from tests.warehouses import replay, rows

Start = Callable[..., Program]


def put(table: Table, *ids: int, status: str = "OPEN") -> int:
    return table.write(pa.table({"id": ids, "status": [status] * len(ids)})).version


@pytest.mark.slow
def test_changes_are_printed_while_writes_go_on(start: Start, orders: Table) -> None:
    put(orders, 1, 2)
    program = start("follow", "shop.orders", "--format", "json")
    assert [json.loads(line)["_kind"] for line in program.out.until_count(2)] == ["+I", "+I"]
    printed = 2
    for number in range(3, 9):
        put(orders, 1, number, status=f"S{number}")
        printed += 2
        program.out.until_count(printed)
    orders.write(pa.table({"id": [2], "_kind": ["-D"]}))
    program.out.until_count(printed + 1)
    program.interrupt()
    assert program.wait() == 0
    found = [json.loads(line) for line in program.out.lines]
    assert len(found) == printed + 1
    assert replay(found, ["id"]) == rows(orders)
    assert "Traceback" not in "\n".join(program.err.lines)


@pytest.mark.deep
@pytest.mark.slow
def test_latest_passes_over_what_was_there(start: Start, orders: Table) -> None:
    put(orders, 1, 2)
    program = start("follow", "shop.orders", "--scan", "latest")
    program.err.until_any("following shop.orders")
    put(orders, 2, status="PAID")
    assert program.out.until_count(2)[:2] == ["_kind  id  status", "+U      2  PAID"]
    program.interrupt()
    assert program.wait() == 0


@pytest.mark.slow
def test_ctrl_c_ends_it_while_nothing_comes(start: Start, orders: Table) -> None:
    program = start("follow", "shop.orders")
    program.err.until_any("following shop.orders")
    program.interrupt()
    assert program.wait() == 0
    assert program.out.lines == []


@pytest.mark.deep
@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_without_a_word(store: Store, orders: Table) -> None:
    put(orders, *range(8000))
    command = [sys.executable, "-m", "tablestore.cli", "follow", "shop.orders", "--catalog", store.target]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        put(orders, *range(8000))  # more than a pipe holds: it has to notice
        assert [line for line in process.stderr if "following" not in line] == []


def ids(result: Result) -> list[int]:
    return [json.loads(line)["id"] for line in result.stdout.splitlines()]


def test_until_a_version(run: Run, orders: Table) -> None:
    put(orders, 1)
    put(orders, 2)
    assert sorted(ids(run("follow", "shop.orders", "--until", 2, "-f", "json"))) == [1, 2]


@pytest.mark.parametrize("zone", ["", "Z", "+00:00"])
def test_from_a_time(run: Run, orders: Table, zone: str) -> None:
    put(orders, 1)
    put(orders, 2)
    moment = orders.snapshots()[0].timestamp
    text = moment.replace(tzinfo=None).isoformat() + zone
    result = run("follow", "shop.orders", "--scan", "from-timestamp", "--timestamp", text, "--until", 2, "-f", "json")
    assert ids(result) == [2]


@pytest.mark.slow
def test_a_changelog_from_a_tag_on_under_an_id(run: Run, orders: Table) -> None:
    put(orders, 1, 2)
    orders.create_tag("eod")
    put(orders, 1, status="PAID")
    asked = ("follow", "shop.orders", "--tag", "eod", "--mode", "changelog", "--consumer", "job", "-f", "json")
    until = orders.filestore.state().version
    found = [json.loads(line) for line in run(*asked, "--until", until).stdout.splitlines()]
    assert [(row["_kind"], row["id"], row["status"]) for row in found] == [("-U", 1, "OPEN"), ("+U", 1, "PAID")]
    put(orders, 7)
    listed = json.loads(run("consumers", "shop.orders", "--format", "json").stdout)
    assert (listed["versions behind"], listed["records behind"]) == (1, 1)
    assert ids(run(*asked, "--until", until + 1)) == [7], "it goes on where it was"


def test_columns(run: Run, orders: Table) -> None:
    put(orders, 1)
    result = run("follow", "shop.orders", "--until", 1, "--columns", "status")
    assert result.stdout.splitlines() == ["_kind  status", "+I     OPEN"]


@pytest.mark.slow
def test_at_most_so_many_rows_at_once(run: Run, store: Store) -> None:
    """A column is as wide as what was printed so far, so its width shows what was printed at once."""
    table = store.create_table("shop.wide", "id BIGINT", primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1, 2, 3_000, 40_000]}))
    asked = ("follow", "shop.wide", "--version", 0, "--until", 1)
    whole = ["_kind     id", "+I         1", "+I         2", "+I      3000", "+I     40000"]
    assert run(*asked).stdout.splitlines() == whole
    two = ["_kind  id", "+I      1", "+I      2", "+I      3000", "+I     40000"]
    assert run(*asked, "--max-rows", 2).stdout.splitlines() == two
    assert "--max-rows" in run(*asked, "--max-rows", 0).stderr


def test_a_table_without_a_log_cannot_be_followed(run: Run, store: Store) -> None:
    store.create_table("shop.silent", "id INT", options={"log.system": "none"})
    assert "error[no-log]" in run("follow", "shop.silent").stderr
