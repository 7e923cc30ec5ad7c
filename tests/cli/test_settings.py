"""Settings from the environment: each has its row in SETTINGS.md, and secrets may be in files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tablestore import Store
from tablestore.cli.secrets import secret
from tablestore.cli.settings_page import FURTHER, page, settings
from tests.cli.conftest import Run
from tests.cli.programs import ROOT
from tests.test_architecture import modules

VARIABLE = re.compile(r'"(TABLESTORE_[A-Z][A-Z_]*)"')


def test_the_page_is_what_the_command_line_says() -> None:
    written = (ROOT / "tablestore" / "SETTINGS.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m tablestore.cli.settings_page > tablestore/SETTINGS.md"


def test_no_variable_of_the_product_is_missing_on_the_page() -> None:
    listed = {setting.variable for setting in settings()}
    listed |= {name for names, _, _ in FURTHER for name in names.split(", ")}
    read = {name for path in modules() for name in VARIABLE.findall(path.read_text(encoding="utf-8"))}
    assert len(read) > 15
    assert read - listed == set()


def test_a_database_and_a_token_may_be_in_files(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store
) -> None:
    (tmp_path / "token").write_text("s3cret\r\n")
    monkeypatch.setenv("TABLESTORE_TOKEN_FILE", str(tmp_path / "token"))
    assert run("databases").exit_code == 0
    monkeypatch.setenv("TABLESTORE_TOKEN", "s3cret")
    twice = run("databases")
    assert twice.exit_code == 2
    assert "$TABLESTORE_TOKEN and $TABLESTORE_TOKEN_FILE are both set" in re.sub(r"[│\s]+", " ", twice.output)
    assert "s3cret" not in twice.output


@pytest.mark.parametrize(
    ("text", "value"), [("a b\n", "a b"), ("a\r\n", "a"), (" a ", " a "), ("a\nb\n", "a\nb"), ("", "")]
)
def test_only_line_breaks_at_the_end_do_not_belong_to_a_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, value: str
) -> None:
    (tmp_path / "secret").write_bytes(text.encode())
    monkeypatch.setenv("X_FILE", str(tmp_path / "secret"))
    assert secret("X") == value
    monkeypatch.setenv("X", "")
    assert secret("X") == value
    monkeypatch.delenv("X_FILE")
    assert secret("X") == ""
    monkeypatch.delenv("X")
    assert secret("X") is None


def test_a_file_that_is_not_there_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TABLESTORE_TOKEN_FILE", str(tmp_path / "missing"))
    result = run("databases")
    assert result.exit_code == 2
    text = " ".join(result.output.replace("│", " ").split())  # the box breaks lines wherever the path ends
    assert "cannot be read" in text
    assert "Traceback" not in result.output


def test_an_option_goes_over_the_file(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TABLESTORE_TOKEN_FILE", str(tmp_path / "missing"))
    assert run("databases", "--token", "s3cret").exit_code == 0


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_does_not_let_everybody_in(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    (tmp_path / "token").write_text(text)
    monkeypatch.setenv("TABLESTORE_TOKEN_FILE", str(tmp_path / "token"))
    # where other machines could reach it, so that it ends if the token were taken for none
    result = run("serve", "--warehouse", tmp_path / "served", "--port", 0, "--host", "0.0.0.0")
    assert result.exit_code == 1
    assert "error[token-empty]" in result.output
