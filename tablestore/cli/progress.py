"""Shows on standard error that a long command works, and how far it is.

On a terminal that is one line which changes, from the second second on. Elsewhere, as in a log, lines are written at
growing intervals. A command that ends within seconds shows nothing, and standard output never has any of it.

`tablestore.cli.app` shows each command that ends by itself; a command only says what it does with `doing`, and passes
`observed` to operations that say how far they are. What prints lines for people takes the changing line away first
(`tablestore.cli.output`). Nothing of it is coloured. A terminal of a CI, or one that moves no cursor, gets lines.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO, TypeVar

from filestore.progress import Progress
from tablestore.cli.output import show_with

__all__ = ["LOG", "SCREEN", "Line", "Rhythm", "counted", "doing", "observed", "redraws", "shown"]

T = TypeVar("T")

_TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Decides when something is shown.

    Attributes:
        first: The seconds without anything.
        every: The seconds from then to the next time.
        growth: Each later interval is so many times the one before.
        longest: The longest interval.
    """

    first: float
    every: float
    growth: float = 1.0
    longest: float = 60.0

    def next_after(self, elapsed: float) -> float:
        """Returns when something is shown next, in seconds from the beginning, if it is shown now."""
        at, interval = self.first, self.every
        while at <= elapsed:
            at, interval = at + interval, min(self.longest, interval * self.growth)
        return at


SCREEN = Rhythm(first=1.5, every=_TICK_S)
LOG = Rhythm(first=10.0, every=20.0, growth=2.0)


class Line:
    """Shows of a command its name, what it does, and for how long.

    Args:
        name: The command, as the user wrote it.
        stream: Standard error.
        rhythm: When it is shown.
        clock: Returns seconds; only differences count.
        width: The width of the terminal, of which one line is used again and again; None: the stream is none.
    """

    def __init__(
        self,
        name: str,
        stream: TextIO,
        rhythm: Rhythm,
        clock: Callable[[], float],
        width: Callable[[], int] | None = None,
    ) -> None:
        self._name = name
        self._stream = stream
        self._rhythm = rhythm
        self._clock = clock
        self._width = width
        self._begun = clock()
        self._next = rhythm.first
        self._lock = threading.Lock()
        self._visible = False
        self._paused = 0
        self.doing = ""

    def tick(self) -> None:
        """Shows the line if it is time for it."""
        with self._lock:
            elapsed = self._clock() - self._begun
            if self._paused or elapsed < self._next:
                return
            self._next = self._rhythm.next_after(elapsed)
            text = f"{self._name}: {f'{self.doing}, ' if self.doing else ''}{_duration(elapsed)}"
            if self._width is None:
                self._stream.write(f"{text}\n")
            else:
                self._stream.write(f"\r\x1b[K{text[: self._width() - 1]}")
                self._visible = True
            self._stream.flush()

    def clear(self) -> None:
        """Takes the line away."""
        with self._lock:
            if self._visible:
                self._stream.write("\r\x1b[K")
                self._stream.flush()
                self._visible = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Takes the line away while something is printed or asked."""
        with self._lock:
            self._paused += 1
        self.clear()
        try:
            yield
        finally:
            with self._lock:
                self._paused -= 1


_current: Line | None = None


@contextmanager
def shown(name: str, clock: Callable[[], float]) -> Iterator[None]:
    """Shows the command of the block, by a thread of its own."""
    global _current  # a process runs one command
    on_terminal = redraws(sys.stderr, os.environ)
    line = Line(name, sys.stderr, SCREEN if on_terminal else LOG, clock, _width if on_terminal else None)
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(_TICK_S):
            line.tick()

    ticking = threading.Thread(target=work, name="progress", daemon=True)
    _current, before = line, _current
    show_with(line)
    ticking.start()
    try:
        yield
    finally:
        ended.set()
        ticking.join()
        line.clear()
        _current = before
        show_with(before)


def doing(text: str) -> None:
    """Says what the command does now."""
    if _current is not None:
        _current.doing = text


def observed(progress: Progress) -> None:
    """Says how far the command is."""
    doing(str(progress))


def redraws(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Returns whether one line can be shown again and again. Pure."""
    in_ci = environment.get("CI", "").lower() not in ("", "0", "false")
    return stream.isatty() and not in_ci and environment.get("TERM") != "dumb"


def counted(items: Iterable[T], text: Callable[[int, T], str]) -> Iterator[T]:
    """Yields items, and says after each one how far the command is.

    Args:
        items: The items.
        text: Returns it for the number of items so far and the newest one.
    """
    for number, item in enumerate(items, 1):
        yield item
        doing(text(number, item))


def _width() -> int:
    return shutil.get_terminal_size().columns


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
