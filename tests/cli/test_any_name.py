"""Columns of any name on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from filestore.model.names import listed, quoted
from tablestore import Store
from tests.cli.conftest import Run
from tests.depth import sampled
from tests.names import PEOPLES
from tests.warehouses import rows


@pytest.mark.parametrize("name", sampled(PEOPLES, fast=8, test=4))
def test_the_command_line_takes_columns_of_any_name(run: Run, store: Store, tmp_path: Path, name: str) -> None:
    """A name with a comma could be given by no option, and one with a line break tore the table's head apart."""
    listing = listed(["id", name])
    columns = f"id BIGINT, {quoted(name)} STRING, n INT"
    made = run(
        *("create", "shop.t", columns, "--key", listing, "--partition-by", listed([name])),
        *(
            "-o",
            f"bucket-key={listed(['id'])}",
            "-o",
            "merge-engine=aggregation",
            "-o",
            "fields.`n`.aggregate-function=sum",
        ),
    )
    assert made.exit_code == 0, made.stderr
    table = store.table("shop.t")
    assert table.definition.primary_key == ("id", name)
    pl.DataFrame({"id": [1], name: ["x, y"], "n": [1]}).write_csv(tmp_path / "rows.csv")
    assert run("write", "shop.t", tmp_path / "rows.csv").exit_code == 0
    row = {"id": 1, name: "x, y", "n": 1}
    (tmp_path / "rows.json").write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert run("write", "shop.t", tmp_path / "rows.json").exit_code == 0
    read = run("scan", "shop.t", "--columns", listing, "--where", f"{quoted(name)} = 'x, y'", "--format", "json")
    assert [json.loads(line) for line in read.stdout.splitlines()] == [{"id": 1, name: "x, y"}], read.stderr
    assert json.loads(run("get", "shop.t", '1,"x, y"', "--format", "json").stdout) == {**row, "n": 2}
    shown = run("scan", "shop.t", "--columns", listing).stdout.splitlines()
    assert len(shown) == 2
    assert name.replace("\n", "\\n").strip() in shown[0]
    altered = run(
        "alter", "shop.t", f"ADD COLUMN {quoted(name + '2')} INT", f"RENAME COLUMN {quoted(name + '2')} TO plain"
    )
    assert altered.exit_code == 0, altered.stderr
    dropped = run("partitions", "drop", "shop.t", json.dumps({name: "x, y"}), "--yes")
    assert dropped.exit_code == 0, dropped.stderr
    assert rows(table) == []
