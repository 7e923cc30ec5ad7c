"""Lays results out for people: aligned columns, or one value a line where a row is too wide. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from rich.cells import cell_len

__all__ = ["Expanded", "aligned", "expanded", "width_of"]

_GAP = "  "


class Expanded(StrEnum):
    """The choice whether each value of a row has a line of its own."""

    OFF = "off"
    ON = "on"
    AUTO = "auto"

    def at(self, width: int, screen: int | None) -> bool:
        """Returns whether rows of a width are expanded on a screen, if they are for one; a pipe has no width."""
        return self is Expanded.ON or (self is Expanded.AUTO and screen is not None and width > screen)

    @property
    def toggled(self) -> Expanded:
        """The other one, to which a switch turns it."""
        return Expanded.ON if self is Expanded.OFF else Expanded.OFF


def aligned(titles: Sequence[str], columns: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Returns a line with the titles, and one for each row. Nothing is folded or cut.

    Args:
        titles: The columns' titles, of which some may be equal.
        columns: The values of each column.
        right: The numbers of the columns that are aligned right.
    """
    padded = [
        _padded([title, *values], right=number in right)
        for number, (title, values) in enumerate(zip(titles, columns, strict=True))
    ]
    return [_GAP.join(row).rstrip() for row in zip(*padded, strict=True)]


def expanded(titles: Sequence[str], columns: Sequence[Sequence[str]], first: int, screen: int | None) -> list[str]:
    """Returns a line for each value, below a line with the number of its row.

    Args:
        titles: The columns' titles.
        columns: The values of each column.
        first: The number of the first row.
        screen: The width of the screen; the line above a row is not longer.
    """
    named = [f"{title} | " for title in _padded(titles, right=False)]
    longest = max((cell_len(name) for name in named), default=0)
    lines = []
    for number, row in enumerate(zip(*columns, strict=True), first):
        wide = longest + max(map(cell_len, row))
        lines.append(f"-[ row {number} ]".ljust(min(wide, screen or wide), "-"))
        lines += [f"{name}{value}".rstrip() for name, value in zip(named, row, strict=True)]
    return lines


def width_of(lines: Sequence[str]) -> int:
    """Returns how many cells of a screen the longest line takes; some signs take two."""
    return max(map(cell_len, lines), default=0)


def _padded(values: Sequence[str], *, right: bool) -> list[str]:
    widths = [cell_len(value) for value in values]
    widest = max(widths)
    blanks = [" " * (widest - width) for width in widths]
    return [blank + value if right else value + blank for value, blank in zip(values, blanks, strict=True)]
