"""Every command has a help text, and ``--help`` is fast."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tablestore import Store, Table
from tablestore.cli import app
from tests.cli.programs import ROOT

COMMANDS = [command.name for command in app.registered_commands]
HEAVY = {"deltalake", "fastapi", "httpx", "numpy", "polars", "pyarrow", "pyspark", "sqlalchemy"}


def test_all_commands_of_the_contract_are_there() -> None:
    assert set(COMMANDS) >= {"demo", "serve", "follow", "doctor", "compact", "databases", "tables", "create", "drop"}
    assert set(COMMANDS) >= {"describe", "snapshots", "scan", "write"}


@pytest.mark.few(10)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_explains_itself(command: str) -> None:
    result = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"}).invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"tablestore {command}" in result.output or f" {command} " in result.output
    assert "Show this message and exit" in result.output


@pytest.mark.few(9)
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"demo", "serve", "spark-archive", "spark-settings"}))
def test_a_command_takes_catalog_and_token(command: str) -> None:
    result = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, [command, "-h"])
    for wanted in ("--catalog", "-c", "TABLESTORE_CATALOG", "--token", "TABLESTORE_TOKEN"):
        assert wanted in result.output


def test_nothing_alone_shows_the_help() -> None:
    result = CliRunner().invoke(app, [])
    assert "Managed tables with primary keys" in result.output


def test_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("tablestore 0.")


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom tablestore.cli import app\n"
        "try:\n    app(['follow', '--help'])\n"
        f"except SystemExit:\n    print(sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


LEFT_OUT = {"alembic", "confluent_kafka", "deltalake", "fastapi", "httpx", "prometheus_client", "pyspark", "sqlglot"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commands", "left_out"),
    [
        (["databases", "tables", "describe shop.orders", "snapshots shop.orders"], LEFT_OUT | {"polars"}),
        (["get shop.orders 1", "scan shop.orders"], LEFT_OUT),
    ],
    ids=["no rows", "rows"],
)
def test_commands_that_look_import_only_what_they_need(
    store: Store, orders: Table, commands: list[str], left_out: set[str]
) -> None:
    """Found by a stranger: `tables` took five times as long as `--help`. Modules are counted here, not seconds."""
    code = (
        f"import sys\nfrom tablestore.cli import app\nfor command in {commands}:\n"
        "    try:\n        app(command.split())\n    except SystemExit as end:\n        assert not end.code, command\n"
        f"print(sorted({left_out} & set(sys.modules)))"
    )
    environment = os.environ | {"TABLESTORE_CATALOG": store.target, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_completion_is_there() -> None:
    assert "--install-completion" in CliRunner(env={"COLUMNS": "120"}).invoke(app, ["--help"]).output
