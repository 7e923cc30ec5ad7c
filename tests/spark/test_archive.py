"""`spark_archive`: what is in it, that it is complete or absent, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path, PurePosixPath

import pytest

from filestore.errors import InvalidRequest, NotFound, Unavailable
from tablestore.spark import archive as module
from tablestore.spark.archive import ArchiveInfo, archive_info, checked_archive, spark_archive

PY = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True)
class Installed:
    """Stands for an installed distribution, of which the archive needs these."""

    name: str
    home: Path
    files: list[PurePosixPath] | None
    requires: list[str] | None = None
    version: str = "1.0"

    def locate_file(self, path: PurePosixPath) -> Path:
        return self.home / path


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Installed]:
    """Two small distributions, of which one needs the other, instead of the large ones."""
    home = tmp_path / "site"
    for name in ("one/__init__.py", "one/data.bin", "one/tests/test_it.py", "one/__init__.pyc", "two.py", "bin/one"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    (home / "one" / "data.bin").chmod(0o755)
    first = ["one/__init__.py", "one/data.bin", "one/tests/test_it.py", "one/__init__.pyc", "../../bin/one"]
    needs = ["Two_>=1; python_version>'3'", "absent; sys_platform=='win32'", "three; extra=='more'", "py4j"]
    found = {
        "one": Installed("one", home, [PurePosixPath(name) for name in first], needs),
        "two": Installed("two", home, [PurePosixPath("two.py")]),
        "three": Installed("three", home, [PurePosixPath("two.py")]),
    }

    def distribution(name: str) -> Installed:
        if name not in ("Two_", *found):
            raise PackageNotFoundError(name)
        return found[name.lower().rstrip("_")]

    monkeypatch.setattr(module, "_ROOTS", ("one",))
    monkeypatch.setattr(module, "distribution", distribution)
    return found


def members(path: Path) -> dict[str, int]:
    with tarfile.open(path) as archive:
        return {member.name: member.mode for member in archive.getmembers()}


@pytest.mark.parametrize("name", ["packages.tar", "packages.tar.gz", "packages.tgz"])
def test_it_has_what_tasks_need_and_no_more(installed: dict[str, Installed], tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    info = spark_archive(path)
    assert info.packages == ("one==1.0", "two-==1.0")
    assert (info, checked_archive(path)) == (archive_info(path), info)
    found = members(path)
    others = {name for name in found if name.partition("/")[0] not in module._OWN}
    assert others == {"tablestore-archive.json", "one/__init__.py", "one/data.bin", "two.py"}
    assert (found["one/data.bin"], found["one/__init__.py"]) == (0o755, 0o644)
    assert {"tablestore/spark/daemon.py", "pyspark_tablestore/__init__.py", "filestore/FORMAT.md"} <= set(found)
    assert not any("__pycache__" in name for name in found)
    assert [entry.name for entry in path.parent.iterdir()] == [name], "nothing is left beside it"


def test_the_same_packages_make_the_same_bytes(installed: dict[str, Installed], tmp_path: Path) -> None:
    first, second = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    spark_archive(first)
    os.utime(tmp_path / "site" / "two.py", (1, 1))
    spark_archive(second)
    assert first.read_bytes() == second.read_bytes()


def test_more_packages_are_added_with_what_they_need(installed: dict[str, Installed], tmp_path: Path) -> None:
    info = spark_archive(tmp_path / "a.tar", ["three"])
    assert "three==1.0" in info.packages
    with pytest.raises(NotFound, match="nothing_of_this_name is not installed") as raised:
        spark_archive(tmp_path / "b.tar", ["nothing_of_this_name"])
    assert raised.value.code == "package-not-found"
    assert not (tmp_path / "b.tar").exists()


@pytest.mark.parametrize("files", [None, [PurePosixPath("__editable__.three.pth")]])
def test_an_editable_install_is_refused(
    installed: dict[str, Installed], tmp_path: Path, files: list[PurePosixPath] | None
) -> None:
    """Its list of files names only a path to somewhere else."""
    installed["three"] = Installed("three", tmp_path, files)
    with pytest.raises(InvalidRequest, match="install it as a wheel") as raised:
        spark_archive(tmp_path / "a.tar", ["three"])
    assert raised.value.code == "spark-archive"


def test_a_failure_leaves_the_former_archive(installed: dict[str, Installed], tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    spark_archive(path)
    before = path.read_bytes()
    (tmp_path / "site" / "two.py").unlink()
    with pytest.raises(Unavailable, match=r"two\.py") as raised:
        spark_archive(path)
    assert raised.value.code == "spark-archive-not-written"
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tar", "site"]


def test_names_that_spark_does_not_unpack_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"\.tar\.gz, \.tgz or \.tar"):
        spark_archive(tmp_path / "packages.tar.bz2")


@pytest.mark.parametrize("change", [{"version": "0.0.9"}, {"python": "3.99"}])
def test_an_archive_of_another_version_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    here = ArchiveInfo.here()
    record = {"version": here.version, "python": here.python, "machine": here.machine, "packages": []} | change
    (tmp_path / "tablestore-archive.json").write_text(json.dumps(record))
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(tmp_path / "tablestore-archive.json", "tablestore-archive.json")
    with pytest.raises(InvalidRequest, match=f"made with .* {next(iter(change.values()))}") as raised:
        checked_archive(path)
    assert raised.value.code == "spark-archive"


def test_other_files_are_no_archives(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no") as absent:
        archive_info(tmp_path / "a.tar")
    assert absent.value.code == "spark-archive-not-found"
    (tmp_path / "a.tar").write_bytes(b"no archive")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        archive_info(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        archive.add(tmp_path / "a.tar", "tablestore-archive.json.txt")
    with pytest.raises(InvalidRequest, match="was not made by"):
        archive_info(tmp_path / "b.tar")
    (tmp_path / "c.tar").touch()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        archive_info(tmp_path / "c.tar")


@pytest.mark.deep
@pytest.mark.slow
def test_a_bare_python_imports_all_that_tasks_use(tmp_path: Path) -> None:
    """Also what the daemon imports, for S3 and for topics; pyspark comes from Spark's host."""
    path, unpacked = tmp_path / "packages.tar", tmp_path / "unpacked"
    spark_archive(path)
    with tarfile.open(path) as archive:
        archive.extractall(unpacked, filter="data")
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    spark = Path(str(module.distribution("pyspark").locate_file("pyspark"))) / "python" / "lib"
    program = (
        "import tablestore.spark.daemon, tablestore.spark.batch.overlays, tablestore.spark.batch.compaction\n"
        "import tablestore.spark.kafka.reading, tablestore.spark.kafka.sink, log.connector.formats\n"
        "import filestore.storage.obstore_client, filestore.storage.fsspec_client, botocore.session, s3fs, httpx\n"
        "import sys; print(*sorted(name for name in sys.modules if name in ('sqlalchemy', 'deltalake', 'fastapi')))"
    )
    done = subprocess.run(
        [tmp_path / "bare" / "bin" / f"python{PY}", "-c", program],
        cwd=unpacked.parent,
        env={"PYTHONPATH": os.pathsep.join([*map(str, sorted(spark.glob("*.zip"))), str(unpacked)])},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
