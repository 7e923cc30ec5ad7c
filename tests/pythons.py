"""Runs tests in the other Pythons that the package promises: ``make test-pythons``.

Each Python of the classifiers in ``pyproject.toml`` that the machine has gets an environment of its own, ``.venv-3.13``
beside ``.venv``, with the same lock. It runs the tests that need no server and little time: all of them, or with
``--minutes`` those that begin by then, in an order that the seed chooses.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
WITHOUT_SERVERS = "not slow and not kafka and not spark and not s3"


def promised() -> list[str]:
    """Returns the versions in the classifiers, but for that of this process."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [found for found in re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text) if found != here]


def interpreter(version: str) -> str | None:
    """Returns a Python of that version, from the path or of pyenv; None if the machine has none."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for found in [shutil.which(f"python{version}"), *sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python"))]:
        if found is None:
            continue
        asked = [found, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]  # pyenv's own is there, and refuses
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return found
    return None


def environment(version: str, python: str, uv: str) -> Path:
    """Makes the environment unless it has this lock already; returns its folder of programs."""
    folder = ROOT / f".venv-{version}"
    programs, lock, marker = folder / "bin", ROOT / "requirements.lock", folder / ".locked"
    if marker.exists() and marker.read_bytes() == lock.read_bytes():
        return programs
    print(f"Installing the packages of the lock into {folder.name} (once, about a minute)…", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    pip = [programs / "python", "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", uv], check=True)
    install = [programs / "uv", "--quiet", "pip", "install", "--python", programs / "python"]
    subprocess.run([*install, "--no-deps", "--require-hashes", "-r", lock], check=True)
    subprocess.run([*install, "--no-deps", "--no-build-isolation", "--editable", ROOT], check=True)
    marker.write_bytes(lock.read_bytes())
    return programs


def run(version: str, uv: str, seed: int, minutes: str, rest: list[str]) -> bool:
    """Runs the tests in one version; returns whether they pass. A version that cannot run here passes."""
    python = interpreter(version)
    if python is None:
        print(f"Python {version} is not on this machine: nothing is tested in it.", flush=True)
        return True
    try:
        programs = environment(version, python, uv)
    except subprocess.CalledProcessError as error:  # as servers that cannot be built: CI has to work without network
        print(f"Python {version} has no environment ({error}): nothing is tested in it.", flush=True)
        return True
    print(f"Python {version}:", flush=True)
    command = [programs / "python", "-m", "pytest", "-n", str(os.cpu_count() or 1), "--no-loadscope-reorder"]
    command += ["-m", WITHOUT_SERVERS, f"--randomly-seed={seed}", *rest]
    depth = {"TEST_DEPTH": "fast", "TEST_MINUTES": minutes}
    return subprocess.run(command, cwd=ROOT, env=os.environ | depth, check=False).returncode == 0


def main() -> None:
    """Runs the tests, and exits with 1 if some fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", required=True, help="which uv installs, as pip names it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", default="", help="no test begins later")
    parser.add_argument("--one", action="store_true", help="only one version, which the seed chooses")
    given, rest = parser.parse_known_args()
    versions = promised()
    if given.one and versions:
        versions = [versions[given.seed % len(versions)]]
    passed = [run(version, given.uv, given.seed, given.minutes, rest) for version in versions]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
