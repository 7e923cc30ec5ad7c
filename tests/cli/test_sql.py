"""``tablestore sql`` without Spark: output, errors, scripts, a service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import tablestore.cli.results
from catalog_service.server import Settings, serving
from tablestore import Store, Table
from tests.cli.conftest import Run
from tests.cli.programs import ROOT
from tests.cli.sql_cases import COLUMNS, ROWS


@pytest.fixture
def filled(orders: Table) -> Table:
    orders.write(pa.table({"id": [1, 2, 3], "status": ["OPEN", None, "PAID"]}))
    return orders


def test_a_result_is_a_table_for_people(run: Run, filled: Table) -> None:
    done = run("sql", "SELECT id, status FROM lake.shop.orders ORDER BY id")
    assert done.stdout.splitlines() == ["id  status", " 1  OPEN", " 2  null", " 3  PAID"]
    assert done.stderr == "polars: 3 rows\n"


def test_a_result_is_json_for_programs(run: Run, filled: Table) -> None:
    done = run("sql", "--format", "json", "SELECT id, status FROM shop.orders ORDER BY id DESC")
    assert [json.loads(line) for line in done.stdout.splitlines()][1:] == [
        {"id": 2, "status": None},
        {"id": 1, "status": "OPEN"},
    ]


def test_empty_and_one_row_results(run: Run, filled: Table) -> None:
    nothing = run("sql", "SELECT id, status FROM shop.orders WHERE id > 9")
    assert (nothing.stdout, nothing.stderr) == ("id  status\n", "polars: 0 rows\n")
    assert run("sql", "-f", "json", "SELECT id FROM shop.orders WHERE id > 9").stdout == ""
    one = run("sql", "SELECT count(*) FROM shop.orders")
    assert (one.stdout, one.stderr) == ("count(1)\n       3\n", "polars: 1 row\n")


@pytest.mark.slow
def test_a_long_result_is_cut_and_says_so(run: Run, orders: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablestore.cli.results, "_ROWS_ALIGNED", 7)
    orders.write(pa.table({"id": range(120), "status": ["OPEN"] * 120}))
    cut = run("sql", "SELECT id FROM shop.orders ORDER BY id")
    assert cut.stderr == "polars: 100 rows; there are more, which --rows prints\n"
    assert len([line for line in cut.stdout.splitlines() if line.strip().isdigit()]) == 100
    assert run("sql", "-n", 120, "SELECT id FROM shop.orders").stderr == "polars: 120 rows\n"
    none = run("sql", "-n", 0, "SELECT id FROM shop.orders")
    assert none.stderr == "polars: 0 rows; there are more, which --rows prints\n"
    assert len(run("sql", "-f", "json", "SELECT id FROM shop.orders").stdout.splitlines()) == 120
    assert len(run("sql", "-f", "json", "--rows", 3, "SELECT id FROM shop.orders").stdout.splitlines()) == 3


def test_all_types_are_shown(run: Run, store: Store) -> None:
    store.create_table("shop.t", COLUMNS, primary_key=["id"], options={"log.system": "none"}).write(ROWS)
    columns = "id, tiny, s, x, f, b, d, ts, local, price, raw, tags, place, `select`"
    done = run("sql", "-d", "shop", f"SELECT {columns} FROM t ORDER BY id DESC")
    lines = done.stdout.splitlines()
    assert lines[-2].split()[:8] == ["1", "1", "a", "1.5", "0.1", "true", "2026-01-01", "null"]
    assert '{"lat":1.0,"name":"x"}' in lines[-2]
    assert "-3.00" in lines[1]
    read = [json.loads(line) for line in run("sql", "-f", "json", f"SELECT {columns} FROM shop.t").stdout.splitlines()]
    by_id = {int(row["id"]): row for row in read}
    assert by_id[1]["raw"] == "AAE="
    assert by_id[1]["tags"] == ["a", None]
    assert by_id[4]["price"] == "-3.00"
    assert by_id[3]["x"] == "NaN"
    assert {by_id[2][name] for name in ("x", "price", "raw", "tags", "place")} == {None}


@pytest.mark.slow
def test_the_first_error_ends_a_script(run: Run, filled: Table) -> None:
    missing = run("sql", "SELECT * FROM shop.none")
    assert missing.exit_code == 1
    assert missing.stderr.startswith("error[table-not-found]: ")
    second = run("sql", "SELECT id FROM shop.orders WHERE id = 1; SELECT * FROM shop.none; SELECT id FROM shop.orders")
    assert second.exit_code == 1
    assert second.stdout == "id\n 1\n"
    assert second.stderr.splitlines()[-1].startswith("statement 2 of 3: error[table-not-found]: ")
    opened = run("sql", "SELECT 'a")
    assert (opened.exit_code, opened.stderr.startswith("error[bad-statement]: ")) == (1, True)


def test_polars_alone_says_what_it_cannot_do(run: Run, filled: Table) -> None:
    done = run("sql", "--engine", "polars", "SELECT upper(status) AS s FROM shop.orders")
    assert done.exit_code == 1
    assert done.stderr.startswith("error[not-for-polars]: ")
    assert "UPPER" in done.stderr


def test_without_spark_it_says_how_to_install_it(run: Run, filled: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablestore.shell.session.find_spec", lambda _: None)
    for options in ((), ("--engine", "spark")):
        done = run("sql", *options, "SELECT upper(status) AS s FROM shop.orders")
        assert done.exit_code == 1
        assert done.stderr.startswith("error[spark-missing]: ")
        assert "pip install" in done.stderr


@pytest.mark.slow
def test_scripts_are_files_or_standard_input(run: Run, filled: Table, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("USE shop; -- the database; of it\nSELECT id FROM orders\nWHERE status = 'PAID'", "utf-8")
    for given, stdin in ((script, None), ("-", script.read_text("utf-8"))):
        done = run("sql", "--file", given, stdin=stdin)
        assert (done.stdout, done.stderr) == ("id\n 3\n", "polars: done\npolars: 1 row\n")
    assert run("sql", "--file", tmp_path / "none.sql").exit_code == 2
    assert run("sql", "--file", script, "SELECT 1").exit_code == 2


@pytest.mark.slow
def test_names_of_catalog_and_database_are_options(run: Run, filled: Table) -> None:
    assert run("sql", "--name", "house", "--database", "shop", "SELECT id FROM house.shop.orders").exit_code == 0
    assert run("sql", "-d", "shop", "SELECT id FROM orders LIMIT 1").exit_code == 0
    wrong = run("sql", "-d", "none", "SELECT 1")
    assert wrong.stderr.startswith("error[database-not-found]: ")


def test_a_service_with_a_token(run: Run, filled: Table, store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hush\n")
    with serving(store.target, Settings(token="hush")) as url, pytest.MonkeyPatch.context() as patch:
        assert run("sql", "-w", url, "SELECT id FROM shop.orders").stderr.startswith("error[")
        patch.setenv("TABLESTORE_TOKEN_FILE", str(secret))
        assert run("sql", "-w", url, "SELECT count(*) AS n FROM shop.orders").stdout.split() == ["n", "3"]


@pytest.mark.slow
def test_a_plain_select_loads_no_spark(filled: Table, store: Store) -> None:
    code = (
        "import sys\nfrom tablestore.cli import app\n"
        f"try:\n    app(['sql', '-w', {store.target!r}, 'SELECT count(*) FROM shop.orders'])\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print({'pyspark', 'deltalake', 'fastapi'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.slow
def test_names_and_views_on_the_command_line(run: Run, store: Store, filled: Table) -> None:
    store.create_view("shop.paid", "SELECT id FROM orders", columns='{"type":"struct","fields":[]}')
    assert run("views").stdout == "shop.paid\n"
    assert json.loads(run("views", "shop", "-f", "json").stdout) == {"name": "shop.paid"}
    assert run("rename", "shop.orders", "purchases").stderr == "shop.orders is now shop.purchases\n"
    assert run("rename", "shop.paid", "shop.unpaid").exit_code == 0
    assert (store.list_tables("shop"), store.list_views("shop")) == (["purchases"], ["unpaid"])
    assert run("rename", "shop", "store").stderr.startswith("error[bad-name]: ")
    assert run("rename", "shop.none", "x").stderr.startswith("error[table-not-found]: ")
    assert run("rename", "shop.purchases", "other.x").exit_code == 1
    assert run("drop", "shop.unpaid", "--yes").exit_code == 0
    assert store.list_views("shop") == []
