"""Wheel and source distribution have everything that the product needs outside of the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tablestore.spark.sql.jar import _JAR
from tests.cli.programs import ROOT
from tests.test_architecture import PACKAGES

JAR = str(_JAR.relative_to(ROOT))
BUILD = """
import json, sys
sys.path.insert(0, "deploy")
import build_backend
folder = sys.argv[1]  # setuptools changes them
needed = build_backend.get_requires_for_build_wheel()
print(json.dumps([needed, build_backend.build_{}(folder)]))
"""
TRY = """
import pyspark, tablestore
from tablestore.spark import spark_session
assert not tablestore.__file__.startswith({root!r}), tablestore.__file__
with tablestore.connect("warehouse") as store:
    store.create_database("shop")
    table = store.create_table("shop.orders", "id BIGINT, v STRING", primary_key=["id"])
    table.write([{{"id": 1, "v": "a"}}, {{"id": 2, "v": "b"}}])
spark = spark_session("installed", {{"spark.master": "local[1]"}}, catalogs={{"lake": "warehouse"}})
spark.sql("UPDATE lake.shop.orders SET v = 'c' WHERE id = 2")
print(spark.sql("SELECT * FROM lake.shop.orders ORDER BY id").collect())
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files of a checkout from which a wheel is built, without the jar."""
    found = tmp_path / "source"
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    wanted = {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"} - {JAR}
    for name in {*wanted, "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "deploy/build_backend.py"}:
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, found / name)
    return found


def built(source: Path, what: str, folder: Path, **environment: str) -> tuple[list[str], Path]:
    """Builds a wheel or a source distribution; returns what it needs for it, and the file."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-W", "ignore", "-c", BUILD.format(what), str(folder)]
    environment = os.environ | environment
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True, env=environment)
    needed, name = json.loads(done.stdout.splitlines()[-1])
    return needed, folder / name


def members(path: Path) -> set[str]:
    """The files in a wheel or in a source distribution, without those that describe it."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name for name in wheel.namelist() if ".dist-info/" not in name}
    with tarfile.open(path) as archive:
        names = [member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()]
    return {name for name in names if ".egg-info/" not in name}


@pytest.mark.slow
def test_both_have_every_file_of_the_packages_and_the_jar(source: Path, tmp_path: Path) -> None:
    """A wheel from a fresh checkout had no jar, so SQL did not work after the README's installation."""
    wanted = {name for name in members_of(source) if name.split("/")[0] in PACKAGES} | {JAR}
    needed, wheel = built(source, "wheel", tmp_path / "wheels")
    assert [name for name in needed if name.startswith("pyspark==")], "its jars are the class path"
    assert members(wheel) == wanted
    again, archive = built(source, "sdist", tmp_path / "archives")
    assert not [name for name in again if name.startswith("pyspark")], "the jar is there already"
    assert wanted | {"deploy/build_backend.py", "pyproject.toml"} <= members(archive)


@pytest.mark.deep
@pytest.mark.slow
def test_without_a_compiler_a_wheel_lacks_the_jar(source: Path, tmp_path: Path) -> None:
    needed, wheel = built(source, "wheel", tmp_path / "wheels", PATH=str(tmp_path))
    assert not [name for name in needed if name.startswith("pyspark")]
    assert JAR not in members(wheel)
    assert "tablestore/spark/sql/jar.py" in members(wheel)


@pytest.mark.deep(rarely=4)
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", ["wheel", "sdist"])
def test_what_is_installed_elsewhere_runs_sql(source: Path, tmp_path: Path, what: str) -> None:
    """In an environment that is empty otherwise, by pip alone, in a folder outside of the tree."""
    _, made = built(source, what, tmp_path / "made")
    shutil.rmtree(source)
    venv.create(tmp_path / "installed", with_pip=True)
    python = tmp_path / "installed" / "bin" / "python"
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "VIRTUAL"))
    }
    install = [python, "-m", "pip", "install", "--quiet", f"{made}[spark]"]
    subprocess.run(install, cwd=tmp_path, env=outside, check=True, timeout=1500)
    program = [python, "-c", TRY.format(root=str(ROOT))]
    ended = subprocess.run(program, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "[Row(id=1, v='a'), Row(id=2, v='c')]"


def members_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
