"""Prints the demo's output: numbered steps, checks, and a final table of events. Progress bars vanish at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from filestore.ambient import Ambient

__all__ = ["Event", "Story"]


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the final table.

    Attributes:
        table: The table.
        versions: Its version; or the first and the last of several.
        what: What happened, for people.
        written: The number of written rows.
        deleted: The number of deleted rows.
        offsets: The log's end offsets, by bucket.
        seconds: The time that it took.
    """

    table: str
    versions: tuple[int, int]
    what: str
    written: int
    deleted: int
    offsets: Mapping[int, int]
    seconds: float


class Story:
    """Prints the steps, and remembers the events and the checks that failed."""

    def __init__(self, console: Console, ambient: Ambient) -> None:
        self.console = console
        self.events: list[Event] = []
        self._ambient = ambient
        self._began_ms = ambient.now_ms()
        self._steps = 0
        self._checks = 0
        self._failed: list[str] = []

    @property
    def succeeded(self) -> bool:
        """Returns whether all checks so far have passed."""
        return not self._failed

    def seconds(self) -> float:
        """Returns the seconds since the start."""
        return (self._ambient.now_ms() - self._began_ms) / 1000

    def now_ms(self) -> int:
        """Returns the time in milliseconds."""
        return self._ambient.now_ms()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Runs a numbered step; its time is printed at its end."""
        self._steps += 1
        began = self.seconds()
        self.console.print(Text.assemble("\n", (f"{self._steps}  {title}", "bold")))
        yield
        self.console.print(Text(f"   {self.seconds() - began:.1f} s", style="dim"))

    @contextmanager
    def progress(self, title: str, total: int | None = None) -> Iterator[Callable[[], None]]:
        """Shows a progress bar; yields the function that advances it. Without a terminal there is no bar."""
        counted = (BarColumn(), MofNCompleteColumn()) if total is not None else ()
        columns = (TextColumn("  "), SpinnerColumn(), TextColumn("{task.description}"), *counted, TimeElapsedColumn())
        hidden = not self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=hidden) as bar:
            task = bar.add_task(title, total=total)
            yield lambda: bar.advance(task)

    def say(self, text: str) -> None:
        """Prints a line about what was done."""
        self.console.print(_indented(Text(text)))

    def check(self, holds: bool, claim: str) -> None:
        """Prints a check, and whether it has passed."""
        self._checks += 1
        if not holds:
            self._failed.append(claim)
        mark = ("✓ ", "green") if holds else ("✗ ", "bold red")
        self.console.print(_indented(Text.assemble(mark, claim)))

    def happened(self, event: Event) -> None:
        """Adds a line to the final table."""
        self.events.append(event)

    def finish(self) -> None:
        """Prints the final table and the result."""
        self.console.print(Text("\nWhat happened\n", style="bold"))
        self.console.print(_as_table(self.events))
        if self._failed:
            verdict = f"{len(self._failed)} of {self._checks} checks FAILED in {self.seconds():.0f} s:"
            self.console.print(Text(f"\n{verdict}", style="bold red"))
            for claim in self._failed:
                self.console.print(_indented(Text.assemble(("✗ ", "bold red"), claim)))
        else:
            verdict = f"All {self._checks} checks hold. {self.seconds():.0f} seconds."
            self.console.print(Text(f"\n{verdict}", style="bold green"))

    def advise(self, title: str, commands: Sequence[str]) -> None:
        """Prints commands to copy, without wrapping them."""
        self.console.print(Text(f"\n{title}\n", style="bold"))
        for command in commands:
            self.console.print(Text(f"  {command}"), soft_wrap=True)


def _as_table(events: Sequence[Event]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("version", "what", "written", "deleted", "log offsets", "s"):
        table.add_column(title, justify="left" if title in ("what", "log offsets") else "right")
    for event in events:
        first, last = event.versions
        table.add_row(
            f"{first}" if first == last else f"{first}-{last}",
            f"{event.table}: {event.what}",
            f"{event.written:,}",
            f"{event.deleted:,}",
            " ".join(str(end) for _, end in sorted(event.offsets.items())),
            f"{event.seconds:.1f}",
        )
    return table


def _indented(text: Text) -> Padding:
    """Indents the further lines of a text."""
    return Padding(text, (0, 0, 0, 3))
