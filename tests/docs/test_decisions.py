"""The decisions' files, their index and the code that cites them agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.programs import ROOT
from tests.test_architecture import PACKAGES

FOLDER = ROOT / "docs" / "decisions"
FILES = sorted(FOLDER.glob("[0-9]*.md"))
INDEX = (FOLDER / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[(\d+)\]\(([^)]+)\) \| (.+?) \| ([^|]+) \|$", re.M)
STATUS = re.compile(r"(?:accepted(?:, amended by (?P<amended>\d+(?:, \d+)*))?|superseded by (?P<superseded>\d+))")
CITING = (*PACKAGES, "docs")
CITATION = re.compile(r"\bdecisions? (\d+)(?:(?:, | and )(\d+))*")


def number_of(path: Path) -> int:
    return int(path.name[:4])


NUMBERS = [number_of(path) for path in FILES]


def field(path: Path, name: str) -> str:
    (value,) = re.findall(rf"^- {name}: (.*)$", path.read_text(encoding="utf-8"), re.M)
    return str(value)


def test_no_number_is_used_twice() -> None:
    assert len(FILES) > 80
    assert len(set(NUMBERS)) == len(NUMBERS)


def test_the_index_says_which_numbers_are_not_used() -> None:
    unused = sorted({*range(1, max(NUMBERS) + 1)} - {*NUMBERS})
    (listed,) = re.findall(r"\(([\d, and]+) were never used\)", INDEX)
    assert [int(number) for number in re.findall(r"\d+", listed)] == unused


def test_the_index_has_one_row_for_each_file_with_its_title_and_status() -> None:
    rows = {name: (int(number), title, status) for number, name, title, status in ROW.findall(INDEX)}
    expected = {}
    for path in FILES:
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix(f"# {number_of(path)}. ")
        expected[path.name] = (number_of(path), title, field(path, "Status"))
    assert rows == expected
    assert len(ROW.findall(INDEX)) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[:4])
def test_a_decision_has_title_status_date_and_decision(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(rf"# {number_of(path)}\. \S.*\n\n- Status: .+\n- Date: 20\d\d-\d\d-\d\d\n\n## ", text)
    assert "\n## Decision\n" in text
    status = STATUS.fullmatch(field(path, "Status"))
    assert status, "a status is `accepted`, `accepted, amended by N` or `superseded by N`"
    later = [int(number) for number in re.findall(r"\d+", status["amended"] or status["superseded"] or "")]
    assert set(later) <= set(NUMBERS) - {number_of(path)}


def test_every_decision_that_code_or_a_page_cites_exists() -> None:
    texts = [path for folder in CITING for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    cited = {
        (str(path.relative_to(ROOT)), number)
        for path in [*texts, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
        for match in CITATION.finditer(path.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+", match[0])
    }
    assert {name for name, _ in cited} & {"filestore/arguments.py", "compaction/choice.py"}
    assert [(name, number) for name, number in sorted(cited) if int(number) not in NUMBERS] == []
