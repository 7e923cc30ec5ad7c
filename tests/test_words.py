"""The product speaks plain English: no private words in docstrings, comments, messages and pages of finished packages.

A word here has a better one that users of Delta and Kafka know. A package joins `FINISHED` when its words are cleaned.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FINISHED = (
    "catalog_service",
    "compaction",
    "filestore/cache",
    "filestore/changelog",
    "filestore/checks",
    "filestore/delta",
    "filestore/files",
    "filestore/life",
    "filestore/lookup",
    "filestore/merge",
    "filestore/metrics",
    "filestore/model",
    "filestore/reading",
    "filestore/rows",
    "filestore/sorting",
    "filestore/ambient.py",
    "filestore/arguments.py",
    "filestore/doctor.py",
    "filestore/errors.py",
    "filestore/layout.py",
    "filestore/refused.py",
    "filestore/sqlite_files.py",
    "filestore/storage.py",
    "filestore/table.py",
    "filestore/threads.py",
    "filestore/FORMAT.md",
    "filestore/OPTIONS.md",
    "log",
    "log/connector/CONNECTORS.md",
    "log/connector/FORMATS.md",
    "log/connector/METADATA.md",
    "log/table/PROTOCOL.md",
    "catalog_service/SERVICE.md",
    "README.md",
    "CONTRIBUTING.md",
    "docs",
    "tablestore/spark",
    "pyspark_tablestore",
    "tablestore/cli",
    "tablestore/demo",
    "tablestore/following",
    "tablestore/ingesting",
    "tablestore/reading",
    "tablestore/store.py",
    "tablestore/table.py",
    "tablestore/writing",
    "tablestore/normalizing",
    "tablestore/system",
    "tablestore/topics",
)
PRIVATE_WORDS = {
    r"brings?|brought": "adds, restores, returns",
    r"came": "arrived, was added, follows",
    r"hears? of|heard of": "gets, receives",
    r"in vain": "lost the race, failed",
    r"lies|lay|lain": "is in, is at",
    r"looks? at .* again|looking again": "retries, checks again",
    r"mends?|mended": "repairs, corrects",
    r"settle|settles|settled": "resolved, final",
    r"tells?|told": "says, reports, writes, contains",
}
_BANNED = re.compile("|".join(rf"(?<![\w-])(?:{words})\b" for words in PRIVATE_WORDS), re.IGNORECASE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and texts: those of a page, or the strings and comments of a module."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from enumerate(content.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            for number, line in enumerate(token.string.splitlines()):
                yield token.start[0] + number, line


def files(name: str) -> list[Path]:
    place = ROOT / name
    return [place] if place.is_file() else sorted(place.rglob("*.md" if name == "docs" else "*.py"))


@pytest.mark.parametrize("name", FINISHED)
def test_no_text_has_a_private_word(name: str) -> None:
    assert files(name), "it was moved: correct the list"
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r} in {line.strip()}"
        for path in files(name)
        for number, line in texts(path)
        if (match := _BANNED.search(line))
    ]
    assert not found, f"use a word of {PRIVATE_WORDS}:\n" + "\n".join(found)
