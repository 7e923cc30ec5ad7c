"""A check that does not hold is shown, kept and makes the demo fail."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import tablestore.demo
from filestore.ambient import system_ambient
from tablestore.cli import app
from tablestore.demo.report import Event, Story

EVENT = Event("flights", (2, 3), "Jan 01", 1_676, 4, {0: 10, 1: 20}, 1.25)


def reported(holds: bool) -> tuple[Story, str]:
    ambient = replace(system_ambient(), now_ms=lambda: 0)
    story = Story(Console(file=io.StringIO(), width=100), ambient)
    with story.step("Count"):
        story.check(True, "one is one")
        story.check(holds, "two is two")
    story.happened(EVENT)
    story.finish()
    assert isinstance(story.console.file, io.StringIO)
    return story, story.console.file.getvalue()


def test_all_is_well() -> None:
    story, text = reported(holds=True)
    assert story.succeeded
    assert "All 2 checks hold" in text
    assert "2-3" in text
    assert "10 20" in text


def test_one_is_not() -> None:
    story, text = reported(holds=False)
    assert not story.succeeded
    assert "1 of 2 checks FAILED" in text
    assert text.count("✗ two is two") == 2


@pytest.mark.parametrize(("succeeded", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, succeeded: bool, code: int) -> None:
    monkeypatch.setattr(tablestore.demo, "run_demo", lambda *_: succeeded)
    assert CliRunner().invoke(app, ["demo", "--warehouse", str(tmp_path)]).exit_code == code
