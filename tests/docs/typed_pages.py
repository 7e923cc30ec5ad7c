"""Checks the types of the Python blocks of README and docs with mypy, as a reader's editor does: `make check` runs it.

The blocks of a page are one module, as they share one namespace (`tests.docs.pages`); a line keeps its number.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cli.programs import ROOT
from tests.docs.pages import PAGES, blocks_of


def module_of(page: str) -> str:
    """The Python blocks of a page as the text of one module; empty lines stand for the rest of the page."""
    lines: list[str] = []
    for block in blocks_of(page):
        if block.language == "python":
            lines += [""] * (block.line - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n" if lines else ""


def main() -> int:
    """Prints mypy's errors, with the pages' own lines; returns its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        pages = {}
        for page in PAGES:
            if module := module_of(page):
                path = Path(folder) / (re.sub(r"\W", "_", page) + ".py")
                path.write_text(module, encoding="utf-8")
                pages[str(path)] = page
        command = [sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports=silent", *pages]
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    output = found.stdout + found.stderr
    for path, page in pages.items():
        output = output.replace(path, page)
    sys.stdout.write(output)
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
