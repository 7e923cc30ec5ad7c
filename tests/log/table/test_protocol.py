"""PROTOCOL.md and the code agree: its example is what is written, and files and sections refer to each other."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import log.table
from log.table.log_record import DebeziumJson
from tests.log.table.test_log_record import EXAMPLE, TXN, config

FOLDER = Path(log.table.__file__).parent
ROOT = FOLDER.parents[1]
TEXT = (FOLDER / "PROTOCOL.md").read_text("utf-8")
FILES = [*sorted(FOLDER.rglob("*.py")), *sorted((ROOT / "log/kafka").glob("*.py"))]
HEADINGS = re.findall(r"^##+ ([\d.]+) .*$", TEXT, re.MULTILINE)


def test_the_worked_example_is_what_the_encoder_writes() -> None:
    example = re.search(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert example is not None
    named = replace(config(EXAMPLE.schema, ("id",)), database="shop")
    messages = DebeziumJson(named).encode(EXAMPLE, TXN, 0, 1_795_275_000_000)
    assert messages.values[0].decode() == example[1].replace("\n", "")
    assert messages.keys is not None
    assert messages.keys.to_list() == [b'{"id":1}']


def test_every_file_that_a_section_names_is_there() -> None:
    named = {n for h in re.findall(r"^##.*$", TEXT, re.MULTILINE) for n in re.findall(r"`([\w/]+\.py)`", h)}
    assert {n for n in named if not (FOLDER / n).is_file() and not (ROOT / n).is_file()} == set()
    assert len(named) >= 10


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_section_that_a_file_names_is_there(file: Path) -> None:
    numbers = re.findall(r"sections? ((?:[\d.]*\d)(?:(?:, | and )[\d.]*\d)*)", file.read_text("utf-8"))
    named = {n for group in numbers for n in re.split(r", | and ", group)}
    assert {n for n in named if n not in {h.rstrip(".") for h in HEADINGS}} == set()
