"""The demo itself, with one day instead of seven, and the commands that it proposes at its end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tablestore.demo.places import make_room
from tests.cli.programs import ROOT, Program
from tests.depth import Depth
from tests.servers.class_archive import SPARK, archived


def demo(*arguments: object, cwd: Path, **environment: str) -> Program:
    return Program(["demo", *arguments], cwd=cwd, **environment)


def message(program: Program) -> str:
    return "\n".join(program.out.lines)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Path]]:
    folder = tmp_path_factory.mktemp("demo")
    java = " ".join(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archived(SPARK)])
    with demo("--days", 1, cwd=folder, SPARK_SUBMIT_OPTS=java) as program:
        program.wait(540)
        yield program, folder


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
class TestDemo:
    """One run for all tests of it."""

    def test_every_check_holds(self, ran: tuple[Program, Path]) -> None:
        program, _ = ran
        assert program.process.returncode == 0, message(program) + "\n".join(program.err.lines)
        assert "✗" not in message(program)
        for claim in (
            "flights: 336,776 rows, one for each (year, month, day, carrier, flight, origin)",
            "every row has arrived",
            "each version names the log offsets that it covers",
            "no change arrived twice",
            "the changes, replayed, give the table, row for row",
            "delta-spark reads 336,764 rows",
            "polars reads 336,764 rows",
            "version 1 has all 336,776 flights and no departure yet",
            "flown is the join after plane N711MQ, airport ORD",
            "landed is the join after plane N711MQ, airport ORD",
            "delays has the averages after plane N711MQ, airport ORD",
            "the doctor finds nothing",
        ):
            assert f"✓ {claim}" in message(program)

    def test_nothing_but_the_story_is_printed(self, ran: tuple[Program, Path]) -> None:
        program, folder = ran
        assert program.err.lines == []
        assert "WARN" not in message(program)
        assert sorted(p.name for p in folder.iterdir()) == ["demo-warehouse"]
        assert (folder / "demo-warehouse" / ".gitignore").read_text() == "*\n"

    @pytest.mark.deep
    def test_what_to_try_next_works(self, ran: tuple[Program, Path], depth: Depth) -> None:
        program, folder = ran
        lines = message(program).partition("What to try next")[2].splitlines()
        export, *commands = [line.strip() for line in lines if line.strip()]
        assert len(commands) >= 8
        for command in depth.sample(commands, 4):
            if " serve " in command:
                continue  # runs until it is stopped; tests/cli/test_serve.py runs it
            limited = command.replace(" follow nyc.airlines", " follow nyc.airlines --until 1")
            done = subprocess.run(
                ["bash", "-c", f"{export}; {limited}"],
                cwd=folder,
                env=program.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{limited}\n{done.stderr}"


@pytest.mark.slow
def test_without_java_there_is_one_sentence_and_nothing_else(tmp_path: Path) -> None:
    with demo(cwd=tmp_path, PATH="", JAVA_HOME="") as program:
        assert program.wait() == 1
    assert len(program.err.lines) == 1
    assert program.err.lines[0].startswith("error[java-missing]: Java 17 or newer is needed")
    assert program.out.lines == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
@pytest.mark.slow
def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with demo("--warehouse", tmp_path, cwd=ROOT) as program:
        assert program.wait() == 1
    assert program.err.lines[0].startswith("error[demo-warehouse]")
    assert [p.name for p in tmp_path.iterdir()] == ["precious"]


def test_another_run_replaces_what_an_earlier_one_left(tmp_path: Path) -> None:
    warehouse = tmp_path / "demo-warehouse"
    make_room(warehouse)
    (warehouse / "of-the-first-run").touch()
    make_room(warehouse)
    assert not (warehouse / "of-the-first-run").exists()
