"""The wheel has everything that the product needs outside of the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.programs import ROOT
from tests.test_architecture import PACKAGES

BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_packages(tmp_path: Path) -> None:
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    wanted = {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    for name in {*wanted, "pyproject.toml", "README.md", "LICENSE"}:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    wheels.mkdir()
    built = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, str(wheels)],
        cwd=source,
        capture_output=True,
        text=True,
        check=True,
    )
    with zipfile.ZipFile(wheels / built.stdout.splitlines()[-1]) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == wanted
