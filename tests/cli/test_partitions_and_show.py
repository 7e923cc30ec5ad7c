"""``partitions``, ``show`` and ``write --overwrite-partitions``."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from tablestore import Store, Table
from tests.cli.conftest import Run
from tests.warehouses import rows


@pytest.fixture
def sales(store: Store) -> Table:
    options = {"partition.expiration-time": "7 d"}
    columns = "id BIGINT, day STRING, region STRING"
    table = store.create_table("shop.sales", columns, partition_by=["day", "region"], options=options)
    days = ["2999-01-01", "2999-01-01", "2999-01-02", "once"]
    table.write(pa.table({"id": [1, 2, 3, 4], "day": days, "region": ["eu", "us", "eu", None]}))
    return table


def left(table: Table) -> list[int]:
    return [row["id"] for row in sorted(rows(table), key=lambda row: row["id"])]


def test_partitions_are_listed(run: Run, sales: Table) -> None:
    lines = run("partitions", "list", "shop.sales").stdout.splitlines()
    columns = ["partition", "rows", "pending", "files", "bytes", "last", "update", "(UTC)", "expires", "(UTC)"]
    assert lines[0].split() == columns
    assert [line.split()[:4] for line in lines[1:]] == [
        ["day=2999-01-01,region=eu", "1", "0", "1"],
        ["day=2999-01-01,region=us", "1", "0", "1"],
        ["day=2999-01-02,region=eu", "1", "0", "1"],
        ["day=once,region=None", "1", "0", "1"],
    ]
    assert lines[1].endswith("2999-01-08 00:00:00")
    assert lines[4].endswith("-")
    printed = run("partitions", "list", "shop.sales", "--format", "json").stdout
    found = [json.loads(line) for line in printed.splitlines()]
    assert found[3]["partition"] == {"day": "once", "region": None}


@pytest.mark.slow
def test_partitions_are_dropped(run: Run, sales: Table) -> None:
    asked = run("partitions", "drop", "shop.sales", "region=us", answers="n\n")
    assert asked.exit_code == 1
    assert "Drop region=us of shop.sales, with 1 rows in 1 files with " in asked.stderr
    assert left(sales) == [1, 2, 3, 4]
    result = run("partitions", "drop", "shop.sales", "region=us", '{"region": null}', "--yes")
    assert "version 2: 2 rows in 2 files dropped" in result.stderr
    assert left(sales) == [1, 3]
    assert "there were no rows" in run("partitions", "drop", "shop.sales", "region=us", "-y").stderr
    assert "error[unknown-partition-column]" in run("partitions", "drop", "shop.sales", "id=1", "-y").stderr
    assert "error[bad-partition]" in run("partitions", "drop", "shop.sales", "us", "-y").stderr


def test_partitions_expire(run: Run, sales: Table) -> None:
    assert "no partition has expired" in run("partitions", "expire", "shop.sales").stderr
    sales.write(pa.table({"id": [5], "day": ["2001-01-01"], "region": ["eu"]}))
    assert "1 rows in 1 files dropped" in run("partitions", "expire", "shop.sales").stderr
    assert left(sales) == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_file_replaces_the_partitions_that_it_has(run: Run, sales: Table, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pl.DataFrame({"id": [9], "day": ["2999-01-01"], "region": ["eu"]}).write_parquet(file)
    assert run("write", "shop.sales", file, "--overwrite-partitions", "--overwrite").exit_code == 2
    assert run("write", "shop.sales", file, "--overwrite-partitions").exit_code == 0
    assert left(sales) == [2, 3, 4, 9]


@pytest.mark.slow
def test_system_tables_are_shown(run: Run, sales: Table) -> None:
    sales.drop_partitions([{"region": "us"}])
    lines = run("show", "shop.sales$snapshots", "--columns", "version,operation").stdout.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [
        ["version", "operation"],
        ["2", "DROP PARTITION"],
        ["1", "WRITE"],
        ["0", "CREATE TABLE"],
    ]
    result = run("show", "shop.sales$changes", "--from-version", 1, "-f", "json")
    (change,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert change == {"rowkind": "-D", "id": 2, "day": "2999-01-01", "region": "us"}
    assert len(run("show", "shop.sales$files", "--version", 1, "-f", "json").stdout.splitlines()) == 4
    first = run("show", "shop.sales$audit_log", "--limit", 2)
    assert len(first.stdout.splitlines()) == 3
    assert "the first 2 rows" in first.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["shop.sales"], "bad-name"),
        (["shop.sales$x"], "no-system-table"),
        (["shop.sales$changes"], "bad-versions"),
        (["shop.sales$files", "--columns", "size"], "unknown-column"),
        (["shop.none$files"], "table-not-found"),
    ],
)
def test_what_cannot_be_shown(run: Run, sales: Table, arguments: list[str], code: str) -> None:
    result = run("show", *arguments)
    assert result.exit_code == 1
    assert f"error[{code}]" in result.stderr
