"""What commands print: results on standard output, for people or programs; everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from filestore.errors import TableStoreError

__all__ = ["complain", "note", "print_json", "print_lines", "print_table"]

_PIPE_WIDTH = 10_000


def complain(error: TableStoreError, of: str = "") -> None:
    """One red line: ``error[code]: message``, behind what it is the error of, if there is more than one such thing."""
    message = " ".join(error.message.split())
    where = f"{of}: " if of else ""
    _errors().print(Text(f"{where}error[{error.code}]: {message}", style="red"))


def note(text: str) -> None:
    """A remark beside the result."""
    _errors().print(Text(text, style="dim"))


def print_lines(lines: Iterable[str]) -> None:
    """Lines as they are, in one piece, and flushed: a reader at the other end of a pipe has them at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """JSON; what JSON does not know, such as times, as text."""
    print_lines([json.dumps(value, indent=2, default=str, ensure_ascii=False)])


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """A small table: names, properties, history.

    Args:
        header: Titles of the columns.
        rows: Values; ``str`` makes texts of them.
        right: Titles of the columns that stand on the right, such as numbers.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in header:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    # in a pipe there is no width to keep to, and a line shall stay a line
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    with console.capture() as captured:
        console.print(table)
    print_lines(line.rstrip() for line in captured.get().splitlines())


def _errors() -> Console:
    # made anew each time, since whoever calls may have put another stream in place
    return Console(stderr=True, highlight=False, soft_wrap=True)
