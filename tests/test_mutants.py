"""The patches of `tests.mutants` apply to this tree, and the tests that they name exist; `make mutants` runs them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.__main__ import HERE, ROOT, Mutant


def patches() -> list[Path]:
    return sorted(HERE.glob("*.patch"))


def test_each_patch_applies() -> None:
    """One `git apply` for all would add them up, so each has its own."""
    assert len(patches()) >= 60
    check = ["git", "apply", "--check"]
    failed = [path.name for path in patches() if subprocess.run([*check, str(path)], cwd=ROOT, check=False).returncode]
    assert failed == []


def test_each_test_that_kills_a_mutant_exists() -> None:
    missing = []
    for mutant in map(Mutant.read, patches()):
        for test in mutant.tests:
            file, *names = test.partition("[")[0].split("::")
            source = ROOT / file
            sources = [source, *ROOT.glob("tests/conformance/*.py")]  # classes of tests inherit from those there
            if not source.is_file() or any(not _defined(name, sources) for name in names):
                missing.append(f"{mutant.name}: {test}")
    assert missing == []


def _defined(name: str, sources: Iterable[Path]) -> bool:
    definition = re.compile(rf"^\s*(def|class) {re.escape(name)}\b", re.MULTILINE)
    return any(definition.search(source.read_text(encoding="utf-8")) for source in sources)
