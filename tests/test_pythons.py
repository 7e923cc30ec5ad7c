"""Which Pythons are promised, and that the pages name those."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pythons import interpreter, promised

ROOT = Path(__file__).parents[1]


def test_the_pages_name_the_pythons_that_are_promised() -> None:
    """3.12 and 3.13 were promised and never run: SQLite's connections and limits of recursion differ there."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert here not in promised()
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert not [version for version in promised() if version not in text], page


def test_a_python_that_the_machine_lacks_is_not_found() -> None:
    assert interpreter("3.1") is None
