"""The jars' cache, with scripts that play Java and Maven: no network."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from filestore.errors import Corrupt, Unavailable
from tablestore import jars
from tablestore.jars import DELTA, KAFKA, cache_root, find_java, jars_of, main

JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""
JAVA_8 = """echo 'java version "1.8.0_392"' >&2"""
GOOD_MAVEN = """
echo run >> "$(dirname "$0")/runs"
sleep 0.2
for argument; do case "$argument" in -DoutputDirectory=*) folder="${argument#*=}";; esac; done
printf jar > "$folder/a-1.jar"
"""
BAD_MAVEN = """
echo '[INFO] Scanning for projects...'
echo '[ERROR] Could not transfer artifact a: Connection refused -> [Help 1]'
exit 1
"""
A_LINE = f"a-1.jar {hashlib.sha256(b'jar').hexdigest()}\n"
SMALL = replace(
    DELTA, artifacts=("group:a:1",), count=1, megabytes=1, digest=hashlib.sha256(A_LINE.encode()).hexdigest()
)

Tools = Callable[..., Path]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Puts scripts, and nothing of this machine but the shell's own tools, on the path."""

    def put(**scripts: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, body in scripts.items():
            script = folder / name
            script.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}")
            script.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        return folder

    return put


def test_fetches_once_and_says_so(tools: Tools, tmp_path: Path) -> None:
    folder = tools(java=JAVA_17, mvn=GOOD_MAVEN)
    reports: list[str] = []

    first = jars_of(SMALL, reports.append, tmp_path)
    second = jars_of(SMALL, reports.append, tmp_path)

    assert first == second == [tmp_path / "jars" / SMALL.folder / "a-1.jar"]
    assert (folder / "runs").read_text() == "run\n"
    assert len(reports) == 2
    assert "1 files, 1 MB" in reports[0]


def test_two_at_once_download_once(tools: Tools, tmp_path: Path) -> None:
    folder = tools(java=JAVA_17, mvn=GOOD_MAVEN)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: jars_of(SMALL, str, tmp_path), range(4)))

    assert all(len(jars) == 1 for jars in found)
    assert (folder / "runs").read_text() == "run\n"


def test_what_a_killed_process_left_does_not_count_and_goes(tools: Tools, tmp_path: Path) -> None:
    tools(java=JAVA_17, mvn=GOOD_MAVEN)
    leftover = tmp_path / "jars" / f".partial-{SMALL.folder}-x" / "jars"
    leftover.mkdir(parents=True)
    (leftover / "half.jar").write_text("ha")

    assert [jar.name for jar in jars_of(SMALL, str, tmp_path)] == ["a-1.jar"]
    assert not leftover.exists()


def test_unexpected_bytes_are_refused(tools: Tools, tmp_path: Path) -> None:
    tools(java=JAVA_17, mvn=GOOD_MAVEN)

    with pytest.raises(Corrupt, match="not the expected bytes"):
        jars_of(replace(SMALL, digest="0" * 64), str, tmp_path)

    assert [entry.suffix for entry in (tmp_path / "jars").iterdir()] == [".lock"]


def test_a_failed_download_gives_mavens_reason_and_leaves_nothing(tools: Tools, tmp_path: Path) -> None:
    tools(java=JAVA_17, mvn=BAD_MAVEN)

    with pytest.raises(Unavailable) as raised:
        jars_of(SMALL, str, tmp_path)

    assert "Could not transfer artifact a: Connection refused." in raised.value.message
    assert "[Help 1]" not in raised.value.message
    assert [entry.suffix for entry in (tmp_path / "jars").iterdir()] == [".lock"]


def test_without_maven_the_message_says_what_to_do(tools: Tools, tmp_path: Path) -> None:
    tools(java=JAVA_17)

    with pytest.raises(Unavailable, match=r"apt install maven.*or copy the folder") as raised:
        jars_of(SMALL, str, tmp_path)

    assert raised.value.code == "maven-missing"


@pytest.mark.parametrize(("scripts", "code"), [({}, "java-missing"), ({"java": JAVA_8}, "java-too-old")])
def test_java_17_is_needed(tools: Tools, scripts: dict[str, str], code: str) -> None:
    tools(**scripts)

    with pytest.raises(Unavailable, match="Java 17 or newer is needed") as raised:
        find_java()

    assert raised.value.code == code


def test_the_cache_that_cannot_be_written(tools: Tools, tmp_path: Path) -> None:
    tools(java=JAVA_17, mvn=GOOD_MAVEN)
    (tmp_path / "file").touch()

    with pytest.raises(Unavailable, match=r"could not be stored.*\$TABLESTORE_CACHE"):
        jars_of(SMALL, str, tmp_path / "file")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TABLESTORE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == tmp_path / ".cache" / "tablestore"
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache_root() == Path("/shared/tablestore")
    monkeypatch.setenv("TABLESTORE_CACHE", "~/own")
    assert cache_root() == tmp_path / "own"


def test_the_command_fetches_what_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(jars, "jars_of", lambda jar_set: fetched.append(jar_set.name))
    assert (main(["kafka"]), main([])) == (0, 0)
    assert fetched == ["kafka", "delta", "s3a", "kafka"]
    assert capsys.readouterr().err == ""


def test_each_twentieth_jar_is_reported(tools: Tools, tmp_path: Path) -> None:
    line = "Downloaded from central: https://repo/a-{}.jar (1 kB)"
    plugin = "Downloaded from central: https://repo/a.pom (1 kB)"
    lines = "\n".join(f"echo '{line.format(n)}'; echo '{plugin}'" for n in range(45))
    tools(java=JAVA_17, mvn=f"{lines}\n{GOOD_MAVEN}")
    reports: list[str] = []
    jars_of(SMALL, reports.append, tmp_path)
    assert reports[1:-1] == ["  20 jars so far…", "  40 jars so far…"]


def test_the_command_refuses_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark"]) == 1
    assert "name delta or s3a or kafka" in capsys.readouterr().err


def test_the_sets_have_folders_of_their_own() -> None:
    assert DELTA.folder == "delta-4.4.0-spark-4.2"
    assert KAFKA.folder == "kafka-4.3.1"
