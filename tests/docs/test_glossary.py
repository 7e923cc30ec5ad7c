"""The glossary is in order, and explains the words that its own entries refer to."""

from __future__ import annotations

import re

from tests.cli.programs import ROOT

TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^\| ([^|]+) \| (.+) \|$", TEXT.split("|---|---|")[1], re.M)


def test_entries_are_in_alphabetical_order() -> None:
    words = [word.lower() for word, _ in ENTRIES]
    assert words == sorted(words)
    assert len(words) > 90


def test_words_in_italics_have_an_entry() -> None:
    explained = {part.strip().lower() for word, _ in ENTRIES for part in re.split(r",|\(.*?\)", word)}
    named = {word.lower() for _, text in ENTRIES for word in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", text)}
    assert {word for word in named if not {word, word.removesuffix("s")} & explained} == set()


def test_words_are_used() -> None:
    """An entry explains a word of the product or of a page; one that nobody uses any more is removed."""
    folders = ("filestore", "log", "managed_table", "compaction", "catalog_service", "tablestore", "docs")
    paths = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in (".py", ".md")]
    pages = [path for path in (*paths, ROOT / "README.md", ROOT / "CONTRIBUTING.md") if path.name != "glossary.md"]
    text = " ".join(path.read_text(encoding="utf-8") for path in pages if "decisions" not in path.parts)
    text = " ".join(re.split(r"[\s_`*#-]+", text)).lower()
    unused = [word for word, _ in ENTRIES if not any(part.strip() in text for part in _parts(word))]
    assert unused == []


def _parts(word: str) -> list[str]:
    return [part.lower().replace("-", " ") for part in re.split(r",|\(.*?\)", word) if part.strip()]
