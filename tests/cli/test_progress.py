"""Long commands show on standard error that they work; short ones show nothing, and standard output has none of it."""

from __future__ import annotations

import io
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tablestore.cli.progress
from filestore.progress import Progress
from tablestore import Store, Table
from tablestore.cli.output import note, print_lines
from tablestore.cli.progress import LOG, SCREEN, Line, Rhythm, counted, doing, redraws, shown
from tests.cli.conftest import Run
from tests.waiting import until


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def line_of(rhythm: Rhythm, width: int | None, *times: float) -> tuple[Line, io.StringIO]:
    stream, clock = io.StringIO(), iter([0.0, *times])
    return Line("compact shop.t", stream, rhythm, lambda: next(clock), None if width is None else lambda: width), stream


def times_shown(rhythm: Rhythm, end: int) -> list[float]:
    """The seconds at which something is shown, if somebody looks ten times a second."""
    found, following = [], rhythm.first
    for tenth in range(end * 10):
        if tenth / 10 >= following:
            found.append(tenth / 10)
            following = rhythm.next_after(tenth / 10)
    return found


def test_short_commands_show_nothing_and_logs_get_a_line_now_and_then() -> None:
    assert times_shown(SCREEN, 1) == []
    assert times_shown(LOG, 9) == []
    assert times_shown(LOG, 300) == [10, 30, 70, 130, 190, 250]
    assert len(times_shown(SCREEN, 10)) > 20


def test_a_late_look_does_not_show_what_was_missed() -> None:
    line, stream = line_of(LOG, None, 100.0, 101.0, 131.0)
    for _ in range(3):
        line.tick()
    assert stream.getvalue() == "compact shop.t: 1 min 40 s\ncompact shop.t: 2 min 11 s\n"


def test_a_terminal_has_one_line_that_is_taken_away() -> None:
    line, stream = line_of(SCREEN, 30, 1.0, 2.0, 3.0, 4.0, 5.0)
    line.tick()
    assert stream.getvalue() == ""
    line.tick()
    line.doing = "writing 2,000,000 rows into a table"
    line.tick()
    assert stream.getvalue().split("\r\x1b[K") == ["", "compact shop.t: 2 s", "compact shop.t: writing 2,000"]
    with line.paused():
        assert stream.getvalue().endswith("\r\x1b[K")
        line.tick()
        assert stream.getvalue().endswith("\r\x1b[K")
    line.tick()
    assert stream.getvalue().endswith("compact shop.t: writing 2,000")
    line.clear()
    line.clear()
    assert stream.getvalue().count("\r\x1b[K") == 5


def test_what_is_printed_is_not_in_the_midst_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, seconds = Screen(), itertools.count()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    with shown("doctor", lambda: float(next(seconds))):
        for number in range(3):
            doing(f"step {number}")
            until(lambda number=number: f"step {number}, " in screen.getvalue(), what="the line")  # type: ignore[misc]
            note(f"note {number}")
            print_lines([f"line {number}"])
    doing("nobody looks")
    text = screen.getvalue()
    assert text.endswith(("\r\x1b[K", "line 2\n"))
    for whole in text.split("\n"):
        visible = whole.rsplit("\x1b[K", 1)[-1].replace("\x1b[2m", "").replace("\x1b[0m", "")
        assert visible.startswith(("note", "line")) or not visible


def test_items_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(tablestore.cli.progress, "doing", texts.append)
    assert list(counted("ab", lambda number, item: f"{number} of {item}")) == ["a", "b"]
    assert texts == ["1 of a", "2 of b"]


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_command_shows_that_it_works(run: Run, orders: Table, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    """Found by a stranger: two million rows were written in silence."""
    monkeypatch.setattr(tablestore.cli.progress, "LOG", Rhythm(first=0.0, every=60.0))
    real = Store.examine

    def slow(store: Store, name: str, **given: Any) -> Any:
        stream: Any = sys.stderr
        until(lambda: b"doctor shop.orders: " in stream.buffer.getvalue(), what="a line of progress")
        return real(store, name, **given)

    monkeypatch.setattr(Store, "examine", slow)
    done = run("doctor", "shop.orders", "--format", output)
    assert done.exit_code == 0
    assert "doctor shop.orders: 0 s" in done.stderr
    assert "0 s" not in done.stdout
    if output == "json":
        json.loads(done.stdout)


@pytest.mark.parametrize("command", ["write", "load", "compact"])
def test_regression_a_command_shows_the_rows_so_far(
    run: Run, orders: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A write of two million rows said for how long it ran, and not how far it was."""
    texts: list[str] = []
    monkeypatch.setattr(tablestore.cli.progress, "doing", texts.append)
    pl.DataFrame({"id": range(100, 300), "status": "x"}).write_csv(tmp_path / "rows.csv")
    given = {
        "write": ["shop.orders", str(tmp_path / "rows.csv")],
        "load": [str(tmp_path / "rows.csv"), "shop.orders"],
        "compact": ["shop.orders", "--full"],
    }
    if command == "compact":
        for first in (0, 100):
            orders.write(pl.DataFrame({"id": range(first, first + 200)}))
    assert run(command, *given[command]).exit_code == 0
    stored = orders.scan().count_rows()
    assert texts[-1] == (f"merging {stored} of {stored} rows" if command == "compact" else "writing 200 of 200 rows")


def test_quiet_commands_show_nothing(run: Run, orders: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("it is shown")

    monkeypatch.setattr(sys.modules["tablestore.cli.app"], "shown", fail)
    for word in ("--quiet", "-q"):
        done = run("doctor", "shop.orders", word)
        assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"NO_COLOR": "1", "TERM": "xterm"}, True),  # nothing of it is coloured
        ({"CI": "true"}, False),
        ({"CI": "1"}, False),
        ({"CI": "false"}, True),
        ({"CI": ""}, True),
        ({"TERM": "dumb"}, False),
    ],
)
def test_one_line_is_redrawn_only_where_somebody_looks(environment: dict[str, str], expected: bool) -> None:
    assert redraws(Screen(), environment) is expected
    assert not redraws(io.StringIO(), environment)


def test_the_line_has_no_colours() -> None:
    line, stream = line_of(SCREEN, 80, 5.0)
    line.doing = str(Progress("writing", 1_000, total=2_000))
    line.tick()
    assert stream.getvalue() == "\r\x1b[Kcompact shop.t: writing 1,000 of 2,000 rows, 5 s"
