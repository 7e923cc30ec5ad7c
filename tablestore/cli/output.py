"""Prints results to standard output, for people or programs, and everything else to standard error."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from filestore.errors import TableStoreError
from tablestore.cli.arguments import Format

__all__ = ["complain", "confirm", "done", "note", "print_json", "print_lines", "print_table", "show_with", "timed"]

_PIPE_WIDTH = 10_000
_SWITCHED_ON = re.compile(r"\b([a-z_]+)\s?=\s?true\b", re.IGNORECASE)


class Status(Protocol):
    """A line on the terminal that changes, and must not be in the midst of others."""

    def paused(self) -> AbstractContextManager[None]:
        """Takes the line away, and shows it no more until the block ends."""


_status: Status | None = None
_clock: Callable[[], int] | None = None


def show_with(status: Status | None) -> None:
    """Sets the line that whatever is printed takes away first."""
    global _status  # a process has one terminal
    _status = status


@contextmanager
def timed(now_ms: Callable[[], int]) -> Iterator[None]:
    """Begins each line of standard error with the time, in UTC: for commands that go on until they are stopped."""
    global _clock  # a process has one standard error
    _clock = now_ms
    try:
        yield
    finally:
        _clock = None


def complain(error: TableStoreError, of: str = "", options: Mapping[str, str] | None = None) -> None:
    """Prints an error as one red line: ``error[code]: message``.

    Args:
        error: The error.
        of: The object of the error, if there may be several.
        options: The command's options by the names of their arguments: an error that mentions ``if_not_exists=true``
            means ``--if-not-exists`` here.
    """
    known = options or {}
    message = _SWITCHED_ON.sub(lambda found: known.get(found[1], found[0]), " ".join(error.message.split()))
    where = f"{of}: " if of else ""
    with _alone():
        _errors().print(Text(f"{_time()}{where}error[{error.code}]: {message}", style="red"))


def note(text: str) -> None:
    """Prints a remark about the result."""
    with _alone():
        _errors().print(Text(f"{_time()}{text}", style="dim"))


def _time() -> str:
    if _clock is None:
        return ""
    return f"{datetime.fromtimestamp(_clock() // 1000, UTC):%Y-%m-%dT%H:%M:%SZ} "


def confirm(question: str, *, only_at_a_terminal: bool = False) -> None:
    """Continues if the user says yes; otherwise the command ends with exit code 1 and has changed nothing.

    It asks only at a terminal: the standard input of a script is there for other things than answers.

    Args:
        question: The question.
        only_at_a_terminal: Nothing would be lost, so it goes on where nobody can be asked.
    """
    if not _at_a_terminal():
        if only_at_a_terminal:
            return
        note(f"{question} There is no terminal at which to ask, so nothing was changed: --yes continues without asking")
        raise typer.Exit(1)
    try:
        with _alone():
            agreed = typer.confirm(question, err=True)
    except typer.Abort:
        note("there was no answer, so nothing was changed: --yes continues without asking")
        raise typer.Exit(1) from None
    if not agreed:
        note("nothing was changed")
        raise typer.Exit(1)


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines as they are, together, and flushes them: a reader of a pipe gets them at once.

    If that reader has exited, as ``head`` does when it has its lines, the command ends quietly and with the exit code
    of programs that SIGPIPE ends. The signal itself stays off: it would also end a process whose server hangs up.
    """
    try:
        text = "".join(f"{line}\n" for line in lines)
        with _alone():
            sys.stdout.write(text)
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        raise SystemExit(128 + signal.SIGPIPE) from None


def print_json(*objects: Mapping[str, Any]) -> None:
    """Prints objects as JSON, each on a line; values that JSON does not support, such as times, become texts."""
    print_lines(json.dumps(value, default=str, ensure_ascii=False) for value in objects)


def done(output: Format, text: str, **result: Any) -> None:
    """Says what a command has done: a sentence for people, or an object for programs."""
    if output is Format.JSON:
        print_json(result)
    else:
        note(text)


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Prints a small table: names, properties, history.

    Args:
        header: The titles of the columns.
        rows: The values; ``str`` converts them to texts.
        right: The titles of the columns that are aligned right, such as numbers.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in header:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    # a pipe has no width, and a line should not be wrapped there
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    with console.capture() as captured:
        console.print(table)
    print_lines(line.rstrip() for line in captured.get().splitlines())


def _alone() -> AbstractContextManager[None]:
    return nullcontext() if _status is None else _status.paused()


def _at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _errors() -> Console:
    # made at each call, since a caller may have replaced the stream
    return Console(stderr=True, highlight=False, soft_wrap=True)
