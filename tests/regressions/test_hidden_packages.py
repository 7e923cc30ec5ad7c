"""A user's own ``log.py`` beside the script broke ``import tablestore`` somewhere inside: "'log' is not a package"."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tablestore.hidden_packages import PACKAGES
from tests.servers.spark import ROOT

IMPORT = "import tablestore"
IMPORTED_FIRST = "import {name}; import tablestore"
MADE_BY_HAND = "import sys, types; sys.modules['{name}'] = types.ModuleType('{name}'); import tablestore"


def run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.py").write_text(program)
    return subprocess.run(
        [sys.executable, *(arguments or ("job.py",))],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )


def assert_refused(done: subprocess.CompletedProcess[str], name: str, theirs: str) -> None:
    assert done.returncode != 0
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("ImportError: ")
    for part in (theirs, f"hides Tablestore's package {name!r}", str(ROOT / name), "Rename it"):
        assert part in sentence


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize("program", [IMPORT, IMPORTED_FIRST])
def test_a_file_that_hides_a_package_is_named(folder: Path, name: str, program: str) -> None:
    (folder / f"{name}.py").write_text("")
    assert_refused(run(folder, program.format(name=name)), name, str(folder / f"{name}.py"))


def test_a_package_of_the_users_is_named(folder: Path) -> None:
    (folder / "log").mkdir()
    (folder / "log" / "__init__.py").write_text("")
    assert_refused(run(folder, IMPORT), "log", str(folder / "log"))


def test_a_module_that_has_no_file_is_named(folder: Path) -> None:
    assert_refused(run(folder, MADE_BY_HAND.format(name="log")), "log", "a module without a file")


def test_the_command_line_says_it_too(folder: Path) -> None:
    (folder / "log.py").write_text("")
    assert_refused(run(folder, "", "-m", "tablestore.cli", "--help"), "log", str(folder / "log.py"))


def test_the_script_itself_may_be_what_hides(folder: Path) -> None:
    (folder / "log.py").write_text(IMPORT)
    assert_refused(run(folder, "", "log.py"), "log", str(folder / "log.py"))


@pytest.mark.slow
def test_a_folder_that_is_no_package_hides_nothing(folder: Path) -> None:
    (folder / "log").mkdir()
    done = run(folder, "import tablestore; print(tablestore.Store.__name__)")
    assert (done.stdout, done.stderr) == ("Store\n", "")


@pytest.mark.parametrize("name", ["log", "filestore"])
def test_other_formats_of_spark_do_not_suffer(folder: Path, name: str) -> None:
    """Spark imports each ``pyspark_*`` when it first looks for a format, whichever: only ours is refused then."""
    (folder / f"{name}.py").write_text("")
    program = (
        "import pickle\nfrom pyspark_tablestore import DefaultSource\n"
        "made = pickle.loads(pickle.dumps(DefaultSource))({})\nprint(made.name(), flush=True)\nmade.schema()"
    )
    done = run(folder, program)
    assert done.stdout == "tablestore\n"
    assert_refused(done, name, str(folder / f"{name}.py"))
