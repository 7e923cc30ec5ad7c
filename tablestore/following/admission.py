"""How much of a table's changes one batch takes, decided purely: whole versions, and parts of one that is larger.

A place in a history is a version whose changes were all taken, and how many units of the next one were, counted over
its pieces (`tablestore.following.pieces`). Records of the log can be cut anywhere. Files, and what is told from them,
come whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["Limit", "Place", "admit", "between"]


class Sized(Protocol):
    """A piece, as far as it matters here."""

    @property
    def units(self) -> int:
        """How many rows, about; at least 1."""

    @property
    def divisible(self) -> bool:
        """Whether it can be cut."""


AnyPiece = TypeVar("AnyPiece", bound=Sized)


@dataclass(frozen=True, slots=True)
class Place:
    """How far a reader has come.

    Attributes:
        version: It has taken the changes of this version, all of them.
        units: And so many of the next one's.
    """

    version: int
    units: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a batch takes; a piece that cannot be cut is taken if it is the first.

    Attributes:
        rows: Rows, if there is a limit.
        versions: Versions, if there is a limit.
    """

    rows: int | None = None
    versions: int | None = None


def admit(pieces: Callable[[int], Sequence[Sized]], start: Place, newest: int, limit: Limit) -> Place:
    """Where a batch ends.

    Args:
        pieces: The pieces of a version. Asked of no more versions than it has to look at.
        start: Where it begins.
        newest: The last version that there is.
        limit: How much it may take.

    Returns:
        A place at or after `start`; `start` only if nothing is there to take.
    """
    last = newest if limit.versions is None else min(newest, start.version + limit.versions)
    if limit.rows is None:
        return Place(last) if last > start.version else start
    place, left, empty = start, limit.rows, True
    while place.version < last:
        sizes = pieces(place.version + 1)
        end = _reach(sizes, place.units, left, empty)
        if end < sum(piece.units for piece in sizes):
            return Place(place.version, end)
        left -= end - place.units
        empty = empty and end == place.units
        place = Place(place.version + 1)
    return place


def _reach(pieces: Sequence[Sized], start: int, left: int, empty: bool) -> int:
    """The unit at which a batch ends that begins at one, if so many more may come."""
    high = 0
    for piece in pieces:
        low, high = max(start, high), high + piece.units
        if low >= high:
            continue
        if high - low > max(left, 0):
            if piece.divisible:
                return low + max(left, 0)
            if not empty:
                return low
        left -= high - low
        empty = False
    return high


def between(pieces: Sequence[AnyPiece], start: int, end: int | None) -> Iterator[tuple[AnyPiece, int, int]]:
    """The pieces from one unit to before another (None: to the end), each with which of its own units that are."""
    at = 0
    for piece in pieces:
        low = max(start - at, 0)
        high = piece.units if end is None else min(end - at, piece.units)
        at += piece.units
        if low < high:
            yield piece, low, high
