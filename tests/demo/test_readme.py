"""What the README shows really runs, and what it links to is there."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tablestore
from catalog_service.server import serving
from tablestore.cli import app
from tests.cli.programs import ROOT
from tests.servers.kafka import KafkaBroker

PAGES = ("README.md", "CONTRIBUTING.md")


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)


def execute(block: str, names: dict[str, Any]) -> None:
    exec(compile(block, "README.md", "exec"), names)


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute(blocks()[0], names)
    assert names["orders"].scan().to_polars().sort("id")["status"].to_list() == ["PAID", "OPEN"]
    printed = capsys.readouterr().out
    assert "'_kind': '+I'" in printed


def test_the_lines_about_partitions_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute(blocks()[0] + blocks()[2], names)
    assert names["sales"].scan().to_polars()["id"].to_list() == [3]
    changes = names["sales"].system("changes", from_version=1).to_polars()
    assert sorted(changes["rowkind"].to_list()) == ["+I", "-D", "-D"]


def test_the_lines_about_a_normalizer_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in blocks() if "Normalizer" in block)
    execute(f"import polars as pl\nimport tablestore\n{block}", {})
    assert [
        (row["_kind"], row["id"], row["status"]) for row in ast.literal_eval(capsys.readouterr().out.splitlines()[1])
    ] == [
        ("-U", 7, "PAID"),
        ("+U", 7, "SENT"),
        ("-D", 8, "OPEN"),
    ]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_lines_for_spark_run(tmp_path: Path) -> None:
    """In a process of their own, as a user runs them: the folder is relative, and Spark begins where they begin."""
    program = tmp_path / "readme.py"
    (plain,) = (block for block in blocks() if "SparkSession.builder" in block)
    program.write_text("\n".join([*blocks()[:2], plain]) + "\nspark.stop()\n", encoding="utf-8")
    # the JVM's first compiler alone: the program ends before the second has paid for itself
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "|  PAID|       27.0|" in done.stdout
    with tablestore.connect(str(tmp_path / "warehouse")) as store:
        copy = store.table("shop.copy").scan().to_polars().sort("id")
    assert copy.rows() == [(2, "PAID", 20.0), (3, "OPEN", 3.0), (4, "PAID", 7.0)]


def test_the_lines_for_the_change_feed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute(blocks()[0], names)
    capsys.readouterr()
    execute(next(block for block in blocks() if "load_cdf" in block), names)
    printed = capsys.readouterr().out
    assert printed.count("update_preimage") == printed.count("update_postimage") == 1


def test_the_lines_for_a_changelog_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute(blocks()[0] + next(block for block in blocks() if "load_cdf" in block), names)
    capsys.readouterr()
    execute(next(block for block in blocks() if 'mode="changelog"' in block), names)
    printed = capsys.readouterr().out
    assert "[{'id': 2, 'amount': 20, '_kind': '-U'}, {'id': 2, 'amount': 30, '_kind': '+U'}]" in printed
    assert "Lag(versions=0, records=0, ms=0)" in printed


def test_the_lines_for_a_merge_engine_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute(blocks()[0], names)
    capsys.readouterr()
    execute(next(block for block in blocks() if "aggregation" in block), names)
    assert "│ pen     ┆ 6    ┆ 1.4        │" in capsys.readouterr().out


def test_the_line_with_options_for_all_tables_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute(blocks()[0], names)
    execute(next(block for block in blocks() if "table-storage." in block), names)
    table = names["lake"].create_table("shop.notes", "note STRING")
    assert table.detail()["options"] == {"log.retention": "7 d"}


def test_the_lines_about_a_kafka_topic_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka_broker: KafkaBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute(blocks()[0], names)
    block = next(block for block in blocks() if "upsert-kafka" in block)
    execute(block.replace("localhost:9092", kafka_broker.bootstrap), names)
    assert names["payments"].scan(["id"], where="id = 1").to_polars().rows() == [(1, "+U"), (1, "-D")]
    execute(next(block for block in blocks() if "payments.follow" in block), names)
    assert "{'id': 2, 'amount': 3.0, " in capsys.readouterr().out


def test_the_lines_that_change_columns_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute(blocks()[0], names)
    execute(next(block for block in blocks() if "orders.alter(" in block), names)
    assert names["orders"].schema.names == ["id", "shop", "status", "total"]


def test_the_lines_for_the_shell_go_on_from_those_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a newcomer: a block renamed the column by which later ones filter, and added the one that they add."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute(blocks()[0], names)
    execute(next(block for block in blocks() if "orders.alter(" in block), names)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^tablestore ((?:scan|get|alter) .* -c warehouse)", text, re.M)
    assert len(lines) == 3
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line))
        assert done.exit_code == 0, done.output
    assert names["orders"].scan(where="status = 'PAID'").to_pylist()[0]["id"] == 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_lines_for_curl_run(tmp_path: Path) -> None:
    lines = re.findall(r"^curl .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    with serving(str(tmp_path)) as url:
        asked = [line.replace("http://127.0.0.1:8080", url).replace("curl ", "curl -sSf ", 1) for line in lines]
        answers = [subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True) for line in asked]
    assert json.loads(answers[-1].stdout)["primary_key"] == ["id"]


def test_the_lines_for_pip_name_extras_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    top = "\n".join(text.splitlines()[:20])
    assert {"spark", "postgres"} <= set(re.findall(r"\[(\w+)\]", top)) <= set(extras)


def test_the_ten_lines_are_about_ten() -> None:
    lines = [line for line in blocks()[0].splitlines() if line.strip() and "import" not in line]
    assert len(lines) <= 10


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)#]+)\)", text)
    named = re.findall(r"`((?:filestore|log|compaction|catalog_service|tablestore|tests)/[\w./]*)`", text)
    missing = [path for path in [*linked, *named] if not (ROOT / path).exists()]
    assert missing == []


def test_its_commands_and_tasks_exist() -> None:
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    commands = {command.name for command in (*app.registered_commands, *app.registered_groups)}
    assert set(re.findall(r"^tablestore (\w+)", text, re.M)) <= commands
    tasks = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= tasks
