"""How wide and long results of ``tablestore sql`` are shown: expanded, in a pager, or as lines of a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tablestore import Store, Table
from tablestore.cli.layout import Expanded, aligned, expanded, width_of
from tablestore.cli.pager import Screen, pager_of
from tests.cli.conftest import Run
from tests.cli.programs import Terminal

WIDE = [f"column_{number}" for number in range(19)]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\t", exclude_categories=["Cc", "Cs"]), max_size=9)


@pytest.fixture
def wide(store: Store) -> Table:
    columns = "id BIGINT, " + ", ".join(f"{name} STRING" for name in WIDE)
    table = store.create_table("shop.wide", columns, primary_key=["id"], options={"log.system": "none"})
    table.write(pa.table({"id": [1, 2], **{name: [f"value {name}"] * 2 for name in WIDE}}))
    return table


@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(TEXTS, min_size=n, max_size=n), min_size=1, max_size=5)))
def test_nothing_of_a_value_is_lost(columns: list[list[str]]) -> None:
    titles = [f"c{number}" for number in range(len(columns))]
    table, rows = aligned(titles, columns), list(zip(*columns, strict=True))
    assert len(table) == len(rows) + 1
    begins, starts = 0, []
    for title, values in zip(titles, columns, strict=True):
        starts.append(begins)
        begins += max(map(cell_len, [title, *values])) + 2
    for line, row in zip(table, [tuple(titles), *rows], strict=True):
        for start, value in zip(starts, row, strict=True):
            before = next(n for n in range(len(line) + 1) if cell_len(line[:n]) >= start or n == len(line))
            assert line[before:].startswith(value.rstrip())
    long = expanded(titles, columns, 1, 40)
    assert [line.partition(" | ")[2] for line in long if not line.startswith("-[ row")] == [
        value.rstrip() for row in rows for value in row
    ]


def test_numbers_are_aligned_right_and_rows_numbered() -> None:
    assert aligned(["n", "text", "n"], [["1", "10"], ["a", "äöü"], ["3", ""]], {0}) == [
        " n  text  n", " 1  a     3", "10  äöü",
    ]  # fmt: skip
    assert expanded(["id", "text"], [["7", "8"], ["a", "b"]], 9, 80) == [
        "-[ row 9 ]", "id   | 7", "text | a", "-[ row 10 ]", "id   | 8", "text | b",
    ]  # fmt: skip


def test_auto_expands_what_is_too_wide_for_a_screen_and_never_a_pipe() -> None:
    assert [Expanded.AUTO.at(81, screen) for screen in (None, 80, 81)] == [False, True, False]
    assert [Expanded.ON.at(1, None), Expanded.OFF.at(99, 80)] == [True, False]


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, ("less",)),
        ({"PAGER": "more -d"}, ("more", "-d")),
        ({"PAGER": ""}, None),
        ({"PAGER": "cat"}, None),
        ({"PAGER": "nothere"}, None),
        ({"TERM": "dumb"}, None),
    ],
)
def test_the_pager_is_chosen_by_the_environment(environment: Mapping[str, str], found: tuple[str, ...] | None) -> None:
    assert pager_of({"TERM": "xterm"} | dict(environment), lambda command: command != "nothere") == found


def test_what_fits_needs_no_pager() -> None:
    screen = Screen(80, 24, ("less",))
    assert [screen.fits(*size) for size in ((23, 80), (24, 80), (1, 81))] == [True, False, False]


def test_a_pipe_gets_whole_lines(run: Run, wide: Table) -> None:
    done = run("sql", "SELECT * FROM shop.wide ORDER BY id")
    lines = done.stdout.splitlines()
    assert [len(lines), width_of(lines) > 300] == [3, True]
    assert lines[0].split() == ["id", *WIDE]
    long = run("sql", "--expanded", "on", "SELECT * FROM shop.wide ORDER BY id").stdout.splitlines()
    assert (len(long), long[1].split()) == (42, ["id", "|", "1"])


@contextmanager
def prompt(store: Store, folder: Path, pager: str) -> Iterator[Terminal]:
    environment = {
        "XDG_STATE_HOME": str(folder), "TABLESTORE_CATALOG": store.target, "NO_COLOR": "1", "COLUMNS": "60",
        "LINES": "24", "TERM": "xterm", "PAGER": pager,
    }  # fmt: skip
    terminal = Terminal(["sql", "--database", "shop"], environment)
    try:
        terminal.until_shown("shop=> ")
        yield terminal
        terminal.type("\\q\n")
        assert terminal.process.wait(120) == 0
    finally:
        terminal.close()


@pytest.mark.slow
def test_a_wide_table_is_expanded_or_in_a_pager(store: Store, wide: Table, tmp_path: Path) -> None:
    """Found by a stranger: 19 columns were folded into cells of four characters."""
    with prompt(store, tmp_path, "sh -c 'echo paged; cat; echo left'") as terminal:
        terminal.type("SELECT id, column_1 FROM wide ORDER BY id;\n")
        terminal.until_shown("polars: 2 rows")
        assert "paged" not in terminal.shown
        terminal.type("SELECT * FROM wide ORDER BY id LIMIT 1;\n")
        terminal.until_shown("polars: 1 row\r\n")
        assert "column_18 | value column_18\r\n" in terminal.shown
        assert "paged" not in terminal.shown  # 20 lines fit on the screen
        terminal.type("SELECT * FROM wide ORDER BY id;\n")
        terminal.until_shown("polars: 2 rows", count=2)
        assert terminal.shown.count("paged\r\n-[ row 1 ]") == 1
        terminal.type("\\x off\nSELECT * FROM wide ORDER BY id;\n")
        terminal.until_shown("polars: 2 rows", count=3)
        assert "  ".join(["id", *(f"{name}".ljust(len(f"value {name}")) for name in WIDE)]).rstrip() in terminal.shown
        assert terminal.shown.count("left") == 2


@pytest.mark.slow
def test_a_pager_that_is_left_ends_the_rows(store: Store, wide: Table, tmp_path: Path) -> None:
    wide.write(pa.table({"id": range(9_000), **{name: ["a long value"] * 9_000 for name in WIDE}}))
    environment = {
        "TABLESTORE_CATALOG": store.target, "COLUMNS": "60", "LINES": "24", "TERM": "xterm", "PAGER": "head -n 1",
    }  # fmt: skip
    terminal = Terminal(["sql", "--rows", "9000", "SELECT * FROM shop.wide"], environment)
    try:
        assert terminal.process.wait(120) == 0
        terminal.until_shown("until the pager was left")
    finally:
        terminal.close()


@pytest.mark.slow
def test_ctrl_c_in_the_pager_is_the_pagers(store: Store, wide: Table, tmp_path: Path) -> None:
    with prompt(store, tmp_path, "sh -c 'cat; echo waits; exec sleep 1000'") as terminal:
        terminal.type("SELECT * FROM wide;\n")
        terminal.until_shown("waits")
        terminal.type("\x03")
        terminal.until_shown("polars: 2 rows")
        terminal.type("SELECT count(*) AS counted FROM wide;\n")
        terminal.until_shown("counted\r\n")
        assert "cancelled" not in terminal.shown
