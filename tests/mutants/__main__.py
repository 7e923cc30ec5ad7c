"""``python -m tests.mutants [NAME …] [--jobs N] [--whole]``: applies each mutant to a copy of the tree and runs tests.

Prints a line for each mutant and the share that was killed. Exit status 1 if that is below 95 %, or if a mutant lives
whose header gives no reason. README.md in this folder describes the headers.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "spark-warehouse", "metastore_db", "*.patch")
PYTEST = ["pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "tests.mutants.no_shrinking"]
REQUIRED_SHARE = 0.95
_FIELD = re.compile(r"^(What|Killed by|Lives because): *(.+?)(?=\n[A-Z][a-z ]+:|\Z)", re.MULTILINE | re.DOTALL)


class Broken(Exception):
    """Nothing can be said about a mutant: its patch, its header or its tests have to be corrected."""


class Fate(StrEnum):
    KILLED = "killed"
    LIVED = "LIVED"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch with its header."""

    path: Path
    what: str
    tests: tuple[str, ...]
    lives_because: str | None

    @property
    def name(self) -> str:
        return self.path.stem

    @classmethod
    def read(cls, path: Path) -> Mutant:
        header, _, diff = path.read_text(encoding="utf-8").partition("\ndiff --git ")
        fields = {name: " ".join(text.split()) for name, text in _FIELD.findall(header.strip())}
        tests = tuple(shlex.split(fields.get("Killed by", "")))
        if not diff or "What" not in fields or not (tests or "Lives because" in fields):
            raise Broken(f"{path.name} needs `What:`, `Killed by:` or `Lives because:`, and a diff of git")
        if options := [test for test in tests if test.startswith("-")]:
            raise Broken(f"{path.name} names {options[0]!r}: name files and ids of tests, without options")
        return cls(path, fields["What"], tests, fields.get("Lives because"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant, and the test that failed or what went wrong."""

    mutant: Mutant
    fate: Fate
    why: str

    @property
    def good(self) -> bool:
        return self.fate is Fate.KILLED or (self.fate is Fate.LIVED and self.mutant.lives_because is not None)


class Tree:
    """A copy of the product and its tests, in which pytest runs."""

    def __init__(self, folder: Path, source: Path = ROOT) -> None:
        self.folder = folder
        shutil.copytree(source, folder, ignore=LEFT_OUT, symlinks=True)
        found = self._run(
            [sys.executable, "-P", "-c", "import filestore; print(filestore.__file__)"], 60
        ).stdout.strip()
        if Path(found) != folder / "filestore" / "__init__.py":
            raise Broken(f"the copy in {folder} would import {found}")

    def apply(self, mutant: Mutant) -> None:
        result = self._run(["git", "apply", str(mutant.path)], 60)
        if result.returncode:
            raise Broken(f"the patch does not apply, make it anew: {' '.join(result.stderr.split())}")

    def test(self, tests: Sequence[str], timeout_s: float, *options: str) -> subprocess.CompletedProcess[str]:
        """Runs tests with pytest. `subprocess.TimeoutExpired` if they do not end in time."""
        return self._run([sys.executable, "-m", *PYTEST, *options, *tests], timeout_s)

    def _run(self, command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def _environment(self) -> dict[str, str]:
        # git would otherwise apply a patch to the repository around a copy, and Python would compile each copy anew
        left_out = ("PYTHONDONTWRITEBYTECODE", "TEST_SHARE", "PYTEST_ADDOPTS")
        given = {name: value for name, value in os.environ.items() if name not in left_out}
        return given | {
            "PYTHONPATH": str(self.folder),
            "TEST_DEPTH": "test",
            "GIT_CEILING_DIRECTORIES": str(self.folder.parent),
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="beginnings of mutants' names, such as commit or commit-01; all if absent"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants are tried at once")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds after which a mutant counts as killed")
    parser.add_argument(
        "--whole", action="store_true", help="run all tests for a mutant that its own tests do not kill"
    )
    given = parser.parse_args()
    try:
        mutants = chosen(given.names)
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            unchanged = Tree(Path(folder).resolve() / "unchanged")
            require_passing(unchanged, mutants, given.jobs)
            with ThreadPoolExecutor(given.jobs) as pool:
                judged = partial(tried, unchanged, timeout_s=given.timeout, whole=given.whole)
                verdicts = [show(verdict) for verdict in pool.map(judged, mutants)]
    except Broken as error:
        print(error, file=sys.stderr)
        return 1
    return summary(verdicts)


def chosen(names: Sequence[str]) -> list[Mutant]:
    """Reads the mutants whose names begin with one of those that are given."""
    paths = sorted(HERE.glob("*.patch"))
    if unknown := [name for name in names if not any(path.name.startswith(name) for path in paths)]:
        raise Broken(f"no mutant's name begins with {unknown[0]!r}")
    return [Mutant.read(path) for path in paths if path.name.startswith(tuple(names) or "")]


def require_passing(tree: Tree, mutants: Sequence[Mutant], jobs: int) -> None:
    """Runs the tests that kill the mutants in the unchanged tree: if they fail there, they prove nothing."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    print(
        f"{len(tests)} tests or modules kill {len(mutants)} mutants; they run in the unchanged tree first", flush=True
    )
    if tests and (result := tree.test(tests, 3600, "-n", str(jobs), "--dist", "loadgroup")).returncode:
        raise Broken(f"tests fail in the unchanged tree, correct them first:\n{result.stdout}{result.stderr}")


def tried(unchanged: Tree, mutant: Mutant, *, timeout_s: float, whole: bool) -> Verdict:
    """Tries one mutant in a copy of its own."""
    with tempfile.TemporaryDirectory(prefix=f"{mutant.name}-", dir=unchanged.folder.parent) as folder:
        try:
            tree = Tree(Path(folder) / "tree", unchanged.folder)
            tree.apply(mutant)
            for tests in [mutant.tests] * bool(mutant.tests) + [()] * whole:
                if (failed := failing(tree, tests, timeout_s if tests else 20 * timeout_s)) is not None:
                    return Verdict(mutant, Fate.KILLED, failed)
        except Broken as error:
            return Verdict(mutant, Fate.BROKEN, str(error))
    return Verdict(mutant, Fate.LIVED, mutant.lives_because or "and its header gives no reason")


def failing(tree: Tree, tests: Sequence[str], timeout_s: float) -> str | None:
    """Runs tests, all if none is named, and returns the one that failed; None if they pass."""
    try:
        result = tree.test(tests, timeout_s, "-x")
    except subprocess.TimeoutExpired:
        return f"by the timeout of {timeout_s:.0f} s"
    if result.returncode == 0:
        return None
    if result.returncode == 1:
        return next((line for line in result.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "?")
    last = " ".join((result.stdout + result.stderr).split())[-400:]
    raise Broken(f"no test has run, pytest ended with status {result.returncode}: {last}")


def show(verdict: Verdict) -> Verdict:
    print(f"{verdict.fate:7} {verdict.mutant.name}: {verdict.why}", flush=True)
    return verdict


def summary(verdicts: Sequence[Verdict]) -> int:
    """Prints the share of killed mutants and those that need attention, and returns the exit status."""
    killed = sum(verdict.fate is Fate.KILLED for verdict in verdicts)
    for verdict in verdicts:
        if not verdict.good:
            print(f"{verdict.mutant.path.name}: {verdict.mutant.what}")
    share = killed / len(verdicts)
    print(f"{killed} of {len(verdicts)} mutants were killed ({share:.1%})")
    return 0 if share >= REQUIRED_SHARE and all(verdict.good for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
