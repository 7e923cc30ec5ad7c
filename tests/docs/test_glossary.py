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
