"""``load`` makes a table of files; ``write`` and ``load`` take anything from standard input."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import polars as pl
import pytest

from tablestore import Store, Table
from tests.cli.conftest import Run

SALES = "id,zip,dep\n1,00501,7\n2,10001,NA\n"


def test_load_shows_the_columns_creates_the_table_and_writes(run: Run, store: Store, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text(SALES)
    result = run("load", tmp_path / "sales.csv", "lake.sales", "--key", "id")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        "lake.sales is new, with these columns:",
        "id   BIGINT NOT NULL",
        "zip  STRING",
        "dep  STRING",
        "zip is a text, since it has a whole number such as '10001' and a text such as '00501'",
        "dep is a text, since it has a whole number such as '7' and a text such as 'NA'",
        "version 1 (rows written: 2, files added: 1)",
    ]
    again = run("load", tmp_path / "sales.csv", "lake.sales", "--key", "id")
    assert again.stderr == "version 2 (rows written: 2, rows replaced: 2, files added: 1, files removed: 1)\n"
    assert json.loads(run("scan", "lake.sales", "-w", "id = 1", "-f", "json").stdout) == {
        "id": 1,
        "zip": "00501",
        "dep": "7",
    }


def test_load_asks_at_a_terminal_alone(run: Run, store: Store, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text(SALES)
    refused = run("load", tmp_path / "sales.csv", "lake.sales", answers="n\n")
    assert refused.exit_code == 1 and "Create lake.sales and write the file?" in refused.output
    assert "lake" not in store.list_databases()
    assert run("load", tmp_path / "sales.csv", "lake.sales", answers="y\n").exit_code == 0
    assert "Create" not in run("load", tmp_path / "sales.csv", "lake.other", "--yes", answers="n\n").output


def test_options_correct_what_is_inferred(run: Run, store: Store, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("id;day;dep;price\n1;31.01.2026;NA;1.5\n")
    options = ("--columns", "price DECIMAL(9,2)", "--null", "NA", "--timestamp-format", "%d.%m.%Y", "-o", "bucket=2")
    assert run("load", tmp_path / "sales.csv", "lake.sales", "-k", "id", *options).exit_code == 0
    table = store.table("lake.sales")
    assert (
        table.definition.schema.to_sql().replace("`", "")
        == "id BIGINT NOT NULL, day DATE, dep STRING, price DECIMAL(9,2)"
    )
    assert table.definition.buckets == 2
    assert json.loads(run("scan", "lake.sales", "-f", "json").stdout)["day"] == "2026-01-31"


def frame() -> pl.DataFrame:
    return pl.DataFrame({"id": [1, 2], "status": ["a;b", None]})


def parquet() -> bytes:
    buffer = io.BytesIO()
    frame().write_parquet(buffer)
    return buffer.getvalue()


INPUTS = {
    "csv": frame().write_csv().encode(),
    "tsv": frame().write_csv(separator="\t").encode(),
    "packed": gzip.compress(frame().write_csv().encode()),
    "lines": frame().write_ndjson().encode(),
    "array": frame().write_json().encode(),
    "marked": b"\xef\xbb\xbf" + frame().write_csv(separator=";").encode(),
    "parquet": parquet(),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("command", ["write", "load"])
def test_standard_input_may_be_anything(run: Run, store: Store, orders: Table, name: str, command: str) -> None:
    arguments = ("write", "shop.orders", "-") if command == "write" else ("load", "-", "shop.new", "--key", "id")
    result = run(*arguments, stdin=INPUTS[name])  # type: ignore[arg-type]  # the runner takes bytes
    assert result.exit_code == 0, result.output
    table = store.table("shop.orders" if command == "write" else "shop.new")
    assert table.scan().to_polars().sort("id").equals(frame())


def test_a_file_is_what_the_user_says(run: Run, orders: Table, tmp_path: Path) -> None:
    (tmp_path / "rows.dat").write_text("id,status\n1,x\n")
    refused = run("write", "shop.orders", tmp_path / "rows.dat")
    assert refused.exit_code == 2 and "--input-format" in refused.output
    assert run("write", "shop.orders", tmp_path / "rows.dat", "--input-format", "csv").exit_code == 0
    (tmp_path / "rows.txt").write_text('{"id": 2, "status": "y"}\n')
    assert run("write", "shop.orders", tmp_path / "rows.txt").exit_code == 0
    assert orders.scan().to_polars().sort("id").rows() == [(1, "x"), (2, "y")]
    failed = run("write", "shop.orders", "-", stdin="id,status\nx,1\n")
    words = " ".join(failed.output.replace("│", " ").split())
    assert 'standard input cannot be read: row 1: id: "x" is no BIGINT' in words


def test_load_needs_files_and_a_table(run: Run, tmp_path: Path) -> None:
    for arguments, hint in (
        (("shop.sales",), "name at least one file, and the table behind the files"),
        ((str(tmp_path / "*.csv"), "shop.sales"), "no file is named like"),
        (("none.csv", "shop.sales"), "none.csv cannot be read: No such file or directory"),
    ):
        result = run("load", *arguments)
        assert result.exit_code == 2 and hint in " ".join(result.output.replace("│", " ").split()), result.output
