"""The code in README and docs runs and prints what the pages show, and what the pages name and link to exists."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tablestore.cli import app
from tests.cli.programs import ROOT
from tests.docs.pages import PAGES, PageRun, blocks_of, matches, needs_kafka, needs_spark
from tests.servers.kafka import KafkaBroker
from tests.servers.spark import short_lived_jvm_with_jars
from tests.test_architecture import PACKAGES

WITH_BLOCKS = [page for page in PAGES if any(block.language in ("python", "bash") for block in blocks_of(page))]
SPARK = [page for page in WITH_BLOCKS if needs_spark(page)]
FIRST = [page for page in SPARK if page == "README.md"]
OTHERS = [page for page in SPARK if page not in FIRST]
KAFKA = [page for page in WITH_BLOCKS if needs_kafka(page) and page not in SPARK]
PLAIN = [page for page in WITH_BLOCKS if page not in (*SPARK, *KAFKA)]
LINKED = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *ROOT.glob("*.md"),
        *(path for folder in ("docs", *PACKAGES) for path in (ROOT / folder).rglob("*.md")),
    )
)


@pytest.mark.slow
@pytest.mark.parametrize("page", PLAIN)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PageRun(page, None).run()


@pytest.mark.parametrize("page", KAFKA)
def test_the_blocks_of_a_page_that_uses_kafka_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka_broker: KafkaBroker
) -> None:
    monkeypatch.chdir(tmp_path)
    PageRun(page, kafka_broker.bootstrap).run()


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("pages", [FIRST, pytest.param(OTHERS, marks=pytest.mark.deep)], ids=["first", "others"])
def test_the_blocks_of_the_pages_that_use_spark_run(
    tmp_path: Path, kafka_broker: KafkaBroker, pages: list[str]
) -> None:
    """In a process of their own, as a user runs them: paths are relative, and Spark starts where they begin."""
    environment = os.environ | short_lived_jvm_with_jars() | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.pages", kafka_broker.bootstrap, *pages],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    failures = json.loads(done.stdout.splitlines()[-1])
    assert failures == {}, "\n".join(failures.values())


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_how_it_is_checked(page: str) -> None:
    assert {block.language for block in blocks_of(page)} <= {"python", "sql", "bash", "text", "console"}


def test_output_is_compared_line_by_line() -> None:
    assert matches("a ...\nc", "a b  \nc\n")
    assert not matches("a\nc", "a\nb\nc")


def test_the_ten_lines_are_about_ten() -> None:
    first = next(block for block in blocks_of("README.md") if block.language == "python")
    assert len([line for line in first.text.splitlines() if line.strip() and "import" not in line]) <= 10


def test_the_readme_fits_two_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def anchors_of(path: Path) -> set[str]:
    """The anchors that a page's headings have, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKED)
def test_links_lead_somewhere(page: str) -> None:
    path, text = ROOT / page, (ROOT / page).read_text(encoding="utf-8")
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        if "://" in name:
            continue
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_paths_that_pages_name_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(rf"`((?:{'|'.join(PACKAGES)}|tests|docs)/[\w./]*)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_files_of_the_walks_exist() -> None:
    """A name without a folder is in the folder of the name before it."""
    walks = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("\n### `log_offsets`")[1]
    folder, missing = ROOT, []
    for name in re.findall(r"`([\w/]+\.py)`", walks):
        path = ROOT / name if "/" in name else folder / name
        folder = path.parent
        if not path.exists():
            missing.append(name)
    assert missing == []


def test_commands_and_tasks_that_pages_name_exist() -> None:
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    commands = {command.name for command in (*app.registered_commands, *app.registered_groups)}
    assert set(re.findall(r"(?:^|`|\$ )tablestore ([a-z][a-z-]*)", text, re.M)) <= commands
    tasks = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= tasks


def test_extras_that_pages_name_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    named = {
        extra for group in re.findall(r"(?:lakehouse-tablestore|\.)\[([\w,]+)\]", text) for extra in group.split(",")
    }
    assert {"spark"} <= named <= set(project["optional-dependencies"])


def test_every_page_is_in_the_index_of_docs() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"]
    assert [name for name in pages if f"]({name})" not in index] == []
