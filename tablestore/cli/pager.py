"""Shows what does not fit on the screen in a pager, as psql and git do."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tablestore.cli.output import note, print_lines

__all__ = ["Screen", "paged", "pager_of", "screen"]

Write = Callable[[Iterable[str]], bool]
"""Writes lines. Returns whether more are wanted: a reader who ends the pager wants none."""


@dataclass(frozen=True, slots=True)
class Screen:
    """A terminal at which a person reads.

    Attributes:
        width: How many characters a line of it has.
        height: How many lines it has.
        pager: The command of the pager; None: there is none.
    """

    width: int
    height: int
    pager: tuple[str, ...] | None

    def fits(self, lines: int, width: int) -> bool:
        """Returns whether so many lines, and the prompt below them, are seen at once and whole."""
        return lines < self.height and width <= self.width


def screen() -> Screen | None:
    """Returns the terminal; None if the output or the input is none, as for a script."""
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        return None
    width, height = shutil.get_terminal_size()
    return Screen(width, height, pager_of(os.environ, lambda command: shutil.which(command) is not None))


def pager_of(environment: Mapping[str, str], exists: Callable[[str], bool]) -> tuple[str, ...] | None:
    """Returns the command of the pager: that of ``$PAGER``, which turns it off if it is empty, or less.

    Args:
        environment: The variables of the process.
        exists: Returns whether there is a program.
    """
    command = tuple(shlex.split(environment.get("PAGER", "less")))
    plain = not command or command[0] == "cat" or environment.get("TERM", "dumb") == "dumb"
    return None if plain or not exists(command[0]) else command


@contextmanager
def paged(command: Sequence[str] | None) -> Iterator[Write]:
    """Yields what writes lines to a pager, or to standard output if there is none, and waits until the pager ends."""
    if command is None:
        yield _written
        return
    # -S: long lines are cut, and the arrows show the rest; -R: colours; -X: the lines stay on the screen
    environment = {"LESS": "-RSX", **os.environ}
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, encoding="utf-8", env=environment)
    except OSError as error:
        note(f"the pager {command[0]} does not start: {error}")
        yield _written
        return
    assert process.stdin is not None
    lines = process.stdin

    def write(written: Iterable[str]) -> bool:
        try:
            lines.write("".join(f"{line}\n" for line in written))
            lines.flush()
        except BrokenPipeError:
            return False
        return True

    try:
        yield write
    finally:
        _until_ended(process)


def _written(lines: Iterable[str]) -> bool:
    print_lines(lines)
    return True


def _until_ended(process: subprocess.Popen[str]) -> None:
    """Waits for the end of a pager. Ctrl-C is the pager's meanwhile: it reaches both programs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended
            process.stdin.close()
        process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
