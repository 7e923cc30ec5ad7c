"""dbt, a program of users that works in the Thrift server: in an environment of its own, which has nothing of ours.

``make dbt`` (``python -m tests.servers.dbt``) installs it once into the cache, with the suite of its adapters, as
``tests/servers/dbt.lock`` says. Tests never install it; those that want it are skipped if it is not there, and the
report says so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tablestore.jars import cache_root

__all__ = ["DbtProject", "DbtRun", "NotInstalled", "dbt_python", "install_dbt", "run_suite"]

LOCK = Path(__file__).with_name("dbt.lock")
MAIN = "import sys; from dbt.cli.main import cli; sys.exit(cli())"
"""What the program ``dbt`` does; its file has the path of the folder in which it was installed."""
INSTALL_SECONDS = 1800.0
HINT = "`make dbt` installs it once, which takes a package registry and a few minutes"


class NotInstalled(Exception):
    """There is no dbt; the text says what to do."""


@dataclass(frozen=True)
class DbtRun:
    """What a command did.

    Attributes:
        code: Its exit code.
        output: What it printed.
        results: The status of each node that it ran, by the node's name: ``success``, ``pass``, ``fail``, …
    """

    code: int
    output: str
    results: Mapping[str, str]

    def named(self, *statuses: str) -> set[str]:
        """The names of the nodes with one of these statuses."""
        return {name for name, status in self.results.items() if status in statuses}


class DbtProject:
    """A project, and the commands on it.

    Args:
        folder: Its folder, with its profiles; commands write into it.
        variables: The environment's, beside those of this process.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self._variables = variables

    def run(self, command: str, *arguments: str) -> DbtRun:
        """Runs a command of dbt's, to its end."""
        (self.folder / "target" / "run_results.json").unlink(missing_ok=True)
        ended = _run(["-c", MAIN, "--no-use-colors", command, *arguments], self.folder, self._variables)
        return DbtRun(ended.returncode, ended.stdout, self._results())

    def _results(self) -> dict[str, str]:
        path = self.folder / "target" / "run_results.json"
        if not path.exists():
            return {}
        return {_name(one["unique_id"]): one["status"] for one in json.loads(path.read_text())["results"]}

    def documented(self) -> dict[str, Any]:
        """What ``docs generate`` found in the catalog, by the nodes' names."""
        found = json.loads((self.folder / "target" / "catalog.json").read_text())
        return {_name(node): described for node, described in (found["nodes"] | found["sources"]).items()}


def run_suite(module: Path, folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Runs a module of tests with dbt's own pytest.

    Args:
        module: It is beside its ``conftest.py`` and ``pytest.ini``.
        folder: Where it writes.
        variables: The environment's, beside those of this process.

    Returns:
        The output of each test that did not pass, and an empty text for each that did, by class and name.
    """
    report = folder / "report.xml"
    options = ["-c", str(module.with_name("pytest.ini")), f"--rootdir={folder}", f"--junitxml={report}"]
    ended = _run(["-B", "-m", "pytest", *options, f"--basetemp={folder / 'projects'}", str(module)], folder, variables)
    assert report.exists(), ended.stdout
    return dict(_outcome(case) for case in ElementTree.parse(report).iter("testcase"))


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    name = f"{case.attrib['classname'].rpartition('.')[2]}.{case.attrib['name']}"
    if all(case.find(ended) is None for ended in ("failure", "error", "skipped")):
        return name, ""
    return name, "\n".join([text for part in case for text in (part.get("message"), part.text) if text])


def _run(arguments: Sequence[str], folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs dbt's Python to its end; it finds nothing of ours."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(dbt_python()), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=folder,
        env={**inherited, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", **variables},
        timeout=1800,
    )


def _name(unique_id: str) -> str:
    """The name of ``model.project.name``, ``source.project.source.name`` or ``test.project.name.hash``."""
    parts = unique_id.split(".")
    return parts[2] if parts[0] == "test" else parts[-1]


def dbt_python() -> Path:
    """Returns the Python that has dbt.

    Raises:
        NotInstalled: It is not there.
    """
    python = _folder() / "bin" / "python"
    if not python.exists():
        raise NotInstalled(f"dbt is not in {_folder().parent}: {HINT}.")
    return python


def install_dbt() -> Path:
    """Returns the Python that has dbt; installs it if it is not there. One process installs, the others wait for it.

    Raises:
        NotInstalled: The installation failed.
    """
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.parent.glob("installing-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        if not folder.exists():
            _install(folder)
    return dbt_python()


def _folder() -> Path:
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    return cache_root() / "dbt" / f"{sys.version_info[0]}.{sys.version_info[1]}-{digest[:12]}"


def _install(folder: Path) -> None:
    print("Installing dbt, whose projects run on ours in a test (once, a few minutes)…", file=sys.stderr, flush=True)
    made = Path(tempfile.mkdtemp(prefix="installing-", dir=folder.parent))
    python = str(made / "bin" / "python")
    pip = [python, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check", "install"]
    pip += ["--progress-bar", "off", "--no-deps", "--no-build-isolation", "--require-hashes", "-r"]
    builder = made / "setuptools.lock"  # four packages have no wheel: the lock's own setuptools builds them
    commands = [
        [sys.executable, "-m", "venv", str(made)],
        [*pip, str(builder)],
        [*pip, str(LOCK)],
        [python, "-c", "import dbt.cli.main, dbt.adapters.spark, dbt.tests.util, pyhive.hive"],
    ]
    builder.write_text("".join(re.findall(r"^setuptools==(?:.*\\\n)+.*\n", LOCK.read_text(), re.MULTILINE)))
    for command in commands:
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            lines = (error.stderr or "").strip().splitlines()[-3:] if isinstance(error.stderr, str) else []
            shutil.rmtree(made, ignore_errors=True)
            raise NotInstalled(
                f"dbt could not be installed: {' '.join(lines) or error} Tests that need it are skipped."
            ) from error
    made.rename(folder)


def main() -> int:
    """Installs dbt; returns 1 after a failure, and prints the reason."""
    try:
        install_dbt()
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
