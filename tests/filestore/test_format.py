"""FORMAT.md and the code refer to each other, and agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import filestore
from filestore.checks.report import Invariant
from filestore.commit.conflict import judge
from filestore.delta.actions import protocol_action
from filestore.model import types
from filestore.model.snapshot import Operation
from filestore.model.sql import parse_type

ROOT = Path(filestore.__file__).parent
TEXT = (ROOT / "FORMAT.md").read_text()
SECTIONS = {
    int(number): re.findall(r"`([^`]+\.py)`", files)
    for number, files in re.findall(r"^## (\d+)\. .*\nImplemented by (.*)\.$", TEXT, re.MULTILINE)
}
CITATION = re.compile(r"FORMAT\.md,? (?:section )?(\d+)(?:\.(\d+))?")


def docstring(path: Path) -> str:
    return path.read_text().split('"""')[1]


def test_sections_are_numbered_without_gaps() -> None:
    numbers = [int(n) for n in re.findall(r"^## (\d+)\.", TEXT, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert sorted(SECTIONS) == numbers, "every section says who implements it"


@pytest.mark.parametrize(("section", "file"), [(n, file) for n, files in SECTIONS.items() for file in files])
def test_an_implementing_file_is_there_and_names_its_section(section: int, file: str) -> None:
    cited = [int(number) for number, _ in CITATION.findall(docstring(ROOT / file))]
    assert section in cited, f"{file} does not name FORMAT.md section {section}"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_code_cites_is_there_and_names_the_file(path: Path) -> None:
    text, head = path.read_text(), docstring(path)
    for number, sub in CITATION.findall(text):
        assert int(number) in SECTIONS, f"{path} cites section {number}"
        if sub:
            assert f"### {number}.{sub} " in TEXT
    if path.name == "__init__.py":
        return
    for number, _ in CITATION.findall(head):
        assert str(path.relative_to(ROOT)) in SECTIONS[int(number)], f"{path} cites section {number}, which omits it"


def test_the_page_states_every_invariant() -> None:
    stated = re.findall(r"^\| `([a-z-]+)` \|", TEXT.split("\n## 12.")[1], re.MULTILINE)
    assert stated == [str(code) for code in Invariant]


def test_the_table_of_types_is_the_code_s() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)
    assert len(rows) == 16
    for sql, delta, arrow, _, key in rows:
        kind = parse_type(sql)
        spelled = types.to_delta(kind)
        assert (spelled if isinstance(spelled, str) else spelled["type"]) == delta
        assert str(kind) == arrow
        assert types.to_sql(kind).replace("`", "") == sql
        assert types.is_key_type(kind) == (key.strip() != "no")


def test_the_table_of_conflicts_is_the_code_s() -> None:
    page = TEXT.split("\n## 6.")[1].split("\n\n")[2]
    in_page = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    in_page.pop(1)
    doc = docstring(ROOT / "commit" / "conflict.py")
    for row in in_page[1:5]:
        assert re.split(r" or | \(", row[0])[0] in doc
    assert len(in_page) == 8
    assert judge.__doc__


def test_the_page_names_features_and_operations() -> None:
    protocol = protocol_action(fences=True)["protocol"]
    for feature in protocol["writerFeatures"]:
        assert f"`{feature}`" in TEXT
    for operation in Operation:
        assert f"`{operation}`" in TEXT
