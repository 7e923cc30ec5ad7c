"""Runs the code blocks of README and docs, page by page, in the order in which a reader meets them.

The blocks of a page share one folder, one Python namespace and one environment. What a block prints is compared with
the `text` block behind it, if there is one; `...` in that block stands for any text.

    python   runs in this process
    sql      runs statement by statement in the page's `spark`; its output is that of the last one
    bash     runs line by line: commands of `tablestore` in this process, others in bash. `tablestore serve` serves
             until the page ends, and a Kafka broker of the tests stands for `localhost:9092`
    text     is the output of the block before it, or an illustration
    console  does not run: installation, processes without an end, crontabs. Its commands and tasks have to exist
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from catalog_service.server import serving
from tablestore.cli import app
from tests.cli.programs import ROOT

SERVICE = "http://127.0.0.1:8080"
BROKER = "localhost:9092"
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page, with the output that the page shows for it."""

    page: str
    line: int
    language: str
    text: str
    output: str | None
    heading: str

    @property
    def place(self) -> str:
        """Page and line, as an editor takes them."""
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page; a `text` block right behind one that runs is that one's output."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    blocks: list[Block] = []
    for match in found:
        before = text[: match.start()]
        if blocks and match[1] == "text" and re.search(r"^```\n\s*\Z", before, re.M):
            blocks[-1] = dataclasses.replace(blocks[-1], output=match[2])
        else:
            heading = re.findall(r"^#+ (.*)$", FENCE.sub("", before), re.M)[-1]
            blocks.append(Block(page, before.count("\n") + 1, match[1], match[2], None, heading))
    return blocks


def needs_spark(page: str) -> bool:
    """Whether a block of the page imports Spark."""
    spark = re.compile(r"^(from|import) (tablestore\.spark|pyspark)\b", re.M)
    return any(spark.search(block.text) for block in blocks_of(page) if block.language == "python")


def needs_kafka(page: str) -> bool:
    """Whether a block of the page names a broker."""
    return any(BROKER in block.text for block in blocks_of(page) if block.language in ("python", "bash"))


class PageRun:
    """One run of a page in the current folder.

    Args:
        bootstrap: The broker that stands for `localhost:9092`.
    """

    def __init__(self, page: str, bootstrap: str | None) -> None:
        self._page = page
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._put = {BROKER: bootstrap} if bootstrap else {}

    def run(self) -> None:
        """Runs all blocks.

        Raises:
            AssertionError: a block prints something else than the page shows, or a command fails.
        """
        with environment(), contextlib.ExitStack() as services:
            for block in blocks_of(self._page):
                if block.language in ("python", "sql", "bash"):
                    self._run_block(block, services)

    def _run_block(self, block: Block, services: contextlib.ExitStack) -> None:
        if block.language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(self._replaced(block.text), block.place, "exec"), self._names)
            output = printed.getvalue()
        elif block.language == "sql":
            output = self._run_sql(self._replaced(block.text))
        else:
            lines = commands_of(block.text)
            output = "".join(self._run_command(self._replaced(line), block, services) for line in lines)
        for shown, used in self._put.items():
            output = output.replace(used, shown)
        if block.output is not None:
            assert matches(block.output, output), f"{block.place} prints\n{output}\nand shows\n{block.output}"

    def _replaced(self, text: str) -> str:
        for shown, used in self._put.items():
            text = text.replace(shown, used)
        return text

    def _run_sql(self, text: str) -> str:
        for statement in text.strip().removesuffix(";").split(";\n"):
            rows = self._names["spark"].sql(statement)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            rows.show()
        return printed.getvalue()

    def run_line(self, line: str, block: Block) -> str:
        """Runs a command of a block that leaves nothing running, in `environment`; returns what it prints."""
        with contextlib.ExitStack() as services:
            return self._run_command(self._replaced(line), block, services)

    def _run_command(self, line: str, block: Block, services: contextlib.ExitStack) -> str:
        words = shlex.split(line, comments=True)
        if words[:2] == ["tablestore", "serve"]:
            self._put[SERVICE] = services.enter_context(serving(words[words.index("--warehouse") + 1]))
            return ""
        if words[0] == "export":
            os.environ |= dict([words[1].split("=", 1)])
            return ""
        if words[0] == "tablestore" and not re.search(r"[|<>;&$]", re.sub(r"'[^']*'|\"[^\"]*\"", "", line)):
            done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, f"{block.place}: {line}\n{done.output}"
            return done.stdout
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert ended.returncode == 0, f"{block.place}: {line}\n{ended.stdout}{ended.stderr}"
        return ended.stdout


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """The variables with which commands of a page run; what they export is gone afterwards."""
    before = dict(os.environ)
    os.environ |= {"NO_COLOR": "1", "COLUMNS": "120", "PYTHONPATH": str(ROOT)}
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def commands_of(text: str) -> Iterator[str]:
    """The lines of a shell block, continued ones joined, comments left out."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line


def matches(shown: str, printed: str) -> bool:
    """Whether a block printed what the page shows: blanks at the ends of lines do not count, `...` is any text."""

    def trimmed(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    pattern = ".*?".join(re.escape(part) for part in trimmed(shown).split("..."))
    return re.fullmatch(pattern, trimmed(printed), re.S) is not None


def main(bootstrap: str, pages: list[str]) -> None:
    """Runs pages in this process, which shares one Spark session among them, each in the folder emptied before.

    The last line that is printed maps each page that failed to its traceback, as JSON.
    """
    import traceback

    failures = {}
    for page in pages:
        for left in Path().iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        try:
            PageRun(page, bootstrap).run()
        except Exception:  # noqa: BLE001  # every page runs, and each says how it failed
            failures[page] = traceback.format_exc()
        _drop_views()
    print(json.dumps(failures))


def _drop_views() -> None:
    """Drops a page's temporary views, which SHOW TABLES of the next page would list."""
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            session._jsparkSession.sessionState().catalog().clearTempTables()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
