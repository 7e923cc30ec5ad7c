"""The images are made of what is there, and of the versions that the tests run with."""

from __future__ import annotations

import fnmatch
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tablestore.spark.sql.jar import _JAR
from tests.cli.programs import ROOT

LOCKS = ("service", "spark", "build")


def locked(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """The packages of a lock with their versions and hashes."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^([a-z0-9.-]+)(?:\[[^\]]*\])?==(\S+)(.*)$", text, re.M)
    return {package: (version, frozenset(re.findall(r"sha256:\w+", rest))) for package, version, rest in found}


@pytest.mark.parametrize("name", LOCKS)
def test_an_image_has_the_packages_of_the_tests(name: str) -> None:
    everything, image = locked("requirements.lock"), locked(f"deploy/{name}.lock")
    assert image
    assert {package: of for package, of in image.items() if everything.get(package) != of} == {}, "run: make lock"
    assert all(hashes for _, hashes in image.values())


@pytest.mark.parametrize(
    ("name", "extras"), [("service", ("s3", "postgres")), ("spark", ("s3", "postgres", "spark", "demo"))]
)
def test_an_image_has_what_its_extras_ask_for(name: str, extras: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    names = {canonicalize_name(Requirement(text).name) for text in wanted}
    assert names <= set(locked(f"deploy/{name}.lock"))


def test_the_service_has_no_spark_and_no_java() -> None:
    assert "pyspark" not in locked("deploy/service.lock")
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", text, re.M | re.S))
    assert set(stages) == {"build", "base", "service", "spark-build", "spark"}
    assert [name for name, lines in stages.items() if "openjdk" in lines] == ["spark-build", "spark"]
    for image in ("service", "spark"):
        assert "USER 10001:10001" in stages[image]


def test_the_jar_of_sql_is_made_for_the_installed_package() -> None:
    """In the folder of the sources Python would compile it there, and the image would lack it."""
    stage = (ROOT / "deploy" / "Dockerfile").read_text().split(" AS spark-build\n")[1].split("\nFROM ")[0]
    before, _, after = stage.partition("-m tablestore.spark.sql.jar")
    assert re.findall(r"^WORKDIR (.*)$", before, re.M)[-1] == "/opt"
    jar = str(_JAR.relative_to(ROOT))
    assert f"test -f /opt/tablestore/lib/python3.11/site-packages/{jar}" in after
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert any(fnmatch.fnmatch(jar, pattern) for pattern in ignored[ignored.index("!tablestore") :])


def test_what_is_copied_is_there_and_not_ignored() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    patterns = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    let = [line[1:] for line in patterns if line.startswith("!")]
    copied = [word for line in re.findall(r"^COPY (?!--)(.+)$", text, re.M) for word in line.split()[:-1]]
    assert {"filestore", "tablestore", "pyproject.toml"} <= set(copied)
    for path in copied:
        assert (ROOT / path).exists(), path
        assert any(fnmatch.fnmatch(path, pattern) for pattern in let), path


def test_all_packages_of_the_product_are_copied() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    for package in {pattern.rstrip("*").removesuffix(".") for pattern in included}:
        assert f"COPY {package} {package}\n" in text
