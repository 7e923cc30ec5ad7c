"""The product and its tests are in plain English: no private words in docstrings, comments, messages and pages.

Each word that is refused here has a better one that users of Delta and Kafka know.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXTS = (
    "filestore",
    "log",
    "managed_table",
    "compaction",
    "catalog_service",
    "tablestore",
    "pyspark_tablestore",
    "deploy",
    "tests",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
)
PRIVATE_WORDS = {
    r"brings?|brought": "adds, restores, returns",
    r"came": "arrived, was added, follows",
    r"hears? of|heard of": "gets, receives",
    r"in vain": "lost the race, failed",
    r"lies?|lay|lain": "is in, is at",
    r"looks? at .* again|looking again": "retries, checks again",
    r"mends?|mended": "repairs, corrects",
    r"settle|settles|settled": "resolved, final",
    r"tells?|told": "says, reports, writes, contains",
}
PRIVATE_NAMES = re.compile(
    r"brings?|brought|came|heard|hears?|told|tells|tellers?|met|mends?|mended|settled?|settles|buried|bury|graves?|said"
)
_TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.COMMENT)}
"""The tokens that are texts; f-strings have one of their own from Python 3.12 on."""
_BANNED = re.compile("|".join(rf"(?<![\w-])(?:{words})\b" for words in PRIVATE_WORDS), re.IGNORECASE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields line numbers and texts of a page, or of the strings and comments of a module."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(content.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type in _TEXTS:
            for number, line in enumerate(token.string.splitlines()):
                yield token.start[0] + number, line


def files(name: str) -> list[Path]:
    """The modules and pages of a package, without this module: it lists the private words."""
    place = ROOT / name
    found = [place] if place.is_file() else sorted([*place.rglob("*.py"), *place.rglob("*.md"), *place.rglob("*.java")])
    return [path for path in found if path != Path(__file__)]


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_has_a_private_word(name: str) -> None:
    assert files(name), "it was moved: correct `TEXTS`"
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r} in {line.strip()}"
        for path in files(name)
        for number, line in texts(path)
        if (match := _BANNED.search(line))
    ]
    assert not found, f"use a word of {PRIVATE_WORDS}:\n" + "\n".join(found)


@pytest.mark.parametrize("name", [name for name in TEXTS if (ROOT / name).is_dir() and name != "docs"])
def test_no_identifier_has_a_private_word(name: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}"
        for path in files(name)
        if path.suffix == ".py"
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
        if token.type == tokenize.NAME
        and any(PRIVATE_NAMES.fullmatch(word.lower()) for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", token.string))
    ]
    assert not found, "say what it does or holds:\n" + "\n".join(found)
